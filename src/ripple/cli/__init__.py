"""The `ripple` command line: one module per subcommand, imported when it is asked for.

A subcommand is a module in this folder with `HELP`, `add_arguments(parser)` and `run(args) -> exit code`; one
that hands its words to another program has `run_words(words) -> exit code` instead of the last two.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NoReturn

from ripple.errors import RippleError, unknown

COMMANDS = {
    "generate": "ripple.cli.generate",
    "compare": "ripple.cli.compare",
    "demo": "ripple.cli.demo",
    "decoders": "ripple.cli.decoders",
    "models": "ripple.cli.models",
    "view": "ripple.cli.view",
    "tasks": "ripple.cli.tasks",
    "bench": "ripple.cli.bench",
    "eval": "ripple.cli.evaluate",
    "train-filter": "ripple.cli.train_filter",
    "lm-eval": "ripple.cli.lm_eval",
    "paper": "ripple.cli.paper",
}
BAD_INPUT, INTERRUPTED, BROKEN_PIPE = 2, 130, 1  # exit codes


class Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are `RippleError`s."""

    def error(self, message: str) -> NoReturn:
        """Raise the complaint as one sentence."""
        raise RippleError(f"{message[:1].upper()}{message[1:].rstrip('.')}.")


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    try:
        code = _dispatch(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except RippleError as error:
        print(f"ripple: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except SystemExit as leave:  # argparse after --help, rich after a broken pipe
        return leave.code if isinstance(leave.code, int) else 0


def _dispatch(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if argv[0] == "--version":
        from ripple import __version__

        print(f"ripple {__version__}")
        return 0
    name, rest = argv[0], argv[1:]
    if name not in COMMANDS:
        raise unknown("option" if name.startswith("-") else "subcommand", name, [*COMMANDS, "--version"])
    module = importlib.import_module(COMMANDS[name])
    if hasattr(module, "run_words"):
        return int(module.run_words(rest))
    parser = Parser(
        prog=f"ripple {name}",
        description=_help(module),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    args, extra = parser.parse_known_args(rest)
    if extra:
        raise _unexpected(extra, parser)
    return int(module.run(args))


def _unexpected(extra: list[str], parser: argparse.ArgumentParser) -> RippleError:
    """Return the error for arguments that nobody asked for, with the nearest known option."""
    given = next((word for word in extra if word.startswith("-")), None)
    see = f"See {parser.prog} --help."
    if given is None:
        return RippleError(f"Unexpected argument {extra[0]!r}. {see}")
    option = given.split("=")[0]
    close = difflib.get_close_matches(option.replace("_", "-"), list(_options(parser)), n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return RippleError(f"Unknown option {option!r}.{hint} {see}")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield every long option of a parser and of the parsers below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _options(below)
        yield from (name for name in action.option_strings if name.startswith("--"))


def _help(module: ModuleType) -> str:
    first_line = (module.__doc__ or "").strip().split("\n")[0]
    return str(getattr(module, "HELP", first_line))


def _overview() -> str:
    """Return the list of subcommands; one whose file is not there yet is left out."""
    lines = ["usage: ripple <subcommand> [options]", ""]
    for name, path in COMMANDS.items():
        try:
            lines.append(f"  {name:<10} {_help(importlib.import_module(path))}")
        except ModuleNotFoundError:
            continue
    lines += ["", "  ripple <subcommand> --help   all its options", "  ripple --version"]
    return "\n".join(lines)


def _silence_stdout() -> None:
    """Point stdout at nothing, so that Python's last flush does not complain about the closed pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # stdout is no real file
        return
