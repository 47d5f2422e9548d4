"""What Prometheus is told: our names and values, and vLLM's for dashboards that were made for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ripple
from ripple.server.metrics import Metrics
from ripple.server.service import Service
from ripple.trace import FINISHES


@pytest.fixture
def metrics(folders: dict[str, Path]) -> Any:
    service = Service(ripple.load(folders["llada"], device="cpu"), "small")
    yield service.metrics
    service.close()


def test_how_requests_ended_is_told_in_our_words_and_in_vllms(metrics: Metrics) -> None:
    for finish in (*FINISHES, None):
        canvas = SimpleNamespace(prompt_len=1, n_masked=0, response=[1, 2, 3, 4])
        ended: Any = SimpleNamespace(
            finish=finish, canvas=canvas, new_tokens=[1], nfe=1, nfe_lookahead=0, canvases=1, positions=4
        )
        metrics.ended(ended, 0.5, None)
    samples = [
        one for family in text_string_to_metric_families(metrics.text().decode()) for one in family.samples
    ]
    ours = {one.labels["finish"]: one.value for one in samples if one.name == "ripple_requests_total"}
    assert ours == dict.fromkeys((*FINISHES, "error"), 1)
    theirs = [one for one in samples if one.name == "vllm:request_success_total"]
    assert {one.labels["finished_reason"]: one.value for one in theirs} == {
        "stop": 2, "length": 2, "abort": 1, "error": 1
    }  # fmt: skip
    assert len(theirs) == 4, "no series stands twice"
    assert all(one.labels["model_name"] == "small" and one.labels["engine"] == "0" for one in theirs)
