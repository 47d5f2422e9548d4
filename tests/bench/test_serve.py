"""The server under load and under a soak: what is reported hangs together, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ripple.bench import soak
from ripple.bench.serve import Serve
from ripple.bench.soak import OUTCOMES, Soak
from ripple.errors import RippleError


def test_a_load_is_compared_with_the_engines_own_speed(tmp_path: Path) -> None:
    out = tmp_path / "serve.jsonl"
    told = Serve(out=out, clients="2", rounds=1, length=4, each=1).run()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert told["new_lines"] == 2 and [line["stream"] for line in lines] == [False, True]
    for line in lines:
        assert line["clients"] == 2 and line["requests"] == 4
        assert line["rps"] == pytest.approx(4 / line["seconds"], 0.01)
        assert line["tps"] > 0 and line["engine_tps"] > 0 and line["cpu_ratio"] > 0
        assert line["ratio"] == pytest.approx(line["tps"] / line["engine_tps"], 0.01)
        assert line["latency_ms"]["p50"] <= line["latency_ms"]["p99"]
    rows = [line for line in out.with_suffix(".md").read_text().splitlines() if line.startswith("| 2 |")]
    assert [f" {line['ratio']:.2f} |" in row for line, row in zip(lines, rows, strict=True)] == [True, True]
    assert lines[0]["first_text_ms"] is None
    assert lines[1]["first_text_ms"]["p50"] <= lines[1]["latency_ms"]["p50"]


@pytest.mark.slow
def test_serving_costs_little_beside_decoding(tmp_path: Path) -> None:
    """By processor time, which other programs on the machine change less than they change the throughput."""
    out = tmp_path / "serve.jsonl"
    Serve(out=out, clients="4", rounds=3, length=24, each=1).run()
    ratios = [json.loads(line)["cpu_ratio"] for line in out.read_text().splitlines()]
    assert len(ratios) == 2 and min(ratios) > 0.8


def test_a_soak_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "RESTED_S", 0.1)  # ten times, and nobody asks here what memory was given back
    out = tmp_path / "soak.jsonl"
    told = Soak(out=out, requests=40, vanish=0.2, bad=0.2, slow=0.1, clients=6, length=4).run()
    assert json.loads(out.read_text()) == {name: value for name, value in told.items() if name != "files"}
    assert sum(told[name] for name in OUTCOMES) == 40 and all(told[name] for name in OUTCOMES[:3])
    assert told["wrong"] == told["lost"] == 0 and told["examples"] == []
    assert told["answered"] <= told["decoded"] <= told["answered"] + told["vanished"]
    assert len(told["rss_mb"]) == 10 and max(told["open_files"]) < 60


def test_shares_of_a_soak_are_shares(tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="their sum must not exceed 1"):
        Soak(out=tmp_path / "soak.jsonl", vanish=0.6, bad=0.5).run()
