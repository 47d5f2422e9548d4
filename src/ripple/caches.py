"""Caches: which positions a forward recomputes, and which keep the keys of an earlier one.

A policy is one question, asked before every forward: which positions are *live*? All others are read from the
request's stored keys. `none` answers "all of them" always, which makes it the reference that the others
are tested against. A policy may look at the canvas, at the token whose keys are stored at each
position, and at how sure the model was there (`Progress`); it never sees a tensor.
"""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, get_type_hints

import numpy as np

from ripple.canvas import Canvas, Floats, Ints, Rows, Window
from ripple.errors import RippleError, unknown
from ripple.look import Answer

NO_KEYS = -1  # what `Progress.kept` holds where no keys are stored


@dataclass(slots=True)
class Progress:
    """What a policy may know about a request before its next forward."""

    canvas: Canvas
    lead: int  # rows by which a prediction precedes its position: 1 with logit shift, else 0
    kept: Ints  # [N] the token whose keys are stored, or NO_KEYS
    confidence: Floats  # [N] P_max at the last look at a position; 1 before the first
    window: Window  # the block that will be read
    step: int = 0  # forwards that this block has had

    @classmethod
    def of(cls, canvas: Canvas, lead: int) -> Progress:
        """Return the progress of a request that has had no forward."""
        n = len(canvas.ids)
        return cls(canvas, lead, np.full(n, NO_KEYS), np.ones(n, dtype=np.float32), Window(0, 0))

    def hear(self, answer: Answer) -> None:
        """Note how sure the model was at each position that was looked at."""
        for look in (answer.base, answer.ahead):
            if look is not None:
                self.confidence[look.pos] = look.p

    @property
    def needed(self) -> Ints:
        """The rows that must be live: the block's masks, which a what-if may fill, and their predictors."""
        masked = self.canvas.masked(self.window)
        return np.union1d(masked - self.lead, masked) if self.lead else masked

    @property
    def is_first(self) -> bool:
        """Whether no forward has left keys yet."""
        return bool(self.kept[-1] == NO_KEYS)

    @property
    def is_mask(self) -> Rows:
        """[N] which positions are masked."""
        mask: Rows = self.canvas.ids == self.canvas.mask_id
        return mask


@dataclass(frozen=True)
class Cache(ABC):
    """A policy. `refresh` = n recomputes everything at every n-th forward of a block; None = never."""

    name: ClassVar[str]
    keeps_all: ClassVar[bool] = False  # does every forward leave its keys, or only those that open?

    refresh: int | None = None
    stock_first: bool = False  # compatibility: commit a block's first token from the opening forward alone,
    # whatever its confidence, as Fast-dLLM does for models with a logit shift

    def __post_init__(self) -> None:
        if self.refresh is not None and self.refresh < 1:
            raise RippleError(f"Cache refresh must be at least 1 forward, got {self.refresh}.")

    def opens(self, now: Progress) -> bool:
        """Say whether the next forward recomputes everything it may and leaves its keys."""
        return now.step == 0 or (self.refresh is not None and now.step % self.refresh == 0)

    def opening(self, now: Progress) -> Ints:
        """Return the positions that an opening forward recomputes."""
        return np.arange(len(now.canvas.ids))

    @abstractmethod
    def inside(self, now: Progress) -> Ints:
        """Return the positions, ascending, that any other forward recomputes; `now.needed` is among them."""

    def describe(self) -> str:
        """Return the policy as `cache` reads it: its name and the fields that differ from their defaults."""
        changed = [
            f"{f.name}={str(value).lower()}"
            for f in dataclasses.fields(self)
            if (value := getattr(self, f.name)) != f.default
        ]
        return f"{self.name}:{','.join(changed)}" if changed else self.name


@dataclass(frozen=True)
class NoCache(Cache):
    """Recompute the whole canvas in every forward."""

    name = "none"

    def inside(self, now: Progress) -> Ints:
        """Return every position."""
        return self.opening(now)


@dataclass(frozen=True)
class PrefixCache(Cache):
    """Freeze what lies before the block; recompute the block and all masks after it (Fast-dLLM prefix)."""

    name = "prefix"

    def inside(self, now: Progress) -> Ints:
        """Return the block and everything after it."""
        return np.arange(now.window.start - now.lead, len(now.canvas.ids))


@dataclass(frozen=True)
class DualCache(Cache):
    """Freeze everything but the block (Fast-dLLM dual)."""

    name = "dual"

    keep_prompt: bool = False  # compute the prompt once and for all; blocks open with the response alone

    def opening(self, now: Progress) -> Ints:
        """Return every position, or all but the prompt when its keys are there to stay."""
        start = max(0, now.canvas.prompt_len - now.lead) if self.keep_prompt and not now.is_first else 0
        return np.arange(start, len(now.canvas.ids))

    def inside(self, now: Progress) -> Ints:
        """Return the block alone."""
        return np.arange(now.window.start - now.lead, now.window.stop)


@dataclass(frozen=True)
class DkvCache(Cache):
    """Freeze a token one forward after it was committed; recompute every mask (dKV-Cache, decode variant).

    The forward that follows a commit sees the new token for the first time and leaves its keys; the one after
    it reads them. Prompt tokens count as committed. The first two forwards of a block recompute
    everything, and so does every `refresh`-th. A branch of a packed lookahead recomputes the whole block.
    """

    name = "dkv"
    keeps_all = True

    refresh: int | None = 8  # the paper uses 4 to 16

    def opens(self, now: Progress) -> bool:
        """Say whether this is one of the block's first two forwards, or a refresh."""
        return now.step < 2 or super().opens(now)

    def inside(self, now: Progress) -> Ints:
        """Return the masks, the tokens no forward has seen in their place, and the rows that are needed."""
        live = now.is_mask | (now.kept != now.canvas.ids)
        live[now.needed] = True
        return np.flatnonzero(live)


@dataclass(frozen=True)
class D2Cache(Cache):
    """Recompute the masks likely to be decoded soon, fresh tokens, and a few others (after d2Cache).

    As published: the request's first forward computes everything. Then the `masks` masked positions with the
    highest confidence times certainty density are live, the block's before all others, and so is each
    token that was committed since; small gaps between live rows are closed. The density of a
    position is the share of known positions around it under a Gaussian of width σ.

    Ours: all masks of the block are live, since decoders look at them all; a position that nobody has looked
    at counts as sure, so that density alone ranks it. d2Cache picks the remaining tokens by attention
    rollout; weights never leave our attention, so we take the share `rest` nearest to a live row.
    """

    name = "d2"
    keeps_all = True

    masks: int = 32  # masked positions that are recomputed, k
    sigma: float = 10.0  # σ of the certainty density, positions
    gap: int = 4  # two live rows at most this far apart take all between them along
    rest: float = 0.1  # share of the remaining positions that are recomputed too; ours, see above

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.masks < 1 or self.gap < 0 or not self.sigma > 0 or not 0 <= self.rest <= 1:
            raise RippleError(
                "Cache d2 needs masks >= 1, gap >= 0, sigma > 0 and rest from 0 to 1, "
                f"got {self.masks}, {self.gap}, {self.sigma} and {self.rest}."
            )

    def opens(self, now: Progress) -> bool:
        """Say whether this is the request's first forward, or a refresh."""
        return now.is_first or (self.refresh is not None and now.step % self.refresh == 0)

    def inside(self, now: Progress) -> Ints:
        """Return the chosen masks' rows, the fresh tokens, and what lies between or near them."""
        live = (now.kept != now.canvas.ids) & ~now.is_mask
        live[now.needed] = True
        live[self._promising(now) - now.lead] = True
        at = np.flatnonzero(live)
        spans = np.diff(at)
        for i in np.flatnonzero((spans > 1) & (spans <= self.gap)):
            live[at[i] : at[i + 1]] = True
        others, at = np.flatnonzero(~live), np.flatnonzero(live)
        after = np.searchsorted(at, others)
        far = len(live)
        to_next = np.append(at, 2 * far)[after] - others
        to_last = others - np.append(at, -far)[after - 1]  # index -1 of the first ones is the far end
        nearest = np.argsort(np.minimum(to_next, to_last), kind="stable")
        live[others[nearest[: math.ceil(self.rest * len(others))]]] = True
        return np.flatnonzero(live)

    def _promising(self, now: Progress) -> Ints:
        """Return the masked positions with the best score, the block's first, among the next few blocks."""
        canvas, start = now.canvas, now.window.start
        masked = canvas.masked(Window(start, len(canvas.ids)))
        enough = masked[min(self.masks, len(masked)) - 1] - canvas.prompt_len  # where the k-th mask lies
        stop = canvas.prompt_len + (int(enough) // canvas.block + 1) * canvas.block
        masked = masked[masked < max(stop, now.window.stop)]
        density = certainty_density(canvas.response != canvas.mask_id, self.sigma)
        score = now.confidence[masked] * density[masked - canvas.prompt_len]
        score[masked < now.window.stop] += 1  # scores are at most 1: the block comes first
        return masked[np.argsort(-score, kind="stable")[: self.masks]]


def certainty_density(known: Rows, sigma: float) -> Floats:
    """Return the share of known positions around each, weighed by a Gaussian of width `sigma`.

    What lies before the response is known; what lies after it is as known as its last position.
    """
    reach = math.ceil(6 * sigma)  # beyond, the weight is below 2e-8
    weight = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    padded = np.concatenate([np.ones(reach), known, np.full(reach, float(known[-1]))])
    share: Floats = (np.convolve(padded, weight, mode="valid") / weight.sum()).astype(np.float32)
    return share


CACHES: dict[str, type[Cache]] = {
    cls.name: cls for cls in (NoCache, PrefixCache, DualCache, DkvCache, D2Cache)
}


def cache(name: str | Cache, /, **fields: Any) -> Cache:
    """Return the policy of that name, which may read `name:field=value,...`, with any fields changed."""
    if isinstance(name, Cache):
        start = name
    else:
        name, _, rest = name.partition(":")
        if name not in CACHES:
            raise unknown("cache", name, CACHES)
        start = CACHES[name]()
        pairs = [pair.partition("=") for pair in rest.split(",") if rest]
        fields = {field.strip().replace("-", "_"): _value(text) for field, _, text in pairs} | fields
    kinds = get_type_hints(type(start))
    known = [f.name for f in dataclasses.fields(start)]
    for field, value in fields.items():
        if field not in known:
            raise unknown(f"field of cache {start.name!r},", field, known)
        kind = float | int if kinds[field] is float else kinds[field]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            allowed = getattr(kinds[field], "__name__", str(kinds[field]))
            raise RippleError(f"Cache {start.name}: {field} must be {allowed}, got {value!r}.")
    return dataclasses.replace(start, **fields) if fields else start


def _value(text: str) -> Any:
    """Read `true`, `4`, `0.5` or `none`; anything else stays text, which no field takes."""
    try:
        return None if text.lower() == "none" else json.loads(text.lower())
    except json.JSONDecodeError:
        return text
