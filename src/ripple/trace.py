"""Traces: one event per forward and per decision, as JSON lines; docs/trace.md documents the format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripple.errors import RippleError
from ripple.files import parse_lines, write_lines

VERSION = 3  # 1 and 2 are read, too
FINISHES = ("end", "length", "stop", "cancelled", "incomplete")  # how a response may end
LONGEST = 1 << 20  # response positions

_NUMBER = (int, float)
_OPTIONAL_NUMBER = (int, float, type(None))
# Per kind of event: the type of each field; a list holds the types of a list's members.
_FIELDS: dict[str, dict[str, Any]] = {
    "start": {
        "v": (int,), "decoder": (str,), "fields": (dict,), "length": (int,), "block": (int,), "cache": (str,),
        "lookahead": (str,), "seed": (int,), "temperature": _NUMBER, "mask_id": (int,), "prompt": [int],
        "prompt_text": (str,),
    },
    "forward": {
        "nfe": (int,), "kind": (str,), "window": [int], "canvases": (int,), "seconds": _NUMBER, "pos": [int],
        "token": [int], "p": [*_NUMBER], "entropy": [*_NUMBER],
    },
    "commit": {"pos": [int], "token": [int], "p": [*_NUMBER], "cause": (str,)},
    "revoke": {"pos": [int], "cause": (str,)},
    "search": {
        "pivot": (int,), "entropy_before": _NUMBER, "token": [int], "p": [*_NUMBER], "p_anchor": [*_NUMBER],
        "p_anchor_max": _NUMBER, "mean_entropy": [*_NUMBER], "score": [*_OPTIONAL_NUMBER],
        "chosen": (int, type(None)),
    },
    "branches": {
        "pos": [int], "token": [int], "score": [*_NUMBER], "score_base": _NUMBER, "chosen": (int, type(None)),
    },
    "text": {"text": (str,)},
    "end": {
        "finish": (str,), "nfe_normal": (int,), "nfe_lookahead": (int,), "canvases": (int,),
        "seconds": _NUMBER, "text": (str,), "token": [int], "pieces": (dict,),
    },
}  # fmt: skip
KINDS = tuple(_FIELDS)
# A member of a forward's `branches`, which lookaheads alone have, and of version 3 on.
_BRANCH: dict[str, Any] = {"edits": [list], "pos": [int], "token": [int], "entropy": [*_NUMBER]}
# Fields that only some runs have: those with a lookahead budget, and glide's with two pivots.
_OPTIONAL: dict[str, dict[str, Any]] = {
    "forward": {"most_rows": (int,)},
    "search": {"pivot_2": (int,), "token_2": [int, type(None)], "p_second": [*_NUMBER]},
}
# Lists of one event that have the same length.
_ALIGNED = {
    "forward": ("pos", "token", "p", "entropy"), "commit": ("pos", "token", "p"),
    "search": ("token", "p", "p_anchor"), "branches": ("pos", "token", "score"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one request, `t` seconds after it was admitted."""

    kind: str
    t: float
    data: dict[str, Any]


def write_trace(path: str | Path, events: Iterable[Event]) -> None:
    """Write events as JSON lines; the file appears whole or not at all."""
    write_lines(path, map(as_line, events), "the trace")


def as_line(event: Event) -> dict[str, Any]:
    """Return an event as the object that a line of a trace holds."""
    return {"event": event.kind, "t": round(event.t, 6), **event.data}


def read_trace(path: str | Path) -> list[Event]:
    """Read a trace; what this version does not understand, or what contradicts itself, is refused.

    Events of older versions come as this version writes them; what those did not tell is absent or empty.
    """
    events: list[Event] = []
    version: Any = VERSION
    for number, record in parse_lines(path, "the trace"):
        try:
            kind, t = record.pop("event"), record.pop("t")
        except (KeyError, TypeError, AttributeError):
            raise RippleError(f"{path}, line {number}: not a trace event.") from None
        if not isinstance(kind, str) or not _is_one_of(t, _NUMBER):
            raise RippleError(f"{path}, line {number}: not a trace event.")
        if kind not in KINDS:
            raise RippleError(f"{path}, line {number}: unknown event {kind!r}; known: {', '.join(KINDS)}.")
        if not events and kind != "start":
            raise RippleError(f"{path}: a trace begins with a start event.")
        if not events and ((version := record.get("v")) is True or version not in range(1, VERSION + 1)):
            raise RippleError(f"{path}: trace version {version!r}, this ripple reads 1 to {VERSION}.")
        if version < VERSION:
            _upgrade(kind, record, version)
        if (fault := _fault(kind, record)) is not None:
            raise RippleError(f"{path}, line {number}: the event {kind!r} {fault}.")
        events.append(Event(kind, float(t), record))
    if not events:
        raise RippleError(f"{path}: a trace begins with a start event.")
    if (fault := contradiction(events)) is not None:
        raise RippleError(f"{path}: {fault}.")
    return events


def _upgrade(kind: str, data: dict[str, Any], version: int) -> None:
    """Turn the data of an older event into what this version writes."""
    if version == 1 and kind in ("forward", "end") and "rows" in data:
        data["canvases"] = data.pop("rows")
    if kind == "start":
        data["v"] = VERSION
        data.setdefault("prompt_text", "")


def _fault(kind: str, data: dict[str, Any]) -> str | None:
    """Say what is wrong with one event's fields, or nothing."""
    if (fault := _field_fault(_FIELDS[kind], data)) is not None:
        return fault
    if kind == "forward" and not _are_branches(data.get("branches", []), data["pos"]):
        return "has no proper field 'branches'"
    if kind == "end" and not all(isinstance(piece, str) for piece in data["pieces"].values()):
        return "has no proper field 'pieces'"
    if len({len(data[name]) for name in _ALIGNED.get(kind, ())}) > 1:
        return f"has lists of different length: {', '.join(_ALIGNED[kind])}"
    return None


def _field_fault(fields: dict[str, Any], data: dict[str, Any]) -> str | None:
    """Say which field is missing or of the wrong type, or nothing."""
    for name, kinds in fields.items():
        if name not in data:
            return f"lacks the field {name!r}"
        value = data[name]
        is_list = isinstance(kinds, list)
        values, allowed = (value, tuple(kinds)) if is_list else ([value], kinds)
        if (is_list and not isinstance(value, list)) or not all(_is_one_of(one, allowed) for one in values):
            return f"has no proper field {name!r}"
    return None


def _are_branches(branches: Any, pos: list[int]) -> bool:
    """Check what a lookahead tells of its branches, each at the masked positions `pos` that it left open."""
    masked = set(pos)
    return isinstance(branches, list) and all(
        isinstance(branch, dict)
        and _field_fault(_BRANCH, branch) is None
        and all(len(edit) == 2 and all(_is_one_of(one, (int,)) for one in edit) for edit in branch["edits"])
        and (edited := {edit[0] for edit in branch["edits"]}) <= masked
        and len(branch["pos"]) == len(branch["token"])
        and set(branch["pos"]) <= masked - edited
        and len(branch["entropy"]) == len(masked) - len(edited)
        for branch in branches
    )


def _is_one_of(value: Any, kinds: tuple[type, ...]) -> bool:
    """Check the type of one JSON value; true is no number, and numbers are of a size that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return not isinstance(value, int | float) or abs(value) < 1e15


# -- a trace as a whole ------------------------------------------------------------------------------------


def contradiction(events: Sequence[Event]) -> str | None:
    """Say where the events of a trace contradict each other, or nothing."""
    start = events[0].data
    first, stop = len(start["prompt"]), len(start["prompt"]) + start["length"]
    if start["length"] < 1 or start["length"] > LONGEST or any(event.kind == "start" for event in events[1:]):
        return "its start event is not one"
    if any(event.kind == "end" for event in events[1:-1]):
        return "it goes on after its end event"
    tokens: dict[int, int] = {}
    counts: Counter[str] = Counter()
    for event in events[1:]:
        data = event.data
        if not all(first <= pos < stop for pos in data.get("pos", ())):
            return f"a {event.kind} event names a position outside the response"
        if event.kind == "forward":
            counts[data["kind"]] += 1
            counts["canvases"] += data["canvases"]
            if data["nfe"] != counts["normal"] + counts["lookahead"] or len(data["window"]) != 2:
                return f"forward {data['nfe']} is out of order"
        elif event.kind == "commit":
            if len(set(data["pos"])) < len(data["pos"]) or any(pos in tokens for pos in data["pos"]):
                return "a token is committed where one stands already"
            tokens.update(zip(data["pos"], data["token"], strict=True))
        elif event.kind == "revoke":
            if any(tokens.pop(pos, None) is None for pos in data["pos"]):
                return "a token is revoked where none stands"
        elif (fault := _choice_fault(event, first, stop)) is not None:
            return fault
        elif event.kind == "end":
            mask_id = start["mask_id"]
            return _end_fault(data, counts, [tokens.get(p, mask_id) for p in range(first, stop)], mask_id)
    return None  # cut off


def _choice_fault(event: Event, first: int, stop: int) -> str | None:
    """Check what a decoder says of a choice among candidates."""
    data = event.data
    if event.kind not in ("search", "branches"):
        return None
    n = len(data["token"])
    if data["chosen"] is not None and not 0 <= data["chosen"] < n:
        return f"a {event.kind} event chose candidate {data['chosen']} of {n}"
    if event.kind == "search":
        if not first <= data["pivot"] < stop:
            return "a search event names a pivot outside the response"
        if len(data["score"]) != n + 1 or len(data["mean_entropy"]) != n + 1:
            return "a search event has not one score for each candidate and one for the mask"
    return None


def _end_fault(end: dict[str, Any], counts: Counter[str], tokens: list[int], mask_id: int) -> str | None:
    """Check the end event against what was counted and committed."""
    told = (end["nfe_normal"], end["nfe_lookahead"], end["canvases"])
    if told != (counts["normal"], counts["lookahead"], counts["canvases"]):
        return "its end event counts other forwards than the trace has"
    if end["token"] != tokens:
        return "its end event has other tokens than were committed"
    if end["finish"] not in FINISHES:
        return f"its end event knows no finish {end['finish']!r}; known: {', '.join(FINISHES)}"
    has_masks = mask_id in tokens
    if (end["finish"] == "length" and has_masks) or (end["finish"] == "incomplete" and not has_masks):
        return f"it ends as {end['finish']!r} {'with' if has_masks else 'without'} masks"
    return None


# -- JSON schema -------------------------------------------------------------------------------------------

_JSON_TYPES = {
    int: "integer", float: "number", str: "string", dict: "object", list: "array", type(None): "null",
}  # fmt: skip


def event_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each kind of event."""
    return {kind: _event_schema(kind, fields) for kind, fields in _FIELDS.items()}


def _event_schema(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    properties = {"event": {"const": kind}, "t": {"type": "number"}}
    properties |= {name: _type_schema(kinds) for name, kinds in fields.items()}
    optional = {name: _type_schema(kinds) for name, kinds in _OPTIONAL.get(kind, {}).items()}
    if kind == "forward":
        branch = {name: _type_schema(kinds) for name, kinds in _BRANCH.items()}
        branches = {"type": "object", "required": [*branch], "properties": branch}
        optional["branches"] = {"type": "array", "items": branches}
    return {"type": "object", "required": [*properties], "properties": properties | optional}


def _type_schema(kinds: tuple[type, ...] | list[type]) -> dict[str, Any]:
    """Return the schema of a field of these types, or of a list of such values."""
    types = list(dict.fromkeys(_JSON_TYPES[kind] for kind in kinds))
    if "number" in types:
        types.remove("integer")
    one: dict[str, Any] = {"type": types[0] if len(types) == 1 else types}
    return {"type": "array", "items": one} if isinstance(kinds, list) else one
