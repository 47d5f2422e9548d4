"""`ripple models`: embedded models, families, and what one checkpoint holds."""

from __future__ import annotations

import json
from pathlib import Path

from ripple.eval.facts import choose_model
from ripple.models.families import FAMILIES
from ripple.models.hub import embedded_models
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.cli.conftest import Cli


def test_models_lists_the_embedded_models_and_every_family(cli: Cli) -> None:
    listed = json.loads(cli("models", "--json").out)
    names = ["tiny-dream", "tiny-llada", "tiny-sdar"]
    assert [row["name"] for row in listed["embedded"]] == embedded_models() == names
    assert all(6e6 < row["parameters"] < 8e6 for row in listed["embedded"])
    assert {row["family"] for row in listed["families"]} == set(FAMILIES)
    out = cli("models").out
    names = [name for family in FAMILIES.values() for name in (*family.architectures, *family.hub_ids)]
    assert all(name in out for name in (*embedded_models(), *names))


def test_models_describes_a_folder(cli: Cli, checkpoint: Path) -> None:
    facts = json.loads(cli("models", checkpoint, "--json").out)
    assert (facts["family"], facts["d_model"], facts["vocab_size"]) == ("llada", 32, 328)
    size = (checkpoint / "model.safetensors").stat().st_size
    assert 0 < size - 4 * facts["parameters"] < 10_000  # fp32 tensors and a header
    assert f"{facts['parameters']:,}" in cli("models", checkpoint).out


def test_models_describes_an_embedded_model_and_a_config_without_weights(
    cli: Cli, checkpoint: Path, tmp_path: Path
) -> None:
    assert json.loads(cli("models", "tiny-dream", "--json").out)["logit_shift"] == 1
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    facts = json.loads(cli("models", tmp_path, "--json").out)
    assert facts["d_model"] == 32 and "parameters" not in facts


def test_models_is_told_a_block_size_that_no_name_says(cli: Cli, tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path / "mine", "sdar", vocab_size=64, d_model=32, d_ff=32)
    config = json.loads((folder / "config.json").read_text())
    del config["block_size"]
    (folder / "config.json").write_text(json.dumps(config))
    assert "(--block-size)" in cli("models", folder).err
    assert json.loads(cli("models", folder, "--block-size", "8", "--json").out)["attention_block"] == 8
    assert choose_model(str(folder)).family == "sdar", "only loading it needs the size"


def test_models_names_the_nearest(cli: Cli, tmp_path: Path) -> None:
    done = cli("models", tmp_path / "none")
    assert done.code == 2 and "Unknown model folder or name" in done.err
    assert "Did you mean 'tiny-llada'?" in cli("models", "tiny-lada").err


def test_models_writes_the_fp8_version_of_a_checkpoint(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fp8"
    assert f"is in {folder}" in cli("models", checkpoint, "--fp8", folder).out.replace("\n", "")
    facts = json.loads(cli("models", folder, "--json").out)
    assert (facts["family"], facts["d_model"]) == ("llada", 32)
    assert "exists already" in cli("models", checkpoint, "--fp8", folder).err
    assert "Say which checkpoint" in cli("models", "--fp8", folder).err
    done = cli("generate", "2 + 3", "--model", folder, "--device", "cpu")
    assert done.code == 2 and "fp8 needs an NVIDIA GPU" in done.err
