"""Traces of a model that attends block by block, and of a decoder that edits, in every view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.trace import Event, read_trace, write_trace
from ripple.viewer.page import Run, write_page

SIZES: dict[str, Any] = {"seed": 1, "vocab_size": 320, "d_model": 32, "n_heads": 4, "d_ff": 64}


@pytest.fixture(scope="module", params=["sdar", "nemotron", "llada2"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Event]]:
    folder = write_random_checkpoint(tmp_path_factory.mktemp("m"), request.param, block_size=8, **SIZES)
    engine = ripple.load(folder, device="cpu")
    how: dict[str, Any] = {"length": 20, "cache": "exact", "trace": True}
    names = ("rps", "glide", "edit:tau=0.3,tau_edit=0.2")
    return {name[:4]: engine.generate("the sum", decoder=name, **how).trace or [] for name in names}


def test_a_trace_is_read_back_as_it_was_written(runs: dict[str, list[Event]], tmp_path: Path) -> None:
    for name, events in runs.items():
        write_trace(tmp_path / name, events)
        assert [event.kind for event in read_trace(tmp_path / name)] == [event.kind for event in events]


def test_an_edit_is_a_revocation_and_a_commit_at_the_same_positions(runs: dict[str, list[Event]]) -> None:
    events = runs["edit"]
    revoked = [i for i, event in enumerate(events) if event.kind == "revoke"]
    assert revoked
    for i in revoked:
        before, after = events[i].data, events[i + 1].data
        assert (before["cause"], after["cause"], before["pos"]) == ("edit", "edit", after["pos"])


def test_a_page_opens_at_the_end_of_each_and_plays_back(
    runs: dict[str, list[Event]], open_page: Any, tmp_path: Path
) -> None:
    for name, events in runs.items():
        write_page(tmp_path / f"{name}.html", [Run(events)])
        shown = open_page((tmp_path / f"{name}.html").as_uri())
        end = events[-1].data
        n = end["nfe_normal"] + end["nfe_lookahead"]
        assert str(shown.locator(".where").text_content()).startswith(f"forward {n} of {n} ")
        shown.keyboard.press("Home")
        assert str(shown.locator(".where").text_content()).startswith("forward 0 ")
        for _ in range(n):
            shown.keyboard.press("ArrowRight")
        assert str(shown.locator(".where").text_content()).startswith(f"forward {n} ")
