"""Shell completion: the script that `ripple completion` prints, in a real bash."""

from __future__ import annotations

import contextlib
import importlib
import io
import shutil
import subprocess
from pathlib import Path

import pytest

from ripple.cli import COMMANDS, main
from tests.cli import conftest
from tests.cli.conftest import Cli

pytest.importorskip("shtab", reason="the package shtab, which writes the scripts, is not installed here")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "ripple.bash"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["completion", "bash"]) == 0
    path.write_text(printed.getvalue())
    return path


def complete(script: Path, line: str, folder: Path) -> list[str]:
    """Complete the last word of a line, as bash does when tab is pressed."""
    words = line.split(" ")
    code = (
        f"source {script}; COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1};"
        ' COMPREPLY=(); "$(complete -p ripple | sed -E "s/.*-F ([^ ]+) .*/\\1/")";'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return sorted(set(done.stdout.split()))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ripple gen", ["generate"]),
        ("ripple ca", ["caches"]),
        ("ripple generate --deco", ["--decoder"]),
        ("ripple generate --decoder confidence/l", ["confidence/llada", "confidence/llada2"]),
        ("ripple generate --decoder rps/d", ["rps/dream"]),
        ("ripple compare x --decoders lopa/l", ["lopa/llada"]),
        ("ripple generate --cache d", ["d2", "dkv", "dual"]),
        ("ripple generate --lookahead p", ["packed"]),
        ("ripple generate --model tiny-", ["tiny-dream", "tiny-llada", "tiny-sdar"]),
        ("ripple generate --model some_f", ["some_folder"]),
        ("ripple generate --trace some_", ["some_file", "some_folder"]),
        ("ripple generate --eps", ["--eps-kl"]),
        ("ripple bench ste", ["step"]),
        ("ripple bench step --sh", ["--shapes"]),
        ("ripple bench step --leng", []),
        ("ripple decoders fac", ["factor"]),
        ("ripple caches pre", ["prefix"]),
        ("ripple tasks hum", ["humaneval"]),
        ("ripple demo --families wor", ["words"]),
        ("ripple view some_fi", ["some_file"]),
        ("ripple completion t", ["tcsh"]),
    ],
)
def test_words_complete_in_bash(script: Path, tmp_path: Path, line: str, expected: list[str]) -> None:
    (tmp_path / "some_folder").mkdir()
    (tmp_path / "some_file").touch()
    assert complete(script, line, tmp_path) == expected


def test_every_subcommand_completes(script: Path, tmp_path: Path) -> None:
    usable = []
    for name, module in COMMANDS.items():
        with contextlib.suppress(ImportError):  # of a package that is not installed here
            importlib.import_module(module)
            usable.append(name)
    assert complete(script, "ripple ", tmp_path) == sorted(usable)
    assert set(conftest.COMMANDS) <= set(usable)


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script_that_they_can_read(cli: Cli, tmp_path: Path, shell: str) -> None:
    done = cli("completion", shell)
    assert done.code == 0 and "rps/dream" in done.out and (shell == "tcsh" or "tiny-llada" in done.out)
    if program := shutil.which(shell):
        path = tmp_path / "script"
        path.write_text(done.out)
        subprocess.run([program, "-n", path], check=True)


def test_an_unknown_shell_is_told(cli: Cli) -> None:
    done = cli("completion", "fish")
    assert done.code == 2 and "'bash', 'zsh', 'tcsh'" in done.err
