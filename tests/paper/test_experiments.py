"""What is run is what the paper says it ran."""

from __future__ import annotations

import pytest

from ripple.caches import CACHES
from ripple.decoders import RPS, Decoder
from ripple.errors import RippleError
from ripple.paper.experiments import EXPERIMENTS, MIRRORS, MODELS, SCORINGS, wants
from ripple.paper.plan import Request, all_wants, chosen, jobs, timings

FAMILIES = tuple(MIRRORS)


def settings(name: str, model: str = "tiny-llada") -> list[Decoder]:
    return EXPERIMENTS[name].settings(model)


def values(name: str, field: str, model: str = "tiny-llada") -> list[object]:
    return [getattr(s, field) for s in settings(name, model) if isinstance(s, RPS)]


def request(**given: object) -> Request:
    how: dict[str, object] = {
        "models": {m: m for m in MODELS}, "tasks": FAMILIES, "experiments": chosen(None), "limit": 5,
        "length": 256, "device": "cpu", "sweeps": True,
    }  # fmt: skip
    return Request(**(how | given))  # type: ignore[arg-type]


def test_the_sweeps_are_the_papers() -> None:
    assert values("lambda", "lam") == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert values("k_max", "k_max") == [5, 10, 20]
    assert values("r", "r") == [0.05, 0.1, 0.2, 0.3]
    assert values("tau_pivot", "tau_pivot") == [0.6, 0.7, 0.8, 0.9, 0.95]
    assert [256 * share for share in EXPERIMENTS["length"].lengths] == [128, 256, 512]


def test_the_main_table_has_the_papers_decoders_and_baseline_sweeps() -> None:
    main = settings("main")
    assert list(dict.fromkeys(s.name for s in main)) == [
        "default", "confidence", "klass", "eb", "wino", "lopa", "rps"
    ]  # fmt: skip

    def swept(name: str, field: str) -> set[object]:
        return {getattr(s, field) for s in main if s.name == name}

    assert swept("klass", "eps_kl") == {0.015, 0.01, 0.005, 0.001} and swept("klass", "tau") == {0.9}
    assert swept("eb", "gamma") == {0.1, 0.01, 0.001} and swept("eb", "proxy") == {"confidence"}
    assert swept("wino", "tau1") == {0.5, 0.6, 0.7, 0.8} and swept("wino", "tau2") == {0.9}
    assert swept("confidence", "tau") == {0.9}
    [rps] = [s for s in main if isinstance(s, RPS)]
    assert (rps.k_max, rps.r, rps.tau_pivot, rps.lam) == (10, 0.1, 0.9, 0.1)
    assert values("main", "tau_pivot", "tiny-dream") == [0.95]


def test_the_ablation_crosses_pivot_rules_with_scorings() -> None:
    grid = {(s.pivot, s.lam, s.candidates) for s in settings("pivot") if isinstance(s, RPS)}
    assert len(grid) == 4 * len(SCORINGS)
    assert {
        ("max_confidence", 0.1, "search"),
        ("max_entropy", 0.0, "search"),
        ("random", 0.1, "greedy"),
    } <= grid


def test_each_experiment_runs_where_the_paper_ran_it() -> None:
    def where(name: str) -> set[str]:
        return {MIRRORS[want.task] for want in wants(EXPERIMENTS[name], MODELS, FAMILIES, 256)}

    assert where("lambda") == where("k_max") == where("pivot") == {"gsm8k"}
    assert where("length") == {"humaneval", "math500"}
    assert where("caches") == {"gsm8k", "mbpp"}
    assert where("main") == {"gsm8k", "humaneval", "math500", "mbpp"}
    alone = {want.task for want in wants(EXPERIMENTS["lambda"], MODELS, ("mbpp",), 256)}
    assert alone == {"mbpp"}, "with other tasks an experiment still runs"


def test_every_cache_appears_by_itself() -> None:
    assert {want.cache for want in wants(EXPERIMENTS["caches"], MODELS, FAMILIES, 256)} == set(CACHES)


def test_no_line_is_run_twice_and_every_experiment_starts_early() -> None:
    asked = request()
    todo = jobs(asked, [])
    keys = [
        (job.name, job.unit.family, job.unit.cache, s.describe(), job.unit.length)
        for job in todo
        for s in job.unit.settings
    ]
    assert len(keys) == len(set(keys)) == sum(1 for _ in all_wants(asked))
    places = {(e.name, w.model, w.task, w.cache, w.length, w.setting.describe()) for e, w in all_wants(asked)}
    wanted = {name: {p[1:] for p in places if p[0] == name} for name in {p[0] for p in places}}
    early = todo[: len(todo) // 2]
    begun = {
        (j.name, j.unit.family, j.unit.cache, j.unit.length, s.describe())
        for j in early
        for s in j.unit.settings
    }
    assert all(begun & mine for mine in wanted.values()) and any(job.kind == "oracle" for job in early)


def test_lines_that_are_there_are_not_run_again() -> None:
    asked = request(experiments=chosen("lambda,breakdown"))
    lines = [
        {
            "bench": "decoders",
            **dict(zip(("model", "family", "cache", "setting", "n", "length"), w.key(5), strict=True)),
        }
        for _, w in all_wants(asked)
    ]
    assert jobs(asked, lines) == [] and jobs(asked, lines[1:]) != []
    assert len(timings(asked, lines)) == 2  # RPS on words with both models


def test_an_unknown_experiment_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(RippleError, match=r"Unknown experiment 'tau_pivo'\. Did you mean 'tau_pivot'"):
        chosen("main,tau-pivo")
    assert [e.name for e in chosen("tau-pivot,main")] == ["main", "tau_pivot"]
