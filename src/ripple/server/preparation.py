"""From a body to requests: what it asks for is checked against the model and the server's limits."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ripple.decoders import Decoder, Learn2PD, decoder
from ripple.engine.engine import Engine
from ripple.engine.prompts import token_ids
from ripple.engine.request import Request
from ripple.errors import RippleError
from ripple.fields import fields_of
from ripple.options import LENGTH, Options
from ripple.server.failures import Refusal, refused_option
from ripple.server.options import ServerOptions
from ripple.server.schema import LONGEST_SPEC, SEEDS, STREAMS, AnyPrompt, DecodeRequest
from ripple.server.streams import ClientGone
from ripple.tokenizer import Tokenizer

OUTER = ("temperature", "seed", "stop")  # options that are fields of OpenAI's, too
CHARACTERS = 16  # per position: text with more of them is tried in part before it is tokenised


class Preparation:
    """Makes requests for one engine; `options` are those of bodies that do not say otherwise."""

    def __init__(self, engine: Engine, name: str, options: Options, limits: ServerOptions) -> None:
        self._engine = engine
        self._name = name
        self._options = options
        self._limits = limits

    def requests(self, body: DecodeRequest, is_wanted: Callable[[], bool]) -> list[Request]:
        """Return the requests of a body: every choice of the first prompt, then of the next.

        `is_wanted` is asked between two prompts.
        """
        self.check_model(body.model)
        n, prompts = body.n or 1, body.prompts
        if len(prompts) * n > self._engine.queue_limit:
            raise Refusal(
                400,
                f"{len(prompts)} prompts with {n} choices each do not fit the queue of "
                f"{self._engine.queue_limit} requests.",
                "n" if n > 1 else "prompt",
            )
        choices = self._choices(body, n)
        made: list[Request] = []
        for prompt in prompts:
            if not is_wanted():
                raise ClientGone
            try:
                ids = self._ids(prompt)
                made += [self._prepared(ids, options) for options in choices]
            except RippleError as error:
                raise Refusal(400, str(error), body.prompt_field) from None
        return made

    def _prepared(self, ids: Any, options: Options) -> Request:
        """Return a request; where nobody has said its length, the server's limit holds."""
        request, most = self._engine.prepare(ids, options), self._limits.max_length
        if options.length is None and most is not None and request.length > most:
            return self._engine.prepare(ids, replace(options, length=most))
        return request

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served here."""
        if name is not None and name != self._name:
            raise Refusal(
                404, f"There is no model {name[:200]!r} here; this server has {self._name!r}.", "model",
                "model_not_found",
            )  # fmt: skip

    # -- prompts ------------------------------------------------------------------------------------

    def _ids(self, prompt: AnyPrompt) -> Any:
        """Return the token ids of a prompt that may fit."""
        tokenizer, most = self._engine.tokenizer, self._engine.model.config.max_positions
        if surely_exceeds(most, prompt, tokenizer):
            raise RippleError(f"The prompt has more tokens than the model's {most} positions.")
        return token_ids(prompt, tokenizer, self._engine.model.config)

    # -- options ------------------------------------------------------------------------------------

    def _choices(self, body: DecodeRequest, n: int) -> list[Options]:
        """Return the options of each choice, which differ in their seeds."""
        options = self._chosen(body)
        seed = options.seed
        if body.seed is None and "seed" not in (body.ripple or {}) and options.temperature:
            seed = secrets.randbits(32)
        return [replace(options, seed=(seed + number) % SEEDS) for number in range(n)]

    def _chosen(self, body: DecodeRequest) -> Options:
        """Return the server's options with what a body says otherwise."""
        ours = dict(body.ripple or {})
        for name, value in ours.items():
            if isinstance(value, str) and len(value) > LONGEST_SPEC:
                raise Refusal(
                    400,
                    f"ripple.{name[:80]} is longer than {LONGEST_SPEC} characters.",
                    f"ripple.{name[:80]}",
                )
        stream = ours.pop("stream", STREAMS[0])
        if stream not in STREAMS:
            raise Refusal(400, f"ripple.stream must be text or canvas, got {stream!r}.", "ripple.stream")
        if stream == "canvas" and not body.stream:
            raise Refusal(400, "A stream of the canvas needs stream: true.", "ripple.stream")
        length = self._length(body, ours.pop("length", None))
        table = _table(self._options) | {"length": length} | ours
        if "block" not in ours and self._options.block is not None:
            table["block"] = min(self._options.block, length or LENGTH)
        outer = {name: value for name in OUTER if (value := getattr(body, name)) is not None}
        for name in outer.keys() & ours.keys():
            if outer[name] != ours[name]:
                message = f"ripple.{name} is {ours[name]!r} and {name} {outer[name]!r}: give one of them."
                raise Refusal(400, message, f"ripple.{name}")
        table |= outer
        if body.ignore_eos:
            table |= {"stop_at_end": False, "end_fill": False}
        try:
            options = Options.of(table, also=("stream",))
            _check_files(decoder(options.decoder), decoder(self._options.decoder))
            self._engine.decoder_of(options)
        except RippleError as error:
            raise refused_option(error, body.ripple or {}, outer.keys() - ours.keys()) from None
        if options.lookahead_budget is not None and self._options.lookahead_budget is None:
            message = (
                "ripple.lookahead_budget needs a server that was started with --lookahead-budget, for it "
                "measures then what a forward costs."
            )
            raise Refusal(400, message, "ripple.lookahead_budget")
        return options

    def _length(self, body: DecodeRequest, ours: Any) -> int | None:
        """Return the response positions, which have two names of OpenAI's and one of ours."""
        ours = int(ours) if isinstance(ours, str) and ours.isdecimal() else ours
        if ours is not None and (isinstance(ours, bool) or not isinstance(ours, int) or ours < 1):
            raise Refusal(
                400, f"ripple.length must be a whole number from 1 on, got {ours!r}.", "ripple.length"
            )
        theirs = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
        if ours is not None and body.length is not None and ours != body.length:
            message = f"ripple.length is {ours} and {theirs} {body.length}: give one of them."
            raise Refusal(400, message, "ripple.length")
        given = body.length if ours is None else ours
        if given is None:
            return self._options.length
        name, positions = theirs if ours is None else "ripple.length", self._engine.model.config.max_positions
        if given >= positions:
            message = f"{name} must be less than the model's {positions} positions, got {given}."
            raise Refusal(400, message, name)
        most = self._limits.max_length
        if most is not None and given > most:
            raise Refusal(400, f"{name} must be at most {most} on this server, got {given}.", name)
        return int(given)


def surely_exceeds(most: int, prompt: AnyPrompt, tokenizer: Tokenizer | None) -> bool:
    """Say whether a prompt has more than `most` tokens, where a part of its text is enough to see that.

    The part must have twice as many: it ends in the middle of a word, which as a whole may take fewer.
    """
    if isinstance(prompt, str):
        text = prompt
    elif len(prompt) > most:  # token ids, or messages of at least one
        return True
    else:
        text = "\n".join(message["content"] for message in prompt if isinstance(message, dict))
    size = CHARACTERS * most
    while tokenizer is not None and size < len(text):
        if len(tokenizer.encode(text[:size])) > 2 * most:
            return True
        size *= 2
    return False


def _table(options: Options) -> dict[str, Any]:
    """Return options as a flat table, in which another decoder's or cache's name replaces all its fields."""
    table = {name: getattr(options, name) for name in fields_of(Options) if name != "trace"}
    return table | {"cache": options.policy.describe()}


def _check_files(chosen: Decoder, own: Any) -> None:
    """Refuse a client's decoder that names a file of this machine."""
    for name, field in fields_of(type(chosen)).items():
        value = getattr(chosen, name)
        allowed = getattr(own, name, None) if type(own) is type(chosen) else None
        if isinstance(value, Decoder):
            _check_files(value, allowed)
        names_file = isinstance(value, Path) or (isinstance(chosen, Learn2PD) and name == "filter")
        if names_file and value not in (allowed, field.default):
            raise Refusal(400, f"ripple.{name} names a file, which a request may not.", f"ripple.{name}")
