"""The training recipe, on a tiny network: it learns, it continues, and it writes a released-format folder."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[2]
TOKENIZER_FILES = {
    "tiny-llada": {"tokenizer.json", "tokenizer_config.json"},
    "tiny-dream": {"vocab.json", "merges.txt", "tokenizer_config.json"},
}


def train(model: str, out: Path, *more: str) -> list[dict]:
    command = [
        sys.executable,
        str(ROOT / "recipes" / "train.py"),
        "--model",
        model,
        "--smoke",
        "--device",
        "cpu",
    ]
    done = subprocess.run([*command, "--out", str(out), *more], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module", params=["tiny-llada", "tiny-dream"])
def run(request, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param)
    return request.param, out, train(request.param, out)


def losses(log: list[dict], phase: str) -> list[float]:
    return [row["loss"] for row in log if row["event"] == phase]


def test_the_loss_falls_in_both_phases(run):
    _, _, log = run
    ar, diffusion = losses(log, "ar"), losses(log, "diffusion")
    assert ar[-1] < ar[0] - 1.5  # nats; it starts at the logarithm of the vocabulary, 7.6
    assert min(diffusion) < ar[0] - 2.5
    assert [row["how"] for row in log if row["event"] == "score"] == ["threshold 0.9", "one token per step"]


def test_the_folder_is_a_checkpoint_in_the_released_format(run):
    model, out, _ = run
    names = {path.name for path in out.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors"} | TOKENIZER_FILES[model] <= names
    import torch

    from ripple.models.checkpoint import empty_weights
    from ripple.models.config import read_config
    from ripple.text import Text

    config = read_config(out)
    assert config.logit_shift == (1 if model == "tiny-dream" else 0)
    _, expected = empty_weights(config, torch.device("meta"), torch.bfloat16)
    with safe_open(out / "model.safetensors", framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        found = {name: (part.get_shape(), part.get_dtype()) for name, part in slices.items()}
    assert found == {name: (list(value.shape), "BF16") for name, value in expected.items()}
    text = Text.load(out, config)
    assert text is not None
    ids = text.encode("x = 1234")
    assert len(ids) >= 7 and text.decode(ids) == "x = 1234"  # single digits
    assert config.vocab_size == 2048 and config.mask_id == max(text.encode(_mask(model)))


def _mask(model: str) -> str:
    return "<|mdm_mask|>" if model == "tiny-llada" else "<|mask|>"


@pytest.mark.parametrize("run", ["tiny-dream"], indirect=True)
def test_a_second_session_continues_where_the_first_one_stopped(run, tmp_path):
    model, out, log = run
    more = train(model, tmp_path / "more", "--resume", str(out))
    assert more[0]["resumed_steps"] == log[-1]["step"] == 100
    assert more[-1]["step"] == 200
    assert not losses(more, "ar")  # the autoregressive phase is over
    # It goes on from the old loss, not from the beginning.
    assert losses(more, "diffusion")[0] < losses(log, "diffusion")[-1] + 1.0


@pytest.mark.parametrize("run", ["tiny-dream"], indirect=True)
def test_weights_alone_are_enough_to_go_on_and_the_context_may_be_stale(run, tmp_path):
    model, out, log = run
    shutil.copytree(out, tmp_path / "bare", ignore=shutil.ignore_patterns("state-*"))
    more = train(model, tmp_path / "more", "--resume", str(tmp_path / "bare"), "--cached-share", "0.5")
    assert more[0]["resumed_steps"] == 0 and not losses(more, "ar")
    assert losses(more, "diffusion")[0] < losses(log, "diffusion")[-1] + 1.0


def test_a_cached_forward_is_the_plain_one_where_every_row_is_live_and_another_where_not():
    code = (
        "import torch; from network import SMOKE, Network\n"
        "torch.manual_seed(0); net = Network(SMOKE['tiny-dream'])\n"
        "a, b = torch.randint(2000, (2, 1, 12))\n"
        "_, stale = net.forward_all(b)\n"
        "for rows in (12, 5):\n"
        "    live = torch.arange(12)[None] < rows\n"
        "    mixed, _ = net.forward_all(a, stale=stale, live=live)\n"
        "    print(torch.allclose(mixed, net.hidden(a), atol=1e-5))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "recipes", capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_the_networks_fit_their_budget():
    code = (
        "from network import MODELS, Network\n"
        "for s in MODELS.values():\n"
        "    print(2 * sum(p.numel() for p in Network(s).parameters()))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "recipes", capture_output=True, text=True, check=True
    )
    sizes = [int(line) for line in out.stdout.split()]
    assert len(sizes) == 2 and all(size < 15.5e6 for size in sizes)  # bytes in bf16; 16 MB with the tokenizer
