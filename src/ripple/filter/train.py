"""Fits the filter to traces and writes it down. Full-batch AdamW on the cross-entropy of masked positions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save as serialize

from ripple.decoders.learn2pd import TENSORS, Filter
from ripple.errors import RippleError
from ripple.files import check_new_file, write_whole
from ripple.filter.traces import OnDone, Traces

HIDDEN = 32  # the paper's network has about 2,000 parameters: 32 - 32 - 32
LEARNING_RATE = 3e-3
HELD_OUT = 0.2  # share of the prompts that are not trained on


class Fit(NamedTuple):
    """A trained filter and how well it judges prompts that it was not trained on."""

    filter: Filter
    loss_first: float  # cross-entropy in nats on the training part, before and after
    loss_last: float
    held_out_loss: float
    held_out_accuracy: float  # of "final or not" at probability 1/2
    held_out_majority: float  # what always giving the commoner answer would score
    n_looks: int


def fit(traces: Traces, steps: int = 600, seed: int = 0, on_done: OnDone = lambda n: None) -> Fit:
    """Train a filter on four fifths of the prompts; the same seed gives the same filter."""
    n, block = traces.p.shape
    order = np.random.default_rng(seed).permutation(np.unique(traces.prompt))
    if len(order) < 2:
        raise RippleError(
            f"Training a filter needs at least 2 prompts, one to judge it by; got {len(order)}."
        )
    is_held = np.isin(traces.prompt, order[: math.ceil(HELD_OUT * len(order))])
    held, train = traces.part(is_held), traces.part(~is_held)
    generator = torch.Generator().manual_seed(seed)
    layers = _new_layers(block, generator)
    optimizer = torch.optim.AdamW(layers, lr=LEARNING_RATE)
    p, is_final, is_masked = (torch.from_numpy(part) for part in train[:3])
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy_with_logits(_logits(layers, p)[is_masked], is_final[is_masked].float())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.detach())
        on_done(1)
    arrays = {name: layer.detach().numpy() for name, layer in zip(TENSORS, layers, strict=True)}
    accuracy, majority, held_loss = _judge(layers, held)
    made = Filter(**arrays, metadata={})
    return Fit(made, float(losses[0]), float(losses[-1]), held_loss, accuracy, majority, n)


def _new_layers(block: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Draw weights and biases uniformly within one over the square root of their inputs."""

    def draw(n_in: int, *shape: int) -> torch.Tensor:
        values = (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(n_in)
        return values.requires_grad_()

    return [
        draw(block, HIDDEN, block), draw(block, HIDDEN), draw(HIDDEN, block, HIDDEN), draw(HIDDEN, block)
    ]  # fmt: skip


def _logits(layers: list[torch.Tensor], p: torch.Tensor) -> torch.Tensor:
    w1, b1, w2, b2 = layers
    return F.linear(F.relu(F.linear(p, w1, b1)), w2, b2)


@torch.no_grad()
def _judge(layers: list[torch.Tensor], traces: Traces) -> tuple[float, float, float]:
    """Return accuracy, the majority's accuracy and the loss over the masked positions."""
    p, is_final, is_masked = (torch.from_numpy(part) for part in traces[:3])
    logits, truth = _logits(layers, p)[is_masked], is_final[is_masked]
    share = float(truth.float().mean())
    accuracy = float(((logits > 0) == truth).float().mean())
    loss = float(F.binary_cross_entropy_with_logits(logits, truth.float()))
    return accuracy, max(share, 1 - share), loss


def save(made: Filter, path: Path, metadata: dict[str, Any]) -> None:
    """Write the filter as safetensors, its settings as the file's metadata; never half a file."""
    arrays = {name: np.ascontiguousarray(getattr(made, name), dtype=np.float32) for name in TENSORS}
    check_new_file(path, "the filter")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, serialize(arrays, {name: str(value) for name, value in metadata.items()}), "the filter")
