"""One request's life: its canvas, its conversation with the decoder, its counts and its cache.

Counting exists here and nowhere else.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

from ripple.caches import Progress
from ripple.canvas import Canvas, Ints
from ripple.engine.memory import LookMemory
from ripple.engine.plan import Reading, lay_out
from ripple.engine.result import Result, Settings
from ripple.errors import RippleError
from ripple.look import Answer, Ask
from ripple.models.records import ModelConfig
from ripple.text import Text
from ripple.trace import VERSION, Event

_numbers = itertools.count()


class Session:
    """A request that is waiting, live or finished."""

    def __init__(self, prompt: Ints, settings: Settings, config: ModelConfig, text: Text | None) -> None:
        self.number = next(_numbers)
        self.settings = settings
        self.config = config
        self.text = text
        self.canvas = Canvas(prompt, settings.length, settings.block, config.mask_id, settings.seed)
        self.conversation = settings.decoder.decode(self.canvas)
        self.wants = settings.decoder.wants
        self.ask: Ask | None = None
        self.nfe_normal = self.nfe_lookahead = self.rows = 0
        self.events: list[Event] = []
        self.listens = settings.trace
        self.finish: str | None = None
        self.error: RippleError | None = None
        self.seconds = 0.0
        self.slot: int | None = None  # where the engine keeps this request's frozen keys
        self.memory: LookMemory | None = None  # given on admission to requests that want KL
        self.progress = Progress.of(self.canvas, config.logit_shift)
        self._has_opened = False  # whether the last forward opened a block or refreshed it
        self._t0 = time.perf_counter()

    # -- life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Admit the request: begin the conversation and the clock."""
        self._t0 = time.perf_counter()
        if self.listens:
            self.canvas.observer = self._record
        self._record("start", self._start_facts())
        self._advance(None)

    def cancel(self) -> None:
        """Stop as soon as the current tick is over."""
        if self.finish is None:
            self._close("cancelled")

    def resume(self, answer: Answer, seconds: float) -> None:
        """Count one forward, tell the decoder what was seen and take its next ask."""
        ask = self.ask
        assert ask is not None, "only a request that waits for a forward can be resumed"
        if ask.branches:
            self.nfe_lookahead += 1
        else:
            self.nfe_normal += 1
        n_canvases = 1 + len(ask.branches) + bool(ask.shadow)
        self.rows += n_canvases
        self.progress.hear(answer)
        if self.listens:
            self._record("forward", self._forward_facts(ask, answer, n_canvases, seconds))
        if self.nfe > self._most_forwards:
            self.fail(f"the decoder has not filled {self.settings.length} positions in {self.nfe} forwards")
        elif self._first_by_force(ask, answer):
            return
        else:
            self._advance(answer)

    def fail(self, reason: str) -> None:
        """End the request with an error."""
        self.error = RippleError(f"Forward {self.nfe} of request {self.number}: {reason}.")
        self._close("error")

    @property
    def nfe(self) -> int:
        """Forwards waited for so far."""
        return self.nfe_normal + self.nfe_lookahead

    @property
    def _most_forwards(self) -> int:
        # Every decoder commits at least one token per forward, revocations included on average.
        return 4 * self.settings.length + 64

    def _advance(self, answer: Answer | None) -> None:
        try:
            self.ask = next(self.conversation) if answer is None else self.conversation.send(answer)
        except StopIteration:
            self._close("length")
            return
        if self.settings.stop_at_end or self.settings.stop:
            self._maybe_stop()

    def _close(self, finish: str) -> None:
        self.finish = finish
        self.ask = None
        self.conversation.close()
        self.seconds = time.perf_counter() - self._t0

    # -- cache --------------------------------------------------------------------------------------

    @property
    def is_cached(self) -> bool:
        """Whether this request keeps keys between forwards."""
        return self.settings.cache.name != "none"

    @property
    def opens(self) -> bool:
        """Whether the pending ask recomputes all that its cache ever does: a new block, or a refresh."""
        return self.is_cached and self.settings.cache.opens(self._now())

    def plan(self) -> Reading:
        """Lay the pending ask out as strips, and note what that does to the cache."""
        self._has_opened = self.opens
        reading = self.lay_out(self.settings.lookahead == "packed")
        base, now = reading.base.strip, self.progress
        if base.keeps is not None:
            now.kept[base.pos] = base.ids
        now.step += 1
        return reading

    def lay_out(self, packed: bool) -> Reading:
        """Lay the pending ask out with packed or with exact branches."""
        assert self.ask is not None
        now, cache, opens = self._now(), self.settings.cache, self.opens
        live = cache.opening(now) if opens else cache.inside(now)
        slot = self.slot if len(live) < len(self.canvas.ids) else None
        keeps = self.slot if opens or cache.keeps_all else None
        return lay_out(self.canvas, self.ask, live, now.lead, packed, slot, keeps)

    def _now(self) -> Progress:
        """Return the progress as it stands before the pending ask; a new window starts a new count."""
        assert self.ask is not None
        if self.ask.window != self.progress.window:
            self.progress.window, self.progress.step = self.ask.window, 0
        return self.progress

    def _first_by_force(self, ask: Ask, answer: Answer) -> bool:
        """Commit a block's first token and nothing else, as Fast-dLLM's cached Dream does, when asked to."""
        look = answer.base
        if not (self.settings.cache.stock_first and self.config.logit_shift and self.is_cached):
            return False
        if not self._has_opened or len(look) < 2 or look.pos[0] != ask.window.start:
            return False
        self.canvas.commit(look.pos[:1], look.token[:1], look.p[:1], "forced")
        return True  # the same ask again, now on frozen keys

    # -- text and stops -----------------------------------------------------------------------------

    def settled(self) -> Ints:
        """Return the response tokens that can no longer change: up to the first mask, or the open block."""
        canvas, window = self.canvas, self.ask.window if self.ask else None
        masked = np.flatnonzero(canvas.response == canvas.mask_id)
        stop = int(masked[0]) if len(masked) else len(canvas.response)
        if window is not None and self.settings.decoder.revokes:
            stop = min(stop, window.start - canvas.prompt_len)
        return canvas.response[:stop]

    def settled_text(self) -> str:
        """Return the text that can no longer change, up to the first end token or stop string."""
        return self._cut(self._decode(self._until_end(self.settled().tolist())))

    def _maybe_stop(self) -> None:
        settled = self.settled()
        if self.settings.stop_at_end and np.isin(settled, self.config.end_ids).any():
            self._close("end")
        elif self.settings.stop:
            text = self._decode(self._until_end(settled.tolist()))
            if any(stop in text for stop in self.settings.stop):
                self._close("stop")

    def _until_end(self, ids: list[int]) -> list[int]:
        ends = [i for i, token in enumerate(ids) if token in self.config.end_ids]
        return ids[: ends[0] + 1] if ends else ids

    def _cut(self, text: str) -> str:
        found = [at for stop in self.settings.stop if (at := text.find(stop)) >= 0]
        return text[: min(found)] if found else text

    def _decode(self, ids: list[int]) -> str:
        return self.text.decode([i for i in ids if i != self.config.mask_id]) if self.text else ""

    # -- what is told -------------------------------------------------------------------------------

    def result(self) -> Result:
        """Return the finished request's result, or raise its error."""
        if self.error is not None:
            raise self.error
        assert self.finish is not None, "the request is still running"
        ids = self.canvas.response.tolist()
        new = self._until_end(ids if self.finish == "length" else self.settled().tolist())
        result = Result(
            text=self._cut(self._decode(new)),
            token_ids=ids,
            new_tokens=new,
            nfe_normal=self.nfe_normal,
            nfe_lookahead=self.nfe_lookahead,
            rows=self.rows,
            seconds=self.seconds,
            finish=self.finish,
            prompt_tokens=self.canvas.prompt_len,
            trace=self.events if self.settings.trace else None,
        )
        if self.listens and (not self.events or self.events[-1].kind != "end"):
            self._record("end", self._end_facts(result))
        return result

    def _record(self, kind: str, data: dict[str, Any]) -> None:
        if self.listens:
            self.events.append(Event(kind, time.perf_counter() - self._t0, data))

    def _start_facts(self) -> dict[str, Any]:
        s = self.settings
        return {
            "v": VERSION, "decoder": s.decoder.name, "fields": s.decoder.settings(), "length": s.length,
            "block": s.block, "cache": s.cache.describe(), "lookahead": s.lookahead, "seed": s.seed,
            "temperature": s.temperature, "mask_id": self.config.mask_id,
            "prompt": self.canvas.ids[: self.canvas.prompt_len].tolist(),
        }  # fmt: skip

    def _forward_facts(self, ask: Ask, answer: Answer, n_canvases: int, seconds: float) -> dict[str, Any]:
        return {
            "nfe": self.nfe, "kind": "lookahead" if ask.branches else "normal", "window": list(ask.window),
            "rows": n_canvases, "seconds": round(seconds, 6), "pos": answer.base.pos.tolist(),
            "token": answer.base.token.tolist(), "p": answer.base.p.tolist(),
            "entropy": answer.base.entropy.tolist(),
        }  # fmt: skip

    def _end_facts(self, result: Result) -> dict[str, Any]:
        used = {int(i) for i in self.canvas.ids if i != self.config.mask_id}
        for event in self.events:
            used.update(event.data.get("token", ()))
        pieces = (
            {str(i): self.text.decode([i], skip_special=False) for i in sorted(used)} if self.text else {}
        )
        return {
            "finish": result.finish, "nfe_normal": result.nfe_normal, "nfe_lookahead": result.nfe_lookahead,
            "rows": result.rows, "seconds": round(result.seconds, 6), "text": result.text,
            "token": result.token_ids, "pieces": pieces,
        }  # fmt: skip
