"""lm-evaluation-harness with our model: the same responses and scores as our own runner on the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="the extra `lm-eval` is not installed")

import huggingface_hub.constants
import lm_eval.tasks
from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.api.registry import get_model

import ripple
from ripple.cli import main
from ripple.errors import RippleError
from ripple.eval.harness import RippleLM, register
from ripple.eval.likelihood import log_likelihood
from ripple.eval.results import StoredRun, Summary, read_run
from ripple.eval.runner import Evaluation
from ripple.eval.runner import evaluate as run_ours
from ripple.tasks import cut, find_task
from tests.eval import own_tasks

HOW = {"decoder": "rps", "lam": 0.2, "length": 48, "block": 32, "cache": "dual"}
OPTIONS = ripple.Options("rps:lam=0.2", length=48, block=32, cache="dual")


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    """Nothing here may wait for a network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        yield


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_tasks.write(tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def tiny() -> RippleLM:
    return RippleLM("tiny-llada", batch_size=4, device="cpu", mc_num=16, **HOW)


@pytest.fixture
def small(checkpoint: Path) -> RippleLM:
    return RippleLM(str(checkpoint), batch_size=3, device="cpu", decoder="confidence", length=8)


def asked(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, args, index) for index, args in enumerate(arguments)]


def ours(lm: RippleLM, root: Path, out: Path, shots: int, chat: bool, options: ripple.Options) -> Summary:
    """Our own runner on the same rows."""
    task = find_task("gsm8k", root, shots=shots)
    return run_ours(Evaluation(lm.engine, task, options, "tiny-llada", chat), out)


def same_rows(samples: Sequence[dict[str, Any]], run: StoredRun) -> None:
    """Check every response, extracted answer and mark of the harness against our lines."""
    lines = {line["item"]: line for line in run.items}
    assert len(samples) == 2 * len(lines) > 0  # one sample per row and mark
    for sample in samples:
        line = lines[f"gsm8k/test/{sample['doc_id']}"]
        mark = {"strict-match": "strict", "flexible-extract": "flexible"}[sample["filter"]]
        assert sample["resps"][0][0] == cut(line["text"], run.facts["task_facts"]["task_stops"])
        assert sample["filtered_resps"][0] == line["found"][mark]
        assert bool(sample["exact_match"]) == line["marks"][mark]


def test_the_runner_and_the_harness_agree_on_responses_scores_and_costs(
    tiny: RippleLM, root: Path, tmp_path: Path
) -> None:
    tiny.costs.clear()
    report = own_tasks.evaluate(root, tiny, ["own_gsm8k"], num_fewshot=0)
    assert report is not None
    summary = ours(tiny, root, tmp_path / "r.jsonl", 0, False, OPTIONS)
    same_rows(report["samples"]["own_gsm8k"], read_run(f"{tmp_path}/r.jsonl"))
    scores = report["results"]["own_gsm8k"]
    assert scores["exact_match,strict-match"] == summary.marks["strict"]
    assert scores["exact_match,flexible-extract"] == summary.marks["flexible"] == summary.accuracy
    assert 0 < summary.marks["strict"] < summary.accuracy < 1  # or the agreement would say little
    told = report["config"]["ripple"]
    assert told["generated"] == summary.n and told["environment"]["torch"]
    for name in ("nfe", "nfe_normal", "nfe_lookahead", "canvases", "new_tokens", "tokens_fast_dllm"):
        assert told["mean"][name] == getattr(summary, name)


@pytest.mark.parametrize(("chat", "shots"), [(False, 2), (True, 1)])
def test_they_agree_on_worked_examples_and_chat(
    small: RippleLM, root: Path, tmp_path: Path, chat: bool, shots: int
) -> None:
    report = own_tasks.evaluate(
        root, small, ["own_gsm8k"], num_fewshot=shots, apply_chat_template=chat, fewshot_as_multiturn=False
    )
    assert report is not None
    options = ripple.Options("confidence", length=8, block=8)
    ours(small, root, tmp_path / "r.jsonl", shots, chat, options)
    samples = report["samples"]["own_gsm8k"]
    same_rows(samples, read_run(f"{tmp_path}/r.jsonl"))
    prompts = {sample["doc_id"]: sample["arguments"][0][0] for sample in samples}
    for index, item in enumerate(find_task("gsm8k", root, shots=shots).test_items()):
        turn = [{"role": "user", "content": item.prompt}]
        wanted = (
            small.engine.tokenizer.encode_chat(turn) if chat else small.engine.tokenizer.encode(item.prompt)
        )
        assert small.tok_encode(prompts[index]) == wanted


def test_generation_keeps_order_and_obeys_its_arguments(checkpoint: Path) -> None:
    lm = RippleLM(str(checkpoint), batch_size=3, device="cpu", decoder="confidence")
    contexts = [f"{i} + {i} =" for i in range(5)]
    plain = [lm.engine.generate(c, decoder="confidence", length=8, block=8).text for c in contexts]
    stop = plain[2][3]
    requests = [(c, {"max_gen_toks": 8, "until": [stop] if i == 2 else []}) for i, c in enumerate(contexts)]
    texts = lm.generate_until(asked("generate_until", *requests))
    assert texts == [*plain[:2], plain[2].split(stop)[0], *plain[3:]] and texts[2] != plain[2]
    (unsaid,) = lm.generate_until(asked("generate_until", (contexts[0], {})))
    assert unsaid == lm.engine.generate(contexts[0], decoder="confidence", length=256).text  # nobody says
    fixed = RippleLM(str(checkpoint), device="cpu", decoder="confidence", length=4, escape_until=True)
    whole = fixed.engine.generate(contexts[2], decoder="confidence", length=4, block=4).text
    assert fixed.generate_until(asked("generate_until", requests[2])) == [whole]  # model_args win
    sampled = [("1 + 1 =", {"max_gen_toks": 8, "do_sample": True, "temperature": 5.0})] * 2
    first, second = lm.generate_until(asked("generate_until", *sampled))
    assert first != second  # a repeated request is another sample
    with pytest.raises(RippleError, match=r"Unknown option 'tua'\. Did you mean 'tau'\?"):
        lm.generate_until(asked("generate_until", ("1", {"tua": 0.5})))
    with pytest.raises(RippleError, match=r"Request 1: Prompt of \d+ tokens and .* exceed"):
        lm.generate_until(asked("generate_until", requests[0], ("1" * 2000, {})))


def test_likelihoods_are_the_estimate_and_find_the_greedy_continuation(checkpoint: Path) -> None:
    lm = RippleLM(str(checkpoint), batch_size=4, device="cpu", mc_num=8, seed=3)
    context = "7 + 8 ="
    greedy = lm.engine.generate(context, decoder="default", length=3, block=3).token_ids
    pairs = [(None, lm.tok_encode(context), greedy), (None, lm.tok_encode(context), [9, 9, 9])]
    first, second = lm._loglikelihood_tokens(pairs)
    assert first == (log_likelihood(lm.engine, pairs[0][1], greedy, 8, 3, 4), True)
    assert second == (log_likelihood(lm.engine, pairs[0][1], [9, 9, 9], 8, 3, 4), False)
    told = lm.loglikelihood(asked("loglikelihood", (context, " 15"), ("", "15")))
    assert told[0][0] == log_likelihood(lm.engine, lm.tok_encode(context), lm.tok_encode(" 15"), 8, 3, 4)
    assert told[1][0] == log_likelihood(lm.engine, [lm.eot_token_id], lm.tok_encode("15"), 8, 3, 4)
    assert lm.loglikelihood_rolling(asked("loglikelihood_rolling", ("15",))) == [told[1][0]]
    (long,) = lm.loglikelihood_rolling(asked("loglikelihood_rolling", ("1 2 3 " * 300,)))
    assert long < told[1][0]  # longer than the model's positions: several windows


def test_the_harnesss_cache_spares_the_model(
    small: RippleLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = CachingLM(small, str(tmp_path / "cache.db"))
    generation = asked("generate_until", ("1 + 1 =", {"until": []}), ("2 + 2 =", {"until": []}))
    judged = asked("loglikelihood", ("1 + 1 =", " 2"))
    first = cached.generate_until(generation), cached.loglikelihood(judged)

    def never(*_: Any) -> None:
        raise AssertionError("the model was asked again")

    monkeypatch.setattr(small.engine.model, "hidden", never)
    again = cached.generate_until(generation), cached.loglikelihood(judged)
    assert [list(part) for part in again] == [list(part) for part in first]


def test_an_answer_that_is_begun_stays_open(small: RippleLM, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [{"role": "user", "content": "Add 1 and 2."}, {"role": "assistant", "content": "It is"}]
    opened = small.apply_chat_template(turns[:1])
    assert small.apply_chat_template(turns, add_generation_prompt=False) == opened + "It is"
    with pytest.raises(RippleError, match="one chat template"):
        small.chat_template("other")
    monkeypatch.setattr(small.engine.tokenizer._inner, "chat_template", None)
    with pytest.raises(RippleError, match="has no chat template"):
        small.apply_chat_template(turns[:1])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "pretrained=PATH"),
        ({"pretrained": "tiny-llada", "mc_nmu": 4}, r"Unknown option 'mc_nmu'\. Did you mean 'mc_num'\?"),
        ({"pretrained": "tiny-llada", "lamb": 4}, r"Unknown option 'lamb'\. Did you mean 'lam'\?"),
        ({"pretrained": "tiny-llada", "mc_num": 0}, "mc_num must be a whole number of at least 1, got 0"),
        ({"pretrained": "tiny-llada", "batch_size": "many"}, "batch_size must be a whole number"),
        ({"pretrained": "no-such-model"}, "neither an existing folder nor a hub id"),
    ],
)
def test_bad_model_arguments_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RippleError, match=sentence) as refused:
        RippleLM(**arguments)
    assert "\n" not in str(refused.value)


def test_built_in_models_stay() -> None:
    register()
    register()
    assert get_model("ripple") is RippleLM and get_model("dummy").__name__ == "DummyLM"


def test_the_command_line_is_the_harnesss_own(
    root: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # The harness's own thousands of task files would be read first, which takes ten seconds.
    manager = lm_eval.tasks.TaskManager.__init__
    monkeypatch.setattr(
        lm_eval.tasks.TaskManager, "__init__", lambda *a, **k: manager(*a, **k | {"include_defaults": False})
    )
    common = ["--include_path", str(root), "--tasks", "own_gsm8k", "--num_fewshot", "1"]
    model = ["--model", "ripple", "--model_args", f"pretrained={checkpoint},decoder=rps,lam=0.2,length=8"]
    kept = ["--output_path", str(tmp_path / "out"), "--log_samples", "--limit", "2", "--batch_size", "2"]
    before = sys.argv
    assert main(["lm-eval", *model, *common, *kept, "--gen_kwargs", "max_gen_toks=4"]) == 0
    assert "exact_match" in capsys.readouterr().out and sys.argv == before
    (path,) = (tmp_path / "out").rglob("results_*.json")
    told = json.loads(path.read_text())["config"]["ripple"]
    assert told["decoder"] == "rps:lam=0.2" and told["generated"] == 2 and told["given"]["length"] == 8
    assert main(["lm-eval", "--model", "dummy", *common, "--limit", "2"]) == 0
    wrong = ["--model", "ripple", "--model_args", f"pretrained={checkpoint},lamb=0.2"]
    assert main(["lm-eval", *wrong, *common]) == 2
    assert "Did you mean 'lam'?" in capsys.readouterr().err


@pytest.mark.slow  # three starts of an interpreter with the harness
def test_two_processes_score_as_one_does(root: Path, checkpoint: Path, tmp_path: Path) -> None:
    arguments = f"pretrained={checkpoint},decoder=rps,length=16,mc_num=4,check_greedy=true"
    how = {"num_fewshot": 1, "batch_size": 4, "device": "cpu"}
    register()
    alone = own_tasks.evaluate(root, "ripple", ["own_gsm8k", "own_choice"], model_args=arguments, **how)
    assert alone is not None
    out = tmp_path / "two.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    where = Path(__file__).parent.parent.parent
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = f"{where / 'src'}{os.pathsep}{where}"
    script = ["-m", "tests.eval.own_tasks", str(root), arguments, str(out)]
    done = subprocess.run(
        [*command, *script], env=environment, capture_output=True, text=True, timeout=240, cwd=where
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text()) == json.loads(json.dumps(own_tasks.outcome(alone)))
