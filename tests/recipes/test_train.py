"""The training recipe, on a tiny network: it learns, it continues, and it writes a released-format folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from ripple.models.config import read_config
from ripple.models.families import FAMILIES
from ripple.models.hub import EMBEDDED, embedded_models
from ripple.tokenizer import Tokenizer

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
TOKENIZER_FILES = {
    "tiny-llada": {"tokenizer.json", "tokenizer_config.json"},
    "tiny-dream": {"vocab.json", "merges.txt", "tokenizer_config.json"},
    "tiny-sdar": {"tokenizer.json", "tokenizer_config.json"},
}
MASKS = {"tiny-llada": "<|mdm_mask|>", "tiny-dream": "<|mask|>", "tiny-sdar": "<|MASK|>"}
Log = list[dict[str, Any]]


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=RECIPES, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def log_of(folder: Path) -> Log:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def losses(log: Log, phase: str) -> list[float]:
    return [row["loss"] for row in log if row["event"] == phase]


def check_learning(log: Log) -> None:
    ar, diffusion = losses(log, "ar"), losses(log, "diffusion")
    assert ar[-1] < ar[0] - 1.5  # nats; it starts at the logarithm of the vocabulary, 7.6
    assert min(diffusion) < ar[0] - 2.5
    assert [row["how"] for row in log if row["event"] == "score"] == ["threshold 0.9", "one token per step"]


def check_folder(model: str, folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors"} | TOKENIZER_FILES[model] <= names
    config = read_config(folder)
    family = FAMILIES[config.family]
    assert config.logit_shift == (1 if model == "tiny-dream" else 0)
    _, expected = family.empty_weights(config, torch.device("meta"), torch.bfloat16)
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        stored = {name: (part.get_shape(), part.get_dtype()) for name, part in slices.items()}
    assert stored == {name: (list(value.shape), "BF16") for name, value in expected.items()}
    assert (folder / "model.safetensors").stat().st_mode == (folder / "config.json").stat().st_mode
    text = Tokenizer.load(folder, family.tokenizer_class)
    assert text is not None
    ids = text.encode("x = 1234")
    assert len(ids) >= 7 and text.decode(ids) == "x = 1234"  # single digits
    assert config.vocab_size == 2048 and config.mask_id == max(text.encode(MASKS[model]))


def test_the_command_learns_in_both_phases_and_writes_the_released_format(tmp_path: Path) -> None:
    smoke = ["--model", "tiny-llada", "--smoke", "--steps", "50", "--device", "cpu"]
    run("train.py", *smoke, "--out", str(tmp_path))
    check_learning(log_of(tmp_path))
    check_folder("tiny-llada", tmp_path)


def test_later_sessions_continue_with_the_state_or_with_the_weights_alone(tmp_path: Path) -> None:
    first, bare, second, third = (tmp_path / name for name in ("first", "bare", "second", "third"))
    sessions = f"""
import shutil, train
smoke = ["--model", "tiny-dream", "--smoke", "--device", "cpu"]
train.main([*smoke, "--steps", "50", "--out", {str(first)!r}])
more = [*smoke, "--steps", "10", "--judge-items", "0"]
train.main([*more, "--out", {str(second)!r}, "--resume", {str(first)!r}])
shutil.copytree({str(first)!r}, {str(bare)!r}, ignore=shutil.ignore_patterns("state-*"))
train.main([*more, "--cached-share", "0.5", "--out", {str(third)!r}, "--resume", {str(bare)!r}])
"""
    run("-c", sessions)
    log = log_of(first)
    check_learning(log)
    check_folder("tiny-dream", first)
    for folder, resumed_steps in ((second, 50), (third, 0)):
        more = log_of(folder)
        assert more[0]["resumed_steps"] == resumed_steps
        assert more[-1]["step"] == resumed_steps + 10
        assert not losses(more, "ar")  # the autoregressive phase is over
        # It goes on from the old loss, not from the beginning.
        assert losses(more, "diffusion")[0] < losses(log, "diffusion")[-1] + 1.0


def test_another_familys_weights_are_a_beginning_and_the_weights_alone_can_be_written(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "tiny-sdar"
    sessions = f"""
import train
smoke = ["--smoke", "--device", "cpu"]
train.main([*smoke, "--model", "tiny-llada", "--steps", "50", "--judge-items", "0", "--out", {str(first)!r}])
more = [*smoke, "--model", "tiny-sdar", "--steps", "10", "--weights-only", "--out", {str(second)!r}]
train.main([*more, "--init", {str(first)!r}])
"""
    run("-c", sessions)
    assert {path.name for path in second.iterdir()} == {"model.safetensors", "log.jsonl"}
    log = log_of(second)
    assert not losses(log, "ar")
    assert losses(log, "diffusion")[0] < losses(log_of(first), "diffusion")[-1] + 1.0
    assert [row["how"] for row in log if row["event"] == "score"] == ["threshold 0.9", "one token per step"]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The recipe's module, which is no part of the package."""
    monkeypatch.syspath_prepend(str(RECIPES))
    import network

    yield network
    del sys.modules["network"]
    sys.modules.pop("noise", None)


def test_a_cached_forward_is_the_plain_one_where_every_row_is_live_and_another_where_not(
    network: Any,
) -> None:
    torch.manual_seed(0)
    net = network.Network(network.SMOKE["tiny-dream"])
    a, b = torch.randint(2000, (2, 1, 12))
    _, stale = net.forward_all(b)
    for n_live in (12, 5):
        live = torch.arange(12)[None] < n_live
        mixed, _ = net.forward_all(a, stale=stale, live=live)
        assert torch.allclose(mixed, net.hidden(a), atol=1e-5) == (n_live == 12)


def test_noised_beside_clean_is_one_forward_per_block_over_clean_earlier_blocks(network: Any) -> None:
    import noise

    torch.manual_seed(0)
    net, block, n, cpu = network.Network(network.SMOKE["tiny-sdar"]), noise.BLOCK, 96, torch.device("cpu")
    noised, clean = torch.randint(2000, (2, 1, n))
    both, at = torch.cat((noised, clean), dim=1), torch.arange(n).repeat(2)
    found = net.hidden(both, positions=at, mask=noise.noised_beside_clean(n, cpu))
    for start in range(0, n, block):
        ids = torch.cat((clean[:, :start], noised[:, start : start + block]), dim=1)
        alone = net.hidden(ids, mask=noise.block_causal(start + block, cpu))
        assert torch.allclose(found[:, start : start + block], alone[:, start:], atol=1e-5)


def test_every_block_of_the_response_is_noised_and_the_prompt_is_not(network: Any) -> None:
    import noise

    torch.manual_seed(0)
    prompt, total = torch.tensor([20] * 64), torch.tensor([100] * 64)
    batch = noise.Batch(torch.zeros(64, 192, dtype=torch.long), prompt, total)
    noised = noise.every_block(batch, 7)
    hidden = noised.ids == 7
    assert not hidden[:, :20].any() and hidden[:, 20:].any(0).all()
    assert (hidden == (noised.weight > 0)).all()
    for start, stop in ((20, 32), (32, 64), (64, 96)):
        assert 0.4 < float(hidden[:, start:stop].float().mean()) < 0.6  # rates are spread evenly
    # An end token after the first counts little, one in a block that is never opened still less.
    assert float(noised.weight[:, 101:128].max()) == pytest.approx(noise.FILL)
    assert float(noised.weight[:, 128:].max()) == pytest.approx(noise.FILL * noise.LATER)


def test_the_networks_fit_their_budget(network: Any) -> None:
    for sizes in network.MODELS.values():
        n_bytes = 2 * sum(p.numel() for p in network.Network(sizes).parameters())
        assert n_bytes < 15.5e6  # in bf16; 16 MB with the tokenizer


def test_the_embedded_models_carry_the_files_that_the_recipe_writes(tmp_path: Path) -> None:
    names = embedded_models()
    write = f"for n in {names}: checkpoint.write_text_files(checkpoint.MODELS[n], Path({str(tmp_path)!r}, n))"
    run("-c", f"from pathlib import Path; import checkpoint\n{write}")
    for name in names:
        for path in (tmp_path / name).iterdir():
            assert path.read_bytes() == (EMBEDDED / name / path.name).read_bytes(), path.name
