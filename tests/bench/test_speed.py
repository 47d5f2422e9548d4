"""The benchmarks of full-size models, run on small ones: their scripts, arithmetic and result lines."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from ripple.bench import full_size, replay, step, throughput
from ripple.bench.machine import Ceilings, roof_ms
from ripple.bench.scripts import Hold, Scripted, spread
from ripple.bench.tiles import Tiles
from ripple.engine.engine import Engine
from ripple.errors import RippleError
from ripple.files import append_line, read_lines
from ripple.models.families import FAMILIES
from ripple.models.shapes import SHAPES, random_network, shape_named
from ripple.schedule import as_lists, forwards_of
from ripple.trace import write_trace

RELEASED = dict(SHAPES)
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
    assert (result.nfe_normal, result.nfe_lookahead, result.canvases) == (3, 2, 5 + 2 + 3)
    assert 99 not in result.token_ids
    with pytest.raises(RippleError, match="2 blocks, the canvas 4"):
        small_engine().generate([1, 2, 3], decoder=Scripted(schedule), length=32, block=8)


def test_a_held_step_repeats_itself_and_commits_nothing() -> None:
    engine = small_engine("dream-7b")
    request = engine.submit([1, 2, 3], decoder=Hold(branches=2, block_number=1), length=16, block=8)
    for _ in range(3):
        engine.tick()
    assert (request.canvas.response == 99).all() and request.nfe_lookahead == 3
    request.cancel()


def test_the_roof_is_the_documented_arithmetic() -> None:
    config = dataclasses.replace(
        SHAPES["llada-8b"], d_model=4096, n_layers=32, n_heads=32, n_kv_heads=32, head_dim=128, d_ff=12288,
        vocab_size=126464,
    )  # fmt: skip
    limits = Ceilings(copy_tb_s=4.3, matmul_tflop_s=790.0)
    assert roof_ms(config, limits, 1000, 1000, 32, 1) == pytest.approx(18.4, abs=0.05)
    assert roof_ms(config, limits, 32, 1000, 32, 1) == pytest.approx(3.6, abs=0.05)


@pytest.mark.parametrize(
    ("shape", "n_keys", "n_read", "row"),
    [
        ("sdar-8b-b32", 1152, 16, "SDAR-8B-b32, block step"),
        ("nemotron-8b", 1160, 15, "Nemotron-8B, block step"),
        ("llada2-mini", 1152, 16, "LLaDA2-mini, block step"),
    ],
)
def test_the_roofs_of_the_performance_log_are_the_benchmarks(
    shape: str, n_keys: int, n_read: int, row: str
) -> None:
    log = (Path(__file__).parents[2] / "docs" / "performance-log.md").read_text()
    (line,) = (line for line in log.splitlines() if line.startswith(f"| {row} |"))
    roof = roof_ms(RELEASED[shape], Ceilings(4.24, 789.0), 32, n_keys, n_read, 1)
    assert f"| {roof:.2f} ms" in line


SMALL_STEP = {"shapes": "llada-8b", "device": "cpu", "layers": 1, "prompts": "8", "check": False}


def test_every_step_is_a_line_and_a_second_run_adds_none(tmp_path: Path) -> None:
    out = tmp_path / "step.jsonl"
    bench = step.StepTime(out, batches="1,2", candidates="0,2", caches="none,dual", **SMALL_STEP)
    told = bench.run()
    lines = read_lines(out)
    assert told["new_lines"] == len(lines) == 8
    assert all(line["step_ms"] > 0 and line["roof_ms"] > 0 for line in lines)
    live = {line["cache"]: line["live_rows"] for line in lines}
    assert live == {"none": 8 + 256, "dual": 32}
    assert bench.run()["new_lines"] == 0


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"layers": 0}, "wants a GPU; on cpu say how few layers"),
        ({"shapes": "llada-9b"}, "Did you mean 'llada-8b'"),
        ({"prompts": "8,x"}, "prompts must be whole numbers of at least 1 with commas between, got '8,x'"),
        ({"batches": "0"}, "batches must be whole numbers of at least 1"),
        ({"caches": "duel"}, "Did you mean 'dual'"),
        ({"out": Path("/dev/null")}, "not a regular file"),
        ({"shapes": "llada2-mini", "caches": "exact", "dtypes": "fp8"}, "llada2 has experts, .* no fp8"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_built(
    fields: dict[str, object], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_size, "random_network", lambda *_: pytest.fail("a network was built"))
    with pytest.raises(RippleError, match=sentence):
        step.StepTime(**{"out": tmp_path / "step.jsonl", **SMALL_STEP, **fields}).run()
    assert not list(tmp_path.iterdir())


def test_all_steps_are_drawn_under_the_best_ceilings_of_the_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "step.jsonl"
    step.StepTime(out, batches="1", caches="dual", candidates="0,2", **SMALL_STEP).run()
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
    config = shape_named("llada-8b", 1)
    roof = roof_ms(config, Ceilings(2e-7, 2e-7), slow["rows"], slow["positions"], slow["rows"], 1)
    assert float(row[6]) == pytest.approx(roof, rel=1e-3) and row[9].strip() == ""


def test_models_that_attend_in_blocks_have_an_opening_and_a_prefill(tmp_path: Path) -> None:
    out = tmp_path / "step.jsonl"
    how = SMALL_STEP | {"shapes": "sdar-8b-b32,nemotron-8b"}
    step.StepTime(out, batches="2", candidates="0,2", caches="none,dual,exact", **how).run()
    lines = {(x["shape"], x["cache"], x["forward"], x["candidates"]): x for x in read_lines(out)}
    assert not any(cache == "dual" for _, cache, _, _ in lines), "a cache without a meaning is not timed"
    sdar, nemotron = (
        {forward: lines[shape, "exact", forward, 0] for forward in step.FORWARDS}
        for shape in ("sdar-8b-b32", "nemotron-8b")
    )
    assert {name: x["live_rows"] for name, x in sdar.items()} == {"step": 32, "opening": 64, "prefill": 32}
    assert {name: x["live_rows"] for name, x in nemotron.items()} == {"step": 32, "opening": 32, "prefill": 8}
    # Two requests; the prompt of 8 shares the first block; half of the block in the middle is masked.
    assert sdar["step"]["positions"] == 5 * 32 and sdar["step"]["read_rows"] == 2 * 16
    assert sdar["opening"]["pairs"] == 2 * 32 * (4 * 32 + 5 * 32) and sdar["prefill"]["read_rows"] == 2 * 24
    assert nemotron["prefill"]["pairs"] == 2 * sum(range(1, 9)) and nemotron["opening"]["read_rows"] == 2
    branched = lines["sdar-8b-b32", "exact", "step", 2]
    assert branched["rows"] == 2 * 3 * 32 and branched["read_rows"] == 2 * (16 + 2 * 15)
    assert "| exact, opening | 0 | 128 |" in out.with_suffix(".md").read_text(encoding="utf-8")
    with pytest.raises(RippleError, match="sdar-8b-b32 can have none of the caches dual"):
        step.StepTime(out, caches="dual", **how | {"shapes": "sdar-8b-b32"}).run()


def test_experts_are_counted_and_their_roof_is_of_those_that_are_hit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"n_layers": 2, "rotary_dim": 8, "expert_ff": 16, "n_experts": 16, "n_groups": 4, "n_chosen": 2}
    monkeypatch.setitem(SHAPES, "llada2-mini", dataclasses.replace(SHAPES["llada2-mini"], **few))  # type: ignore[arg-type]
    out = tmp_path / "step.jsonl"
    how = SMALL_STEP | {"shapes": "llada2-mini", "layers": 0, "prompts": "40"}
    monkeypatch.setattr(step, "check_device", lambda *_: None)
    step.StepTime(out, batches="1", candidates="0", caches="exact", **how).run()
    one, *_ = read_lines(out)
    assert 2 <= one["experts"] <= 16
    config = shape_named("llada2-mini")
    limits = Ceilings(1e-6, 1e9)  # traffic alone
    ms = [roof_ms(config, limits, 32, 64, 16, 1, "bf16", 0, n) for n in (4.0, 5.0)]
    assert ms[1] - ms[0] == pytest.approx(2 * 3 * 16 * 32 / 1e-6 / 1e9), "one expert more in one layer"
    independent = roof_ms(config, limits, 32, 64, 16, 1)
    assert independent == pytest.approx(
        roof_ms(config, limits, 32, 64, 16, 1, n_experts=16 * (1 - (14 / 16) ** 32))
    )


def test_in_fp8_weights_have_one_byte_and_products_their_own_speed() -> None:
    limits = Ceilings(copy_tb_s=1e-6, matmul_tflop_s=1e9, fp8_tflop_s=2e9)
    config = dataclasses.replace(shape_named("llada-8b"), vocab_size=0)
    layers = [roof_ms(config, limits, 1, 0, 0, 1, dtype) for dtype in ("bf16", "fp8")]
    assert layers[0] == pytest.approx(2 * layers[1])
    limits = Ceilings(copy_tb_s=1e9, matmul_tflop_s=1e-6, fp8_tflop_s=2e-6)
    products = [roof_ms(config, limits, 1, 0, 0, 1, dtype) for dtype in ("bf16", "fp8")]
    assert products[0] == pytest.approx(2 * products[1])


def test_a_step_can_be_timed_in_the_engines_own_thread(tmp_path: Path) -> None:
    out = tmp_path / "step.jsonl"
    bench = step.StepTime(out, batches="2", candidates="2", caches="dual", in_thread=True, **SMALL_STEP)
    assert bench.run()["new_lines"] == 1
    (line,) = read_lines(out)
    assert line["host"] == "thread" and line["step_ms"] > 0
    assert "| dual, in a thread | 2 |" in out.with_suffix(".md").read_text(encoding="utf-8")


SMALL_REPLAY = {"shapes": "llada-8b", "device": "cpu", "layers": 1, "prompt": 8}


def test_replay_gives_every_decoder_of_the_paper_under_every_cache(tmp_path: Path) -> None:
    out = tmp_path / "replay.jsonl"
    replay.ReplaySpeed(out, tasks="gsm8k", **SMALL_REPLAY).run()
    lines = read_lines(out)
    assert len(lines) == 7 * len(replay.CACHES)
    for line in lines:
        assert line["nfe"] == pytest.approx(line["published_nfe"], abs=1.0)
    rps = next(line for line in lines if line["method"] == "rps")
    assert rps["nfe_lookahead"] == pytest.approx(23.4, abs=0.5)
    with pytest.raises(RippleError, match="Did you mean 'gsm8k'"):
        replay.ReplaySpeed(out, tasks="gsm8", **SMALL_REPLAY).run()


@pytest.mark.parametrize(("shape", "n_more"), [("sdar-8b-b32", 0), ("nemotron-8b", 8)])
def test_what_the_papers_counts_leave_out_is_said(shape: str, n_more: int, tmp_path: Path) -> None:
    out = tmp_path / "replay.jsonl"
    how = SMALL_REPLAY | {
        "shapes": shape,
        "prompt": 40,
        "tasks": "gsm8k",
        "methods": "lopa",
        "caches": "exact",
    }
    replay.ReplaySpeed(out, **how).run()
    (line,) = read_lines(out)
    assert line["nfe"] == pytest.approx(line["published_nfe"] + n_more, abs=1.0)
    text = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "the paper's counts of LLaDA are replayed." in text
    assert ("predict the first token of each of the 8 blocks come on top" in text) == bool(n_more)


def test_a_recorded_decoding_can_be_replayed(tmp_path: Path) -> None:
    engine = small_engine()
    traced = engine.generate([1, 2, 3], decoder="lopa", length=256, block=32, trace=True)
    trace = tmp_path / "trace.jsonl"
    write_trace(trace, traced.trace)
    out = tmp_path / "replay.jsonl"
    replay.ReplaySpeed(out, trace=trace, **SMALL_REPLAY).run()
    assert {line["nfe"] for line in read_lines(out)} == {traced.nfe}
    with pytest.raises(RippleError, match="Cannot read the trace"):
        replay.ReplaySpeed(tmp_path / "other.jsonl", trace=tmp_path / "no", **SMALL_REPLAY).run()


def schedule_lines(path: Path, shape: str, decoders: tuple[str, ...], cache: str) -> Path:
    """Record decodings of a small model as `ripple bench schedules` writes them."""
    engine = small_engine(shape)
    for decoder in decoders:
        for item, budget, at_once in ((0, None, None), (1, None, None), (2, 0.5, 2)):
            traced = engine.generate(
                [1, 2, 3 + item], decoder=decoder, length=256, cache=cache, end_fill=True, trace=True
            )
            events = traced.trace or []
            line = {
                "bench": "schedules", "model": "small", "decoder": decoder, "cache": cache, "block": 32,
                "prompt_tokens": 3, "new_tokens": 9, "budget": budget, "at_once": at_once, "nfe": traced.nfe,
                "forwards": as_lists(forwards_of(events, "here")),
            }  # fmt: skip
            append_line(path, line)
    return path


@pytest.mark.parametrize(("shape", "cache"), [("llada-8b", "slide"), ("sdar-8b-b32", "exact")])
def test_recorded_schedules_are_replayed_under_their_own_cache(
    shape: str, cache: str, tmp_path: Path
) -> None:
    path, out = tmp_path / "schedules.jsonl", tmp_path / "replay.jsonl"
    schedule_lines(path, shape, ("glide", "rps"), cache)
    replay.ReplaySpeed(out, schedules=path, **SMALL_REPLAY | {"shapes": shape, "prompt": 70}).run()
    lines = read_lines(out)
    assert [(x["method"], x["cache"], x["answers"]) for x in lines] == [
        ("glide", cache, 2),
        ("rps", cache, 2),
    ]
    recorded = [x["nfe"] for x in read_lines(path) if x["decoder"] == "glide" and x["budget"] is None]
    assert lines[0]["nfe"] == sum(recorded) / 2
    assert f"| glide | {cache} |" in out.with_suffix(".md").read_text(encoding="utf-8")
    with pytest.raises(RippleError, match="holds no schedules"):
        replay.ReplaySpeed(tmp_path / "x.jsonl", schedules=out, **SMALL_REPLAY).run()


def test_recorded_schedules_are_replayed_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughput, "PROMPTS", (5, 9))
    path, out = tmp_path / "schedules.jsonl", tmp_path / "throughput.jsonl"
    schedule_lines(path, "llada-8b", ("glide",), "slide")
    bench = throughput.Throughput(out, device="cpu", layers=1, batches="2,4", schedules=path)
    bench.run()
    lines = {(x["method"], x["concurrent"]): x for x in read_lines(out)}
    # What a budget decided with two requests at a time is replayed with two at a time.
    assert set(lines) == {("glide", 2), ("glide, budget 0.5", 2), ("glide", 4)}
    assert lines["glide", 4]["requests"] == 4 and lines["glide", 4]["task"] == "small"
    assert "### llada-8b, recorded on small, cache slide" in out.with_suffix(".md").read_text(
        encoding="utf-8"
    )


def test_the_new_shapes_have_as_many_parameters_as_the_released_models() -> None:
    for name, n in (
        ("sdar-8b-b32", 8_190_735_360),
        ("nemotron-8b", 8_489_553_920),
        ("llada2-mini", 16_255_643_392),
    ):
        config = RELEASED[name]
        _, tensors = FAMILIES[config.family].empty_weights(config, torch.device("meta"), torch.bfloat16)
        assert sum(tensor.numel() for tensor in tensors.values()) == n


def test_throughput_counts_every_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "PROMPTS", (5, 9))
    monkeypatch.setattr(throughput, "CACHES", ("dual",))
    monkeypatch.setattr(throughput, "METHODS", ("rps",))
    out = tmp_path / "throughput.jsonl"
    throughput.Throughput(out, device="cpu", layers=1, batches="1,2").run()
    one, two = read_lines(out)
    assert one["requests"] == two["requests"] == 2 and one["ticks"] > two["ticks"]
    text = out.with_suffix(".md").read_text()
    assert f"| 2 | {two['tps']:.0f} |" in text and "block by block" not in text
    append_line(out, two | {"shape": "nemotron-8b", "cache": "exact"})
    throughput.draw(out)
    assert "come on top of them" in out.with_suffix(".md").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_timing_a_gpu_kernel_wants_a_gpu() -> None:
    with pytest.raises(RippleError, match="no usable CUDA GPU"):
        Tiles(device="cpu").run()
