"""The models inside the package: normal checkpoints, small, and really trained."""

from __future__ import annotations

from pathlib import Path

import pytest

import ripple
from ripple.models.hub import EMBEDDED, embedded_models, resolve
from ripple.tasks import TASKS

NAMES = ("tiny-dream", "tiny-llada")
N_ITEMS = 6  # per family; the fixed test set has 1,000
# Answers behind which a few tokens other than ends stand: the card's limit, nowhere else any.
STRAY = {("tiny-llada", 256, "dual"): 1}


def test_both_models_are_there_under_their_names() -> None:
    assert tuple(embedded_models()) == NAMES
    assert resolve("tiny-llada") == EMBEDDED / "tiny-llada"
    with pytest.raises(ripple.RippleError, match="tiny-dream, tiny-llada"):
        resolve("tiny-lada")


@pytest.mark.parametrize("name", NAMES)
def test_a_model_fits_its_budget_and_has_a_card(name: str) -> None:
    files = {path.name: path.stat().st_size for path in (EMBEDDED / name).iterdir()}
    assert sum(files.values()) <= 16_000_000
    card = (EMBEDDED / name / "README.md").read_text()
    for part in ("Data", "Recipe", "Cost", "Scores", "Limits"):
        assert f"## {part}" in card


@pytest.mark.parametrize("name", NAMES)
def test_a_model_speaks_its_familys_format(name: str) -> None:
    config = ripple.load(name, device="cpu").model.config
    assert config.logit_shift == (1 if name == "tiny-dream" else 0)
    assert config.qkv_bias == (name == "tiny-dream")
    assert (config.n_kv_heads < config.n_heads) == (name == "tiny-dream")


@pytest.fixture(scope="module", params=NAMES)
def solver(request: pytest.FixtureRequest) -> ripple.Engine:
    return ripple.load(request.param, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(("length", "cache"), [(128, "dual"), (256, "dual"), (256, "none")])
def test_most_problems_are_solved_whatever_the_canvas(solver: ripple.Engine, length: int, cache: str) -> None:
    config = solver.model.config
    solved = n = n_stray = 0
    for task in TASKS.values():
        items = task.test_items(N_ITEMS)
        results = solver.generate([i.prompt for i in items], decoder="confidence", length=length, cache=cache)
        solved += sum(task.score_many(items, [result.text for result in results]))
        n += len(items)
        n_stray += sum(not set(r.token_ids[len(r.new_tokens) :]) <= set(config.end_ids) for r in results)
    name = "tiny-dream" if config.logit_shift else "tiny-llada"
    assert n_stray <= STRAY.get((name, length, cache), 0), "ends fill the rest"
    assert solved >= 0.7 * n  # about 90 % on the full set; 24 problems leave room for chance


@pytest.mark.slow
def test_a_canvas_of_512_is_filled_with_ends_behind_the_answer(solver: ripple.Engine) -> None:
    task = TASKS["words"]
    items = task.test_items(2)
    results = solver.generate([i.prompt for i in items], decoder="confidence", length=512, cache="dual")
    for result in results:
        assert 10 < len(result.new_tokens) < 200 and len(result.token_ids) == 512
        assert set(result.token_ids[len(result.new_tokens) :]) <= set(solver.model.config.end_ids)
    assert sum(task.score_many(items, [result.text for result in results])) >= 1


def test_rps_needs_far_fewer_forwards_than_confidence(solver: ripple.Engine) -> None:
    prompts = [i.prompt for i in TASKS["words"].test_items(2)]
    preset = "rps/dream" if solver.model.config.logit_shift else "rps/llada"
    fast, plain = (
        sum(r.nfe for r in solver.generate(prompts, decoder=d, length=128, cache="dual"))
        for d in (preset, "confidence")
    )
    assert fast < 0.6 * plain


def test_no_path_of_any_machine_is_in_the_folders() -> None:
    for path in Path(EMBEDDED).rglob("*.json"):
        assert "/home" not in path.read_text() and "/root" not in path.read_text()
