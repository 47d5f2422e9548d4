"""The models inside the package: normal checkpoints, small, and really trained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ripple
from ripple.models.families import FAMILIES
from ripple.models.hub import EMBEDDED, embedded_models, resolve
from ripple.tasks import TASKS
from ripple.tokenizer import Tokenizer

NAMES = ("tiny-dream", "tiny-llada", "tiny-sdar")


def cache_of(engine: ripple.Engine) -> str:
    """The cache under which a step recomputes the block alone."""
    return "dual" if engine.model.config.attention_block is None else "exact"


def test_the_models_are_there_under_their_names() -> None:
    assert tuple(embedded_models()) == NAMES
    assert resolve("tiny-llada") == EMBEDDED / "tiny-llada"
    with pytest.raises(ripple.RippleError, match="tiny-dream, tiny-llada, tiny-sdar"):
        resolve("tiny-lada")


@pytest.mark.parametrize("name", NAMES)
def test_a_model_fits_its_budget_and_has_a_card(name: str) -> None:
    files = {path.name: path.stat().st_size for path in (EMBEDDED / name).iterdir()}
    assert sum(files.values()) <= 16_000_000
    card = (EMBEDDED / name / "README.md").read_text()
    for part in ("Data", "Recipe", "Cost", "Scores", "Limits"):
        assert f"## {part}" in card


def test_the_card_and_the_recipes_say_the_same_of_tiny_sdars_training() -> None:
    """It began with another model's weights, so what to type is more than a name."""
    card = (EMBEDDED / "tiny-sdar" / "README.md").read_text()
    recipes = (Path(__file__).parents[2] / "recipes" / "README.md").read_text()
    (command,) = re.findall(r"recipes/train\.py --model tiny-sdar [^`]*", card)
    assert f"python {command} --out build/tiny-sdar" in recipes


@pytest.mark.parametrize("name", NAMES)
def test_a_model_speaks_its_familys_format(name: str) -> None:
    config = ripple.load(name, device="cpu").model.config
    assert config.logit_shift == (1 if name == "tiny-dream" else 0)
    assert config.qkv_bias == (name == "tiny-dream")
    assert (config.n_kv_heads < config.n_heads) == (name == "tiny-dream")
    assert (config.attention_block, config.qk_norm) == ((32, True) if name == "tiny-sdar" else (None, False))


@pytest.mark.parametrize("name", NAMES)
def test_a_chat_message_becomes_the_raw_prompt(name: str) -> None:
    text = Tokenizer.load(EMBEDDED / name, FAMILIES[name.removeprefix("tiny-")].tokenizer_class)
    assert text is not None

    def asked(*turns: tuple[str, str]) -> list[int]:
        return text.encode_chat([{"role": role, "content": content} for role, content in turns])

    for task in TASKS.values():
        for item in task.test_items(20):
            assert asked(("user", item.prompt)) == text.encode(item.prompt), "prompts end with a newline"
    question = text.encode("Question: What is 3 + 4?\nAnswer:\n")
    assert asked(("user", "What is 3 + 4?")) == question
    earlier = [("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi")]
    assert asked(*earlier, ("user", "What is 3 + 4?"), ("assistant", "7")) == question
    with pytest.raises(ripple.RippleError, match="a user message is needed"):
        asked(("system", "Be brief."))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_chat_is_answered(name: str) -> None:
    item = TASKS["words"].test_items(1)[0]
    result = ripple.load(name, device="cpu").generate([{"role": "user", "content": item.prompt}], length=96)
    assert TASKS["words"].score(item, result.text)


@pytest.fixture(scope="module", params=NAMES)
def solver(request: pytest.FixtureRequest) -> ripple.Engine:
    return ripple.load(request.param, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(("length", "is_cached", "n_each"), [(128, True, 3), (256, True, 2), (256, False, 1)])
def test_most_problems_are_solved_whatever_the_canvas(
    solver: ripple.Engine, length: int, is_cached: bool, n_each: int
) -> None:
    cache = cache_of(solver) if is_cached else "none"
    items = [item for task in TASKS.values() for item in task.test_items(n_each)]
    results = solver.generate([i.prompt for i in items], decoder="confidence", length=length, cache=cache)
    solved = sum(TASKS[item.task].score(item, r.text) for item, r in zip(items, results, strict=True))
    end_ids = set(solver.model.config.end_ids)
    assert all(set(r.token_ids[len(r.new_tokens) :]) <= end_ids for r in results)
    # About 93 % of the full set are; of four problems one may fail, of eight two, of twelve three.
    assert solved >= 0.7 * len(items)


@pytest.mark.slow
def test_a_canvas_of_512_holds_nothing_behind_the_answer(solver: ripple.Engine) -> None:
    task = TASKS["words"]
    [item] = task.test_items(1)
    config = solver.model.config
    result = solver.generate(item.prompt, decoder="confidence", length=512, cache=cache_of(solver))
    behind = result.token_ids[len(result.new_tokens) :]
    assert 10 < len(result.new_tokens) < 200 and set(behind) <= set(config.end_ids)
    if config.attention_block is None:
        assert len(result.token_ids) == 512
    else:  # the block with the end is full, and no further one was opened
        assert len(behind) < config.attention_block
    assert task.score(item, result.text)


def test_rps_needs_far_fewer_forwards_than_confidence(solver: ripple.Engine) -> None:
    prompts = [i.prompt for i in TASKS["words"].test_items(2)]
    fast, plain = (
        sum(r.nfe for r in solver.generate(prompts, decoder=d, length=128, cache=cache_of(solver)))
        for d in ("rps", "confidence:tau=0.9")
    )
    assert fast < 0.6 * plain


def test_no_path_of_any_machine_is_in_the_folders() -> None:
    for path in Path(EMBEDDED).rglob("*.json"):
        assert "/home" not in path.read_text() and "/root" not in path.read_text()
