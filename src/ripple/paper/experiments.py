"""What `ripple paper` runs: for each of the paper's tables and figures, which settings on which tasks.

Settings are declared here and nowhere else. One result line may serve several experiments: a line is named
by model, task, cache, setting, number of items and length, never by the experiment that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ripple.bench.grid import paper_rps
from ripple.caches import CACHES
from ripple.decoders import EB, Confidence, Decoder, Default, Klass, Lopa, Wino

MODELS = ("tiny-llada", "tiny-dream")
# Each generated family mirrors one of the paper's benchmarks.
MIRRORS = {"words": "gsm8k", "functions": "humaneval", "algebra": "math500", "programs": "mbpp"}
CODE = ("functions", "programs", "humaneval", "mbpp")  # tasks whose responses are programs
ALL = ("gsm8k", "humaneval", "math500", "mbpp")

LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
K_MAX = (5, 10, 20)
R = (0.05, 0.1, 0.2, 0.3)
TAU_PIVOT = (0.6, 0.7, 0.8, 0.9, 0.95)
PIVOTS = ("mid_entropy", "max_confidence", "max_entropy", "random")
# Scoring of the ablation: the full score, its entropy term alone, or no search among tokens at all.
SCORINGS = {"full": {}, "entropy only": {"lam": 0.0}, "greedy": {"candidates": "greedy"}}

Settings = Callable[[str], list[Decoder]]  # model -> settings


@dataclass(frozen=True)
class Experiment:
    """One of the paper's tables or figures."""

    name: str
    title: str
    settings: Settings
    benchmarks: tuple[str, ...] = ("gsm8k",)  # where the paper ran it; a family stands in for its mirror
    lengths: tuple[float, ...] = (1.0,)  # multiples of the base length, which is 256 in the paper
    caches: tuple[str, ...] = ("none",)
    timed: bool = False  # also decode a few items one by one, alone on the device


class Want(NamedTuple):
    """One result line that an experiment needs."""

    model: str
    task: str
    cache: str
    length: int
    setting: Decoder

    def key(self, n: int) -> tuple[str, str, str, str, int, int]:
        """Return what names the line, in the order of `bench.decoders.KEY`."""
        return self.model, self.task, self.cache, self.setting.describe(), n, self.length


def one_each(model: str) -> list[Decoder]:
    """Return the paper's seven decoders, one setting each, RPS with its published hyper-parameters."""
    return [
        Default(), Confidence(), Klass(eps_kl=0.01), EB(gamma=0.1), Wino(tau1=0.6), Lopa(), paper_rps(model)
    ]  # fmt: skip


def swept(model: str) -> list[Decoder]:
    """Return the seven decoders with the sweeps that the paper allows its baselines, and LoPA's k."""
    return [
        *one_each(model),
        *(Klass(eps_kl=eps) for eps in (0.015, 0.005, 0.001)),
        *(EB(gamma=gamma) for gamma in (0.01, 0.001)),
        *(Wino(tau1=tau1) for tau1 in (0.5, 0.7, 0.8)),
        *(Lopa(k=k) for k in (1, 2, 5)),
    ]


def four(model: str) -> list[Decoder]:
    """Return the decoders of the paper's table of lengths."""
    return [Default(), Confidence(), Lopa(), paper_rps(model)]


def lambdas(model: str) -> list[Decoder]:
    """Return the sweep of λ, and `default`, which speed-ups are taken over."""
    return [Default(), *(replace(paper_rps(model), lam=lam) for lam in LAMBDAS)]


def k_maxes(model: str) -> list[Decoder]:
    """Return the sweep of k_max."""
    return [replace(paper_rps(model), k_max=k_max) for k_max in K_MAX]


def ratios(model: str) -> list[Decoder]:
    """Return the sweep of r."""
    return [replace(paper_rps(model), r=r) for r in R]


def tau_pivots(model: str) -> list[Decoder]:
    """Return the sweep of τ_pivot."""
    return [replace(paper_rps(model), tau_pivot=tau) for tau in TAU_PIVOT]


def pivots(model: str) -> list[Decoder]:
    """Return every pivot rule with every scoring, and `default`."""
    rps = paper_rps(model)
    grid = [replace(rps, pivot=pivot, **how) for how in SCORINGS.values() for pivot in PIVOTS]  # type: ignore[arg-type]
    return [Default(), *grid]


def lookaheads(model: str) -> list[Decoder]:
    """Return the two decoders that look ahead, as they are compared on code."""
    return [Lopa(), paper_rps(model)]


def rps_alone(model: str) -> list[Decoder]:
    """Return RPS with its published hyper-parameters."""
    return [paper_rps(model)]


def nothing(model: str) -> list[Decoder]:
    """Return no settings: the experiment makes its own lines."""
    return []


EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment("main", "Main results", swept, ALL, timed=True),
        Experiment("length", "Generation length", four, ("humaneval", "math500"), lengths=(0.5, 1.0, 2.0)),
        Experiment("lambda", "Plausibility weight λ", lambdas),
        Experiment("k_max", "Candidate budget k_max", k_maxes),
        Experiment("r", "Reachability ratio r", ratios),
        Experiment("tau_pivot", "Probability-mass threshold τ_pivot", tau_pivots),
        Experiment("pivot", "Pivot rule and scoring", pivots),
        Experiment("breakdown", "Forward-pass breakdown", rps_alone, timed=True),
        Experiment("caches", "Caches", four, ("gsm8k", "mbpp"), caches=tuple(CACHES), timed=True),
        Experiment("oracle", "The ripple effect, by oracle", nothing, ALL),
        Experiment("failure", "How LoPA and RPS fail on code", lookaheads, ("humaneval", "mbpp")),
        Experiment("bound", "Proposition 1 against what was committed", rps_alone, ALL),
    )
}


def tasks_of(experiment: Experiment, tasks: Sequence[str]) -> list[str]:
    """Return those of the given tasks that the paper ran this on or that mirror them; else the first."""
    mine = [task for task in tasks if MIRRORS.get(task, task) in experiment.benchmarks]
    return mine or list(tasks[:1])


def wants(
    experiment: Experiment, models: Sequence[str], tasks: Sequence[str], length: int, sweeps: bool = True
) -> Iterator[Want]:
    """Yield every line that an experiment needs; without `sweeps` the main table has one setting each."""
    settings = one_each if experiment.name == "main" and not sweeps else experiment.settings
    for model in models:
        for task in tasks_of(experiment, tasks):
            for cache in experiment.caches:
                for share in experiment.lengths:
                    for setting in settings(model):
                        yield Want(model, task, cache, round(length * share), setting)


def timed_wants(
    experiment: Experiment, models: Sequence[str], tasks: Sequence[str], length: int
) -> Iterator[Want]:
    """Yield what is decoded one item at a time: one setting per decoder, as in the paper's speed columns."""
    if experiment.timed:
        for want in wants(experiment, models, tasks, length, sweeps=False):
            if want.length == length:
                yield want


def guess_nfe(setting: Decoder, length: int) -> float:
    """Return roughly how many forwards a response takes, in units of one canvas; for plans, not results."""
    shares = {"default": 1.0, "klass": 0.28, "confidence": 0.16, "eb": 0.18, "wino": 0.2, "lopa": 0.2}
    return length * shares.get(setting.name, 0.25)  # lookaheads count their branches
