"""One job: rows in, one result per row out, in the order of the input; whoever runs it again resumes it.

Finished rows are put on the disk in small groups while the job runs. The results appear whole, when every
row is there, and are the same bytes however often the job was killed: they hold no clocks, and a response
does not depend on company.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import ripple
from ripple.batch.checkpoint import FIELDS, FORMATS, Checkpoint, import_pyarrow, write_results
from ripple.batch.rows import Id, InputRows, options_of, prompt_of
from ripple.engine.result import Result
from ripple.errors import RequestError, RippleError, unknown
from ripple.fields import fields_of
from ripple.files import Line, check_folder, check_new_file, locked, write_whole
from ripple.options import Options
from ripple.pool.decode import NumberedPrompt, RowOutcome
from ripple.progress import Progress

DecodeRows = Callable[[Iterable[NumberedPrompt]], Iterator[tuple[int, RowOutcome]]]
CHECKPOINT, FACTS = "unfinished.jsonl", "job.json"
GROUP, GROUP_S = 64, 1.0  # finished rows that may wait to be written, and for how long


class Tally(NamedTuple):
    """What a finished job came to."""

    rows: int
    errors: int
    results: Path


@dataclass(frozen=True)
class Job:
    """What is decoded, how, and the folder for what comes of it."""

    rows: InputRows
    out: Path
    table: Mapping[str, Any]  # how rows are decoded that do not say it themselves
    model: Mapping[str, Any]  # the facts of the model
    chat: bool = False
    format: str = "jsonl"

    @property
    def results(self) -> Path:
        """The file that appears when all is done."""
        return self.out / f"results.{self.format}"

    @cached_property
    def facts(self) -> Line:
        """Everything that determines the results."""
        options = Options.of(self.table)
        given = {name: _plain(getattr(options, name)) for name in fields_of(Options) if name != "trace"}
        return {
            "input": self.rows.sha256, "rows": len(self.rows.ids), **self.model, **given, "chat": self.chat,
            "format": self.format, "version": ripple.__version__,
        }  # fmt: skip

    def check(self) -> None:
        """Raise, before any work, what would keep the job from ending well."""
        if self.format not in FORMATS:
            raise unknown("format", self.format, FORMATS)
        if self.format == "parquet":
            import_pyarrow()
        check_folder(self.out, "the output folder")
        for name in (self.results, self.out / CHECKPOINT, self.out / FACTS):
            check_new_file(name, "the output")
        _ = self.facts

    def prompts(self, checkpoint: Checkpoint) -> Iterator[NumberedPrompt]:
        """Yield what is left to decode."""
        for number, row in enumerate(self.rows):
            if self.rows.ids[number] not in checkpoint:
                yield self._prompt(number, row)

    def _prompt(self, number: int, row: Mapping[str, Any]) -> NumberedPrompt:
        try:
            return NumberedPrompt(number, prompt_of(row, self.chat), options_of(row, self.table))
        except RippleError as error:
            return NumberedPrompt(number, None, None, error)


def run(job: Job, engines: Callable[[], AbstractContextManager[DecodeRows]], is_quiet: bool = True) -> Tally:
    """Decode what is missing, by `engines` that are opened if there is any, then write the results."""
    ids = job.rows.ids
    with locked(job.out / CHECKPOINT):
        if job.results.exists():
            before = _read_facts(job.out / FACTS)
            _check_same(job, before)
            (job.out / CHECKPOINT).unlink(missing_ok=True)  # the job was killed just before its end
            return Tally(before["rows"], before["errors"], job.results)
        checkpoint = Checkpoint(job.out / CHECKPOINT)
        if checkpoint.facts is not None:
            _check_same(job, checkpoint.facts)
        if len(checkpoint) < len(ids):
            with Progress("batch", len(ids), is_quiet) as progress, engines() as decode:
                progress.skip(len(checkpoint))
                _decode(job, decode, checkpoint, progress)
        errors = sum(json.loads(line)["error"] is not None for line in checkpoint.lines(ids))
        write_whole(job.out / FACTS, json.dumps(job.facts | {"errors": errors}, indent=1) + "\n")
        write_results(job.results, checkpoint.lines(ids), ids)
        (job.out / CHECKPOINT).unlink()
    return Tally(len(ids), errors, job.results)


def _decode(job: Job, decode: DecodeRows, checkpoint: Checkpoint, progress: Progress) -> None:
    """Decode what the checkpoint lacks and put it there, a small group at a time."""
    group: list[Line] = []
    since, errors = time.monotonic(), 0
    try:
        for number, outcome in decode(job.prompts(checkpoint)):
            line = result_line(job.rows.ids[number], outcome)
            group.append(line)
            errors += line["error"] is not None
            progress.update(note=f"{errors} with an error" if errors else "")
            if len(group) >= GROUP or time.monotonic() - since >= GROUP_S:
                checkpoint.add(job.facts, group)
                group, since = [], time.monotonic()
    finally:
        if group:
            checkpoint.add(job.facts, group)


def result_line(name: Id, outcome: RowOutcome) -> Line:
    """Return what is said of one row: nothing in it differs from run to run."""
    line: Line = {"id": name, **dict.fromkeys(FIELDS)}
    if isinstance(outcome, Result):
        return line | {
            "text": outcome.text, "finish": outcome.finish, "prompt_tokens": outcome.prompt_tokens,
            "new_tokens": len(outcome.new_tokens), "nfe": outcome.nfe, "canvases": outcome.canvases,
        }  # fmt: skip
    return line | {"error": (isinstance(outcome, RequestError) and outcome.what) or str(outcome)}


def _check_same(job: Job, before: Mapping[str, Any]) -> None:
    """Refuse to go on with another job's rows."""
    for name, value in job.facts.items():
        if (old := before.get(name)) != value:
            raise RippleError(
                f"{job.out} holds another job: its {name} was {_shown(old)}, now it is {_shown(value)}; name "
                "another folder with --output."
            )


def _read_facts(path: Path) -> Line:
    try:
        facts = json.loads(path.read_bytes())
        return {"rows": int(facts["rows"]), "errors": int(facts["errors"]), **facts}
    except (OSError, ValueError, TypeError, KeyError):
        raise RippleError(
            f"{path} does not say what job it was; name another folder with --output."
        ) from None


def _plain(value: Any) -> Any:
    """Return an option's value as JSON has it."""
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, str | int | float) else value.describe()


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
