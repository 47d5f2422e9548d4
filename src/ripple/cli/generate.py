"""`ripple generate`: decode one prompt, show the text and what it cost."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.cli import options
from ripple.cli.console import console, print_json
from ripple.cli.running import decode, open_engine
from ripple.engine.result import Result, Settings
from ripple.errors import RippleError
from ripple.trace import write_trace

if TYPE_CHECKING:
    from rich.console import Console

    from ripple.engine.engine import Engine
    from ripple.engine.prompts import Prompt

HELP = "decode one prompt"


def add_prompt(parser: argparse.ArgumentParser) -> None:
    """Add the ways to give one prompt."""
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt; - reads it from stdin")
    parser.add_argument("--prompt-file", metavar="FILE", help="read the prompt from a file")
    parser.add_argument("--ids", metavar="1,2,3", help="give the prompt as token ids")
    parser.add_argument("--chat", action="store_true", help="wrap the prompt in the model's chat template")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple generate`."""
    add_prompt(parser)
    parser.add_argument("--trace", metavar="FILE", help="write every forward and decision as JSON lines")
    parser.add_argument(
        "--watch", "--stream", action="store_true", help="show the canvas while it fills (on a terminal)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_model(parser)
    options.add_engine(parser)
    options.add_decoder(parser)


def run(args: argparse.Namespace) -> int:
    """Decode the prompt."""
    table = options.gather(args)
    prompt = read_prompt(args)
    out = None if args.json else console()
    if args.trace and not Path(args.trace).absolute().parent.is_dir():
        raise RippleError(f"Cannot write the trace {args.trace}: its folder does not exist.")
    watches = args.watch and out is not None and out.is_terminal
    settings = options.settings(table, options.chosen_decoder(table), trace=watches or bool(args.trace))
    with open_engine(table) as engine:
        if watches and out is not None:
            result = _watch(engine, prompt, settings, out)
        else:
            result = decode(engine, prompt, settings)
    if args.trace:
        write_trace(args.trace, result.trace or [])
    if out is None:
        print_json(as_json(result, settings))
    else:
        _show(out, result, settings)
    return 0


def read_prompt(args: argparse.Namespace) -> Prompt:
    """Return the one prompt that the options give; of text from a file, one last newline is dropped."""
    given = [name for name in ("prompt", "prompt_file", "ids") if getattr(args, name) is not None]
    if len(given) != 1:
        raise RippleError(
            "Give one prompt: PROMPT, - for stdin, --prompt-file or --ids"
            + (f"; got {len(given)}." if given else ".")
        )
    if args.ids is not None:
        if args.chat:
            raise RippleError("--chat wraps text, so it cannot go with --ids.")
        return _parse_ids(args.ids)
    text = args.prompt
    try:
        if args.prompt_file is not None:
            text = Path(args.prompt_file).read_text(encoding="utf-8").removesuffix("\n")
        elif text == "-":
            text = sys.stdin.read().removesuffix("\n")
    except OSError as error:
        raise RippleError(f"Cannot read the prompt {args.prompt_file}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise RippleError(f"The prompt in {args.prompt_file or 'stdin'} is not UTF-8 text.") from None
    return [{"role": "user", "content": text}] if args.chat else text


def as_json(result: Result, settings: Settings) -> dict[str, Any]:
    """Return a result as the object that `--json` prints."""
    names = ("text", "token_ids", "new_tokens", "nfe", "nfe_normal", "nfe_lookahead", "rows", "seconds")
    facts = {name: getattr(result, name) for name in (*names, "finish")}
    return facts | {"decoder": settings.decoder.name, "fields": settings.decoder.settings()}


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RippleError(f"--ids must be whole numbers with commas between, got {text!r}.") from None


def _counts(result: Result) -> str:
    """Return the line of counts under a text."""
    n, seconds = len(result.new_tokens), max(result.seconds, 1e-9)
    return (
        f"NFE {result.nfe} ({result.nfe_normal} normal, {result.nfe_lookahead} lookahead) · "
        f"{n} tokens, {n / max(result.nfe, 1):.2f} per forward · "
        f"{result.seconds:.3f} s, {n / seconds:.1f} tokens/s · finish: {result.finish}"
    )


def _show(out: Console, result: Result, settings: Settings) -> None:
    """Print a panel and the counts; the bare text and the counts when stdout is no terminal."""
    from rich.panel import Panel
    from rich.text import Text

    from ripple.view import visible

    text = visible(result.text, keep="\n") or " ".join(str(token) for token in result.new_tokens)
    if not out.is_terminal:
        print(f"{text}\n\n{_counts(result)}")
        return
    out.print(Panel(Text(text), title=Text(settings.decoder.describe()), title_align="left"))
    out.print(_counts(result), style="dim")


def _watch(engine: Engine, prompt: Prompt, settings: Settings, out: Console) -> Result:
    """Decode while a live canvas shows each commit in the colour of its cause."""
    from ripple.cli.live import LiveCanvas

    text = engine.text
    piece = (lambda token: text.decode([token], skip_special=False)) if text else "<{}>".format
    with LiveCanvas(out, piece) as canvas:
        return decode(engine, prompt, settings, canvas.hear)
