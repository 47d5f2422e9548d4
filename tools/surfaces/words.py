"""Words of a command line, run to their end or only read."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import ripple
from ripple.cli import BAD_INPUT, COMMANDS, main, parser_of
from ripple.cli.bench import _build as build_measurement
from ripple.cli.options import gather, load_arguments
from ripple.cli.options import options_of as options_of_table
from ripple.cli.serving import server_options
from ripple.cli.workers import cluster_of, range_of
from ripple.errors import RippleError
from ripple.fields import fields_of
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.server.options import ServerOptions
from tools.mutations import damaged_words
from tools.surfaces.base import SMALL, Surface, Unclean, check_sentence

COMMAND_LINES = (  # run to their end; `m` is a small model, the other names are files
    "generate 1+1= --model m --length 8 --block 4 --decoder rps --lam 0.2 --cache dual --json",
    "generate --ids 1,2,3 --model m --length 8 --trace out.jsonl --seed 3 --temperature 0.5",
    "generate --prompt-file prompt.txt --chat --model m --length 4 --config config.toml --set k_max=3",
    "view trace.jsonl --frame 1 --no-animation", "view trace.jsonl --json",
    "view trace.jsonl --html out.html", "eval --compare a.jsonl a.jsonl --json", "decoders --json",
    "decoders", "caches", "models", "tasks", "tasks words", "completion bash", "completion zsh", "bench",
    "bench --json", "--version", "generate --help",
    "compare 1+1= --model m --length 8 --decoders default,rps --json",
)  # fmt: skip
PARSED_LINES = (  # read and checked, but not run
    "serve --model m --port 8000 --host 127.0.0.1 --api-key k --max-batch 4 --queue 8 --timeout 5",
    "serve --ray --replicas 1:4 --gpus-per-replica 1 --address auto --no-auth --drain 3",
    "batch --input rows.jsonl --output out --model m --workers 2:4 --gpus-per-worker 0.5 --address ray://h:1",
    "eval --task words --model m --limit 3 --out out.jsonl --workers 2 --ray --batch 4 --decoder glide",
    "bench step --out out.jsonl --shapes llada-8b --batches 1,4 --layers 2 --seconds 5 --no-check",
    "bench soak --requests 100 --vanish 0.1 --bad 0.2 --slow 0.1 --clients 4", "bench decoders --items 5",
    "paper --out out --limit 5 --only main", "check --device cpu",
    "chat --url http://127.0.0.1:1 --api-key k", "train-filter --model m --out out", "demo",
)  # fmt: skip
NEVER = {"--task", "--watch", "--stream", "--ray", "--workers", "--address"}  # run for long, or start others


class CommandLine(Surface):
    """Words of a command line, run to their end in this process."""

    name, n = "cli", 10_000
    seeds: ClassVar = COMMAND_LINES
    never: ClassVar[set[str]] = NEVER

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        write_random_checkpoint(folder / "m", max_positions=256, **SMALL)
        engine = ripple.load(folder / "m", device="cpu")
        ripple.write_trace(folder / "trace.jsonl", engine.generate("Q", length=8, block=4, trace=True).trace)
        (folder / "prompt.txt").write_text("1 + 1 =")
        (folder / "config.toml").write_text('decoder = "rps"\nlam = 0.2\n')
        (folder / "rows.jsonl").write_text('{"id": 1, "prompt": "a"}\n')
        lines = ["--model", "m", "--device", "cpu", "--length", "8", "--limit", "2", "--json"]
        with contextlib.redirect_stdout(io.StringIO()):
            place = str(folder / "a.jsonl")
            lines[1] = str(folder / "m")
            assert main(["eval", "--task", "words", "--decoder", "default", "--out", place, *lines]) == 0
        self._kept = {path.name for path in folder.iterdir()}
        self._known = {line: list(self._words(line.split())) for line in self.seeds}

    def _words(self, words: list[str]) -> Iterator[str]:
        """Yield the words that a command knows."""
        yield from (
            "out.json",
            "trace.jsonl",
            "a.jsonl",
            "m",
            "rps",
            "dual",
            "--help",
            "--json",
            "--debug",
            "--",
        )
        name, *rest = words
        if name not in COMMANDS:
            yield from COMMANDS
            return
        for action in parser_of(name, importlib.import_module(COMMANDS[name]), rest)._actions:
            yield from (word for word in action.option_strings if word not in self.never)
            yield from map(str, action.choices or ())

    def case(self, rng: random.Random) -> list[str]:
        line = rng.choice(self.seeds)
        words = damaged_words(line.split(), rng, self._known[line])
        is_costly = words[0] in ("generate", "compare")  # without a model, the embedded one decodes for long
        return [*words, "--model", "m"] if is_costly else words

    def feed(self, case: list[str]) -> bool:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(case)
        for path in self.folder.iterdir():
            if path.name not in self._kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if code == 0:
            return True
        if code != BAD_INPUT:
            raise Unclean(f"exit code {code}: {err.getvalue()[-300:]!r}")
        check_complaint(err.getvalue(), "--debug" in case)
        return False


def check_complaint(said: str, is_debug: bool) -> None:
    """Raise unless a command has ended with one sentence on stderr."""
    *before, last = said.removesuffix("\n").split("\n")
    if not last.startswith("ripple: ") or (before and not is_debug and not all(map(is_remark, before))):
        raise Unclean(f"said {said[-300:]!r}")
    check_sentence(last.removeprefix("ripple: "))


def is_remark(line: str) -> bool:
    """Whether a line before the last is one of our own remarks."""
    return line.startswith("ripple: ")


class ParsedLine(CommandLine):
    """Words of a command line that would start something large: read and checked as the command does."""

    name, n = "arguments", 20_000
    seeds = PARSED_LINES
    never: ClassVar[set[str]] = set()

    def case(self, rng: random.Random) -> list[str]:
        line = rng.choice(self.seeds)
        name, *rest = damaged_words(line.split(), rng, self._known[line])
        return [name, *rest] if name in CHECKS else [line.split()[0], *rest]

    def feed(self, case: list[str]) -> bool:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                parser = parser_of(case[0], importlib.import_module(COMMANDS[case[0]]), case[1:])
                args, extra = parser.parse_known_args(case[1:])
                if extra:
                    raise RippleError("Words that are not known.")
                CHECKS[case[0]](args)
            except RippleError as error:
                check_sentence(str(error))
                return False
            except SystemExit as leave:
                if leave.code:
                    raise
        return True


def _check_decoding(args: argparse.Namespace, *own: str) -> Mapping[str, Any]:
    table = gather(args, *own)
    load_arguments(table)
    options_of_table(table, *own)
    return table


def _check_serve(args: argparse.Namespace) -> None:
    server_options(_check_decoding(args, *fields_of(ServerOptions)))
    range_of(args.replicas or "1", "--replicas")


def _check_workers(args: argparse.Namespace) -> None:
    _check_decoding(args)
    cluster_of(args)


def _check_bench(args: argparse.Namespace) -> None:
    if args.name is not None:  # else it lists the measurements
        build_measurement(args)


CHECKS: dict[str, Callable[[argparse.Namespace], object]] = {
    "serve": _check_serve, "batch": _check_workers, "eval": _check_workers, "bench": _check_bench,
    "paper": vars, "check": vars, "chat": vars, "train-filter": vars, "demo": vars,
}  # fmt: skip
