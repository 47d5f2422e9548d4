"""What is run is what the paper says it ran."""

from __future__ import annotations

import pytest

from ripple.decoders import RPS, Decoder
from ripple.errors import RippleError
from ripple.eval.facts import choose_model
from ripple.eval.settings import SCORINGS
from ripple.eval.sweep import Piece
from ripple.paper.experiments import EXPERIMENTS, MIRRORS, wants
from ripple.paper.plan import ReportOptions, all_wants, chosen, line_key, pieces, timings

TASKS = tuple(MIRRORS)
MODELS = tuple(choose_model(name) for name in ("tiny-llada", "tiny-dream"))


def settings(name: str, family: str = "llada") -> list[Decoder]:
    return EXPERIMENTS[name].settings(family)


def values(name: str, field: str, family: str = "llada") -> list[object]:
    return [getattr(s, field) for s in settings(name, family) if isinstance(s, RPS)]


def options(**given: object) -> ReportOptions:
    how: dict[str, object] = {
        "models": MODELS, "tasks": TASKS, "experiments": chosen(None), "limit": 5, "length": 256,
        "device": "cpu", "sweeps": True,
    }  # fmt: skip
    return ReportOptions(**(how | given))  # type: ignore[arg-type]


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
    assert values("main", "tau_pivot", "dream") == [0.95]


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
        return {MIRRORS[want.task] for want in wants(EXPERIMENTS[name], MODELS, TASKS, 256)}

    assert where("lambda") == where("k_max") == where("pivot") == {"gsm8k"}
    assert where("length") == {"humaneval", "math500"}
    assert where("caches") == {"gsm8k", "mbpp"}
    assert where("main") == {"gsm8k", "humaneval", "math500", "mbpp"}
    alone = {want.task for want in wants(EXPERIMENTS["lambda"], MODELS, ("mbpp",), 256)}
    assert alone == {"mbpp"}, "with other tasks an experiment still runs"


def test_every_cache_of_the_paper_appears() -> None:
    caches = {want.cache for want in wants(EXPERIMENTS["caches"], MODELS, TASKS, 256)}
    assert caches == {"none", "prefix", "dual", "dkv", "d2"}


def test_no_line_is_run_twice_and_every_experiment_starts_early() -> None:
    asked = options()
    todo = pieces(asked, [])
    sweeps = [piece for piece in todo if isinstance(piece, Piece)]

    def places(piece: Piece) -> list[tuple[object, ...]]:
        where = (piece.model.name, piece.task, piece.cache, piece.length)
        return [(*where, setting.describe()) for setting in piece.settings]

    every = [place for piece in sweeps for place in places(piece)]
    assert len(every) == len(set(every)) == sum(1 for _ in all_wants(asked))
    wanted: dict[str, set[tuple[object, ...]]] = {}
    for experiment, want in all_wants(asked):
        place = (want.model.name, want.task, want.cache, want.length, want.setting.describe())
        wanted.setdefault(experiment.name, set()).add(place)
    early = todo[: len(todo) // 2]
    begun = {place for piece in early if isinstance(piece, Piece) for place in places(piece)}
    assert all(begun & mine for mine in wanted.values())
    assert any(not isinstance(piece, Piece) for piece in early)


def test_lines_that_are_there_are_not_run_again() -> None:
    asked = options(experiments=chosen("lambda,breakdown"))
    lines = [
        {
            "kind": "summary", "model": want.model.name, "task": want.task, "chat": False,
            "cache": want.cache, "setting": want.setting.describe(), "length": want.length, "n": 5,
        }
        for _, want in all_wants(asked)
    ]  # fmt: skip
    assert [line_key(line) for line in lines] == [asked.key(want) for _, want in all_wants(asked)]
    assert pieces(asked, lines) == [] and pieces(asked, lines[1:]) != []
    assert pieces(asked, [line | {"chat": True} for line in lines]) != [], "a chat template makes other lines"
    assert len(timings(asked, lines)) == 2  # RPS on words with both models


def test_an_unknown_experiment_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(RippleError, match=r"Unknown experiment 'tau_pivo'\. Did you mean 'tau_pivot'"):
        chosen("main,tau-pivo")
    assert [e.name for e in chosen("tau-pivot,main")] == ["main", "tau_pivot"]
