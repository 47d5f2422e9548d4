"""`ripple generate`: decode one prompt, show the text and what it cost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.cli import options
from ripple.cli.console import console, print_json
from ripple.cli.running import EXAMPLE, open_engine
from ripple.errors import RippleError
from ripple.files import check_output
from ripple.options import Options
from ripple.trace import write_trace

if TYPE_CHECKING:
    from rich.console import Console

    from ripple.decoders import Decoder
    from ripple.engine.engine import Engine
    from ripple.engine.prompts import OnePrompt
    from ripple.engine.result import Result

HELP = "decode one prompt"
ENDINGS = {  # how a response ends, in words
    "end": "ended with an end token",
    "length": "filled the canvas without an end token",
    "stop": "ended at a stop string",
    "cancelled": "cancelled",
    "incomplete": "incomplete: the decoder left masks",
}


def add_prompt(parser: argparse.ArgumentParser) -> None:
    """Add the ways to give one prompt."""
    parser.usage = f"{parser.prog} [PROMPT] [options]"
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt; - reads it from stdin")
    parser.add_argument("--prompt-file", metavar="FILE", help="read the prompt from a file")
    parser.add_argument("--ids", metavar="1,2,3", help="give the prompt as token ids")
    parser.add_argument("--chat", action="store_true", help="wrap the prompt in the model's chat template")


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple generate`."""
    parser.epilog = f"Without --model, an embedded model solves problems such as\n  '{EXAMPLE}'"
    add_prompt(parser)
    parser.add_argument("--trace", metavar="FILE", help="write every forward and decision as JSON lines")
    parser.add_argument(
        "--watch", "--stream", action="store_true", help="show the canvas while it fills (on a terminal)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_model(parser)
    options.add_options(parser, words)


def run(args: argparse.Namespace) -> int:
    """Decode the prompt."""
    if args.watch and args.json:
        raise RippleError("--watch draws on a terminal and --json prints an object: give one of them.")
    if args.trace is not None:
        check_output(args.trace, "the trace")
    table = options.gather(args)
    chosen = options.options_of(table, trace=bool(args.trace))
    prompt = read_prompt(args)
    out = None if args.json else console()
    with open_engine(table) as engine:
        decoder = engine.decoder_of(chosen)
        if args.watch and out is not None and out.is_terminal:
            result = _watch(engine, prompt, chosen, out)
        else:
            result = engine.generate(prompt, chosen)
    if args.trace:
        write_trace(args.trace, result.trace or [])
    if out is None:
        print_json(as_json(result, decoder, chosen))
    else:
        _show(out, result, decoder)
    return 0


def read_prompt(args: argparse.Namespace) -> OnePrompt:
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
            text = Path(args.prompt_file).read_bytes().decode().removesuffix("\n")
        elif text == "-":
            text = _stdin().decode().removesuffix("\n")
    except OSError as error:
        raise RippleError(f"Cannot read the prompt {args.prompt_file}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise RippleError(f"The prompt in {args.prompt_file or 'stdin'} is not UTF-8 text.") from None
    return [{"role": "user", "content": text}] if args.chat else str(text)


def _stdin() -> bytes:
    if sys.stdin is None:
        raise RippleError("The prompt cannot be read from stdin: it is closed.")
    return sys.stdin.buffer.read()


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RippleError(f"--ids must be whole numbers with commas between, got {text!r}.") from None


def as_json(result: Result, decoder: Decoder, chosen: Options) -> dict[str, Any]:
    """Return a result as the object that `--json` prints."""
    names = ("text", "token_ids", "new_tokens", "nfe", "nfe_normal", "nfe_lookahead", "canvases", "seconds")
    facts = {name: getattr(result, name) for name in (*names, "finish")}
    how = {"decoder": decoder.name, "fields": decoder.settings(), "cache": chosen.policy.describe()}
    return facts | how


def shown_text(result: Result) -> str:
    """Return a response's text for people; one that has none says why."""
    from ripple.view import visible

    if result.text:
        return visible(result.text, keep="\n")
    n = len(result.new_tokens)
    if result.tokenizer is None:
        ids = " ".join(str(token) for token in result.new_tokens)
        return f"{ids}\n(token ids: this checkpoint has no tokenizer)"
    if result.finish == "end" and n == 1:
        return "(an empty response: the first token is an end token)"
    if result.finish == "stop":
        return "(an empty response: it begins with a stop string)"
    return f"(an empty response of {counted(n)} without text)"


def counted(n: int) -> str:
    """Return a number of tokens in words."""
    return f"{n} token{'' if n == 1 else 's'}"


def _counts(result: Result) -> str:
    """Return the line of counts under a text."""
    n, seconds = len(result.new_tokens), max(result.seconds, 1e-9)
    return (
        f"NFE {result.nfe} ({result.nfe_normal} normal, {result.nfe_lookahead} lookahead) · "
        f"{counted(n)}, {n / max(result.nfe, 1):.2f} per forward · "
        f"{result.seconds:.3f} s, {n / seconds:.1f} tokens/s · {ENDINGS[result.finish]}"
    )


def _show(out: Console, result: Result, decoder: Decoder) -> None:
    """Print a panel and the counts; the bare text and the counts when stdout is no terminal."""
    from rich.panel import Panel
    from rich.text import Text

    text = shown_text(result)
    if not out.is_terminal:
        print(f"{text}\n\n{_counts(result)}")
        return
    out.print(Panel(Text(text), title=Text(decoder.describe()), title_align="left"))
    out.print(_counts(result), style="dim")


def _watch(engine: Engine, prompt: OnePrompt, chosen: Options, out: Console) -> Result:
    """Decode while a live canvas shows each commit in the colour of its cause."""
    from ripple.cli.live import LiveCanvas

    tokenizer = engine.tokenizer
    piece = (lambda token: tokenizer.decode([token], skip_special=False)) if tokenizer else "<{}>".format
    request = engine.prepare(prompt, chosen)
    with LiveCanvas(out, piece) as canvas:
        request.listen(canvas.on_event)
        for _ in engine.steps([request]):
            pass
    return request.result()
