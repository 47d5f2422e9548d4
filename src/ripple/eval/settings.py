"""Every decoder setting that a table or figure is about: one per decoder, the sweeps, the paper's ablations.

Settings go by the model's family, whose preset a decoder's bare name means (`ripple.decoders.presets`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ripple.decoders import (
    EB,
    PRESETS,
    RPS,
    Confidence,
    Decoder,
    Default,
    Edit,
    Ete,
    Factor,
    Frechet,
    Glide,
    Klass,
    Learn2PD,
    Lopa,
    Wino,
    family_decoder,
)

SettingsOf = Callable[[str], list[Decoder]]  # model family -> settings

LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
K_MAX = (5, 10, 20)
R = (0.05, 0.1, 0.2, 0.3)
TAU_PIVOT = (0.6, 0.7, 0.8, 0.9, 0.95)
PIVOTS = ("mid_entropy", "max_confidence", "max_entropy", "random")
# Scoring of the ablation: the full score, its entropy term alone, or no search among tokens at all.
SCORINGS = {"full": {}, "entropy only": {"lam": 0.0}, "greedy": {"candidates": "greedy"}}


def published_rps(family: str) -> RPS:
    """Return RPS with the paper's hyper-parameters for a model family."""
    decoder = family_decoder(RPS.name, family)
    assert isinstance(decoder, RPS)
    return decoder


# -- of every decoder -------------------------------------------------------------------------------------


def every_decoder(family: str, has_filter: bool = True) -> list[Decoder]:
    """Return one setting per decoder; Learn2PD where a filter is, Edit where the model learned to edit."""
    learned = [Learn2PD()] if has_filter else []
    edits = [family_decoder(Edit.name, family)] if f"{Edit.name}/{family}" in PRESETS else []
    return [
        *(family_decoder(name, family) for name in (Default.name, Confidence.name)),
        Factor(), Frechet(), Klass(eps_kl=0.01), EB(gamma=0.1), *learned, *edits,
        Wino(tau1=0.6), Lopa(), Ete(), published_rps(family), Glide(),
    ]  # fmt: skip


def every_setting(family: str, has_filter: bool = True) -> list[Decoder]:
    """Return one setting per decoder, the baselines' sweeps, values of λ, and another standard rule."""
    rps = published_rps(family)
    return [
        *every_decoder(family, has_filter),
        *_baseline_sweeps(),
        *(replace(rps, lam=lam) for lam in (0.0, 0.3, 0.5)),
        replace(rps, standard=Frechet()),
    ]


def _baseline_sweeps() -> list[Decoder]:
    """Return KLASS's ε, EB-Sampler's γ and WINO's τ1, as the paper sweeps them, and LoPA's k."""
    return [
        *(Klass(eps_kl=eps) for eps in (0.015, 0.005, 0.001)),
        *(EB(gamma=gamma) for gamma in (0.01, 0.001)),
        *(Wino(tau1=tau1) for tau1 in (0.5, 0.7, 0.8)),
        *(Lopa(k=k) for k in (1, 2, 5)),
    ]


# -- of the paper -----------------------------------------------------------------------------------------


def seven(family: str) -> list[Decoder]:
    """Return the seven decoders of the paper's main tables, one setting each."""
    return [
        Default(), Confidence(), Klass(eps_kl=0.01), EB(gamma=0.1), Wino(tau1=0.6), Lopa(),
        published_rps(family),
    ]  # fmt: skip


def seven_swept(family: str) -> list[Decoder]:
    """Return the seven decoders with the sweeps that the paper allows its baselines, and LoPA's k."""
    return seven(family) + _baseline_sweeps()


def four(family: str) -> list[Decoder]:
    """Return the decoders of the paper's table of lengths."""
    return [Default(), Confidence(), Lopa(), published_rps(family)]


def lambdas(family: str) -> list[Decoder]:
    """Return the sweep of λ, and `default`, which speed-ups are taken over."""
    return [Default(), *(replace(published_rps(family), lam=lam) for lam in LAMBDAS)]


def k_maxes(family: str) -> list[Decoder]:
    """Return the sweep of k_max."""
    return [replace(published_rps(family), k_max=k_max) for k_max in K_MAX]


def ratios(family: str) -> list[Decoder]:
    """Return the sweep of r."""
    return [replace(published_rps(family), r=r) for r in R]


def tau_pivots(family: str) -> list[Decoder]:
    """Return the sweep of τ_pivot."""
    return [replace(published_rps(family), tau_pivot=tau) for tau in TAU_PIVOT]


def pivots(family: str) -> list[Decoder]:
    """Return every pivot rule with every scoring, and `default`."""
    rps = published_rps(family)
    grid = [replace(rps, pivot=pivot, **how) for how in SCORINGS.values() for pivot in PIVOTS]  # type: ignore[arg-type]
    return [Default(), *grid]


def lookaheads(family: str) -> list[Decoder]:
    """Return the two decoders that look ahead, as they are compared on code."""
    return [Lopa(), published_rps(family)]


def rps_alone(family: str) -> list[Decoder]:
    """Return RPS with its published hyper-parameters."""
    return [published_rps(family)]


def no_settings(family: str) -> list[Decoder]:
    """Return nothing: for what has lines of its own."""
    return []


def guess_nfe(decoder: Decoder, length: int) -> float:
    """Return roughly how many forwards a response takes, in units of one canvas; for plans, not results."""
    shares = {
        "default": 1.0, "klass": 0.28, "confidence": 0.16, "eb": 0.18, "wino": 0.2, "lopa": 0.2,
        "glide": 0.12,
    }  # fmt: skip
    return length * shares.get(decoder.name, 0.25)  # lookaheads count their branches
