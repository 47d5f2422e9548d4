"""`ripple bench fp8`: a model in fp8 beside itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ripple.errors import RippleError
from ripple.eval.fp8 import Fp8, logit_gap, open_pair
from ripple.eval.lines import read_results, run_name
from ripple.files import read_lines, write_lines
from ripple.models import fp8
from ripple.models.dense import Fp8Layer
from ripple.options import Options
from ripple.tasks import find_task

RESULTS = Path(__file__).parents[2] / "results"


def test_logits_are_compared_and_a_second_run_adds_nothing(tmp_path: Path) -> None:
    out = tmp_path / "fp8.jsonl"
    bench = Fp8(out, "tiny-llada", tasks="words,algebra", items=1, length=32, device="cpu")
    assert bench.run()["new_lines"] == 2 and bench.run()["new_lines"] == 0
    for line in read_lines(out):
        assert line["fp8_by"] == "plain network" and line["dtype"] == "float32"
        assert 0 < line["kl_mean"] < 0.1 and line["same_best"] > 0.8
    assert "| tiny-llada | algebra |" in out.with_suffix(".md").read_text()


def test_answers_in_both_dtypes_are_compared_item_by_item(tmp_path: Path) -> None:
    lines = [
        line for line in read_results(RESULTS / "glide-gpu.jsonl")
        if (line.get("setting"), line["cache"], line["model"]) == ("glide", "none", "tiny-llada")
    ]  # fmt: skip
    assert len(lines) == 4
    usual, other = tmp_path / "usual.jsonl", tmp_path / "fp8.jsonl"
    write_lines(usual, lines)
    changed = [line | {"dtype": "fp8", "nfe": 1.01 * line["nfe"]} for line in lines]
    changed = [line | {"run": run_name(line)} for line in changed]
    n_flipped = 0
    for line in changed[:2]:  # the first item turns out wrong, or right
        bits = int(line["right"], 16) ^ 1 << (line["n"] - 1)
        n_flipped += 1 if bits >> (line["n"] - 1) else -1
        line["right"], line["accuracy"] = f"{bits:0250x}", bits.bit_count() / line["n"]
    write_lines(other, changed)
    out = tmp_path / "out.jsonl"
    how = {"tasks": "words", "items": 1, "length": 16, "device": "cpu"}
    Fp8(out, "tiny-llada", usual=usual, fp8=other, **how).run()  # type: ignore[arg-type]
    row = next(row for row in out.with_suffix(".md").read_text().split("\n") if "| glide | none |" in row)
    assert row.startswith("| tiny-llada | glide | none | 4,000 | ") and row.endswith("| +1.0 |")
    assert f"| {100 * n_flipped / 4000:+.2f} ± " in row


def test_the_fp8_twin_has_rounded_matrices_and_nothing_else_is_rounded() -> None:
    pair = open_pair("tiny-dream", "cpu")
    usual, twin = pair.usual.model.weights, pair.fp8.model.weights  # type: ignore[attr-defined]
    layer, rounded = usual.layers[1], twin.layers[1]
    assert isinstance(rounded, Fp8Layer) and rounded.down.dtype == torch.float8_e4m3fn
    there = fp8.dequantised(rounded.down, rounded.down_scale)
    assert not torch.equal(there, layer.down) and torch.allclose(there, layer.down, rtol=1 / 16, atol=1e-2)
    assert twin.embed.dtype == torch.float32 and torch.allclose(twin.head, usual.head, atol=1e-2)


def test_the_gap_is_what_quantising_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = open_pair("tiny-llada", "cpu")
    prompts, options = [find_task("words").test_items(1)[0].prompt], Options("glide", 32)
    gap, same_best = logit_gap(pair, prompts, options)
    assert gap.mean() > 1e-5 and len(gap) == len(same_best) > 16
    monkeypatch.setattr(fp8, "quantised", lambda x: (x.float(), torch.ones(*x.shape[:-1], 1)))
    of_weights, _ = logit_gap(pair, prompts, options)
    assert 0 < of_weights.mean() < gap.mean()


def test_one_file_of_answers_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="Give both --usual and --fp8, or neither"):
        Fp8(tmp_path / "x.jsonl", usual=RESULTS / "glide-gpu.jsonl", device="cpu").run()
