"""The lines of result files, schema version 2: which fields each kind has, and the check of every line read.

A file holds JSON lines of five kinds and may hold many runs; docs/evaluation.md documents the fields.

- `run`: everything that determines what is decoded; its hash `run` is the run's name.
- `environment`: code, libraries and machine, named by its hash.
- `item`: one decoded and scored item of a run.
- `summary`: a finished run packed into one line, with the facts of its `run` line.
- `analysis`: what is neither; the field `analysis` names it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ripple.errors import RippleError
from ripple.files import Line, check_new_file, numbered_lines

VERSION = 2
CONVERTER = "tools/convert_results.py"
_START = b'{"kind": "'  # how every line begins
_LARGEST = 1e15  # what can still be drawn
_OLD_BENCHES = ("decoders", "paper", "blame", "programs")

# The shape of a value: a type, a tuple of types, a list of one shape, or a mapping of names to shapes, where
# the name "*" stands for any.
ValueShape = Any
_NUMBER = (int, float)
_NONE = type(None)
_COUNTS: ValueShape = {"*": int}
_RUNS: ValueShape = [[str]]

RUN_FACTS: dict[str, ValueShape] = {  # their hash names a run
    "model": str, "model_family": str, "weights": (str, _NONE), "device": str, "dtype": str,
    "fused": (bool, _NONE), "task": str, "task_facts": {}, "chat": bool, "decoder": str, "setting": str,
    "fields": {}, "length": int, "block": int, "cache": str, "lookahead": str, "seed": int,
    "temperature": _NUMBER, "stop_at_end": bool, "stop": [str], "version": (str, _NONE),
}  # fmt: skip
OPTIONAL_FACTS: dict[str, ValueShape] = {
    "end_fill": bool,
    "lookahead_budget": _NUMBER,
}  # named, too
_ITEM: dict[str, ValueShape] = {
    "run": str, "environment": str, "item": str, "digest": str, "right": bool, "marks": {"*": bool},
    "found": {"*": str}, "text": str, "finish": str, "nfe": int, "nfe_normal": int, "nfe_lookahead": int,
    "canvases": int, "prompt_tokens": int, "new_tokens": int, "tokens_fast_dllm": (int, _NONE),
    "seconds": _NUMBER, "engine_seconds": _NUMBER,
}  # fmt: skip
_SUMMARY: dict[str, ValueShape] = RUN_FACTS | {
    "run": str, "n": int, "accuracy": _NUMBER, "interval": [_NUMBER], "right": str, "nfe": _NUMBER,
    "nfe_normal": _NUMBER, "nfe_lookahead": _NUMBER, "canvases": _NUMBER, "new_tokens": _NUMBER,
    "seconds": _NUMBER, "tps": _NUMBER, "device_name": str, "torch": str, "batch": int,
}  # fmt: skip
_SUMMARY_OPTIONAL: dict[str, ValueShape] = {
    "prompt_tokens": _NUMBER, "tokens_fast_dllm": (*_NUMBER, _NONE), "marks": {"*": str}, "nfe_items": [int],
    "source_lines": [int], "bound": [[int]],
    "search": {"searches": _NUMBER, "mean_candidates": _NUMBER, "committed": _NUMBER, "not_top_1": _NUMBER},
}  # fmt: skip
_RPS_FIELDS: ValueShape = {
    "lam": _NUMBER, "k_max": int, "r": _NUMBER, "tau_pivot": _NUMBER, "pivot": str, "candidates": str,
}  # fmt: skip
_PLACE: dict[str, ValueShape] = {
    "model": str, "model_family": str, "task": str, "setting": str, "length": int, "n": int,
}  # fmt: skip
_MACHINE: dict[str, ValueShape] = {"chat": bool, "cache": str, "device_name": str, "dtype": str, "torch": str}
_FORWARDS: ValueShape = {"count": _NUMBER, "ms": _NUMBER}
_SIDE: ValueShape = {"right": bool, "nfe": int, "snapshots": [{"nfe": int, "runs": _RUNS}]}
_CASE: ValueShape = {
    "item": str, "kind": str, "commit": int, "of": int, "cause": str, "rank": int, "entropy": _NUMBER,
    "p": _NUMBER, "tokens": [str], "text": str,
}  # fmt: skip
_ANALYSES: dict[str, dict[str, ValueShape]] = {
    "timing": _PLACE | _MACHINE | {
        "decoder": str, "nfe": _NUMBER, "new_tokens": _NUMBER, "seconds": _NUMBER, "tps": _NUMBER,
        "forwards": {"normal": _FORWARDS, "lookahead": _FORWARDS},
    },
    "oracle": _PLACE | _MACHINE | {"solved": int, "points": [[_NUMBER]]},
    "snapshots": _PLACE | _MACHINE | {"item": str, "prompt": str, "sides": {"lopa": _SIDE, "rps": _SIDE}},
    "blame": _PLACE | {
        "solved": int, "lost": int, "commits": _COUNTS, "guilty": _COUNTS, "bin_nats": _NUMBER,
        "pivots_by_entropy": _COUNTS, "guilty_by_entropy": _COUNTS, "cases": [_CASE],
    },
    "accuracy": _PLACE | {"cache": str, "dtype": str, "n_right": int, "nfe": _NUMBER},
}  # fmt: skip
_FIELDS: dict[str, dict[str, ValueShape]] = {
    "run": RUN_FACTS | {"run": str}, "environment": {"environment": str}, "item": _ITEM, "summary": _SUMMARY,
    "analysis": {"analysis": str},
}  # fmt: skip
KINDS = tuple(_FIELDS)


# -- making lines -----------------------------------------------------------------------------------------


def make_line(kind: str, values: Mapping[str, Any]) -> Line:
    """Return a line of this kind; every line says its kind and the schema's version first."""
    return {"kind": kind, "v": VERSION, **values}


def run_line(facts: Mapping[str, Any]) -> Line:
    """Return the line of a run, given `RUN_FACTS`."""
    return make_line("run", {"run": run_name(facts), **facts})


def run_name(facts: Mapping[str, Any]) -> str:
    """Return the hash that names a run, from a mapping that holds its facts."""
    optional = {name: facts[name] for name in OPTIONAL_FACTS if name in facts}
    return short_hash({name: facts[name] for name in RUN_FACTS} | optional)


def short_hash(values: Mapping[str, Any]) -> str:
    """Return twelve hex digits that stand for these values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


# -- reading ----------------------------------------------------------------------------------------------


def read_results(path: Path) -> list[Line]:
    """Read the lines of a result file and check each; a last line that a kill cut off is left out."""
    numbered = numbered_lines(path)
    _check_tail(path)
    runs: set[str] = set()
    environments: set[str] = set()
    items: set[tuple[str, str]] = set()
    for number, line in numbered:
        where = f"{path}, line {number}"
        check_line(line, where)
        if line["kind"] == "run":
            runs.add(line["run"])
        elif line["kind"] == "environment":
            environments.add(line["environment"])
        elif line["kind"] == "item":
            if line["run"] not in runs or line["environment"] not in environments:
                raise RippleError(f"{where}: the item's run or environment is not described before it.")
            if (name := (line["run"], line["item"])) in items:
                raise RippleError(f"{where}: item {line['item']} of run {line['run']} is there twice.")
            items.add(name)
    return [line for _, line in numbered]


def check_results(path: Path) -> None:
    """Raise, before any work, what would keep result lines from being added to a file."""
    check_new_file(path, "the results", is_appended=True)
    read_results(path)


def _check_tail(path: Path) -> None:
    """A line of ours that was cut off may be dropped; the last line of somebody else's file must not."""
    if not path.exists():
        return
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RippleError(f"Cannot read the results {path}: {error.strerror}.") from None
    tail = data[data.rfind(b"\n") + 1 :]
    if not (tail.startswith(_START) or _START.startswith(tail)):
        raise RippleError(f"{path} is not a result file: its last line is not a result line.")


def check_line(line: Line, where: str) -> None:
    """Raise one sentence unless the line is a proper one of this version."""
    if line.get("v") != VERSION or not isinstance(line.get("kind"), str) or line["kind"] not in KINDS:
        raise RippleError(f"{where}: {_why_not_ours(line)}.")
    if (fault := _fault(line)) is not None:
        raise RippleError(f"{where}: this line of kind {line['kind']!r} {fault}.")


def _why_not_ours(line: Line) -> str:
    version, kind = line.get("v"), line.get("kind")
    is_old = line.get("bench") in _OLD_BENCHES or (kind in ("item", "environment") and version is None)
    if is_old:
        return f"an earlier version of ripple wrote this; convert the file with `python {CONVERTER} FILE`"
    if isinstance(version, int) and version > VERSION and kind is not None:
        return f"schema version {version}, this ripple reads version {VERSION}"
    return "not a result line"


def _fault(line: Line) -> str | None:
    """Say what is wrong with a line, or nothing."""
    kind = line["kind"]
    fields = _FIELDS[kind]
    if kind == "analysis" and isinstance(line.get("analysis"), str):
        if line["analysis"] not in _ANALYSES:
            return f"names the unknown analysis {line['analysis'][:40]!r}"
        fields = _ANALYSES[line["analysis"]]
    for name, shape in fields.items():
        if name not in line:
            return f"has no {name!r}"
        if not _fits(line[name], shape):
            return f"has no proper {name!r}"
    if kind == "summary":
        return _summary_fault(line)
    if kind == "run" and line["run"] != run_name(line):
        return "has a name that is not the hash of its facts"
    return _analysis_fault(line) if kind == "analysis" else None


def _summary_fault(line: Line) -> str | None:
    for name, shape in _SUMMARY_OPTIONAL.items():
        if line.get(name) is not None and not _fits(line[name], shape):
            return f"has no proper {name!r}"
    if line["decoder"] == "rps" and not _fits(line["fields"], _RPS_FIELDS):
        return "has no proper 'fields'"
    n = line["n"]
    for name, packed in {"right": line["right"], **(line.get("marks") or {})}.items():
        if not _is_packed(packed, n):
            return f"has no proper {name!r}"
    if n < 1 or abs(line["accuracy"] - int(line["right"], 16).bit_count() / n) > 1e-9:
        return "has an accuracy that its verdicts do not have"
    for name in ("nfe_items", "source_lines"):
        if line.get(name) is not None and len(line[name]) != n:
            return f"has not one of {name!r} for each item"
    if len(line["interval"]) != 2 or any(len(pair) != 4 for pair in line.get("bound") or ()):
        return "has no proper 'interval' or 'bound'"
    return "has a name that is not the hash of its facts" if line["run"] != run_name(line) else None


def _analysis_fault(line: Line) -> str | None:
    if any(len(point) != 4 for point in line.get("points", ())):
        return "has no proper 'points'"
    if any(not _is_number_text(edge) for edge in line.get("pivots_by_entropy", ())):
        return "has no proper 'pivots_by_entropy'"
    if any(not _is_number_text(edge) for edge in line.get("guilty_by_entropy", ())):
        return "has no proper 'guilty_by_entropy'"
    shots = [shot for side in line.get("sides", {}).values() for shot in side["snapshots"]]
    if any(len(run) != 2 for shot in shots for run in shot["runs"]):
        return "has no proper 'sides'"
    return None


def _is_packed(packed: str, n: int) -> bool:
    """Check the verdicts of n items."""
    is_hex = bool(packed) and set(packed) <= set("0123456789abcdef") and len(packed) == -(-n // 4)
    return is_hex and int(packed, 16) >> n == 0


def _is_number_text(text: str) -> bool:
    try:
        return abs(float(text)) < _LARGEST
    except ValueError:
        return False


def _fits(value: Any, shape: ValueShape) -> bool:
    """Check a JSON value against a shape; true is no number, and numbers are of a size that can be drawn."""
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(member, shape[0]) for member in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        if "*" in shape:
            return all(_fits(member, shape["*"]) for member in value.values())
        return all(name in value and _fits(value[name], inner) for name, inner in shape.items())
    kinds = shape if isinstance(shape, tuple) else (shape,)
    if isinstance(value, bool):
        return bool in kinds
    if not isinstance(value, kinds):
        return False
    return not isinstance(value, int | float) or abs(value) < _LARGEST
