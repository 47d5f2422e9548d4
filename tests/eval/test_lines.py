"""The schema of result lines: what is written is read back, whatever is wrong with a line is one sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.errors import RippleError
from ripple.eval.lines import KINDS, make_line, read_results, run_line, run_name
from ripple.files import write_lines
from tests.eval.conftest import go

FACTS: dict[str, Any] = {
    "model": "m", "model_family": "llada", "weights": None, "device": "cpu", "dtype": "float32",
    "fused": None, "task": "words", "task_facts": {}, "chat": False, "decoder": "rps", "setting": "rps",
    "fields": ripple.RPS().settings(), "length": 64, "block": 32, "cache": "none", "lookahead": "packed",
    "seed": 0, "temperature": 0.0, "stop_at_end": False, "stop": [], "version": None,
}  # fmt: skip


def summary(**changes: Any) -> dict[str, Any]:
    facts = {name: changes.pop(name, value) for name, value in FACTS.items()}
    numbers = {
        "n": 5, "accuracy": 0.6, "interval": [0.2, 0.9], "right": "16", "nfe": 10.5, "nfe_normal": 6.5,
        "nfe_lookahead": 4.0, "canvases": 12.0, "new_tokens": 30.0, "seconds": 1.5, "tps": 100.0,
        "device_name": "x86_64", "torch": "2", "batch": 8,
    }  # fmt: skip
    return make_line("summary", {"run": run_name(facts), **facts, **numbers, **changes})


def blame(**changes: Any) -> dict[str, Any]:
    values = {
        "analysis": "blame", "model": "m", "model_family": "llada", "task": "words", "setting": "rps",
        "length": 64, "n": 2, "solved": 1, "lost": 1, "commits": {"standard": 3}, "guilty": {},
        "bin_nats": 0.25, "pivots_by_entropy": {"0.25": 1}, "guilty_by_entropy": {}, "cases": [],
    }  # fmt: skip
    return make_line("analysis", values | changes)


@pytest.fixture(scope="module")
def whole(loaded: ripple.Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a line of every kind."""
    out = tmp_path_factory.mktemp("lines") / "r.jsonl"
    go(loaded, out, limit=2)
    lines = [*read_results(out), summary(nfe_items=[1, 2, 3, 4, 5], bound=[[3, 2, 2, 9]]), blame()]
    write_lines(out, lines)
    return out


def refused(path: Path) -> str:
    with pytest.raises(RippleError) as error:
        read_results(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_kind_is_read_back(whole: Path) -> None:
    lines = read_results(whole)
    assert {line["kind"] for line in lines} == set(KINDS) and all(line["v"] == 2 for line in lines)
    assert [json.loads(row) for row in whole.read_text().splitlines()] == lines


@pytest.mark.parametrize(
    "content, sentence",
    [
        ("a note without an end", "its last line is not a result line"),
        ("oops\n{}\n", "line 1: not a result line"),
        ('{"a": 1}\n', "line 1: not a result line"),
        ("[1, 2]\n", "line 1: not a result line"),
        ("[" * 100_000 + "\n", "line 1: not a result line"),
        ('{"kind": "item", "v": 2, "run": "a"}\n', "line 1: this line of kind 'item' has no 'environment'"),
        ('{"kind": "environment", "v": 2}\n', "has no 'environment'"),
        ('{"kind": "analysis", "v": 2, "analysis": "vibes"}\n', "names the unknown analysis 'vibes'"),
        ('{"kind": ["item"], "v": 2}\n', "line 1: not a result line"),
        ('\n{"kind": "item", "v": 3}\n', "line 2: schema version 3, this ripple reads version 2"),
        (
            '{"bench": "decoders", "rows": 3}\n',
            "convert the file with `python tools/convert_results.py FILE`",
        ),
        ('{"kind": "item", "rows": 3}\n', "an earlier version of ripple wrote this"),
        ("\udcff\n", "it is not UTF-8 text"),
    ],
)
def test_a_malformed_file_is_refused_and_left_alone(
    engine: ripple.Engine, tmp_path: Path, content: str, sentence: str
) -> None:
    out = tmp_path / "r.jsonl"
    data = content.encode(errors="surrogateescape")
    out.write_bytes(data)
    assert sentence in refused(out)
    with pytest.raises(RippleError):
        go(engine, out)
    assert out.read_bytes() == data


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"nfe": True}, "has no proper 'nfe'"),
        ({"nfe": 10**400}, "has no proper 'nfe'"),
        ({"tps": float("nan")}, "has no proper 'tps'"),
        ({"right": "36"}, "has no proper 'right'"),  # a sixth item
        ({"right": "xy"}, "has no proper 'right'"),
        ({"n": 10**9}, "has no proper 'right'"),
        ({"accuracy": 0.8}, "has an accuracy that its verdicts do not have"),
        ({"marks": {"strict": "1"}}, "has no proper 'strict'"),
        ({"nfe_items": [1, 2]}, "has not one of 'nfe_items' for each item"),
        ({"bound": [[1, 2]]}, "has no proper 'interval' or 'bound'"),
        ({"search": {"searches": 1}}, "has no proper 'search'"),
        ({"fields": {}}, "has no proper 'fields'"),
        ({"stop": "x"}, "has no proper 'stop'"),
        ({"run": "000000000000"}, "has a name that is not the hash of its facts"),
    ],
)
def test_a_summary_must_hang_together(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(summary(**changes)) + "\n")
    assert sentence in refused(path)


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"commits": {"standard": "3"}}, "commits"),
        ({"pivots_by_entropy": {"wide": 1}}, "pivots_by_entropy"),
        ({"cases": [{"item": "x"}]}, "cases"),
    ],
)
def test_an_analysis_has_its_own_fields(tmp_path: Path, changes: dict[str, Any], name: str) -> None:
    write_lines(tmp_path / "r.jsonl", [blame(**changes)])
    assert f"has no proper {name!r}" in refused(tmp_path / "r.jsonl")


def test_items_stand_once_and_behind_what_describes_them(whole: Path, tmp_path: Path) -> None:
    run, environment, first, *_ = read_results(whole)
    path = tmp_path / "r.jsonl"
    write_lines(path, [run, environment, first, first])
    assert f"line 4: item {first['item']} of run {run['run']} is there twice" in refused(path)
    write_lines(path, [environment, first])
    assert "line 2: the item's run or environment is not described before it" in refused(path)


def test_a_run_is_named_by_its_facts() -> None:
    assert run_line(FACTS)["run"] == run_name(dict(reversed(FACTS.items())))
    assert run_line(FACTS | {"seed": 1})["run"] != run_line(FACTS)["run"]


def test_no_damage_to_a_line_ends_in_a_traceback(whole: Path, tmp_path: Path) -> None:
    """Values of other kinds, characters that are changed: one sentence or a proper line."""
    rng, path = random.Random(5), tmp_path / "r.jsonl"
    lines = [json.loads(row) for row in whole.read_text().splitlines()]
    odd = [None, True, -1, 1e308, 10**200, "", "x", [], [[]], {}, {"": {}}, [None], float("inf")]
    for trial in range(400):
        line = json.loads(json.dumps(rng.choice(lines[2:])))
        if trial % 2:
            line[rng.choice(list(line))] = rng.choice(odd)
            text = json.dumps(line)
        else:
            text = json.dumps(line)
            at = rng.randrange(len(text))
            text = text[:at] + chr(rng.randrange(32, 127)) + text[at + 1 :]
        path.write_text("\n".join([*map(json.dumps, lines[:2]), text, ""]))
        try:
            read_results(path)
        except RippleError as error:
            assert "\n" not in str(error), error
