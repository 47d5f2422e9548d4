"""How a prompt is decoded: one frozen `Options` for the library, the command line, evaluation and lm-eval.

Options are given as an object, as keywords, or as a flat table of plain values (`Options.of`) in which the
fields of the decoder and of the cache stand beside the options themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypedDict, TypeVar

from ripple.caches import Cache, NoCache, cache
from ripple.decoders import Decoder, Glide, decoder, decoder_class
from ripple.errors import RippleError, unknown
from ripple.fields import Field, checked, fields_of, from_text, join_spec, param, split_spec

LOOKAHEADS = ("packed", "batched", "thin")
LENGTH, BLOCK = 256, 32  # positions, where nobody says otherwise
DECODER = Glide.name


@dataclass(frozen=True)
class Options:
    """How one prompt is decoded."""

    decoder: Decoder | str = param(
        DECODER, "name, preset or name:field=value,... (`ripple decoders` lists them)"
    )
    length: int | None = param(
        None,
        f"response positions to decode; none is {LENGTH}, or where a model attends block by block all that "
        "there is room for: its canvas grows until a block holds an end token",
        within="[1, inf)",
    )
    block: int | None = param(
        None, f"positions per block; none is {BLOCK}, or the length if that is smaller", within="[1, inf)"
    )
    cache: Cache | str = param("none", "name or name:field=value,... (`ripple caches` lists them)")
    lookahead: str = param(
        "packed", "branches packed behind the canvas, or batched: exact, one row each", choices=LOOKAHEADS
    )
    seed: int = param(0, "seed of sampling and of random choices", within="[0, inf)")
    temperature: float = param(0.0, "0 is greedy", within="[0, inf)")
    stop_at_end: bool = param(False, "stop at the first final end token instead of filling the canvas")
    end_fill: bool | None = param(
        None,
        "fill what follows a final end token with end tokens at once; none: as the decoder does (glide: yes)",
    )
    stop: Sequence[str] = param((), "stop when the final text contains one of these, and cut there")
    lookahead_budget: float | None = param(
        None,
        "under load, let a tick cost at most this share more than one with a few rows per request, by fewer "
        "branches and glide's narrower window; results then depend on company; none: no limit",
        within="[0, inf)",
    )
    trace: bool = param(False, "keep every forward and decision in the result")

    def __post_init__(self) -> None:
        for field in fields_of(Options).values():
            if field.name not in ("decoder", "cache", "stop"):
                object.__setattr__(self, field.name, checked("", field, getattr(self, field.name)))
        decoder(
            self.decoder
        )  # checked here; a name stays a name, for the model's family decides what it means
        object.__setattr__(self, "cache", cache(self.cache))
        object.__setattr__(self, "stop", _stops(self.stop))
        if self.block is not None and self.length is not None and self.block > self.length:
            raise RippleError(f"block must not exceed length {self.length}, got {self.block}.")

    @property
    def block_size(self) -> int:
        """Positions per block."""
        return min(BLOCK, self.length or LENGTH) if self.block is None else self.block

    def fills_end(self, decoder: Decoder) -> bool:
        """Whether a decoder's responses are filled behind their end."""
        return decoder.fills_end if self.end_fill is None else self.end_fill

    @property
    def policy(self) -> Cache:
        """The cache policy."""
        return cache(self.cache)

    @classmethod
    def of(cls, table: Mapping[str, Any], also: Iterable[str] = ()) -> Options:
        """Return the options of a flat table such as `{"decoder": "rps", "lam": 0.2, "cache": "dual"}`.

        A name is an option, a field of the chosen decoder or a field of the chosen cache. Values may be text.
        `also` are names that the caller has taken out, to be told when another name is unknown.
        """
        given = dict(table)
        chosen, policy = given.pop("decoder", DECODER), given.pop("cache", NoCache.name)
        decoder_fields = fields_of(type(decoder(chosen)))
        cache_fields, own = fields_of(type(cache(policy))), fields_of(cls)
        of_decoder = {name: given.pop(name) for name in decoder_fields if name in given}
        of_cache = {name: given.pop(name) for name in cache_fields if name in given}
        for name in given:
            if name not in own:
                raise unknown("option", name, [*own, *decoder_fields, *cache_fields, *also])
        values = {name: _plain(own[name], value) for name, value in given.items()}
        return cls(decoder=_with_fields(chosen, of_decoder), cache=cache(policy, **of_cache), **values)


T = TypeVar("T")
OneOrEach: TypeAlias = T | Sequence[T]  # a value for all prompts, or with several prompts one for each


class OptionFields(TypedDict, total=False):
    """The fields of `Options` as keywords."""

    decoder: OneOrEach[Decoder | str]
    length: OneOrEach[int | None]
    block: OneOrEach[int | None]
    cache: OneOrEach[Cache | str]
    lookahead: OneOrEach[str]
    seed: OneOrEach[int]
    temperature: OneOrEach[float]
    stop_at_end: OneOrEach[bool]
    end_fill: OneOrEach[bool | None]
    stop: OneOrEach[Sequence[str]]
    lookahead_budget: OneOrEach[float | None]
    trace: OneOrEach[bool]


def combine(options: Options | None, fields: Mapping[str, Any]) -> Options:
    """Return options with some fields changed; an unknown one names the nearest."""
    if options is not None and not isinstance(options, Options):
        raise RippleError(f"options must be ripple.Options, got {options!r}.")
    for name in fields:
        if name not in fields_of(Options):
            raise unknown("option", name, fields_of(Options))
    return Options(**fields) if options is None else replace(options, **fields)


def merged(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat table with another's values over it; the fields of a decoder that is replaced go with it.

    So do those of a cache.
    """
    left = dict(table)
    for name, default, class_of in (
        ("decoder", DECODER, _decoder_class), ("cache", NoCache.name, lambda chosen: type(cache(chosen))),
    ):  # fmt: skip
        if table and name in over:
            before = class_of(table.get(name, default))
            if class_of(over[name]) is not before:
                left = {name: value for name, value in left.items() if name not in fields_of(before)}
    return left | dict(over)


def per_prompt(
    n: int, options: Options | Sequence[Options] | None, fields: Mapping[str, Any]
) -> list[Options]:
    """Return the options of each of n prompts; a list is taken prompt by prompt, anything else holds for all.

    `stop` is a list by nature: a list of lists is taken prompt by prompt.
    """
    bases = list(options) if isinstance(options, Sequence) else [options] * n
    lists = {
        name: value
        for name, value in fields.items()
        if isinstance(value, list | tuple)
        and (name != "stop" or isinstance(next(iter(value), None), list | tuple))
    }
    for name, values in {"options": bases, **lists}.items():
        if len(values) != n:
            raise RippleError(f"{name} must hold one value for each of the {n} prompts, got {len(values)}.")
    shared = {name: value for name, value in fields.items() if name not in lists}
    if not lists and not isinstance(options, Sequence):
        return [combine(options, shared)] * n
    return [
        combine(base, shared | {name: values[i] for name, values in lists.items()})
        for i, base in enumerate(bases)
    ]


def _plain(field: Field, value: Any) -> Any:
    """Return an option's value from a table, where it may be text."""
    if field.name == "stop" or not isinstance(value, str):
        return value
    return from_text("", field, value)


def _decoder_class(chosen: Decoder | str) -> type[Decoder]:
    return decoder_class(chosen) if isinstance(chosen, str) else type(decoder(chosen))


def _with_fields(chosen: Decoder | str, fields: Mapping[str, Any]) -> Decoder | str:
    """Return a decoder or spec with some fields changed; a spec stays one."""
    if not isinstance(chosen, str):
        return decoder(chosen, **fields)
    name, given = split_spec(chosen)
    return join_spec(name, given | dict(fields))


def _stops(stop: object) -> tuple[str, ...]:
    """Return stop strings as a tuple; one string is a list of one."""
    stops = (stop,) if isinstance(stop, str) else stop
    if not isinstance(stops, Sequence) or not all(isinstance(text, str) and text for text in stops):
        raise RippleError(f"stop must be a list of non-empty strings, got {stop!r}.")
    return tuple(stops)
