"""`ripple tasks` prints what the families hold."""

import argparse
import json

import pytest

from ripple.cli import tasks as command
from ripple.errors import RippleError


def call(capsys, *argv: str) -> str:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.run(parser.parse_args(argv)) == 0
    return capsys.readouterr().out


def test_show_prints_samples(capsys):
    out = call(capsys, "show", "words", "--n", "2")
    assert "words/test/0" in out and "words/test/1" in out and "####" in out


def test_show_as_json_gives_whole_items(capsys):
    rows = [json.loads(line) for line in call(capsys, "show", "programs", "--n", "3", "--json").splitlines()]
    assert [row["id"] for row in rows] == ["programs/test/0", "programs/test/1", "programs/test/2"]
    assert all("assert" in row["tests"] for row in rows)


def test_list_names_the_families(capsys):
    assert [line.split()[0] for line in call(capsys, "list").splitlines()] == [
        "words",
        "algebra",
        "functions",
        "programs",
    ]


def test_an_unknown_family_is_one_sentence(capsys):
    with pytest.raises(RippleError, match="Unknown task"):
        call(capsys, "show", "wrods")
