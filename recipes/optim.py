"""Muon for the hidden matrices, with all matrices of one shape in one batched product; AdamW for the rest.

torch.optim.Muon does the same arithmetic one matrix at a time: some 900 small launches per step for 56
matrices, as much time as the network itself. Here a step is about 50 launches.
"""

from __future__ import annotations

import torch
from network import MATRICES, Network
from torch import Tensor

_NS = (3.4445, -4.7750, 2.0315)  # the quintic that drives singular values towards 1


def orthogonalise(x: Tensor, steps: int = 5) -> Tensor:
    """Return the nearest semi-orthogonal matrices of a batch [n, rows, columns], approximately."""
    a, b, c = _NS
    tall = x.shape[1] > x.shape[2]
    y = x.to(torch.bfloat16) if x.is_cuda else x
    y = y.mT if tall else y
    y = y / (y.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = y @ y.mT
        y = a * y + (b * gram + c * gram @ gram) @ y
    return (y.mT if tall else y).to(x.dtype)


class Muon:
    """Momentum, orthogonalised, scaled to AdamW's typical update size (`match_rms_adamw`)."""

    def __init__(self, named: dict[str, Tensor], momentum: float = 0.95, decay: float = 0.05) -> None:
        self.momentum, self.decay = momentum, decay
        self.groups: dict[torch.Size, list[str]] = {}
        for name, p in named.items():
            self.groups.setdefault(p.shape, []).append(name)
        self.named = named
        self.buffers = {
            shape: torch.zeros(len(names), *shape, device=named[names[0]].device)
            for shape, names in self.groups.items()
        }

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update all matrices from their gradients."""
        for shape, names in self.groups.items():
            params = [self.named[name] for name in names]
            grad = torch.stack([p.grad for p in params if p.grad is not None])
            buffer = self.buffers[shape].lerp_(grad, 1 - self.momentum)
            update = orthogonalise(grad.lerp_(buffer, self.momentum))
            size = lr * 0.2 * max(shape) ** 0.5
            torch._foreach_mul_(params, 1 - lr * self.decay)
            torch._foreach_add_(params, list(update.unbind()), alpha=-size)

    def state(self) -> dict[str, Tensor]:
        """Return the momentum of each matrix by name."""
        return {n: self.buffers[s][i] for s, names in self.groups.items() for i, n in enumerate(names)}


class Optimizer:
    """Both optimisers behind one step."""

    def __init__(self, model: Network, muon_lr: float = 2e-3, adam_lr: float = 2e-3) -> None:
        named = dict(model.named_parameters())
        matrices = {n: p for n, p in named.items() if n.rsplit(".", 1)[-1] in MATRICES}
        self.others = {n: p for n, p in named.items() if n not in matrices}
        self.muon, self.muon_lr, self.adam_lr = Muon(matrices), muon_lr, adam_lr
        self.adam = torch.optim.AdamW(
            list(self.others.values()), lr=adam_lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0,
            fused=next(iter(named.values())).is_cuda,
        )  # fmt: skip

    def step(self, scale: float) -> None:
        """Apply one step with both learning rates times `scale`, and clear the gradients."""
        for group in self.adam.param_groups:
            group["lr"] = self.adam_lr * scale
        self.muon.step(self.muon_lr * scale)
        self.adam.step()
        for p in (*self.muon.named.values(), *self.others.values()):
            p.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return all optimiser tensors by name."""
        out = {f"muon.{name}": value for name, value in self.muon.state().items()}
        for name, p in self.others.items():
            state = self.adam.state.get(p, {})
            if state:
                out |= {f"adam1.{name}": state["exp_avg"], f"adam2.{name}": state["exp_avg_sq"]}
        return out

    def restore(self, tensors: dict[str, Tensor], steps: int) -> None:
        """Put saved optimiser tensors back."""
        for name, value in self.muon.state().items():
            value.copy_(tensors[f"muon.{name}"])
        for name, p in self.others.items():
            if f"adam1.{name}" in tensors:
                self.adam.state[p] = {
                    "step": torch.tensor(float(steps), device=p.device if p.is_cuda else "cpu"),
                    "exp_avg": tensors[f"adam1.{name}"].to(p.device, torch.float32),
                    "exp_avg_sq": tensors[f"adam2.{name}"].to(p.device, torch.float32),
                }
