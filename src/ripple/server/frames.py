"""Frames of a canvas that fills: the events of a trace as they happen, with the text of every token in them.

`canvas_schema` is their JSON schema; docs/server.md documents them. The events are those of a trace, field by
field: joined, those of one choice are its trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ripple.engine.facts import tokens
from ripple.tokenizer import Tokenizer
from ripple.trace import Event, as_line, event_schemas

VERSION = 1


class FrameMaker:
    """Makes the frames of one request."""

    def __init__(self, index: int, tokenizer: Tokenizer | None) -> None:
        self._index = index
        self._tokenizer = tokenizer
        self._told: set[int] = set()  # tokens whose text has been sent

    def frame(self, events: Sequence[Event]) -> dict[str, Any] | None:
        """Return what has happened as one frame, or None if it was text alone."""
        told = [as_line(event) for event in events if event.kind != "text"]
        if not told:
            return None
        new = {token for event in events for token in tokens(event.data)} - self._told
        self._told |= new
        return {"v": VERSION, "index": self._index, "events": told, "pieces": self._texts(sorted(new))}

    def _texts(self, new: Iterable[int]) -> dict[str, str]:
        if self._tokenizer is None:
            return {}
        return {str(token): self._tokenizer.decode([token], skip_special=False) for token in new}


def canvas_schema() -> dict[str, Any]:
    """Return the JSON schema of a frame."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "CanvasFrame",
        "description": "What has happened to one choice's canvas since the last frame.",
        "type": "object",
        "required": ["v", "index", "events", "pieces"],
        "properties": {
            "v": {"const": VERSION, "description": "version of this format"},
            "index": {"type": "integer", "minimum": 0, "description": "the choice"},
            "events": {
                "type": "array",
                "minItems": 1,
                "description": "events of a trace, in their order",
                "items": {"oneOf": [schema for kind, schema in event_schemas().items() if kind != "text"]},
            },
            "pieces": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "token id -> its text, for every token that no earlier frame has named",
            },
        },
    }
