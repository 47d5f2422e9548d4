"""The `ripple` command line: one module per subcommand, imported when it is asked for.

A subcommand is a module in this folder with `HELP`, `add_arguments(parser, words)` and
`run(args) -> exit code`; one that hands its words to another program has `run_words(words) -> exit code`
instead of the last two.
"""

from __future__ import annotations

import argparse
import codecs
import difflib
import importlib
import io
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NoReturn

from ripple.errors import RippleError, WorkFailed, unknown

COMMANDS = {
    "generate": "ripple.cli.generate",
    "chat": "ripple.cli.chat",
    "batch": "ripple.cli.batch",
    "serve": "ripple.cli.serve",
    "compare": "ripple.cli.compare",
    "demo": "ripple.cli.demo",
    "view": "ripple.cli.view",
    "eval": "ripple.cli.evaluate",
    "lm-eval": "ripple.cli.lm_eval",
    "paper": "ripple.cli.paper",
    "train-filter": "ripple.cli.train_filter",
    "bench": "ripple.cli.bench",
    "check": "ripple.cli.check",
    "decoders": "ripple.cli.decoders",
    "caches": "ripple.cli.caches",
    "models": "ripple.cli.models",
    "tasks": "ripple.cli.tasks",
    "completion": "ripple.cli.completion",
}
GROUPS = {
    "Decode": ("generate", "chat", "batch", "serve", "compare", "demo"),
    "Look": ("view",),
    "Evaluate": ("eval", "lm-eval", "paper", "train-filter"),
    "Measure": ("bench", "check"),
    "Reference": ("decoders", "caches", "models", "tasks", "completion"),
}
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130  # exit codes
LOOKALIKES = dict(zip("✓✗×·–…▒░■τλγδεσ", "vxx--~#.*tlgdes", strict=True))  # of one cell each
NOTES = """\
ripple <subcommand> --help   all options of a subcommand
ripple --version
--debug, RIPPLE_DEBUG=1      show the traceback of an error

Exit codes: 0 done; 1 failed: a check, a request, an unexpected error, a closed
pipe; 2 bad input, told in one sentence; 130 interrupted by Ctrl-C.
"""


class Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are `RippleError`s."""

    def error(self, message: str) -> NoReturn:
        """Raise the complaint as one sentence."""
        raise RippleError(f"{message[:1].upper()}{message[1:].rstrip('.')}.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = _take_debug(words)
    _replace_unwritable()
    try:
        code = _run(words)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _silence_stdout()
        return FAILED
    except Exception as error:
        return _tell(error, words[0] if words else "", debug)


def _take_debug(words: list[str]) -> bool:
    """Remove `--debug` from the line and say whether tracebacks are wanted."""
    end = words.index("--") if "--" in words else len(words)
    given = "--debug" in words[:end]
    words[:end] = [word for word in words[:end] if word != "--debug"]
    return given or os.environ.get("RIPPLE_DEBUG", "0") not in ("", "0")


def _replace_unwritable() -> None:
    """Write a lookalike or a question mark for what the encoding of the output cannot spell."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("ripple.lookalike", _lookalike)
        sys.stdout.reconfigure(errors="ripple.lookalike")


def _lookalike(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters that could not be encoded, and where encoding goes on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(LOOKALIKES.get(c, "?") for c in error.object[error.start : error.end]), error.end


def _tell(error: Exception, command: str, debug: bool) -> int:
    """Tell an error in one sentence and return its exit code."""
    from ripple.cli.failures import sentence

    try:
        if debug:
            import traceback

            traceback.print_exception(error)
        print(f"ripple: {sentence(error, command, debug)}", file=sys.stderr, flush=True)
    except OSError:  # stderr is closed, too
        pass
    if isinstance(error, OSError):  # perhaps stdout's: the interpreter would flush it once more
        _silence_stdout()
    is_bad_input = isinstance(error, RippleError) and not isinstance(error, WorkFailed)
    return BAD_INPUT if is_bad_input else FAILED


def _run(words: list[str]) -> int:
    """Run one subcommand; argparse and rich leave by `SystemExit`."""
    try:
        return _dispatch(words)
    except SystemExit as leave:
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
            return FAILED
        return leave.code or 0


def _dispatch(words: list[str]) -> int:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise RippleError(f"The argument {word!a} is not UTF-8 text.") from None
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(overview(), end="")
        return 0
    if words[0] == "--version":
        from ripple import __version__

        print(f"ripple {__version__}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        if name.startswith("-"):
            raise unknown("option", name, [*COMMANDS, "--help", "--version"])
        raise unknown("subcommand", name, COMMANDS)
    module = importlib.import_module(COMMANDS[name])
    if hasattr(module, "run_words"):
        return int(module.run_words(rest))
    parser = parser_of(name, module, rest)
    args, extra = parser.parse_known_args(rest)
    if extra:
        raise _unexpected(extra, parser)
    return int(module.run(args))


def parser_of(name: str, module: ModuleType, words: Sequence[str]) -> Parser:
    """Return the parser of a subcommand; what it declares may depend on the words that it is to read."""
    parser = Parser(
        prog=f"ripple {name}",
        description=_help(module),
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser, words)
    return parser


def _unexpected(extra: list[str], parser: argparse.ArgumentParser) -> RippleError:
    """Return the error for arguments that nobody asked for, with the nearest known option."""
    given = next((word for word in extra if word.startswith("-")), None)
    see = f"See {parser.prog} --help."
    if given is None:
        return RippleError(f"Unexpected argument {extra[0]!r}. {see}")
    option = given.split("=")[0]
    names = [name.lstrip("-") for name in _options(parser)]  # dashes would make all of them alike
    close = difflib.get_close_matches(option.lstrip("-").replace("_", "-"), names, n=1, cutoff=0.6)
    hint = f" Did you mean '--{close[0]}'?" if close else ""
    return RippleError(f"Unknown option {option!r}.{hint} {see}")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield every long option of a parser."""
    for action in parser._actions:
        yield from (name for name in action.option_strings if name.startswith("--"))


def _help(module: ModuleType) -> str:
    first_line = (module.__doc__ or "").strip().split("\n")[0]
    return str(getattr(module, "HELP", first_line))


def overview() -> str:
    """Return the subcommands by group, and what holds for all of them."""
    lines = ["usage: ripple <subcommand> [options]"]
    width = max(map(len, COMMANDS)) + 4
    for group, names in GROUPS.items():
        lines += ["", group]
        for name in names:
            try:
                about = _help(importlib.import_module(COMMANDS[name]))
            except ImportError as error:  # of a package that is missing or broken here
                about = f"cannot be used here: {error}"
            lines += textwrap.wrap(
                about, 79, initial_indent=f"  {name:<{width - 2}}", subsequent_indent=" " * width
            )
    return "\n".join([*lines, "", NOTES])


def _silence_stdout() -> None:
    """Point stdout at nothing, so that Python's last flush does not complain about the closed pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # stdout is no real file
        return
