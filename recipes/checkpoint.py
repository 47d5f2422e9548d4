"""Writes a trained network as a released-format folder, with what is needed to continue training beside it.

model.safetensors holds the weights in bf16 under their released names. state-N.safetensors hold what
bf16 dropped (so fp32 weights come back to 16 bits of mantissa), the optimiser's tensors and the progress
so far; no pickles. The state files are for training only and are not shipped. Each is at most 15.5 MiB,
so they fit small transfers.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import tokenizer
from network import MODELS, Network, Sizes
from optim import Optimizer

from ripple.models.checkpoint import LAYER_NAMES, TOP_NAMES
from ripple.models.random_files import dream_config, llada_config, write_json

_SHARD = int(15.5 * 2**20)  # bytes
UNSEEN = 100_000  # where a session without a record goes on: a part of the stream none has reached


@dataclass(slots=True)
class Progress:
    """How far training has come, over all sessions."""

    model: str
    steps: int = 0
    seconds: float = 0.0  # spent in the training loop
    diffusion_steps: int = 0
    next_chunk: int = 0  # of the training stream


def released_name(family: str, name: str) -> str:
    """Return the released name of one of the network's parameters."""
    if not name.startswith("blocks."):
        return TOP_NAMES[family][name]
    _, number, role = name.split(".")
    stem = role.removesuffix("_bias")
    is_bias = role.endswith("_bias")
    released = LAYER_NAMES[family][stem].format(number)
    return released if released.endswith(".weight") else f"{released}.{'bias' if is_bias else 'weight'}"


def write_config(sizes: Sizes, folder: Path) -> None:
    """Write config.json and generation_config.json with all keys of the released files."""
    special = tokenizer.SPECIALS[sizes.family]
    shape = {
        "d_model": sizes.d, "n_layers": sizes.layers, "n_heads": sizes.heads, "n_kv_heads": sizes.kv_heads,
        "d_ff": sizes.ff, "vocab_size": sizes.rows, "max_positions": sizes.positions,
    }  # fmt: skip
    build = llada_config if sizes.family == "llada" else dream_config
    config, generation = build(shape, False, {name: special.id(name) for name in special.names})
    config |= {"rope_theta": sizes.theta, "rms_norm_eps": sizes.eps, "torch_dtype": "bfloat16"}
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", generation)


def write_text_files(sizes: Sizes, folder: Path) -> None:
    """Write everything in a model folder except the tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(sizes, folder)
    tokenizer.export(sizes.family, folder)


def save(model: Network, optimizer: Optimizer, progress: Progress, folder: Path) -> None:
    """Write the model folder and the files to continue from."""
    folder.mkdir(parents=True, exist_ok=True)
    family = model.sizes.family
    coarse: dict[str, Tensor] = {}
    rest: dict[str, Tensor] = {}
    for name, p in model.named_parameters():
        value = p.detach().float().cpu()
        coarse[released_name(family, name)] = value.bfloat16().contiguous()
        rest[f"low.{name}"] = (value - value.bfloat16().float()).bfloat16()
    rest |= {name: value.detach().cpu().bfloat16() for name, value in optimizer.state().items()}
    save_file(coarse, folder / "model.safetensors", metadata={"format": "pt"})
    write_text_files(model.sizes, folder)
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes files that only their owner may read
    for old in folder.glob("state-*.safetensors"):
        old.unlink()
    for number, shard in enumerate(_shards(rest)):
        save_file(
            shard, folder / f"state-{number}.safetensors", metadata={"progress": json.dumps(asdict(progress))}
        )


def _shards(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the tensors in groups of at most `_SHARD` bytes."""
    out: list[dict[str, Tensor]] = [{}]
    used = 0
    for name, value in tensors.items():
        if used + value.nbytes > _SHARD and out[-1]:
            out.append({})
            used = 0
        out[-1][name] = value.contiguous()
        used += value.nbytes
    return out


def load(model: Network, optimizer: Optimizer, folder: Path) -> Progress:
    """Put a saved model and its optimiser back, and return the progress.

    A folder without state files, such as a released model, gives its weights; the optimiser starts afresh.
    """
    files = sorted(folder.glob("state-*.safetensors"))
    coarse = load_file(folder / "model.safetensors")
    family = model.sizes.family
    if not files:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(coarse[released_name(family, name)].float())
        return Progress(folder.name, diffusion_steps=1, next_chunk=UNSEEN)  # past the autoregressive phase
    with safe_open(files[0], framework="pt") as handle:
        stored = json.loads(handle.metadata()["progress"])
        progress = Progress(**{name: stored[name] for name in Progress.__slots__})
    rest: dict[str, Tensor] = {}
    for path in files:
        rest |= load_file(path)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(coarse[released_name(family, name)].float() + rest[f"low.{name}"].float())
    optimizer.restore(rest, progress.steps)
    return progress


def main() -> None:
    """Complete a folder that holds only tensors, as after a transfer of few files."""
    parser = argparse.ArgumentParser(description="Write the config and tokenizer files of a model folder.")
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    write_text_files(MODELS[args.model], args.folder)


if __name__ == "__main__":
    main()
