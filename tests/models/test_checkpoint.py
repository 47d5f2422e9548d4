"""Released safetensors in, fused tensors out; and one sentence for every way a checkpoint can be broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ripple.bench.load_memory import LoadMemory
from ripple.errors import RippleError
from ripple.models.checkpoint import read_weights
from ripple.models.config import read_config
from ripple.models.dense import Weights
from ripple.models.random_checkpoint import write_random_checkpoint

CPU = torch.device("cpu")
NAMES = {
    "llada": {
        "qkv": [f"model.transformer.blocks.1.{x}_proj.weight" for x in "qkv"],
        "gate_up": [f"model.transformer.blocks.1.{x}_proj.weight" for x in ("ff", "up")],
        "out": ["model.transformer.blocks.1.attn_out.weight"],
        "down": ["model.transformer.blocks.1.ff_out.weight"],
        "attn_norm": ["model.transformer.blocks.1.attn_norm.weight"],
        "mlp_norm": ["model.transformer.blocks.1.ff_norm.weight"],
        "embed": ["model.transformer.wte.weight"],
        "norm": ["model.transformer.ln_f.weight"],
        "head": ["model.transformer.ff_out.weight"],
    },
    "dream": {
        "qkv": [f"model.layers.1.self_attn.{x}_proj.weight" for x in "qkv"],
        "qkv_bias": [f"model.layers.1.self_attn.{x}_proj.bias" for x in "qkv"],
        "gate_up": [f"model.layers.1.mlp.{x}_proj.weight" for x in ("gate", "up")],
        "out": ["model.layers.1.self_attn.o_proj.weight"],
        "down": ["model.layers.1.mlp.down_proj.weight"],
        "attn_norm": ["model.layers.1.input_layernorm.weight"],
        "mlp_norm": ["model.layers.1.post_attention_layernorm.weight"],
        "embed": ["model.embed_tokens.weight"],
        "norm": ["model.norm.weight"],
        "head": ["lm_head.weight"],
    },
}


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Weights:
    return read_weights(folder, read_config(folder), CPU, dtype)


def tensors(weights: Weights) -> list[torch.Tensor]:
    layers = [[getattr(layer, name) for name in layer.__slots__] for layer in weights.layers]
    flat = [tensor for layer in layers for tensor in layer if tensor is not None]
    return [weights.embed, weights.norm, weights.head, *flat]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small LLaDA in one file."""
    return write_random_checkpoint(tmp_path_factory.mktemp("source"), d_model=16, d_ff=24, n_kv_heads=2)


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    """A copy of the source that a test may break."""
    return Path(shutil.copytree(source, tmp_path / "model"))


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_every_tensor_lands_in_its_rows(family, tmp_path):
    write_random_checkpoint(tmp_path, family, n_kv_heads=2)
    raw, weights = load_file(tmp_path / "model.safetensors"), load(tmp_path)
    for role, names in NAMES[family].items():
        got = getattr(weights, role) if hasattr(weights, role) else getattr(weights.layers[1], role)
        assert torch.equal(got, torch.cat([raw[name] for name in names])), role
    assert (weights.layers[1].qkv_bias is None) == (family == "llada")
    assert len(raw) == 3 + 2 * (9 if family == "llada" else 12)


def test_llada_with_qkv_bias_reads_the_biases(folder):
    raw = load_file(folder / "model.safetensors")
    for layer in range(2):
        for name, rows in (("q", 16), ("k", 8), ("v", 8)):
            raw[f"model.transformer.blocks.{layer}.{name}_proj.bias"] = torch.randn(rows)
    save_file(raw, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text()) | {"include_qkv_bias": True}
    (folder / "config.json").write_text(json.dumps(config))
    expected = torch.cat([raw[f"model.transformer.blocks.0.{name}_proj.bias"] for name in "qkv"])
    assert torch.equal(load(folder).layers[0].qkv_bias, expected)


def test_shards_hold_the_same_model_as_one_file(source, tmp_path):
    write_random_checkpoint(tmp_path, d_model=16, d_ff=24, n_kv_heads=2, max_shard_bytes=5000)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 3
    pairs = zip(tensors(load(source)), tensors(load(tmp_path)), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_written_index_is_complete(tmp_path):
    write_random_checkpoint(tmp_path, max_shard_bytes=50_000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    for name, shard in index["weight_map"].items():
        assert name in load_file(tmp_path / shard)
    sizes = [tensor.nbytes for path in tmp_path.glob("*.safetensors") for tensor in load_file(path).values()]
    assert index["metadata"]["total_size"] == sum(sizes)


def test_weights_are_cast_on_the_way(source, monkeypatch):
    monkeypatch.setattr("ripple.models.checkpoint._STAGING_BYTES", 1000)  # several pieces per tensor
    for full, half in zip(tensors(load(source)), tensors(load(source, torch.bfloat16)), strict=True):
        assert half.dtype == torch.bfloat16
        assert torch.equal(full.to(torch.bfloat16), half)


def test_bf16_files_are_read_into_place(tmp_path):
    write_random_checkpoint(tmp_path, dtype=torch.bfloat16)
    raw = load_file(tmp_path / "model.safetensors")
    assert torch.equal(load(tmp_path, torch.bfloat16).head, raw["model.transformer.ff_out.weight"])


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_a_tied_head_is_the_embedding_and_needs_no_tensor(family, tmp_path):
    write_random_checkpoint(tmp_path, family, tied=True)
    raw, weights = load_file(tmp_path / "model.safetensors"), load(tmp_path)
    assert weights.head is weights.embed
    assert NAMES[family]["head"][0] not in raw
    # a stored copy is ignored, as the released code does
    save_file(raw | {NAMES[family]["head"][0]: weights.embed.clone()}, tmp_path / "model.safetensors")
    assert load(tmp_path).head is not None


def test_rotary_buffers_are_ignored(folder):
    raw = load_file(folder / "model.safetensors")
    raw["model.transformer.blocks.0.rotary_emb.inv_freq"] = torch.ones(2)
    save_file(raw, folder / "model.safetensors")
    load(folder)


def test_the_same_seed_writes_the_same_model(source, tmp_path):
    write_random_checkpoint(tmp_path, d_model=16, d_ff=24, n_kv_heads=2)
    file = "model.safetensors"
    assert (tmp_path / file).read_bytes() == (source / file).read_bytes()
    write_random_checkpoint(tmp_path, d_model=16, d_ff=24, n_kv_heads=2, seed=1)
    assert (tmp_path / file).read_bytes() != (source / file).read_bytes()


@pytest.mark.parametrize(
    "options", [{"family": "gpt"}, {"vocab_size": 15}, {"dtype": torch.int8}, {"n_heads": 5}], ids=str
)
def test_a_random_checkpoint_that_cannot_be_is_refused(tmp_path, options):
    with pytest.raises(RippleError):
        write_random_checkpoint(tmp_path, **options)


def test_missing_files_are_named(folder, tmp_path):
    config = read_config(folder)
    with pytest.raises(RippleError, match="nowhere does not exist"):
        read_weights(tmp_path / "nowhere", config, CPU, torch.float32)
    (folder / "model.safetensors").unlink()
    with pytest.raises(RippleError, match=r"neither model\.safetensors\.index\.json nor model\.safetensors"):
        load(folder)


def test_a_missing_shard_is_named(tmp_path):
    write_random_checkpoint(tmp_path, max_shard_bytes=50_000)
    victim = sorted(tmp_path.glob("model-*.safetensors"))[1]
    victim.unlink()
    with pytest.raises(RippleError, match=f'lacks the shard "{victim.name}"'):
        load(tmp_path)


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ("{", "cannot be read as JSON"),
        ("{}", "has no weight_map"),
        ('{"weight_map": {"a": "../b"}}', "plain file"),
    ],
)
def test_a_bad_index_is_named(folder, index, sentence):
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(RippleError, match=f"index.json .*{sentence}"):
        load(folder)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_file_is_named(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(RippleError, match=r"model\.safetensors is damaged or not a safetensors file"):
        load(folder)


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b'["list"]',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',  # 2 floats are 8 bytes
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1]}}',
        b'{"a": 3}',
    ],
)
def test_a_corrupt_header_is_named(folder, header):
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    with pytest.raises(RippleError, match=r"model\.safetensors is damaged or not a safetensors file"):
        load(folder)


def test_a_file_that_is_no_safetensors_is_named(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(RippleError, match="is damaged or not a safetensors file"):
        load(folder)


def test_tensors_that_do_not_match_the_config_are_named(folder):
    path = folder / "model.safetensors"
    raw = load_file(path)
    name = "model.transformer.blocks.1.up_proj.weight"

    save_file({key: value for key, value in raw.items() if key != name}, path)
    with pytest.raises(RippleError, match=f'lacks the tensor "{name}"\\.'):
        load(folder)
    save_file(raw | {name: torch.zeros(24, 15)}, path)
    with pytest.raises(RippleError, match=rf"{name}\" has shape \[24, 15\], expected \[24, 16\]"):
        load(folder)
    save_file(raw | {name: torch.zeros(24, 16, dtype=torch.int8)}, path)
    with pytest.raises(RippleError, match=f'{name}" has dtype I8, supported: BF16'):
        load(folder)
    save_file(raw | {"model.transformer.blocks.2.up_proj.weight": raw[name].clone()}, path)
    with pytest.raises(
        RippleError, match=r'holds the tensor "model\.transformer\.blocks\.2\.up_proj\.weight"'
    ):
        load(folder)


def test_a_tensor_in_two_shards_is_refused(folder):
    (folder / "second.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    index = {"weight_map": {"a": "model.safetensors", "b": "second.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(RippleError, match=r"second\.safetensors holds the tensor .* a second time"):
        load(folder)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the kernel's own memory figures")
def test_loading_needs_little_more_memory_than_the_weights():
    result = LoadMemory().run()
    assert result["weights_gb"] >= 1
    assert result["ratio"] < 1.15
