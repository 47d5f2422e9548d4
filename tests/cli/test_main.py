"""The table of subcommands, exit codes and errors; the listings that need no model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import ripple
from ripple import cli as cli_module
from ripple.cli import main
from ripple.cli.models import FAMILIES
from ripple.decoders import DECODERS, PRESETS
from ripple.models import config as model_config
from tests.cli.conftest import Cli


def test_overview_lists_the_subcommands(cli: Cli) -> None:
    done = cli()
    assert done == cli("--help") and done.code == 0
    for name in ("generate", "compare", "demo", "decoders", "models", "view", "bench"):
        assert f"  {name} " in done.out


@pytest.mark.parametrize("name", ["generate", "compare", "demo", "decoders", "models", "view", "bench"])
def test_every_subcommand_has_help(cli: Cli, name: str) -> None:
    done = cli(name, "--help")
    assert done.code == 0 and f"usage: ripple {name}" in done.out


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"ripple {ripple.__version__}\n"


def test_module_runs() -> None:
    done = subprocess.run([sys.executable, "-m", "ripple", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"ripple {ripple.__version__}\n")


def test_unknown_subcommand_names_the_nearest(cli: Cli) -> None:
    done = cli("generat")
    assert done.code == 2 and "Unknown subcommand 'generat'. Did you mean 'generate'?" in done.err
    assert done.err.startswith("ripple: ") and done.err.count("\n") == 1


def test_unknown_option_names_the_nearest(cli: Cli) -> None:
    done = cli("generate", "hi", "--tau_pivt", "0.9")
    assert done.code == 2 and "Did you mean '--tau-pivot'?" in done.err
    assert "Unknown option '--jsn'. Did you mean '--json'?" in cli("decoders", "--jsn").err


def test_unexpected_argument(cli: Cli) -> None:
    done = cli("demo", "two")
    assert done.code == 2 and "Unexpected argument 'two'" in done.err


def _command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(args: object) -> int:
        raise error

    module = SimpleNamespace(HELP="", add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(cli_module.importlib, "import_module", lambda name: module)


def test_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    _command(monkeypatch, KeyboardInterrupt())
    assert main(["demo"]) == 130


def test_broken_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "ripple", "decoders", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_decoders_lists_every_field(cli: Cli) -> None:
    listed = json.loads(cli("decoders", "--json").out)["decoders"]
    assert [row["name"] for row in listed] == list(DECODERS)
    assert {name for row in listed for name in row["presets"]} == set(PRESETS)
    for row in listed:
        assert row["about"] and row["paper"]
    rps = next(row for row in listed if row["name"] == "rps")
    assert {"name": "lam", "type": "float", "default": 0.1, "about": "λ, plausibility weight"} in rps[
        "fields"
    ]


def test_decoders_for_people(cli: Cli) -> None:
    out = cli("decoders", "rps").out
    assert "--tau-pivot" in out and "rps/dream" in out and "--gamma" not in out
    assert "Did you mean 'rps'?" in cli("decoders", "rpss").err


def test_models_lists_what_config_reads(cli: Cli) -> None:
    listed = json.loads(cli("models", "--json").out)["families"]
    assert {row["architecture"] for row in listed} == set(model_config._READERS)
    out = cli("models").out
    assert all(name in out for family in FAMILIES for name in family["models"])


def test_models_describes_a_folder(cli: Cli, checkpoint: Path) -> None:
    facts = json.loads(cli("models", checkpoint, "--json").out)
    assert (facts["family"], facts["d_model"], facts["vocab_size"]) == ("llada", 32, 328)
    size = (checkpoint / "model.safetensors").stat().st_size
    assert 0 < size - 4 * facts["parameters"] < 10_000  # fp32 tensors and a header
    assert f"{facts['parameters']:,}" in cli("models", checkpoint).out


def test_models_of_a_missing_folder(cli: Cli, tmp_path: Path) -> None:
    done = cli("models", tmp_path / "none")
    assert done.code == 2 and "is no folder here" in done.err


@pytest.mark.slow
def test_json_works_without_rich(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ImportError('no rich here')\n")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(ripple.__file__).parents[1])])}
    trace = tmp_path / "trace.jsonl"
    code = f"""
from ripple.cli import main
model = ["--model", {str(checkpoint)!r}, "--length", "8", "--json"]
assert main(["generate", "hi", *model, "--trace", {str(trace)!r}]) == 0
assert main(["compare", "hi", *model]) == 0
assert main(["view", {str(trace)!r}, "--json"]) == 0
assert main(["decoders", "--json"]) == main(["models", "--json"]) == main(["demo", *model]) == 0
for name in ("decoders", "models", "demo"):
    assert main([name]) == 2
"""
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        json.loads(line)
    assert done.stderr == "ripple: This view needs the package rich; install it, or use --json.\n" * 3


def test_listings_do_not_import_torch() -> None:
    code = "import sys; from ripple.cli import main; main(['decoders', '--json']); main(['models'])\n"
    code += "assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
