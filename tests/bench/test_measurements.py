"""The measurements run, and what they report hangs together."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from ripple.bench import MEASUREMENTS
from ripple.bench.fill import fill
from ripple.bench.overhead import DECODERS, Overhead
from ripple.bench.packing import Packing
from ripple.errors import RippleError
from ripple.fields import fields_of
from ripple.measurement import Measurement, listed, whole_numbers


def test_packed_lookahead_strays_only_where_the_context_is_live(
    folders: dict[str, Path], family: str
) -> None:
    rows = Packing(folders[family], length=32).run()["caches"]
    kl = {name: row["packed"]["kl_mean"] for name, row in rows.items()}
    assert kl["dual"] < 1e-6 < kl["none"]
    assert rows["dual"]["thin"]["kl_mean"] > 1e-6, "thin branches leave the block's tokens as they were"


def test_overhead_reports_every_decoder_and_a_positive_time(folders: dict[str, Path]) -> None:
    told = Overhead(folders["llada"], length=32).run()
    assert set(told["decoders"]) == set(DECODERS)
    for row in told["decoders"].values():
        assert row["steps"] > 0 and row["model_ms"] > 0 and row["overhead_ms"] > 0


def test_every_measurement_is_named_and_explains_its_options() -> None:
    for name, place in MEASUREMENTS.items():
        module, _, cls = place.partition(":")
        measurement = getattr(importlib.import_module(module), cls)
        assert issubclass(measurement, Measurement) and measurement.name == name and measurement.__doc__
        assert all(field.about for field in fields_of(measurement).values()), name


@pytest.mark.parametrize("bench", [Overhead, Packing])
def test_a_missing_folder_is_refused(bench: type[Measurement], tmp_path: Path) -> None:
    with pytest.raises(RippleError, match=r"Model folder .* does not exist"):
        bench(folder=tmp_path / "no").run()  # type: ignore[call-arg]


def test_lists_are_joined_by_commas() -> None:
    assert listed(" a, b ,,c") == ["a", "b", "c"] and whole_numbers("n", "1, 2") == [1, 2]
    for text in ("", "1,x", "0"):
        with pytest.raises(RippleError, match="n must be whole numbers of at least 1"):
            whole_numbers("n", text, 1)


@pytest.mark.parametrize(
    ("text", "number"), [('{"bench": "soak"}', 1), ('{"n": [1]}', 1), ('{"n": 2}\n{}', 2)]
)
def test_lines_of_another_measurement_are_refused(tmp_path: Path, text: str, number: int) -> None:
    out = tmp_path / "r.jsonl"
    out.write_text(text + "\n")
    with pytest.raises(RippleError, match=rf"r\.jsonl, line {number}: not a line of these steps"):
        fill(out, [1], lambda one: one["n"], lambda n: pytest.fail("it was measured"), "steps")
    assert out.read_text() == text + "\n"
