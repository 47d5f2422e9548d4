"""`ripple chat`: talk to a model, here or on a server, and watch it think."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.chat.conversation import Chat, Turn
from ripple.cli import options
from ripple.cli.console import console
from ripple.cli.running import DEFAULT_MODEL, open_engine
from ripple.decoders import DECODERS, PRESETS
from ripple.errors import RippleError, unknown
from ripple.fields import pairs
from ripple.trace import Event
from ripple.view import visible

if TYPE_CHECKING:
    from ripple.chat.conversation import Answerer

HELP = "talk to a model in the terminal"
KEY = "RIPPLE_API_KEY"
_HERE_ONLY = ("device", "dtype", "memory_gb", "block_size")  # options of a model in this process
_ADVICE = "/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves."


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple chat`."""
    parser.epilog = "In a pipe, every line of stdin is a question, and the answers go to stdout."
    group = parser.add_argument_group("chat")
    group.add_argument("--url", metavar="URL", help="a running server, such as http://127.0.0.1:8000")
    group.add_argument("--api-key", metavar="KEY", help=f"the server's key (default: {KEY}, if set)")
    group.add_argument("--system", metavar="TEXT", help="a message that stands before the conversation")
    group.add_argument("--watch", action="store_true", help="show the canvas while it fills (on a terminal)")
    options.add_model(parser)
    options.add_options(parser, words)


def run(args: argparse.Namespace) -> int:
    """Talk until the other side has nothing more to say."""
    table = options.gather(args)
    decoding = {name: value for name, value in table.items() if name not in options.MODEL}
    options.options_of(decoding)  # what is wrong with them is said before a model is loaded
    with _model(args, table) as model:
        talk = Chat(model, {"stop_at_end": True} | decoding, args.system)
        talk.change({})
        if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
            Terminal(talk, model, args.watch).run()
        else:
            _answer_lines(talk)
    return 0


@contextmanager
def _model(args: argparse.Namespace, table: Mapping[str, Any]) -> Iterator[Answerer]:
    """Open the model that is to answer."""
    if args.url is None:
        if args.api_key is not None:
            raise RippleError("--api-key is a server's: it goes with --url.")
        from ripple.chat.local import LocalModel

        with open_engine(table) as engine:
            yield LocalModel(engine, str(table.get("model", DEFAULT_MODEL)))
        return
    for name in _HERE_ONLY:
        if name in table:
            raise RippleError(f"--{name.replace('_', '-')} belongs to a model of this process, not to --url.")
    from ripple.chat.remote import RemoteModel

    yield RemoteModel(args.url, args.api_key or os.environ.get(KEY), table.get("model"))


def _answer_lines(talk: Chat) -> None:
    """Answer every line of stdin, with an empty line between two answers."""
    if sys.stdin is None:
        raise RippleError("There is nothing to answer: stdin is closed.")
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise RippleError(f"Line {number} of stdin is not UTF-8 text.") from None
        if text.strip():
            print("\n" if talk.turns else "", end="")
            print(visible(talk.ask(text, lambda event: None).text, keep="\n"), flush=True)


class Terminal:
    """A conversation at a terminal: questions, and commands that begin with a slash."""

    def __init__(self, talk: Chat, model: Answerer, watch: bool) -> None:
        self._talk = talk
        self._model = model
        self._watch = watch
        self._out = console()
        self._is_open = True
        self._commands: dict[str, tuple[str, Callable[[str], None]]] = {
            "help": ("this list", self._help),
            "decoder": ("NAME[:field=value,...]  choose the decoder, or see which it is", self._decoder),
            "set": ("option=value ...  change any option, such as length=128 cache=dual", self._set),
            "watch": ("show the canvas while it fills, or no longer", self._toggle_watch),
            "save": ("FILE  write the conversation, as JSON or (.md) as Markdown", self._save),
            "reset": ("forget what was said", self._reset),
            "quit": ("leave; so does Ctrl-D", self._quit),
        }

    def run(self) -> None:
        """Answer until the user leaves."""
        self._say(f"{self._model.name}. {_ADVICE}")
        with _history([f"/{name}" for name in self._commands]):
            while self._is_open:
                try:
                    text = _read()
                except EOFError:
                    print()
                    return
                except KeyboardInterrupt:
                    self._say(f"\n{_ADVICE}")
                    continue
                self._handle(text)

    def _handle(self, text: str) -> None:
        """Obey a command or answer a question; what goes wrong is told, and the conversation goes on."""
        try:
            if text.startswith("/"):
                name, _, rest = text[1:].partition(" ")
                if name not in self._commands:
                    raise unknown("command", name, self._commands)
                self._commands[name][1](rest.strip())
            elif text.strip():
                turn = self._ask(text)
                self._say(turn.describe())
        except KeyboardInterrupt:
            self._say("\nstopped; the question is forgotten")
        except RippleError as error:
            self._say(f"ripple: {error}", "red")

    def _ask(self, text: str) -> Turn:
        """Ask, and show the answer as it becomes final, or the canvas as it fills."""
        if not self._watch:
            turn = self._talk.ask(text, _print_text)
            print("" if turn.text else "(an empty answer)")
            return turn
        from ripple.cli.live import LiveCanvas

        with LiveCanvas(self._out, self._model.piece) as canvas:
            turn = self._talk.ask(text, canvas.on_event, watch=True)
        print(visible(turn.text, keep="\n") or "(an empty answer)")
        return turn

    def _say(self, text: str, style: str = "dim") -> None:
        self._out.print(visible(text, keep="\n"), style=style, markup=False)

    # -- commands -----------------------------------------------------------------------------------

    def _help(self, rest: str) -> None:
        width = max(map(len, self._commands)) + 2
        self._say("\n".join(f"/{name:<{width}}{about}" for name, (about, _) in self._commands.items()))
        self._say("A line that ends with \\ goes on in the next one.")

    def _decoder(self, rest: str) -> None:
        if rest:
            self._talk.change({"decoder": rest})
        self._say(str(self._talk.table.get("decoder", "the default decoder; `ripple decoders` lists all")))

    def _set(self, rest: str) -> None:
        if rest:
            self._talk.change(pairs(rest.split()))
        self._say(" ".join(f"{name}={value}" for name, value in self._talk.table.items()))

    def _toggle_watch(self, rest: str) -> None:
        self._watch = not self._watch
        self._say("the canvas is shown while it fills" if self._watch else "only text is shown")

    def _save(self, rest: str) -> None:
        if not rest:
            raise RippleError("Say where: /save FILE.")
        self._talk.save(Path(rest).expanduser())
        self._say(f"saved to {rest}")

    def _reset(self, rest: str) -> None:
        self._talk.reset()
        self._say("forgotten")

    def _quit(self, rest: str) -> None:
        self._is_open = False


def _print_text(event: Event) -> None:
    if event.kind == "text":
        print(visible(event.data["text"], keep="\n"), end="", flush=True)


def _read() -> str:
    """Read one question; a line that ends with a backslash goes on."""
    lines = [input("> ")]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input(". "))
    return "\n".join(lines)


@contextmanager
def _history(commands: Sequence[str]) -> Iterator[None]:
    """Edit lines with a history that is kept between conversations, where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    path = state / "ripple" / "chat_history"
    words = [*commands, *DECODERS, *PRESETS]

    def complete(text: str, number: int) -> str | None:
        return next((word for word in words[number:] if word.startswith(text)), None) if text else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(1000)
    try:
        readline.read_history_file(path)
    except OSError:  # the first conversation, or a file that may not be read
        readline.clear_history()
    try:
        yield
    finally:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)
            path.chmod(0o600)
        except OSError:
            pass
