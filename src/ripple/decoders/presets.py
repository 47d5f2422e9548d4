"""Published settings by name: `ripple.decoder("rps/dream")`.

Where a paper swept a setting per task, the preset names the task.
"""

from __future__ import annotations

from ripple.decoders.base import Decoder
from ripple.decoders.confidence import Confidence
from ripple.decoders.default import Default
from ripple.decoders.eb import EB
from ripple.decoders.factor import Factor
from ripple.decoders.frechet import Frechet
from ripple.decoders.klass import Klass
from ripple.decoders.learn2pd import Learn2PD
from ripple.decoders.lopa import Lopa
from ripple.decoders.rps import RPS
from ripple.decoders.wino import Wino

PRESETS: dict[str, Decoder] = {
    "default/llada": Default(k=1, order="confidence"),
    "default/dream": Default(k=1, order="confidence"),
    "default/dream-own": Default(k=1, order="entropy"),
    "confidence/llada": Confidence(tau=0.9),
    "confidence/dream": Confidence(tau=0.9),
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
    "learn2pd/tiny-llada": Learn2PD(filter="tiny-llada"),
    "learn2pd/tiny-dream": Learn2PD(filter="tiny-dream"),
    "wino/llada-gsm8k": Wino(tau1=0.6, tau2=0.9),
    "wino/llada-math": Wino(tau1=0.7, tau2=0.9),
    "wino/llada-humaneval": Wino(tau1=0.7, tau2=0.9),
    "wino/llada-mbpp": Wino(tau1=0.8, tau2=0.9),
    "lopa/llada": Lopa(tau=0.9, k=3),
    "lopa/dream-scripts": Lopa(tau=0.9, k=3, rank="entropy", score="entropy"),
    "lopa/diffucoder": Lopa(tau=0.9, k=3, rank="confidence", score="confidence"),
    "rps/llada": RPS(tau_pivot=0.9),
    "rps/dream": RPS(tau_pivot=0.95),
}
