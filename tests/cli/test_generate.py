"""`ripple generate` on a small random checkpoint."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pytest

import ripple
from ripple.cli.generate import ENDINGS, shown_text
from ripple.cli.running import EXAMPLE
from ripple.engine.result import Result
from ripple.models.hub import EMBEDDED
from ripple.tasks import TASKS
from ripple.tasks.base import Item
from ripple.trace import FINISHES
from tests.cli.conftest import Cli

KEYS = {
    "text", "token_ids", "new_tokens", "nfe", "nfe_normal", "nfe_lookahead", "canvases", "seconds", "finish",
    "decoder", "fields", "cache",
}  # fmt: skip


def test_json_equals_the_library(generate: Cli, checkpoint: Path) -> None:
    done = generate(
        "hello",
        "--json",
        "--length",
        40,
        "--block",
        16,
        "--cache",
        "dual",
        "--lam",
        "0.2",
        "--decoder",
        "rps",
    )
    printed = json.loads(done.out)
    assert done.code == 0 and done.err == "" and set(printed) == KEYS and done.out.count("\n") == 1
    expected = ripple.load(checkpoint, device="cpu").generate(
        "hello", decoder=ripple.RPS(lam=0.2), length=40, block=16, cache="dual"
    )
    for name in KEYS - {"decoder", "fields", "cache", "seconds"}:
        assert printed[name] == getattr(expected, name), name
    assert (printed["decoder"], printed["fields"]["lam"], printed["cache"]) == ("rps", 0.2, "dual")


def test_people_see_text_counts_and_how_it_ended(generate: Cli) -> None:
    done = generate("hello", "--decoder", "default")
    assert done.code == 0 and "NFE 8 (8 normal, 0 lookahead)" in done.out
    assert "tokens/s" in done.out and "\x1b" not in done.out
    assert any(f"· {ending}\n" in done.out for ending in ENDINGS.values()) and set(ENDINGS) == set(FINISHES)


def test_ways_to_give_a_prompt(generate: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("hello\n")
    plain = json.loads(generate("hello", "--json").out)["token_ids"]
    assert json.loads(generate("--prompt-file", path, "--json").out)["token_ids"] == plain
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
    assert json.loads(generate("-", "--json").out)["token_ids"] == plain
    assert json.loads(generate("hello", "--chat", "--json").out)["token_ids"] != plain
    assert len(json.loads(generate("--ids", "1,2,3", "--json").out)["token_ids"]) == 8


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "Give one prompt"),
        (["hi", "--ids", "1"], "got 2."),
        ([""], "The prompt is empty"),
        (["--ids", "1,x"], "--ids must be whole numbers"),
        (["--ids", "9" * 5000], "--ids must be whole numbers"),
        (["--ids", "100000"], "outside the vocabulary"),
        (["--ids", "1", "--chat"], "--chat wraps text"),
        (["hi", "--watch", "--json"], "give one of them"),
        (["hi", "--length", "100000"], "exceed the model's"),
        (["--prompt-file", "/nowhere/at/all"], "Cannot read the prompt /nowhere/at/all"),
        (["hi", "--trace", "/nowhere/at/all.jsonl"], "Cannot write the trace"),
        (["hi", "--trace", ""], "Cannot write the trace"),
        (["hi", "--decoder", "confidance"], "Did you mean 'confidence'?"),
        (["hi", "--dtype", "float23"], "Did you mean 'float32'?"),
        (["hi", "--device", "gpu9"], "Unknown device 'gpu9'"),
        (["hi", "--memory-gb", "much"], "memory_gb must be a number above 0, got 'much'."),
        (["hi", "--block-size", "few"], "block_size must be a whole number above 0, got 'few'."),
        (["hi", "--block-size", "8"], "block_size is for models that attend block by block"),
    ],
)
def test_bad_input(generate: Cli, argv: list[str], sentence: str) -> None:
    done = generate(*argv)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1 and done.out == ""


def test_bad_model(cli: Cli, tmp_path: Path) -> None:
    done = cli("generate", "hi", "--model", tmp_path)
    assert done.code == 2 and "holds no config.json" in done.err


# -- what has no text --------------------------------------------------------------------------------------


def _result(text: str, new_tokens: list[int], finish: str, tokenizer: object = "some") -> Result:
    return Result(text, new_tokens, new_tokens, 1, 0, 1, 0.1, 0.1, finish, True, 3, [None], None, tokenizer)  # type: ignore[arg-type]


def test_an_empty_response_says_why() -> None:
    assert shown_text(_result("a\n b\x1b", [1], "end")) == "a\n b␛"
    assert shown_text(_result("", [9], "end")) == "(an empty response: the first token is an end token)"
    assert shown_text(_result("", [4, 5], "stop")) == "(an empty response: it begins with a stop string)"
    assert shown_text(_result("", [4, 9], "end")) == "(an empty response of 2 tokens without text)"


def test_an_empty_response_of_a_model(cli: Cli) -> None:
    """tiny-dream knows nothing to say to this."""
    done = cli("generate", "hi", "--model", "tiny-dream", "--length", 8)
    assert done.out.startswith("(an empty response: the first token is an end token)\n\n")
    assert (
        json.loads(cli("generate", "hi", "--model", "tiny-dream", "--length", 8, "--json").out)["text"] == ""
    )


def test_without_a_tokenizer_ids_are_shown_and_it_is_said_why(
    cli: Cli, checkpoint: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "bare"
    shutil.copytree(checkpoint, folder, ignore=shutil.ignore_patterns("tokenizer*", "*.txt", "chat*"))
    done = cli("generate", "--ids", "1,2,3", "--model", folder, "--length", 4)
    ids = json.loads(cli("generate", "--ids", "1,2,3", "--model", folder, "--length", 4, "--json").out)
    shown = " ".join(map(str, ids["new_tokens"]))
    assert done.out.startswith(f"{shown}\n(token ids: this checkpoint has no tokenizer)\n\n")
    assert "give the prompt as a list of token ids" in cli("generate", "hi", "--model", folder).err


# -- the embedded models -----------------------------------------------------------------------------------


def _example() -> Item:
    return next(item for item in TASKS["words"].test_items(50) if item.prompt.startswith(EXAMPLE))


def test_without_a_model_it_says_so_and_suggests_what_the_model_can_solve(cli: Cli) -> None:
    done = cli("generate", EXAMPLE, "--json", "--length", 96)
    assert (
        done.out.count("\n") == 1
        and "no --model was given" in done.err
        and "embedded" in done.err
        and f"'{EXAMPLE}'" in done.err
    )
    assert TASKS["words"].score(_example(), json.loads(done.out)["text"]), "a suggestion must be solved"
    assert EXAMPLE in cli("generate", "--help").out


def test_the_other_embedded_model_solves_it_too(cli: Cli) -> None:
    done = cli("generate", EXAMPLE, "--json", "--model", "tiny-dream", "--length", 96)
    assert TASKS["words"].score(_example(), json.loads(done.out)["text"])


def test_a_name_means_the_preset_of_the_models_family(cli: Cli) -> None:
    assert (EMBEDDED / "tiny-dream").is_dir()
    printed = json.loads(
        cli("generate", "hi", "--model", "tiny-dream", "--decoder", "rps", "--length", 4, "--json").out
    )
    assert printed["fields"]["tau_pivot"] == 0.95


# -- traces ------------------------------------------------------------------------------------------------


def test_trace_is_written_whole(generate: Cli, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    printed = json.loads(generate("hello", "--trace", path, "--json").out)
    events = ripple.read_trace(path)
    assert sum(event.kind == "forward" for event in events) == printed["nfe"]
    assert events[-1].data["token"] == printed["token_ids"]
    assert [p.name for p in tmp_path.iterdir()] == ["trace.jsonl"]


def test_a_trace_replaces_only_regular_files_and_follows_links(generate: Cli, tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target.jsonl", tmp_path / "link.jsonl", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    os.mkfifo(pipe)
    assert generate("hello", "--trace", link).code == 0
    assert link.is_symlink() and len(ripple.read_trace(target)) > 2
    for path, kind in (
        (pipe, "it is not a regular file"),
        ("/dev/null", "not a regular file"),
        (tmp_path, "a folder"),
    ):
        done = generate("hello", "--trace", path)
        assert done.code == 2 and kind in done.err and done.out == ""
    assert pipe.is_fifo() and Path("/dev/null").is_char_device()


def test_an_output_is_checked_before_the_model_is_loaded(cli: Cli, tmp_path: Path) -> None:
    done = cli("generate", "hi", "--model", tmp_path / "none", "--trace", tmp_path / "no" / "x.jsonl")
    assert done.code == 2 and "Cannot write the trace" in done.err


def test_watch_without_a_terminal_prints_as_usual(generate: Cli) -> None:
    done = generate("hello", "--watch")
    assert done.code == 0 and "NFE" in done.out and "\x1b" not in done.out
