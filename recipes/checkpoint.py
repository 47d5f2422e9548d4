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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import tokenizer
from network import MODELS, Network, Sizes, layer, rms_norm
from noise import BLOCK
from optim import Optimizer

from ripple.models.config import read_config
from ripple.models.families import FAMILIES, CheckpointSizes, dream, llada, sdar
from ripple.models.json_files import write_json
from ripple.models.safetensors_files import write_safetensors
from ripple.tasks import TASKS

_NAMES = {"llada": llada.NAMES, "dream": dream.NAMES, "sdar": sdar.NAMES}
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
    names = _NAMES[family]
    if not name.startswith("blocks."):
        return str(getattr(names, name))
    _, number, role = name.split(".")
    stem = role.removesuffix("_bias")
    released = names.layer[stem].format(number)
    return released if released.endswith(".weight") else f"{released}.{'bias' if role != stem else 'weight'}"


def write_config(sizes: Sizes, folder: Path) -> None:
    """Write config.json and generation_config.json with all keys of the released files."""
    special = tokenizer.SPECIALS[sizes.family]
    shape = CheckpointSizes(
        d_model=sizes.d, n_layers=sizes.layers, n_heads=sizes.heads, n_kv_heads=sizes.kv_heads, d_ff=sizes.ff,
        vocab_size=sizes.rows, max_positions=sizes.positions, tied_head=False,
        head_dim=sizes.d // sizes.heads, block_size=BLOCK,
    )  # fmt: skip
    ids = {name: special.id(name) for name in special.names}
    config, generation = FAMILIES[sizes.family].format.configs(shape, ids)
    config |= {"rope_theta": sizes.theta, "rms_norm_eps": sizes.eps, "torch_dtype": "bfloat16"}
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", generation)


def write_text_files(sizes: Sizes, folder: Path) -> None:
    """Write everything in a model folder except the tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(sizes, folder)
    tokenizer.export(sizes.family, folder)


def save_weights(model: Network, folder: Path) -> None:
    """Write the weights alone, in bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    coarse = {
        released_name(model.sizes.family, name): p.detach().cpu().bfloat16().contiguous()
        for name, p in model.named_parameters()
    }
    write_safetensors(folder / "model.safetensors", coarse, {"format": "pt"})


def save(model: Network, optimizer: Optimizer, progress: Progress, folder: Path) -> None:
    """Write the model folder and the files to continue from."""
    save_weights(model, folder)
    rest: dict[str, Tensor] = {}
    for name, p in model.named_parameters():
        value = p.detach().float().cpu()
        rest[f"low.{name}"] = (value - value.bfloat16().float()).bfloat16()
    rest |= {name: value.detach().cpu().bfloat16() for name, value in optimizer.state().items()}
    write_text_files(model.sizes, folder)
    for old in folder.glob("state-*.safetensors"):
        old.unlink()
    for number, shard in enumerate(_shards(rest)):
        metadata = {"progress": json.dumps(asdict(progress))}
        write_safetensors(folder / f"state-{number}.safetensors", shard, metadata)


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


def _copy(model: Network, released: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(released[released_name(model.sizes.family, name)].float())


def begin_with(model: Network, name: str, folder: Path) -> Progress:
    """Put another family's weights, of the same sizes, into a model; return progress past its first phase.

    Rows of the mask and the end token move to this family's ids. Where only this model normalises queries
    and keys, the norms' weights are how large those were before, so that attention keeps about its scale.
    """
    family, sizes = read_config(folder).family, model.sizes
    source = Network(replace(sizes, family=family))
    _copy(source, load_file(folder / "model.safetensors"))
    old, new = tokenizer.SPECIALS[family], tokenizer.SPECIALS[sizes.family]
    rows = list(range(sizes.rows))
    for a, b in ((old.eos, new.eos), (old.mask, new.mask)):
        here, there = new.id(b), rows.index(old.id(a))
        rows[here], rows[there] = rows[there], rows[here]
    kept = dict(source.named_parameters())
    with torch.no_grad():
        for key, p in model.named_parameters():
            if key in kept:
                p.copy_(kept[key][rows] if key in ("embed", "head") else kept[key])
        for block, (q, k) in zip(model.blocks, _attention_scales(source, family), strict=True):
            block["q_norm"].fill_(q)
            block["k_norm"].fill_(k)
    return Progress(name, diffusion_steps=1, next_chunk=UNSEEN)


def _attention_scales(model: Network, family: str) -> list[tuple[float, float]]:
    """Return the size (root mean square) of queries and keys in each layer, over some training items."""
    s, tok = model.sizes, tokenizer.load(family)
    items = [task.generate("train", i) for task in TASKS.values() for i in range(4)]
    sums = torch.zeros(s.layers, 2)
    for item in items:
        ids = torch.tensor([tok.encode(item.prompt + item.solution).ids])
        x, n = F.embedding(ids, model.embed), ids.shape[1]
        for number, block in enumerate(model.blocks):
            w = dict(block.items())
            h = rms_norm(x, w["attn_norm"], s.eps)
            for part, role in enumerate(("q", "k")):
                heads = F.linear(h, w[role], w.get(f"{role}_bias")).view(n, -1, s.d // s.heads)
                sums[number, part] += heads.pow(2).mean()
            x, _ = layer(x, model.cos[:n], model.sin[:n], w, s.heads, s.kv_heads, s.eps, causal=False)
    return [(float(q), float(k)) for q, k in (sums / len(items)).sqrt()]


def load(model: Network, optimizer: Optimizer, folder: Path) -> Progress:
    """Put a saved model and its optimiser back, and return the progress.

    A folder without state files, such as a released model, gives its weights; the optimiser starts afresh.
    """
    files = sorted(folder.glob("state-*.safetensors"))
    coarse = load_file(folder / "model.safetensors")
    family = model.sizes.family
    if not files:
        _copy(model, coarse)
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
