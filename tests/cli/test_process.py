"""What only a real process shows: signals, encodings, closed pipes, words that are no text."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ripple
from ripple.cli import main
from tests.cli.conftest import Cli, process

INTERRUPT = """
import os, signal, sys
seen = []
def watch(event, args):
    if event == "import" and args[0] == {module!r} and not seen:
        seen.append(1)
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(watch)
"""


def test_module_runs() -> None:
    done = process("--version", text=True)
    assert (done.returncode, done.stdout) == (0, f"ripple {ripple.__version__}\n")


# -- Ctrl-C ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module",
    ["ripple.cli", "argparse", "ripple.errors", "ripple.cli.running", "numpy", "ripple.decoders",
     "rich.console", "torch"],
)  # fmt: skip
def test_ctrl_c_is_silent_while_modules_are_imported(module: str, tmp_path: Path) -> None:
    """The signal comes at the moment at which a module begins to be imported."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT.format(module=module))
    path = os.pathsep.join([str(tmp_path), *(entry for entry in sys.path if entry)])
    done = process(
        "generate", "hi", "--length", 4, "--model", "tiny-llada", env={"PYTHONPATH": path}, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_second_ctrl_c_does_not_wait_for_an_import(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text(
        "import os, signal, time\nfor _ in range(2): os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    path = os.pathsep.join([str(tmp_path), *(entry for entry in sys.path if entry)])
    done = process("decoders", env={"PYTHONPATH": path}, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# -- output that cannot be written -------------------------------------------------------------------------


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    for argv in (("caches", "--json"), ("decoders",)):
        done = process(*argv, capture_output=False, stdout=write, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (1, ""), argv
    done = process(
        "generate", "--help", capture_output=False, stdout=write, stderr=subprocess.PIPE, text=True
    )
    assert done.stderr == ""  # argparse itself passes over it
    os.close(write)


def test_a_full_disk_behind_stdout_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = process("decoders", capture_output=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "No space left" in done.stderr


def test_without_stdout_and_stderr_nothing_breaks() -> None:
    command = f"{sys.executable} -m ripple %s >&- 2>&-"
    assert subprocess.run(["bash", "-c", command % "decoders"]).returncode == 0
    assert subprocess.run(["bash", "-c", command % "decodrs"]).returncode == 2


@pytest.mark.parametrize("encoding", ["ascii", "cp437"])
def test_narrow_encodings_replace_what_they_cannot_write(
    generate: Cli, tmp_path: Path, encoding: str
) -> None:
    trace = tmp_path / "trace.jsonl"
    assert generate("hello", "--trace", trace).code == 0
    for argv in (("decoders", "rps"), ("view", trace), ("tasks",)):
        done = process(*argv, env={"PYTHONIOENCODING": encoding})
        assert (done.returncode, done.stderr) == (0, b""), argv
        done.stdout.decode(encoding)


def test_ascii_tells_right_from_wrong_and_names_the_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["decoders", "confidence"]) == 0
    print("✓ ✗ · é")
    sys.stdout.flush()
    out = raw.getvalue().decode("ascii")
    assert "t: commit at P_max >= t" in out and out.endswith("v x - ?\n")


def test_a_response_in_ascii(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["generate", "é", "--model", str(checkpoint), "--length", "32", "--device", "cpu"]
    for more in ([], ["--json"]):
        raw = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
        assert main(words + more) == 0
        assert raw.getvalue().decode("ascii").strip()


def test_a_locale_without_an_encoding() -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert process("decoders", env=env).returncode == 0
    done = process("generate", "é", "--decoder", "rsp", env=env, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1


# -- words that are no text --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv", [(b"generate", b"a\xffb"), (b"generate", b"hi", b"--stop", b"\xc3"), (b"\xff",)]
)
def test_arguments_of_broken_utf_8_give_one_sentence(argv: tuple[bytes, ...]) -> None:
    done = process(*argv, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "is not UTF-8 text." in done.stderr


@pytest.mark.parametrize("env", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_prompt_of_broken_utf_8_gives_one_sentence(env: dict[str, str], tmp_path: Path) -> None:
    done = process("generate", "-", env=env, input=b"caf\xe9")
    assert (done.returncode, done.stderr) == (2, b"ripple: The prompt in stdin is not UTF-8 text.\n")
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"\xff\xfe")
    done = process("generate", "--prompt-file", path, env=env, text=True)
    assert done.returncode == 2 and done.stderr == f"ripple: The prompt in {path} is not UTF-8 text.\n"


def test_a_closed_stdin_gives_one_sentence() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m ripple generate - <&-"], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
