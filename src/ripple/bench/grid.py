"""What `ripple bench decoders` runs: every decoder, with the sweeps that the paper allows its baselines."""

from __future__ import annotations

from ripple.decoders import (
    EB,
    RPS,
    Confidence,
    Decoder,
    Default,
    Ete,
    Factor,
    Frechet,
    Klass,
    Learn2PD,
    Lopa,
    Wino,
)
from ripple.decoders.presets import PRESETS

FAMILIES = ("words", "algebra", "functions", "programs")
MODELS = ("tiny-llada", "tiny-dream")
CACHES = ("none", "prefix", "dual")


def paper_rps(model: str) -> RPS:
    """Return RPS with the paper's hyper-parameters for that model's family."""
    preset = PRESETS["rps/dream" if "dream" in model else "rps/llada"]
    assert isinstance(preset, RPS)
    return preset


def main_settings(model: str) -> list[Decoder]:
    """Return one setting per decoder; Learn2PD where the model has a filter of its own."""
    learned = [Learn2PD(filter=model)] if model in MODELS else []
    return [
        Default(), Confidence(), Factor(), Frechet(), Klass(eps_kl=0.01), EB(gamma=0.1), *learned,
        Wino(tau1=0.6), Lopa(), Ete(), paper_rps(model),
    ]  # fmt: skip


def all_settings(model: str) -> list[Decoder]:
    """Return the main settings and the sweeps: KLASS's ε, EB's γ, WINO's τ1, LoPA's k, RPS's λ."""
    rps = paper_rps(model)
    sweeps: list[Decoder] = [
        *(Klass(eps_kl=eps) for eps in (0.015, 0.005, 0.001)),
        *(EB(gamma=gamma) for gamma in (0.01, 0.001)),
        *(Wino(tau1=tau1) for tau1 in (0.5, 0.7, 0.8)),
        *(Lopa(k=k) for k in (1, 2, 5)),
        *(RPS(tau_pivot=rps.tau_pivot, lam=lam) for lam in (0.0, 0.3, 0.5)),
        RPS(tau_pivot=rps.tau_pivot, standard=Frechet()),
    ]
    return main_settings(model) + sweeps
