"""What reads from outside, each with proper inputs, a way to damage them, and a way to feed them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import io
import json
import os
import random
import shutil
import socket
import struct
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may leave this machine

import ripple
from ripple.analysis.tables import decoder_tables, mean_table, sweep_table
from ripple.batch.rows import InputRows, options_of, prompt_of
from ripple.cli import BAD_INPUT, COMMANDS, main, parser_of
from ripple.cli.bench import _build as build_measurement
from ripple.cli.options import gather, load_arguments, read_config_file
from ripple.cli.options import options_of as options_of_table
from ripple.cli.serving import server_options
from ripple.cli.workers import cluster_of, range_of
from ripple.errors import LONGEST, RippleError
from ripple.eval.lines import read_results
from ripple.eval.results import compare, read_run, summarize
from ripple.fields import fields_of
from ripple.models.config import read_config
from ripple.models.families import FAMILIES
from ripple.models.load import load_model
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.options import Options
from ripple.server.options import ServerOptions
from ripple.trace import as_line, read_trace
from ripple.view import draw_frame, draw_summary, frames, summary
from ripple.viewer.page import Run, page
from tools.mutations import damaged_bytes, damaged_json, damaged_text, damaged_words

SMALL: dict[str, Any] = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8, "vocab_size": 330}
MOST = 6 * LONGEST  # characters of a sentence, where each had to be escaped
RESULTS = Path(__file__).parent.parent / "results"
Json = dict[str, Any]


class Unclean(Exception):
    """An input was neither accepted nor cleanly refused."""


def check_sentence(text: str) -> None:
    """Raise unless this is one sentence that any terminal can print."""
    is_plain = not any(unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" for c in text)
    if not (is_plain and 0 < len(text) <= MOST and text.endswith((".", "?"))):
        raise Unclean(f"not one clean sentence: {text!r:.300}")


class Surface:
    """Something that reads from outside."""

    name: ClassVar[str]
    n: ClassVar[int]  # inputs of a whole run

    def __init__(self, folder: Path) -> None:
        """Make proper inputs in a folder, which is where inputs are fed, too."""
        self.folder = folder

    def __enter__(self) -> Surface:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what was started."""

    def case(self, rng: random.Random) -> Any:
        """Return a damaged input."""
        raise NotImplementedError

    def feed(self, case: Any) -> bool:
        """Feed an input; return whether it was accepted, and raise unless all was clean."""
        try:
            self.read(case)
        except RippleError as error:
            check_sentence(str(error))
            return False
        return True

    def read(self, case: Any) -> None:
        """Read an input as the library does, and use what it holds."""
        raise NotImplementedError


# -- models ----------------------------------------------------------------------------------------------


class Config(Surface):
    """The config.json and generation_config.json of every family."""

    name, n = "config", 270_000

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folders = [write_random_checkpoint(folder / family, family, **SMALL) for family in FAMILIES]
        self._files = [
            path
            for place in self._folders
            for path in (
                place / "config.json",
                place / "generation_config.json",
                place / "tokenizer_config.json",
            )
            if path.exists()
        ]
        self._whole = {path: path.read_bytes() for path in self._files}
        self._values = [json.loads(data) for data in self._whole.values()]

    def case(self, rng: random.Random) -> tuple[Path, bytes]:
        path = rng.choice(self._files)
        return path.relative_to(self.folder), damaged_json(json.loads(self._whole[path]), rng, self._values)

    def read(self, case: tuple[Path, bytes]) -> None:
        path = self.folder / case[0]
        path.write_bytes(case[1])
        try:
            read_config(path.parent)
        finally:
            path.write_bytes(self._whole[path])


class Checkpoint(Surface):
    """Every file of a checkpoint: configs, index, tensors, tokenizer."""

    name, n = "checkpoint", 20_000

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for family in FAMILIES:
            write_random_checkpoint(folder / family, family, max_shard_bytes=11_000, **SMALL)
        self._whole = {path: path.read_bytes() for path in sorted(folder.rglob("*.*")) if path.is_file()}

    def case(self, rng: random.Random) -> tuple[Path, bytes]:
        path = rng.choice(list(self._whole))
        data = self._whole[path]
        if path.suffix == ".json" and rng.random() < 0.9:
            data = damaged_json(json.loads(data), rng)
        elif path.suffix == ".safetensors" and rng.random() < 0.7:
            (size,) = struct.unpack("<Q", data[:8])
            header = damaged_json(json.loads(data[8 : 8 + size]), rng)
            size = len(header) if rng.random() < 0.9 else rng.choice((0, 1, size, 2**31, 2**63, 2**64 - 1))
            data = struct.pack("<Q", size) + header + data[8 + len(header) :]
        else:
            data = damaged_bytes(data, rng)
        return path.relative_to(self.folder), data

    def read(self, case: tuple[Path, bytes]) -> None:
        path = self.folder / case[0]
        path.write_bytes(case[1])
        try:
            load_model(path.parent, "cpu")
        finally:
            path.write_bytes(self._whole[path])


# -- files of lines --------------------------------------------------------------------------------------


class Lines(Surface):
    """A file of JSON lines."""

    def __init__(self, folder: Path, files: list[list[Json]]) -> None:
        super().__init__(folder)
        self._files = files
        self._all = [line for lines in files for line in lines]

    def case(self, rng: random.Random) -> bytes:
        rows = [json.dumps(line).encode() for line in rng.choice(self._files)]
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(rows))
            match rng.randrange(8):
                case 0:
                    rows[at] = damaged_bytes(rows[at], rng, rows)
                case 1:
                    rows.insert(at, rng.choice((b"", b" ", b"[]", b"null", b"5", b"\xff", rows[at])))
                case 2 if len(rows) > 1:
                    del rows[at]
                case _:
                    with contextlib.suppress(ValueError, RecursionError):  # damaged a moment ago
                        rows[at] = damaged_json(json.loads(rows[at]), rng, self._all)
        data = b"\n".join(rows) + (b"\n" if rng.random() < 0.8 else b"")
        return damaged_bytes(data, rng) if rng.random() < 0.05 else data

    def read(self, case: bytes) -> None:
        path = Path("case.jsonl")
        path.write_bytes(case)
        self.use(path)

    def use(self, path: Path) -> None:
        """Read a file."""
        raise NotImplementedError


def timeless(line: Json) -> Json:
    """Return a line with round times: inputs must be the same in every run."""
    return line | {name: 0.5 for name in ("t", "seconds", "engine_seconds") if name in line}


class Trace(Lines):
    """A trace: read, counted, drawn on a terminal and as a page."""

    name, n = "trace", 180_000

    def __init__(self, folder: Path) -> None:
        model = write_random_checkpoint(folder / "m", max_positions=256, **SMALL)
        engine = ripple.load(model, device="cpu")
        how = {"length": 8, "block": 4, "trace": True}
        runs = [
            engine.generate("Q: 2", decoder=name, **how) for name in ("rps:tau_pivot=0.3", "lopa", "wino")
        ]
        super().__init__(folder, [[timeless(as_line(event)) for event in run.trace or ()] for run in runs])

    def use(self, path: Path) -> None:
        events = read_trace(path)
        states = frames(events)
        draw_summary(summary(events))
        if states:
            from rich.console import Console

            Console(file=io.StringIO(), width=80).print(draw_frame(states[-1], len(states)))
            page([Run(events)])


class ResultLines(Lines):
    """Lines of evaluations and of `ripple bench decoders`: checked, summed up, compared, drawn."""

    name, n = "results", 200_000

    def __init__(self, folder: Path) -> None:
        write_random_checkpoint(folder / "m", max_positions=256, **SMALL)
        said = ["--model", str(folder / "m"), "--device", "cpu", "--length", "8", "--limit", "3", "--json"]
        run = folder / "run.jsonl"
        with contextlib.redirect_stdout(io.StringIO()):
            assert main(["eval", "--task", "words", "--decoder", "default", "--out", str(run), *said]) == 0
        packed = read_results(RESULTS / "decoders-gpu.jsonl")[:3]
        lines = [timeless(line) for line in read_results(run)]
        super().__init__(folder, [lines, lines[:4], packed])
        self._run = read_run(str(run))

    def use(self, path: Path) -> None:
        lines = read_results(path)
        summaries = [line for line in lines if line["kind"] == "summary"]
        for draw in (decoder_tables, mean_table, sweep_table):
            draw(summaries)
        if any(line["kind"] == "item" for line in lines):
            run = read_run(str(path))
            summarize(run)
            compare(run, self._run)


class PromptRows(Lines):
    """The input of `ripple batch`: ids, prompts, options; JSON lines and Parquet."""

    name, n = "rows", 120_000

    def __init__(self, folder: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        rows: list[Json] = [
            {"id": "a", "prompt": "1 + 1 =", "options": {"length": 8, "decoder": "rps", "lam": 0.2}},
            {"id": "b", "messages": [{"role": "user", "content": "2"}], "options": None},
            {"id": "c", "prompt": [1, 2, 3], "options": {"cache": "dual", "seed": 3, "stop": ["x"]}},
        ]
        super().__init__(folder, [rows, rows[:1]])
        table = pyarrow.table({"id": ["a", "b"], "prompt": ["1", "2"], "options": [{"length": 8}, None]})
        pyarrow.parquet.write_table(table, folder / "rows.parquet")
        self._parquet = (folder / "rows.parquet").read_bytes()

    def case(self, rng: random.Random) -> bytes:
        return damaged_bytes(self._parquet, rng) if rng.random() < 0.1 else super().case(rng)

    def use(self, path: Path) -> None:
        errors = []
        for row in InputRows.open(path):
            try:  # a row's own fault is told in its line of the results
                options_of(row, {"decoder": "default"})
                prompt_of(row, chat=False)
            except RippleError as error:
                errors.append(error)
        if errors:
            raise errors[0]


class Toml(Surface):
    """The file of `--config`."""

    name, n = "toml", 60_000
    whole = (
        b'decoder = "rps"\nlam = 0.2\nk_max = 5\ncache = "dual"\nlength = 64\nstop = ["a", "b"]\nseed = 7\n'
        b'model = "tiny-llada"\ndtype = "float32"\nmemory_gb = 1.5\ntemperature = 0.5\nlookahead = "thin"\n'
    )

    def case(self, rng: random.Random) -> bytes:
        data = damaged_bytes(self.whole, rng)
        name, value = rng.choice(sorted(fields_of(Options))), rng.choice(damaged_values(rng))
        return data + f"{name} = {value}\n".encode() if rng.random() < 0.5 else data

    def read(self, case: bytes) -> None:
        path = Path("case.toml")
        path.write_bytes(case)
        known = {*fields_of(Options), *fields_of(ripple.RPS), "model", "device", "dtype", "memory_gb"}
        table = read_config_file(str(path), known)
        load_arguments(table)
        options_of_table(table)


def damaged_values(rng: random.Random) -> tuple[str, ...]:
    """Return values as TOML writes them."""
    return (
        "true", "-1", "0", "9" * 30, "1e400", "nan", "-inf", '""', "[]", "[1, 2]", "{a = 1}", '"x"',
        "1979-05-27", "[" * 500 + "]" * 500, f"{rng.random()}", '"\\u0000"', "'''a\nb'''",
    )  # fmt: skip


# -- HTTP ------------------------------------------------------------------------------------------------

CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "2"}]}]
OURS = {"decoder": "rps:lam=0.2", "cache": "dual", "block": 4, "trace": True}
BODIES: tuple[tuple[str, Json], ...] = (
    ("/v1/completions", {"prompt": "1 + 1 =", "max_tokens": 4}),
    ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "seed": 1, "temperature": 0.5, "logprobs": 1}),
    ("/v1/completions", {"prompt": "a", "echo": True, "suffix": "", "logit_bias": {}, "best_of": 1}),
    ("/v1/completions", {"prompt": [1, 2, 3], "stop": ["a"], "ripple": OURS, "model": "m", "user": "u"}),
    ("/v1/completions", {"prompt": [[1], [2]], "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"prompt": "a", "stream": True, "ripple": {"stream": "canvas", "length": 4}}),
    ("/v1/chat/completions", {"messages": CHAT, "max_completion_tokens": 4, "logprobs": True}),
    ("/v1/chat/completions", {"messages": CHAT, "stream": True, "response_format": {"type": "text"}}),
)  # fmt: skip
PATHS = (
    "/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/m", "/v1/models/x", "/health",
    "/metrics", "/version", "/docs", "/", "/openapi.json", "/static/x", "/v1/nothing",
)  # fmt: skip
HEADERS = (
    "content-type",
    "content-length",
    "authorization",
    "x-request-id",
    "accept",
    "host",
    "origin",
    "range",
)
KEY = "key"
SERVED = ("--length", "4", "--max-length", "4", "--max-batch", "4", "--queue", "64", "--max-body", "30000")


class Http(Surface):
    """Requests to the application, as the ASGI server hands them over: method, path, headers, body."""

    name, n = "http", 117_000

    def __init__(self, folder: Path) -> None:
        from ripple.server.app import create_app
        from ripple.server.service import Service

        super().__init__(folder)
        write_random_checkpoint(folder / "m", max_positions=256, **SMALL)
        limits = ServerOptions(max_length=4, max_batch=4, queue=64, max_body=30_000, api_key=KEY)
        engine = ripple.load(folder / "m", device="cpu")
        engine.max_batch, engine.queue_limit = limits.max_batch, limits.queue
        self._service = Service(engine, "m", Options("default", 4, stop_at_end=True), limits)
        self._app = create_app(self._service)
        self._loop = asyncio.new_event_loop()
        self._values = [body for _, body in BODIES]

    def close(self) -> None:
        self._service.close()
        self._loop.close()

    def case(self, rng: random.Random) -> tuple[str, str, list[tuple[bytes, bytes]], bytes]:
        path, value = rng.choice(BODIES)
        method, body = "POST", damaged_json(value, rng, self._values)
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "host": "h"}
        if rng.random() < 0.15:
            path = rng.choice((*PATHS, damaged_text(path, rng)))
            method = rng.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "X"))
        if rng.random() < 0.15:
            name = rng.choice(HEADERS)
            headers[name] = damaged_text(headers.get(name, rng.choice(("5", "Basic a2V5", "a", "*/*"))), rng)
        if rng.random() < 0.1:
            body = damaged_bytes(body, rng)
        sent = [(name.encode(), text.encode("latin-1", "replace")) for name, text in headers.items()]
        return method, path, sent, body

    def feed(self, case: tuple[str, str, list[tuple[bytes, bytes]], bytes]) -> bool:
        status, body = self._loop.run_until_complete(asyncio.wait_for(self._answer(*case), 30))
        is_page = not case[1].startswith("/v1")
        return check_answer(status, body, is_page or case[0] == "HEAD")

    async def _answer(
        self, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, bytes]:
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path, "headers": headers,
            "raw_path": path.encode("utf-8", "surrogateescape"), "query_string": b"", "scheme": "http",
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "asgi": {"version": "3.0"},
            "root_path": "",
        }  # fmt: skip
        said: list[Any] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            said.append(message)

        await self._app(scope, receive, send)
        if not said:
            raise Unclean("no answer")
        return said[0]["status"], b"".join(message.get("body", b"") for message in said[1:])


def check_answer(status: int, body: bytes, may_be_text: bool = False) -> bool:
    """Return whether a request was accepted; raise unless its answer is one that is promised.

    OpenAI's shape is promised below /v1; a page answers a broken `Range` in plain text.
    """
    if status < 400:
        if b'"error": {' in body[-1000:]:
            raise Unclean(f"{status}, and in the answer: {body[-300:]!r}")
        return True
    if status >= 500:
        raise Unclean(f"{status}: {body[:300]!r}")
    if body.startswith(b"{") or not may_be_text:
        told = json.loads(body)["error"]
        if set(told) != {"message", "type", "param", "code"}:
            raise Unclean(f"{status}: {body[:300]!r}")
        check_sentence(told["message"])
    return False


HEALTH = b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


class Socket(Surface):
    """Bytes on a connection to `ripple serve`, a process of its own."""

    name, n = "socket", 3_000

    def __init__(self, folder: Path) -> None:
        from ripple.bench.server_process import ServerProcess

        super().__init__(folder)
        write_random_checkpoint(folder / "m", max_positions=256, **SMALL)
        self._server = ServerProcess("--model", str(folder / "m"), "--device", "cpu", "--name", "m", *SERVED)
        parts = urlsplit(self._server.url)
        self._place = (str(parts.hostname), int(parts.port or 0))

    def close(self) -> None:
        self._server.process.kill()
        self._server.process.wait()

    def case(self, rng: random.Random) -> bytes:
        path, value = rng.choice(BODIES)
        body = json.dumps(value).encode() if rng.random() < 0.7 else damaged_json(value, rng)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        chunked = f"Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        data = head.encode() + body
        if rng.random() < 0.2:
            data = head.partition("Content-Length")[0].encode() + chunked
        return damaged_bytes(data, rng, [data])

    def feed(self, case: bytes) -> bool:
        said = self._exchange(case)
        if not self._exchange(HEALTH, 30).startswith(b"HTTP/1.1 200 "):
            raise Unclean("the server is not well afterwards")
        if not said:
            return False  # closed, as where a body is cut off
        statuses = [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]
        if not statuses or max(statuses) >= 500:
            raise Unclean(f"answered {said[:300]!r}")
        return max(statuses) < 400

    def _exchange(self, data: bytes, patience_s: float = 0.2) -> bytes:
        """Send bytes and return what comes back; a server that waits for more of them is left waiting."""
        with socket.create_connection(self._place, timeout=patience_s) as connection:
            said = b""
            with contextlib.suppress(ConnectionError, TimeoutError):
                connection.sendall(data)
                while part := connection.recv(1 << 16):
                    said += part
            return said


# -- command lines ---------------------------------------------------------------------------------------

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

SURFACES: dict[str, type[Surface]] = {
    one.name: one
    for one in (
        Config,
        Checkpoint,
        Trace,
        ResultLines,
        PromptRows,
        Toml,
        Http,
        Socket,
        CommandLine,
        ParsedLine,
    )
}
