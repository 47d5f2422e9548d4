"""A small batched block-wise decoder, used only to judge the network while it trains."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from network import Network
from noise import BLOCK, block_causal

from ripple.tasks import TASKS, Item

HELD_OUT = (
    100_000  # items of the test stream from this index on: never trained on, and not the fixed test set
)


@dataclass(frozen=True, slots=True)
class Score:
    """Held-out accuracy per family, and the mean number of forwards per item."""

    accuracy: dict[str, float]
    forwards: float


def held_out(per_task: int) -> list[Item]:
    """Return held-out items of every family."""
    return [task.generate("test", HELD_OUT + i) for task in TASKS.values() for i in range(per_task)]


@torch.no_grad()
def decode(
    model: Network,
    prompts: Sequence[list[int]],
    length: int,
    mask: int,
    eos: int,
    threshold: float | None,
    blocks: int = 99,
) -> tuple[list[list[int]], float]:
    """Fill canvases up to `length` positions, block by block; return responses and mean forwards per prompt.

    Without a threshold one token is committed per forward, the most confident one of the block; with it, all
    tokens at least that probable, and always one. At most `blocks` blocks are filled.
    """
    device = model.embed.device
    x = torch.full((len(prompts), length), mask, device=device)
    for i, ids in enumerate(prompts):
        x[i, : len(ids)] = torch.tensor(ids, device=device)
    begin = torch.tensor([len(ids) for ids in prompts], device=device)
    if model.sizes.blocks:
        begin = begin // BLOCK * BLOCK  # the prompt's tail shares the first block
    live = torch.arange(len(prompts), device=device)
    forwards = 0
    for number in range(min(blocks, -(-length // BLOCK))):
        part, start = x[live], begin[live]
        forwards += _fill_block(model, part, start + number * BLOCK, mask, threshold)
        x[live] = part
        canvas = torch.arange(length, device=device)[None] >= start[:, None]
        open_rows = ~((part == eos) & canvas).any(1) & (start + (number + 1) * BLOCK < length)
        live = live[open_rows]
        if len(live) == 0:
            break
    out = []
    for row, ids in zip(x.tolist(), prompts, strict=True):
        response = row[len(ids) :]
        out.append(response[: response.index(eos)] if eos in response else response)
    return out, forwards / len(prompts)


def _fill_block(model: Network, x: Tensor, first: Tensor, mask: int, threshold: float | None) -> int:
    """Fill one block of every row in place and return the number of row-forwards spent."""
    length = x.shape[1]
    at = first[:, None] + torch.arange(BLOCK, device=x.device)
    valid = at < length
    at = at.clamp(max=length - 1)
    source = at - model.sizes.shift
    sees = block_causal(length, x.device) if model.sizes.blocks else None
    spent = 0
    while True:
        hidden_rows = (x.gather(1, at) == mask) & valid
        left = int(hidden_rows.any(1).sum())
        if left == 0:
            return spent
        spent += left
        state = model.hidden(x, mask=sees)
        rows = state.gather(1, source[..., None].expand(-1, -1, state.shape[-1]))
        logits = model.logits(rows).float()
        logits[..., mask] = -torch.inf
        p, token = logits.softmax(-1).max(-1)
        p = torch.where(hidden_rows, p, -1.0)
        best = torch.nn.functional.one_hot(p.argmax(1), BLOCK).bool()
        commit = hidden_rows & (best if threshold is None else best | (p >= threshold))
        # Rows past the end share the clamped last position: write only what is committed.
        row, column = commit.nonzero(as_tuple=True)
        x[row, at[row, column]] = token[row, column]


def judge(
    model: Network,
    tok: Any,
    items: Sequence[Item],
    length: int,
    mask: int,
    eos: int,
    threshold: float | None,
    blocks: int = 99,
) -> tuple[Score, list[str]]:
    """Decode held-out items and score them; also return the responses."""
    prompts = [e.ids for e in tok.encode_batch([item.prompt for item in items])]
    responses: list[list[int]] = []
    spent = 0.0
    for i in range(0, len(prompts), 512):
        part = prompts[i : i + 512]
        decoded, mean = decode(model, part, length, mask, eos, threshold, blocks)
        responses += decoded
        spent += mean * len(part)
    texts = [tok.decode(ids) for ids in responses]
    accuracy = {}
    for name, task in TASKS.items():
        mine = [i for i, item in enumerate(items) if item.task == name]
        if mine:
            good = task.score_many([items[i] for i in mine], [texts[i] for i in mine])
            accuracy[name] = sum(good) / len(good)
    return Score(accuracy, spent / max(1, len(prompts))), texts
