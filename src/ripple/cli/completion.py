"""`ripple completion`: prints the script that completes the command line in a shell."""

from __future__ import annotations

import argparse
import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path

from ripple.caches import CACHES, cache_plugins
from ripple.decoders import DECODERS, PRESETS, decoder_plugins
from ripple.fields import fields_of
from ripple.options import Options

HELP = "print a script for shell completion"
PLACES = {  # where each shell looks for the script
    "bash": "~/.local/share/bash-completion/completions/ripple",
    "zsh": "a folder of $fpath, under the name _ripple",
    "tcsh": "a file that ~/.tcshrc sources",
}
FILES, FOLDERS = ("FILE", "PATH", "TRACE"), ("DIR", "FOLDER")  # metavars
MODELS = "_ripple_models"  # a shell function: the embedded names, and folders


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple completion`."""
    lines = [f"  {shell:<5} {place}" for shell, place in PLACES.items()]
    parser.epilog = "\n".join(["Where the script belongs:", *lines])
    parser.add_argument("shell", choices=list(PLACES), help="the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from ripple.models.hub import embedded_models

    names = " ".join(embedded_models())
    preamble = {
        "bash": f'{MODELS}() {{ compgen -W "{names}" -- "$1"; compgen -d -- "$1"; }}',
        "zsh": f"{MODELS}() {{ compadd {names}; _files -/ }}",
    }
    print(shtab.complete(whole_parser(), args.shell, preamble=preamble))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser for the whole command line; it knows what completes, and reads nothing."""
    from ripple.cli import COMMANDS, NOTES, Parser

    root = Parser(prog="ripple", description=NOTES)
    root.add_argument("--version", action="store_true", help="print the version")
    below = root.add_subparsers()
    for name, path in COMMANDS.items():
        with contextlib.suppress(ImportError):  # of a package that is missing or broken here
            module = importlib.import_module(path)
            parser = below.add_parser(name, help=module.HELP)
            parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
            if name == "bench":
                _add_measurements(parser)
            elif hasattr(module, "add_arguments"):
                module.add_arguments(parser, [])
            _complete(parser, name)
    return root


def _add_measurements(parser: argparse.ArgumentParser) -> None:
    """Add a parser for each measurement below that of `ripple bench`."""
    from ripple.cli import bench

    below = parser.add_subparsers()
    for name, about in bench.summaries().items():
        with contextlib.suppress(ImportError):
            one = below.add_parser(name, help=about)
            bench.add_arguments(one, [name])
            _complete(one, name)


def _complete(parser: argparse.ArgumentParser, command: str) -> None:
    """Say what completes each argument of a parser."""
    import shtab

    words = _words()
    if any(action.dest == "lookahead" for action in parser._actions):  # it takes the options of decoding
        words |= _field_words()
    for action in parser._actions:
        if action.option_strings and action.help == argparse.SUPPRESS:
            action.help = "a field of another decoder or cache"
        if action.choices is not None or action.nargs == 0:
            continue
        known = words.get((command, action.dest)) or words.get(action.dest)
        if known:
            action.choices = known
        elif action.dest == "model":
            action.complete = {"bash": MODELS, "zsh": MODELS, "tcsh": "d"}  # type: ignore[attr-defined]
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar in FILES or action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def _words() -> dict[str | tuple[str, str], list[str]]:
    """Return the words that complete an argument, by its name or by its subcommand and name."""
    from ripple.models.hub import embedded_models
    from ripple.tasks import BENCHMARKS, TASKS

    decoders, caches = [*DECODERS, *decoder_plugins().classes], [*CACHES, *cache_plugins().classes]
    specs, tasks = [*decoders, *PRESETS], [*TASKS, *BENCHMARKS]
    return {
        "decoder": specs, "decoders": specs, "standard": specs, "cache": caches, "caches": caches,
        "models": embedded_models(), "task": tasks, "tasks": tasks, "families": [*TASKS],
        "device": ["auto", "cpu", "cuda"], "dtype": ["auto", "float32", "bfloat16", "float16", "fp8"],
        ("decoders", "name"): decoders, ("caches", "name"): caches,
        ("tasks", "words"): ["list", "show", *tasks],
    }  # fmt: skip


def _field_words() -> dict[str | tuple[str, str], list[str]]:
    """Return the allowed values of the options of decoding that have a few."""
    classes: list[type] = [Options, *DECODERS.values(), *CACHES.values()]
    fields = [field for cls in classes for field in fields_of(cls).values() if field.choices]
    return {field.name: list(field.choices) for field in fields}
