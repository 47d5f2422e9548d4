"""docs/add-a-model.md is true: its families, run as they stand there, need nothing but a row in the table."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

import ripple
from ripple.errors import RippleError
from ripple.models import families
from ripple.models.config import read_config
from ripple.models.load import load_model
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.models.transformer import rms_norm
from tests.models.test_parity import our_logits

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "add-a-model.md"
SIZES: dict[str, Any] = {"vocab_size": 300, "d_model": 32, "n_kv_heads": 2, "d_ff": 48, "sharpness": 2.0}


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """Both families of the document as modules of the families' package, with their rows."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    place = tmp_path_factory.mktemp("families")
    modules = {}
    for name, block in (("plum", blocks[0]), ("plum_moe", blocks[2])):
        file = place / f"{name}.py"
        file.write_text(block)
        spec = importlib.util.spec_from_file_location(f"ripple.models.families.{name}", file)
        assert spec is not None and spec.loader is not None
        modules[name] = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        setattr(families, name, modules[name])
        spec.loader.exec_module(modules[name])
        families.FAMILIES[modules[name].FAMILY.name] = modules[name].FAMILY
    yield modules
    for name, module in modules.items():
        del sys.modules[f"ripple.models.families.{name}"], families.FAMILIES[module.FAMILY.name]
        delattr(families, name)


def canvases() -> torch.Tensor:
    return torch.randint(0, 290, (2, 21), generator=torch.Generator().manual_seed(0))


def test_the_dense_family_equals_transformers_to_the_bit(
    documented: dict[str, ModuleType], tmp_path: Path
) -> None:
    folder = write_random_checkpoint(tmp_path, "plum", **SIZES)
    model, tokenizer = load_model(folder, device="cpu", fused=False)
    config = json.loads((folder / "config.json").read_text())
    shared = {name: value for name, value in config.items() if name not in ("architectures", "torch_dtype")}
    witness = LlamaForCausalLM(LlamaConfig(**shared, is_causal=False)).eval()
    witness.load_state_dict(load_file(folder / "model.safetensors"))
    with torch.inference_mode():
        expected = witness(input_ids=canvases(), is_causal=False, use_cache=False).logits
    assert (our_logits(model, canvases()) - expected).abs().max() == 0
    assert tokenizer is not None and tokenizer.encode("<|turn|>") == [model.config.end_ids[1]]


@pytest.mark.parametrize("family", ["plum", "plum-moe"])
@pytest.mark.parametrize("cache", ["none", "dual"])
def test_the_engine_runs_it(
    documented: dict[str, ModuleType], tmp_path: Path, family: str, cache: str
) -> None:
    folder = write_random_checkpoint(tmp_path, family, **SIZES)
    engine = ripple.load(folder, device="cpu")
    results = engine.generate(["the sum", "what number"], decoder="rps", length=16, block=8, cache=cache)
    for prompt, result in zip(["the sum", "what number"], results, strict=True):
        alone = engine.generate(prompt, decoder="rps", length=16, block=8, cache=cache)
        assert result.token_ids == alone.token_ids and engine.model.config.mask_id not in result.token_ids


def test_a_field_that_is_not_implemented_is_refused(
    documented: dict[str, ModuleType], tmp_path: Path
) -> None:
    folder = write_random_checkpoint(tmp_path, "plum", **SIZES)
    config = json.loads((folder / "config.json").read_text()) | {"rope_scaling": {"type": "yarn"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RippleError, match=r"rope_scaling = .*, which is not implemented; supported: null"):
        read_config(folder)


def test_the_experts_are_weighted_as_the_router_says(
    documented: dict[str, ModuleType], tmp_path: Path
) -> None:
    model, _ = load_model(write_random_checkpoint(tmp_path, "plum-moe", **SIZES), device="cpu")
    layer, x = model.weights.layers[1], torch.randn(2, 5, 32)
    normed = rms_norm(x, layer.mlp_norm, model.config.norm_eps)
    expected = torch.zeros_like(x)
    for place in ((s, t) for s in range(2) for t in range(5)):
        row = normed[place]
        best = (layer.router @ row).softmax(0).sort(descending=True)
        total = best.values[:2].sum()
        for score, expert in zip(best.values[:2], best.indices[:2].tolist(), strict=True):
            gate, up = (layer.gate_up[expert] @ row).chunk(2)
            expected[place] += score / total * (layer.down[expert] @ (F.silu(gate) * up))
    torch.testing.assert_close(model.feed_forward(layer, x), expected, atol=1e-5, rtol=1e-5)


def test_equal_experts_are_the_dense_family(documented: dict[str, ModuleType], tmp_path: Path) -> None:
    dense = write_random_checkpoint(tmp_path / "dense", "plum", **SIZES)
    moe = write_random_checkpoint(tmp_path / "moe", "plum-moe", **SIZES)
    stored = load_file(dense / "model.safetensors")
    tensors = {}
    for name, tensor in load_file(moe / "model.safetensors").items():
        source = re.sub(r"\.experts\.\d+", "", name)
        tensors[name] = stored.get(source, tensor).clone()
    save_file(tensors, moe / "model.safetensors")
    model, expected = (load_model(folder, device="cpu")[0] for folder in (moe, dense))
    torch.testing.assert_close(
        our_logits(model, canvases()), our_logits(expected, canvases()), atol=1e-4, rtol=0
    )
