"""The table of subcommands, exit codes and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import ripple
from ripple import cli as cli_module
from ripple.caches import CACHES
from ripple.cli import COMMANDS, GROUPS, main
from ripple.cli.failures import extra_of
from ripple.decoders import DECODERS
from ripple.errors import EngineStopped, QueueFull, RequestError, RippleError, WorkFailed
from ripple.eval.decoding import raise_failures
from tests.cli import conftest
from tests.cli.conftest import Cli


def test_overview_groups_the_subcommands_and_says_what_exit_codes_mean(cli: Cli) -> None:
    done = cli()
    assert done == cli("--help") and done.code == 0
    assert [name for names in GROUPS.values() for name in names] == list(COMMANDS)
    for group in GROUPS:
        assert f"\n{group}\n" in done.out
    for name in COMMANDS:
        assert f"\n  {name} " in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert (
        "Exit codes: 0 done; 1 " in done.out and "2 bad input" in done.out and "130 interrupted" in done.out
    )


@pytest.mark.parametrize("name", conftest.COMMANDS)
def test_every_subcommand_has_help_of_80_columns(
    cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = cli(name, "--help")
    assert done.code == 0 and f"usage: ripple {name}" in done.out and "hear" not in done.out.split()
    assert done == cli("help", name)
    lines = [line for line in done.out.splitlines() if "'Question: Kira" not in line]  # is to be copied
    assert max(map(len, lines)) <= 80


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"ripple {ripple.__version__}\n"


def test_unknown_subcommand_names_the_nearest(cli: Cli) -> None:
    done = cli("generat")
    assert done.code == 2 and "Unknown subcommand 'generat'. Did you mean 'generate'?" in done.err
    assert "--version" not in done.err  # which is no subcommand
    assert done.err.startswith("ripple: ") and done.err.count("\n") == 1


def test_unknown_option_names_the_nearest(cli: Cli) -> None:
    done = cli("generate", "hi", "--tau_pivt", "0.9")
    assert done.code == 2 and "Did you mean '--tau-pivot'?" in done.err
    assert "Unknown option '--q'. See" in cli("decoders", "--q").err, "two dashes are no likeness"
    assert "Unknown option '--jsn'. Did you mean '--json'?" in cli("decoders", "--jsn").err
    assert "Unknown option '--lengt'. Did you mean '--length'?" in cli("bench", "packing", "--lengt", 3).err


def test_unexpected_argument(cli: Cli) -> None:
    done = cli("demo", "two")
    assert done.code == 2 and "Unexpected argument 'two'" in done.err


# -- errors ------------------------------------------------------------------------------------------------


def _command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Have every subcommand raise an error."""

    def run(args: object) -> int:
        raise error

    module = SimpleNamespace(HELP="", add_arguments=lambda parser, words: None, run=run)
    monkeypatch.setattr(cli_module.importlib, "import_module", lambda name: module)


def test_an_unexpected_error_is_one_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, TypeError("unsupported operand\nin line 2\x1b[31m."))
    expected = (
        "TypeError in demo: unsupported operand in line 2␛[31m. Run again with --debug for the traceback."
    )
    assert cli("demo") == (1, "", f"ripple: {expected}\n")
    _command(monkeypatch, AssertionError())
    assert cli("demo").err == "ripple: AssertionError in demo. Run again with --debug for the traceback.\n"


def test_debug_shows_the_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, TypeError("no"))
    for done in (cli("--debug", "demo"), cli("demo", "--debug")):
        assert done.code == 1 and "Traceback" in done.err and "in run" in done.err
        assert done.err.endswith("ripple: TypeError in demo: no.\n")
    monkeypatch.setenv("RIPPLE_DEBUG", "1")
    assert "Traceback" in cli("demo").err
    monkeypatch.setenv("RIPPLE_DEBUG", "0")
    assert "Traceback" not in cli("demo").err


def test_debug_behind_two_dashes_is_a_prompt(generate: Cli) -> None:
    assert generate("--", "--debug").code == 0


def test_a_request_that_fails_is_no_bad_input(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, RequestError("Request 3, decoder 'rps', forward 2: NaN."))
    assert cli("demo") == (1, "", "ripple: Request 3, decoder 'rps', forward 2: NaN.\n")


@pytest.mark.parametrize(
    "package, extra",
    [
        ("matplotlib", "plots"),
        ("math_verify", "math"),
        ("huggingface_hub", "hub"),
        ("pyarrow", "hub"),
        ("lm_eval", "lm-eval"),
    ],
)
def test_a_missing_package_names_its_extra(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    assert extra_of(package) == extra
    _command(monkeypatch, ModuleNotFoundError(f"No module named '{package}.x'", name=f"{package}.x"))
    expected = f"ripple: demo needs the package {package}: pip install 'ripple-dllm[{extra}]'.\n"
    assert cli("demo") == (1, "", expected)


def test_a_missing_package_without_an_extra_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, ModuleNotFoundError("No module named 'shtab'", name="shtab"))
    assert cli("completion").err == "ripple: completion needs the package shtab: pip install shtab.\n"
    _command(monkeypatch, ModuleNotFoundError("No module named 'ripple.x'", name="ripple.x"))
    assert "ModuleNotFoundError in demo" in cli("demo").err


def test_the_overview_survives_a_subcommand_that_cannot_be_imported(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "demo", "ripple.cli.no_such_module")
    done = cli("--help")
    assert done.code == 0 and "demo          cannot be used here: No module named" in done.out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RippleError("Nothing is allowed."), 2), (QueueFull("The queue is full."), 2),
        (RequestError("Request 3 failed."), 1), (EngineStopped("The engine has stopped."), 1),
        (WorkFailed("Item 3 failed."), 1), (LookupError("a surprise"), 1),
    ],
)  # fmt: skip
def test_exit_codes_tell_bad_input_from_failed_work(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    _command(monkeypatch, error)
    assert cli("demo").code == code


def test_an_item_that_failed_is_no_bad_input(cli: Cli) -> None:
    with pytest.raises(WorkFailed, match=r"all others were decoded\."):
        raise_failures(["Item 3: Request 5, decoder 'rps', forward 2: the decoder raised KeyError."])


def test_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, KeyboardInterrupt())
    assert main(["demo"]) == 130


# -- words that cannot be read -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [("generate", "a\udcffb"), ("generate", "hi", "--decoder", "\ud800"), ("\udc80",), ("view", "\udcff")],
)
def test_words_that_are_no_text_give_one_sentence(cli: Cli, argv: tuple[str, ...]) -> None:
    done = cli(*argv)
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1
    assert "The argument" in done.err and "is not UTF-8 text." in done.err


def test_listings_do_not_import_torch() -> None:
    code = "import sys; from ripple.cli import main\n"
    code += "for words in (['--help'], ['decoders', '--json'], ['caches'], ['bench'], ['tasks']):\n"
    code += "    assert main(words) == 0\n"
    code += "assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_ripple_imports_nothing_else() -> None:
    """Until then Ctrl-C cannot be silent."""
    code = "import sys; before = set(sys.modules); import ripple, ripple.__main__\n"
    code += "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "torch", "rich", "transformers"} & set(done.stdout.split())
    assert all(getattr(ripple, name) is not None for name in ripple.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = ripple.no_such_name
    assert {"load", "RPS"} <= set(dir(ripple))
    for cls in (*DECODERS.values(), *CACHES.values()):
        assert getattr(ripple, cls.__name__) is cls and cls.__name__ in ripple.__all__


def test_the_installed_command_starts_the_process() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'ripple = "ripple.__main__:start"' in text
