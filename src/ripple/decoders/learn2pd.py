"""Learn2PD: a tiny trained filter says which predictions are already the final ones.

The filter is a two-layer network on the top-1 probabilities of one block. It is trained on decodings of the
model at hand (`ripple train-filter`) and kept as safetensors; reading and running it needs no torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from ripple.canvas import Canvas, Floats, Ints, Rows
from ripple.decoders.base import Conversation, Pick, Picker, Rule, Setup, commit, top_rows
from ripple.errors import RippleError
from ripple.fields import param
from ripple.look import Ask, Look

EMBEDDED = Path(__file__).parent.parent / "embedded"  # models that come with a filter trained for them
FILTER_FILE = "filter.safetensors"
AUTO = "auto"  # the filter beside the model's weights
TENSORS = ("w1", "b1", "w2", "b2")  # [hidden, block], [hidden], [block, hidden], [block]


@dataclass(frozen=True)
class Learn2PD(Rule):
    """Commit what the filter takes for final, and always the surest position.

    As published but for three things. A position that is already revealed enters the filter with
    probability 1 (the released code reads the model's prediction there, which is about 1). A block shorter
    than the filter's counts as one whose missing positions are revealed. And where the end-of-text
    rule cuts the canvas off behind an end token, here the rest is filled with end tokens.
    """

    name = "learn2pd"
    paper = "Learn2PD, arXiv 2509.25188"

    filter: str = param(
        "auto", "an embedded model's name or a file; auto is the one that lies in the model's own folder"
    )
    threshold: float = param(0.96, "commit where the filter's probability exceeds it", within="(0, 1]")
    end_token: int = param(-1, "end-of-text rule: the end token's id; -1 is off", within="[-1, inf)")

    def fitted(self, setup: Setup) -> Self:
        """Find the model's own filter and check that it was trained for blocks as long as these."""
        name = self.filter if self.filter != AUTO else _own_filter(setup.folder)
        model = read_filter(name)
        if setup.block > model.block:
            raise RippleError(
                f"learn2pd: the filter {name!r} was trained for blocks of {model.block}, "
                f"which a block of {setup.block} exceeds."
            )
        return replace(self, filter=name)

    def decode(self, canvas: Canvas) -> Conversation:
        """Look, commit what the filter takes for final, and fill behind an end."""
        judge = self._judge(canvas)
        for window in canvas.windows():
            while len(canvas.masked(window)):
                answer = yield Ask(window, ahead=self.end_token >= 0)
                accepted = judge(answer.base)
                commit(canvas, answer.base, _with_best(answer.base, accepted))
                if self.end_token >= 0:
                    self._fill_behind_end(canvas, answer.base, accepted, answer.ahead)

    def picker(self, canvas: Canvas) -> Picker:
        """Judge each look with the filter."""
        judge = self._judge(canvas)
        return lambda look, ahead: _with_best(look, judge(look))

    def _judge(self, canvas: Canvas) -> Callable[[Look], Rows]:
        """Return the function that says which rows of a look the filter takes for final."""
        model = read_filter(self.filter)

        def judge(look: Look) -> Rows:
            at = look.pos - canvas.block_at(int(look.pos[0])).start
            p = np.ones(model.block, dtype=np.float32)
            p[at] = look.p
            accepted: Rows = model(p)[at] > self.threshold
            return accepted

        return judge

    def _fill_behind_end(self, canvas: Canvas, look: Look, accepted: Rows, ahead: Look | None) -> None:
        """Fill what follows the first accepted end token, or else the surest predicted one, anywhere."""
        ends = look.pos[accepted & (look.token == self.end_token)][:1]
        if not len(ends):
            looks = [part for part in (look, ahead) if part is not None]
            pos = np.concatenate([part.pos[part.token == self.end_token] for part in looks])
            p = np.concatenate([part.p[part.token == self.end_token] for part in looks])
            ends = pos[np.argsort(-p, kind="stable")[:1]]
        if len(ends):
            response = np.arange(canvas.prompt_len, len(canvas.ids))
            rest: Ints = response[(canvas.response == canvas.mask_id) & (response > ends[0])]
            sure = np.ones(len(rest), dtype=np.float32)
            canvas.commit(rest, np.full(len(rest), self.end_token), sure, "end")


def _with_best(look: Look, accepted: Rows) -> Pick:
    """Add the surest row, so that every step makes progress."""
    return accepted | top_rows(look.p, 1), "standard" if accepted.any() else "fallback"


@dataclass(frozen=True, eq=False)
class Filter:
    """Two layers with a ReLU between them, one logit per position of the block."""

    w1: Floats
    b1: Floats
    w2: Floats
    b2: Floats
    metadata: dict[str, str]

    @property
    def block(self) -> int:
        """Positions of the blocks that it judges."""
        return len(self.b2)

    def __call__(self, p: Floats) -> Floats:
        """Return how probable it is that each top-1 prediction is final, from their probabilities [block]."""
        hidden = np.maximum(self.w1 @ p + self.b1, 0)
        logits = self.w2 @ hidden + self.b2
        score: Floats = np.exp(-np.logaddexp(np.float32(0), -logits))  # the sigmoid, without overflow
        return score


def _own_filter(folder: Path | None) -> str:
    """Return the name of the filter in a checkpoint's folder."""
    if folder is None or not (folder / FILTER_FILE).is_file():
        raise RippleError(
            f"learn2pd: this model has no {FILTER_FILE} in its folder; `ripple train-filter` makes one, and "
            "--filter names it."
        )
    return folder.name if folder.parent == EMBEDDED else str(folder / FILTER_FILE)


def filter_path(name: str) -> Path:
    """Return the file of an embedded model's filter, or the file of that name."""
    path = EMBEDDED / name / FILTER_FILE if name and "/" not in name else Path(name)
    if path.is_file():
        return path
    if Path(name).is_file():
        return Path(name)
    known = ", ".join(sorted(file.parent.name for file in EMBEDDED.glob(f"*/{FILTER_FILE}")))
    raise RippleError(
        f"learn2pd: {name!r} is neither a filter file nor an embedded model with one ({known}). "
        "`ripple train-filter` makes one."
    )


def read_filter(name: str) -> Filter:
    """Read a filter, once per version of its file."""
    path = filter_path(name)
    return _read(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=16)
def _read(path: Path, _version: int) -> Filter:
    """Read the four fp32 tensors and the metadata of a safetensors file, checking every size."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in TENSORS}
        if any(array.dtype != np.float32 for array in arrays.values()):
            raise TypeError("not fp32")
    except (SafetensorError, OSError, TypeError):  # TypeError: also for types that numpy does not have
        raise RippleError(f"{path} is not a filter made by `ripple train-filter`.") from None
    hidden, block = arrays["w1"].shape if arrays["w1"].ndim == 2 else (0, 0)
    if [arrays[name].shape for name in TENSORS[1:]] != [(hidden,), (block, hidden), (block,)]:
        raise RippleError(f"{path} is a filter whose layers do not fit together.")
    return Filter(**arrays, metadata=metadata)
