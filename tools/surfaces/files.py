"""Files that are read: configs, checkpoints, traces, result lines, prompts, options."""

from __future__ import annotations

import contextlib
import io
import json
import random
import struct
from pathlib import Path

import ripple
from ripple.analysis.tables import decoder_tables, mean_table, sweep_table
from ripple.batch.rows import InputRows, options_of, prompt_of
from ripple.cli import main
from ripple.cli.options import load_arguments, read_config_file
from ripple.cli.options import options_of as options_of_table
from ripple.errors import RippleError
from ripple.eval.lines import read_results
from ripple.eval.results import compare, read_run, summarize
from ripple.fields import fields_of
from ripple.models.config import read_config
from ripple.models.families import FAMILIES
from ripple.models.load import load_model
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.options import Options
from ripple.trace import as_line, read_trace
from ripple.view import draw_frame, draw_summary, frames, summary
from ripple.viewer.page import Run, page
from tools.mutations import damaged_bytes, damaged_json
from tools.surfaces.base import RESULTS, SMALL, Json, Surface


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
