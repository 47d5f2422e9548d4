"""The analyses on small random models: the oracle against plain forwards, the bound, lengths, snapshots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ripple
from ripple.decoders import RPS, Default, Lopa, Wino
from ripple.eval.facts import ModelChoice
from ripple.eval.searches import binary_entropy, bound_pairs, certified
from ripple.eval.summary import source_lines
from ripple.eval.sweep import Want
from ripple.paper import oracle
from ripple.paper.breakdown import forwards, time_setting
from ripple.paper.failures import choose_example, failures, snapshots
from ripple.paper.judge import verdicts
from tests.reference.model import ReferenceModel

PROMPT = [7, 3, 11, 20]


def entropies(model: ReferenceModel, ids: list[int]) -> np.ndarray:
    """Entropy at every position from one plain forward of transformers' layers."""
    logits = model.logits(ids).astype(np.float64)
    logits[:, model.mask_id] = -np.inf
    logits -= logits.max(axis=1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    terms = np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0)
    return -terms.sum(axis=1)


def test_the_oracle_measures_what_separate_plain_forwards_say(
    engine: ripple.Engine, folders: dict[str, Path], family: str
) -> None:
    """Every point of the first snapshot, by forwards that share no code with the engine."""
    [result] = oracle.decode_default(engine, [PROMPT], 32)
    points = oracle.collect(engine, [PROMPT], [True], [result], 32)
    reference = ReferenceModel(folders[family])
    order = oracle.replay(result).order
    ids = [*PROMPT, *[reference.mask_id] * 32]
    for i in order[:8]:  # a quarter of the block
        ids[len(PROMPT) + i] = result.token_ids[i]
    masked = [p for p in range(len(ids)) if ids[p] == reference.mask_id]
    before = entropies(reference, ids)
    assert len(points) == 24 + 16 + 8 and len(masked) == 24
    for point, pos in zip(points, masked, strict=False):
        tried = ids.copy()
        tried[pos] = result.token_ids[pos - len(PROMPT)]
        others = [p for p in masked if p != pos]
        fall = (before[others] - entropies(reference, tried)[others]).mean()
        assert point.entropy == pytest.approx(before[pos], abs=2e-4)
        assert point.reduction == pytest.approx(fall, abs=2e-4) and point.n_others == 23


def test_an_unsolved_item_is_left_out_and_ranks_are_counted_from_one(engine: ripple.Engine) -> None:
    results = oracle.decode_default(engine, [PROMPT, PROMPT[:2]], 32)
    points = oracle.collect(engine, [PROMPT, PROMPT[:2]], [False, True], results, 32)
    assert points == oracle.collect(engine, [PROMPT[:2]], [True], results[1:], 32)
    assert {p.rank for p in points} <= set(range(1, oracle.TOP + 2)) and any(p.rank == 1 for p in points)
    assert sum(row["n"] for row in oracle.summary(points)) == len(points)


def test_the_bound_holds_in_every_search(engine: ripple.Engine) -> None:
    rps = RPS(tau=0.5, tau_pivot=0.2, r=0.05)  # random models are seldom sure, so ask for little
    prompts = [[i, 3 * i % 40, 7] for i in range(12)]
    results = engine.generate(prompts, decoder=rps, length=64, block=32, trace=True)
    pairs = [pair for result in results for pair in bound_pairs(result.trace or [])]
    assert len(pairs) >= 10
    assert all(0 <= bound <= seen <= n for n, bound, seen in pairs)
    assert any(bound > 0 for _, bound, _ in pairs) and any(seen > bound for _, bound, seen in pairs)


def test_the_bound_is_the_propositions() -> None:
    assert binary_entropy(0.5) == pytest.approx(np.log(2))
    assert certified(10, 0.0, 0.9) == 10 and certified(10, 5.0, 0.9) == 0
    assert certified(10, 0.3 * binary_entropy(0.9) + 1e-9, 0.9) == 7


def test_forwards_of_a_trace_add_up(engine: ripple.Engine) -> None:
    model = ModelChoice("m", "m", "llada", None)
    want = Want(model, "words", "none", 64, RPS(tau_pivot=0.2))
    line = time_setting(engine, want, [PROMPT, [5]])
    assert sum(kind["count"] for kind in line["forwards"].values()) == line["nfe"]
    spent = sum(kind["count"] * kind["ms"] for kind in line["forwards"].values())
    assert 0 < spent <= 1000 * line["seconds"] and line["tps"] == pytest.approx(
        line["new_tokens"] / line["seconds"]
    )
    plain = engine.generate(PROMPT, decoder=Default(k=4), length=32, block=32, trace=True)
    assert (
        forwards([plain])["lookahead"] == {"count": 0, "ms": 0} and forwards([plain])["normal"]["count"] == 8
    )


def test_shorter_failures_are_counted_among_items_that_one_alone_solves() -> None:
    #            item:   0      1      2      3      4
    lopa = {"n": 5, "right": f"{0b10010:x}", "source_lines": [3, 2, 4, 9, 5]}
    rps = {"n": 5, "right": f"{0b01110:x}", "source_lines": [2, 3, 4, 9, 5]}
    assert verdicts(lopa) == [True, False, False, True, False]
    lost, won = failures(lopa, rps), failures(rps, lopa)
    assert (lost.n, lost.n_shorter, won.n, won.n_shorter) == (2, 1, 1, 1)
    assert choose_example(lopa, rps) == 1 and source_lines("a\n\n  \n b\n") == 2


@pytest.mark.parametrize("decoder", [RPS(tau_pivot=0.2), Lopa(), Wino(tau1=0.3)])
def test_the_last_snapshot_is_the_response(engine: ripple.Engine, decoder: ripple.Decoder) -> None:
    result = engine.generate(PROMPT, decoder=decoder, length=32, block=32, trace=True)
    shown = snapshots(result)
    assert 1 <= len(shown) <= 4 and shown[-1]["nfe"] == result.nfe
    pieces = (result.trace or [])[-1].data["pieces"]
    text = "".join(run for run, _ in shown[-1]["runs"])
    assert text == "".join(pieces.get(str(token), "") for token in result.new_tokens)
    assert all(state != "mask" for _, state in shown[-1]["runs"])
