"""The benchmarks of full-size models, run on small ones: their scripts, arithmetic and result lines."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from ripple.analysis.lines import read_lines
from ripple.bench import replay, step, throughput, tiles
from ripple.bench.machine import Ceilings, roof_ms
from ripple.bench.scripts import Hold, Scripted, spread
from ripple.engine.engine import Engine
from ripple.engine.result import Settings
from ripple.errors import RippleError
from ripple.models.shapes import SHAPES, random_network, shape_named
from ripple.trace import write_trace

SMALL = {"d_model": 32, "n_layers": 1, "n_heads": 2, "head_dim": 16, "d_ff": 32, "vocab_size": 100}


@pytest.fixture(autouse=True)
def small_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SHAPES:
        small = dataclasses.replace(
            SHAPES[name], n_kv_heads=1, mask_id=99, end_ids=(98,), **SMALL  # type: ignore[arg-type]
        )  # fmt: skip
        monkeypatch.setitem(SHAPES, name, small)


def small_engine(shape: str = "llada-8b") -> Engine:
    return Engine(random_network(shape_named(shape), torch.device("cpu"), torch.float32))


@pytest.mark.parametrize("means", [(12.3, 23.4, 3.87), (8.0, 33.95, 3.0), (77.8, 0.0, 0.0)])
def test_schedules_average_to_the_published_counts(means: tuple[float, float, float]) -> None:
    schedules = list(spread(*means, n_blocks=8, n=50))
    flat = [n for schedule in schedules for block in schedule for n in block]
    looks = [n for n in flat if n]
    assert all(block[0] == 0 for schedule in schedules for block in schedule), (
        "a block opens without branches"
    )
    assert (len(flat) - len(looks)) / 50 == pytest.approx(means[0], abs=0.05)
    assert len(looks) / 50 == pytest.approx(means[1], abs=0.05)
    assert sum(looks) / max(1, len(looks)) == pytest.approx(means[2], abs=0.05)


def test_a_script_is_followed_to_the_letter() -> None:
    schedule = ((0, 2, 0), (0, 3))
    result = small_engine().generate([1, 2, 3], decoder=Scripted(schedule), length=16, block=8)
    assert (result.nfe_normal, result.nfe_lookahead, result.rows) == (3, 2, 5 + 2 + 3)
    assert 99 not in result.token_ids
    with pytest.raises(RippleError, match="2 blocks, the canvas 4"):
        small_engine().generate([1, 2, 3], decoder=Scripted(schedule), length=32, block=8)


def test_a_held_step_repeats_itself_and_commits_nothing() -> None:
    engine = small_engine("dream-7b")
    session = engine.submit([1, 2, 3], Settings(Hold(branches=2, block_number=1), 16, 8))
    for _ in range(3):
        engine.tick()
    assert (session.canvas.response == 99).all() and session.nfe_lookahead == 3
    session.cancel()


def test_the_roof_is_the_documented_arithmetic() -> None:
    config = dataclasses.replace(
        SHAPES["llada-8b"], d_model=4096, n_layers=32, n_heads=32, n_kv_heads=32, head_dim=128, d_ff=12288,
        vocab_size=126464,
    )  # fmt: skip
    limits = Ceilings(copy_tb_s=4.3, matmul_tflop_s=790.0)
    assert roof_ms(config, limits, 1000, 1000, 32, 1) == pytest.approx(18.4, abs=0.05)
    assert roof_ms(config, limits, 32, 1000, 32, 1) == pytest.approx(3.6, abs=0.05)


def test_every_step_is_a_line_and_a_second_run_adds_none(tmp_path: Path) -> None:
    how = {"shapes": "llada-8b", "device": "cpu", "prompts": "8", "batches": "1,2", "candidates": "0,2"}
    out = tmp_path / "step.jsonl"
    found = step.measure(out, caches="none,dual", check=False, **how)  # type: ignore[arg-type]
    lines = read_lines(out)
    assert found["new_lines"] == len(lines) == 8
    assert all(line["step_ms"] > 0 and line["roof_ms"] > 0 for line in lines)
    live = {line["cache"]: line["live_rows"] for line in lines}
    assert live == {"none": 8 + 256, "dual": 32}
    again = step.measure(out, caches="none,dual", check=False, **how)  # type: ignore[arg-type]
    assert again["new_lines"] == 0


def test_all_steps_are_drawn_under_the_best_ceilings_of_the_file(tmp_path: Path) -> None:
    out = tmp_path / "step.jsonl"
    how = {"shapes": "llada-8b", "device": "cpu", "prompts": "8", "batches": "1", "caches": "dual"}
    step.measure(out, candidates="0,2", check=False, **how)  # type: ignore[arg-type]
    slow, fast = read_lines(out)
    slow |= {"copy_tb_s": 1e-7, "matmul_tflop_s": 1e-7}
    fast |= {"copy_tb_s": 2e-7, "matmul_tflop_s": 2e-7}
    del slow["memory_beside_weights_gb"]  # a line may lack it
    other = fast | {"device": "another", "copy_tb_s": 1.0, "matmul_tflop_s": 1.0}  # counts for itself only
    out.write_text("".join(json.dumps(line) + "\n" for line in (other, slow, fast)), encoding="utf-8")
    step.draw(out)
    drawn = out.with_suffix(".svg").read_bytes()
    step.draw(out)
    assert out.with_suffix(".svg").read_bytes() == drawn
    table = out.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    row = next(line for line in table if line.startswith("| dual | 0 |")).split("|")
    config = shape_named("llada-8b", None)
    roof = roof_ms(config, Ceilings(2e-7, 2e-7), slow["rows"], slow["positions"], slow["rows"], 1)
    assert float(row[6]) == pytest.approx(roof, rel=1e-3) and row[9].strip() == ""


def test_replay_gives_every_decoder_of_the_paper_under_every_cache(tmp_path: Path) -> None:
    out = tmp_path / "replay.jsonl"
    replay.measure(out, "llada-8b", "cpu", prompt=8, tasks="gsm8k")
    lines = read_lines(out)
    assert len(lines) == 7 * len(replay.CACHES)
    for line in lines:
        assert line["nfe"] == pytest.approx(line["published_nfe"], abs=1.0)
    rps = next(line for line in lines if line["method"] == "rps")
    assert rps["nfe_lookahead"] == pytest.approx(23.4, abs=0.5)
    with pytest.raises(RippleError, match="Did you mean 'gsm8k'"):
        replay.measure(out, "llada-8b", "cpu", prompt=8, tasks="gsm8")


def test_a_recorded_decoding_can_be_replayed(tmp_path: Path) -> None:
    engine = small_engine()
    traced = engine.generate([1, 2, 3], decoder="lopa", length=256, block=32, trace=True)
    trace = tmp_path / "trace.jsonl"
    write_trace(trace, traced.trace)
    out = tmp_path / "replay.jsonl"
    replay.measure(out, "llada-8b", "cpu", prompt=8, trace=trace)
    assert {line["nfe"] for line in read_lines(out)} == {traced.nfe}


def test_throughput_counts_every_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "PROMPTS", (5, 9))
    monkeypatch.setattr(throughput, "CACHES", ("dual",))
    monkeypatch.setattr(throughput, "METHODS", ("rps",))
    out = tmp_path / "throughput.jsonl"
    throughput.measure(out, device="cpu", batches="1,2")
    one, two = read_lines(out)
    assert one["requests"] == two["requests"] == 2 and one["ticks"] > two["ticks"]
    assert f"| 2 | {two['tps']:.0f} |" in out.with_suffix(".md").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_timing_a_gpu_kernel_wants_a_gpu() -> None:
    with pytest.raises(RippleError, match="no usable CUDA GPU"):
        tiles.measure("cpu")
