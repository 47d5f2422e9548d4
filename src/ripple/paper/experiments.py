"""What `ripple paper` runs: for each of the paper's tables and figures, which settings on which tasks.

The settings are those of `ripple.eval.settings`. One result line may serve several experiments: a line is
named by model, task, cache, setting, number of items and length, never by the experiment that asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ripple.eval import settings
from ripple.eval.facts import ModelChoice
from ripple.eval.settings import SettingsOf
from ripple.eval.sweep import Want

# Each generated family mirrors one of the paper's benchmarks.
MIRRORS = {"words": "gsm8k", "functions": "humaneval", "algebra": "math500", "programs": "mbpp"}
CODE = ("functions", "programs", "humaneval", "mbpp")  # tasks whose responses are programs
ALL = ("gsm8k", "humaneval", "math500", "mbpp")
CACHES = ("none", "prefix", "dual", "dkv", "d2")  # the paper's


@dataclass(frozen=True)
class Experiment:
    """One of the paper's tables or figures."""

    name: str
    title: str
    settings: SettingsOf
    benchmarks: tuple[str, ...] = ("gsm8k",)  # where the paper ran it; a family stands in for its mirror
    lengths: tuple[float, ...] = (1.0,)  # multiples of the base length, which is 256 in the paper
    caches: tuple[str, ...] = ("none",)
    timed: bool = False  # also decode a few items one by one, alone on the device


EXPERIMENTS = {
    e.name: e
    for e in (
        Experiment("main", "Main results", settings.seven_swept, ALL, timed=True),
        Experiment(
            "length", "Generation length", settings.four, ("humaneval", "math500"), lengths=(0.5, 1.0, 2.0)
        ),
        Experiment("lambda", "Plausibility weight λ", settings.lambdas),
        Experiment("k_max", "Candidate budget k_max", settings.k_maxes),
        Experiment("r", "Reachability ratio r", settings.ratios),
        Experiment("tau_pivot", "Probability-mass threshold τ_pivot", settings.tau_pivots),
        Experiment("pivot", "Pivot rule and scoring", settings.pivots),
        Experiment("breakdown", "Forward-pass breakdown", settings.rps_alone, timed=True),
        Experiment("caches", "Caches", settings.four, ("gsm8k", "mbpp"), caches=CACHES, timed=True),
        Experiment("oracle", "The ripple effect, by oracle", settings.no_settings, ALL),
        Experiment("failure", "How LoPA and RPS fail on code", settings.lookaheads, ("humaneval", "mbpp")),
        Experiment("bound", "Proposition 1 against what was committed", settings.rps_alone, ALL),
    )
}


def tasks_of(experiment: Experiment, tasks: Sequence[str]) -> list[str]:
    """Return those of the given tasks that the paper ran this on or that mirror them; else the first."""
    mine = [task for task in tasks if MIRRORS.get(task, task) in experiment.benchmarks]
    return mine or list(tasks[:1])


def wants(
    experiment: Experiment, models: Sequence[ModelChoice], tasks: Sequence[str], length: int,
    sweeps: bool = True,
) -> Iterator[Want]:  # fmt: skip
    """Yield every line that an experiment needs; without `sweeps` the main table has one setting each."""
    settings_of = settings.seven if experiment.name == "main" and not sweeps else experiment.settings
    for model in models:
        for task in tasks_of(experiment, tasks):
            for cache in experiment.caches:
                for share in experiment.lengths:
                    for setting in settings_of(model.family):
                        yield Want(model, task, cache, round(length * share), setting)


def timed_wants(
    experiment: Experiment, models: Sequence[ModelChoice], tasks: Sequence[str], length: int
) -> Iterator[Want]:
    """Yield what is decoded one item at a time: one setting per decoder, as in the paper's speed columns."""
    if experiment.timed:
        for want in wants(experiment, models, tasks, length, sweeps=False):
            if want.length == length:
                yield want
