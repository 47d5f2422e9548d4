"""Everything that reads from outside, by name; `python -m tools.fuzz` feeds it."""

from tools.surfaces.base import Surface
from tools.surfaces.files import Checkpoint, Config, PromptRows, ResultLines, Toml, Trace
from tools.surfaces.http import Http, Socket
from tools.surfaces.words import CommandLine, ParsedLine

SURFACES: dict[str, type[Surface]] = {
    one.name: one
    for one in (
        Config, Checkpoint, Trace, ResultLines, PromptRows, Toml, Http, Socket, CommandLine, ParsedLine,
    )
}  # fmt: skip
