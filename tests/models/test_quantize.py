"""fp8 checkpoints: made on the way to the device or beforehand, the weights are the same."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ripple.errors import RippleError
from ripple.models.checkpoint import read_weights
from ripple.models.config import read_config
from ripple.models.fp8 import FP8, Fp8Transformer, quantised
from ripple.models.hub import EMBEDDED
from ripple.models.load import dtype_name, load_model, network
from ripple.models.quantization import FIELD, is_fp8_checkpoint
from ripple.models.quantize import write_fp8
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.models.safetensors_files import read_header
from ripple.tokenizer import Tokenizer

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {"d_model": 48, "n_heads": 4, "n_kv_heads": 2, "d_ff": 80, "dtype": torch.bfloat16}


def weights_of(folder: Path, dtype: torch.dtype = FP8) -> Any:
    return read_weights(folder, read_config(folder), CPU, dtype)


def tensors_of(weights: Any) -> dict[str, torch.Tensor]:
    parts = {"": weights} | {f"{i}.": layer for i, layer in enumerate(weights.layers)}
    named = {
        prefix + field.name: getattr(part, field.name)
        for prefix, part in parts.items()
        for field in dataclasses.fields(part)
    }
    return {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("family", ["llada", "dream", "sdar", "nemotron"])
def test_saved_and_loaded_again_the_weights_are_the_same_bit_for_bit(family: str, tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path / "full", family, max_shard_bytes=40_000, **SIZES)
    write_fp8(folder, tmp_path / "fp8")
    made, loaded = tensors_of(weights_of(folder)), tensors_of(weights_of(tmp_path / "fp8"))
    assert made.keys() == loaded.keys() and any(name.endswith("down_scale") for name in made)
    assert all(torch.equal(made[name].float(), loaded[name].float()) for name in made)
    assert {name: one.dtype for name, one in made.items()} == {n: one.dtype for n, one in loaded.items()}
    assert len(list((tmp_path / "fp8").glob("model-*.safetensors"))) > 1


def test_a_matrix_read_in_pieces_is_quantised_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_random_checkpoint(tmp_path, "dream", **SIZES)
    monkeypatch.setattr("ripple.models.checkpoint._STAGING_BYTES", 1000)  # ten rows of 48
    of_fp8, of_bf16 = weights_of(folder), weights_of(folder, torch.bfloat16)
    for layer, full in zip(of_fp8.layers, of_bf16.layers, strict=True):
        for name in ("qkv", "out", "gate_up", "down"):
            numbers, scale = quantised(getattr(full, name))
            assert torch.equal(getattr(layer, name).float(), numbers.float())
            assert torch.equal(getattr(layer, f"{name}_scale"), scale)
    assert torch.equal(of_fp8.head, of_bf16.head) and of_fp8.head.dtype == torch.bfloat16


def test_a_block_size_that_the_name_told_is_written_down(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path / "SDAR-8B-Chat-b16", "sdar", **SIZES)
    said = json.loads((folder / "config.json").read_text())
    del said["block_size"]
    (folder / "config.json").write_text(json.dumps(said))
    write_fp8(folder, tmp_path / "small")
    assert read_config(tmp_path / "small").attention_block == 16


def test_the_files_are_what_others_write(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path / "full", "dream", **SIZES)
    write_fp8(folder, tmp_path / "fp8")
    stored = {one.name: one for one in read_header(tmp_path / "fp8" / "model.safetensors")}
    at = "model.layers.0.mlp.down_proj.weight"
    assert (stored[at].dtype, stored[at].shape) == ("F8_E4M3", (48, 80))
    assert (stored[at + "_scale"].dtype, stored[at + "_scale"].shape) == ("F32", (48, 1))
    assert stored["lm_head.weight"].dtype == "BF16" and "lm_head.weight_scale" not in stored
    said = json.loads((tmp_path / "fp8" / "config.json").read_text())[FIELD]
    assert (said["quant_method"], said["format"], said["ignore"]) == (
        "compressed-tensors", "float-quantized", ["lm_head"],
    )  # fmt: skip


def test_an_embedded_model_keeps_its_tokenizer_and_its_filter(tmp_path: Path) -> None:
    write_fp8(EMBEDDED / "tiny-llada", tmp_path / "fp8")
    assert (tmp_path / "fp8" / "filter.safetensors").exists()
    assert Tokenizer.load(tmp_path / "fp8", "PreTrainedTokenizerFast").encode("2 * 3") == Tokenizer.load(
        EMBEDDED / "tiny-llada", "PreTrainedTokenizerFast"
    ).encode("2 * 3")
    model = network(read_config(tmp_path / "fp8"), weights_of(tmp_path / "fp8"))
    assert isinstance(model, Fp8Transformer) and dtype_name(model) == "fp8"


@pytest.fixture
def fp8_folder(tmp_path: Path) -> Path:
    write_fp8(write_random_checkpoint(tmp_path / "full", "dream", **SIZES), tmp_path / "fp8")
    return tmp_path / "fp8"


def test_an_fp8_checkpoint_is_fp8_by_itself_and_nothing_else(fp8_folder: Path) -> None:
    assert is_fp8_checkpoint(fp8_folder)
    with pytest.raises(RippleError, match="can only be loaded as such: say dtype fp8"):
        load_model(fp8_folder, "cpu", "float32")
    with pytest.raises(RippleError, match=r"fp8 needs an NVIDIA GPU, .* and the device is cpu"):
        load_model(fp8_folder, "cpu")
    with pytest.raises(RippleError, match="is fp8 already"):
        write_fp8(fp8_folder, fp8_folder.parent / "again")


def test_fp8_needs_a_gpu_and_a_dense_model(tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="fp8 needs an NVIDIA GPU"):
        load_model("tiny-llada", "cpu", "fp8")
    with pytest.raises(RippleError, match="fused=False"):
        load_model("tiny-llada", "cpu", "fp8", fused=False)
    folder = write_random_checkpoint(tmp_path / "experts", "llada2")
    with pytest.raises(RippleError, match="fp8 is for dense models"):
        write_fp8(folder, tmp_path / "fp8")
    assert not (tmp_path / "fp8").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="exists already"):
        write_fp8(EMBEDDED / "tiny-llada", tmp_path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("quant_method",), "gptq"),
        (("format",), "pack-quantized"),
        (("config_groups", "group_0", "weights", "strategy"), "tensor"),
        (("config_groups", "group_0", "input_activations"), None),
        (("config_groups", "group_0", "input_activations", "dynamic"), False),
        (("kv_cache_scheme",), {"num_bits": 8}),
    ],
)
def test_another_kind_of_quantisation_is_refused_by_name(
    fp8_folder: Path, path: tuple[str, ...], value: object
) -> None:
    said = json.loads((fp8_folder / "config.json").read_text())
    place = said[FIELD]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (fp8_folder / "config.json").write_text(json.dumps(said))
    with pytest.raises(RippleError, match=r"says quantization_config = .* not implemented"):
        read_config(fp8_folder)


def test_a_lost_scale_is_named(fp8_folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = fp8_folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.self_attn.o_proj.weight_scale"]
    save_file(tensors, path)
    with pytest.raises(RippleError, match=r'lacks the tensor "model.layers.1.self_attn.o_proj.weight_scale"'):
        weights_of(fp8_folder)
