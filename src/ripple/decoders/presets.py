"""Published settings by name: `ripple.decoder("rps/dream")`.

A preset named after a model family, such as `rps/dream`, is what a decoder's bare name means on models of
that family. Where a paper swept a setting per task, the preset names the task.
"""

from __future__ import annotations

from ripple.decoders.base import Decoder
from ripple.decoders.confidence import Confidence
from ripple.decoders.default import Default
from ripple.decoders.eb import EB
from ripple.decoders.edit import Edit
from ripple.decoders.ete import Ete
from ripple.decoders.factor import Factor
from ripple.decoders.frechet import Frechet
from ripple.decoders.glide import Glide
from ripple.decoders.klass import Klass
from ripple.decoders.lopa import Lopa
from ripple.decoders.rps import RPS
from ripple.decoders.wino import Wino

PRESETS: dict[str, Decoder] = {
    "default/llada": Default(k=1, order="confidence"),
    "default/dream": Default(k=1, order="confidence"),
    "default/dream-own": Default(k=1, order="entropy"),
    "default/sdar": Default(k=1, order="confidence"),
    "default/nemotron": Default(k=1, order="confidence"),
    "default/llada2": Default(k=1, order="confidence"),
    "confidence/llada": Confidence(tau=0.9),
    "confidence/dream": Confidence(tau=0.9),
    "confidence/sdar": Confidence(tau=0.85),
    "confidence/nemotron": Confidence(tau=0.9),
    "confidence/llada2": Confidence(tau=0.95),
    "factor/fast-dllm": Factor(f=1.0),
    "factor/fast-dllm++": Factor(f=0.75),
    "frechet/fast-dllm++": Frechet(delta=0.25),
    "klass/llada-gsm8k": Klass(tau=0.6, eps_kl=0.015),
    "klass/llada-math": Klass(tau=0.6, eps_kl=0.01),
    "klass/llada-humaneval": Klass(tau=0.9, eps_kl=0.01),
    "klass/llada-mbpp": Klass(tau=0.7, eps_kl=0.01),
    "klass/dream-gsm8k": Klass(tau=0.9, eps_kl=0.001),
    "klass/dream-math": Klass(tau=0.9, eps_kl=0.005),
    "klass/dream-humaneval": Klass(tau=0.8, eps_kl=0.001),
    "klass/dream-mbpp": Klass(tau=0.9, eps_kl=0.001),
    "eb/usual": EB(gamma=0.1),
    "wino/llada-gsm8k": Wino(tau1=0.6, tau2=0.9),
    "wino/llada-math": Wino(tau1=0.7, tau2=0.9),
    "wino/llada-humaneval": Wino(tau1=0.7, tau2=0.9),
    "wino/llada-mbpp": Wino(tau1=0.8, tau2=0.9),
    "lopa/llada": Lopa(tau=0.9, k=3),
    "lopa/dream-scripts": Lopa(tau=0.9, k=3, rank="entropy", score="entropy"),
    "lopa/diffucoder": Lopa(tau=0.9, k=3, rank="confidence", score="confidence"),
    "edit/llada2": Edit(tau=0.95, tau_edit=0.9),
    "edit/llada2.1-quality": Edit(tau=0.7, tau_edit=0.5),
    "edit/llada2.1-speed": Edit(tau=0.5, tau_edit=0.0),
    "ete/half": Ete(target=0.5, late=0.0),
    "ete/reported": Ete(target=0.2, late=1.0),
    "rps/llada": RPS(tau_pivot=0.9),
    "rps/dream": RPS(tau_pivot=0.95),
    "glide/deep": Glide(width=96, cap=3.0, lam=0.02, pivots=2),
}
