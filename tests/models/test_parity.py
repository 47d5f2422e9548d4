"""Our network computes what the released models compute; transformers is the witness, goldens the memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ripple.models.base import ForwardInputs
from ripple.models.load import load_model
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.models.transformer import Transformer
from tests.reference.model import ReferenceModel

GOLDEN = Path(__file__).parent / "golden_logits.json"
MASKED_TAIL = 9


def plain_forward(ids: torch.Tensor) -> ForwardInputs:
    """A forward over whole canvases [S, N], reading every row."""
    s, n = ids.shape
    return ForwardInputs(
        ids=ids, pos=torch.arange(n).expand(s, n), n_live=n, branch_len=0, n_keys=n, key_len=None,
        hide=None, own_len=None, read=torch.arange(s * n),
    )  # fmt: skip


def our_logits(model: Transformer, ids: torch.Tensor) -> torch.Tensor:
    return model.logits(model.hidden(plain_forward(ids))).reshape(*ids.shape, -1)


def canvases(model: Transformer, s: int = 2, n: int = 37) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 40, (s, n), generator=generator)
    ids[:, -MASKED_TAIL:] = model.config.mask_id
    return ids


@pytest.fixture(scope="module", params=["llada", "llada-gqa", "dream", "sdar", "nemotron", "llada2"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, _, grouped = request.param.partition("-")
    heads = {} if family == "llada" and not grouped else {"n_kv_heads": 2}
    heads |= {"head_dim": 24} if family in ("sdar", "nemotron") else {}  # may be wider than the model
    heads |= {"max_positions": 256} if family == "nemotron" else {}  # queries grow from position 16 on
    folder = tmp_path_factory.mktemp(request.param)
    return write_random_checkpoint(
        folder,
        family,
        seed=11,
        vocab_size=64,
        d_model=64,
        n_layers=3,
        n_heads=4,
        d_ff=96,
        sharpness=1.5,
        **heads,
    )


def witness(checkpoint: Path, dtype: torch.dtype) -> Any:
    """Transformers' model with the checkpoint's weights."""
    model = ReferenceModel(checkpoint)._model
    frequencies = model.model.rotary_emb.inv_freq.clone()
    model.to(dtype)
    model.model.rotary_emb.inv_freq = frequencies  # .to(bfloat16) rounds this buffer too
    return model


def witness_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=ids, is_causal=False, use_cache=False).logits


def test_fp32_logits_equal_transformers_to_the_bit_when_unfused(checkpoint: Path) -> None:
    model, _ = load_model(checkpoint, "cpu", "float32", fused=False)
    ids = canvases(model)
    assert (our_logits(model, ids) - witness_logits(witness(checkpoint, torch.float32), ids)).abs().max() == 0


def test_fusing_moves_fp32_logits_by_rounding_only(checkpoint: Path) -> None:
    model, _ = load_model(checkpoint, "cpu", "float32", fused=True)
    ids = canvases(model)
    assert (
        our_logits(model, ids) - witness_logits(witness(checkpoint, torch.float32), ids)
    ).abs().max() <= 1e-5


def test_bf16_logits_equal_the_released_numerics(checkpoint: Path) -> None:
    model, _ = load_model(checkpoint, "cpu", "bfloat16", fused=False)
    ids = canvases(model)
    theirs = witness(checkpoint, torch.bfloat16)
    gap = (our_logits(model, ids) - witness_logits(theirs, ids)).abs().max().item()
    if model.config.rope_fp32 or model.config.family == "llada2":
        # transformers rounds cos and sin to bf16, LLaDA's released code rotates in fp32; it adds experts in
        # bf16, LLaDA2's released code in fp32: a gap of bf16 noise
        exact, _ = load_model(checkpoint, "cpu", "float32", fused=False)
        noise = (our_logits(model, ids) - our_logits(exact, ids)).abs().max().item()
        assert 0 < gap <= 3 * noise
    else:
        assert gap == 0


@pytest.mark.parametrize("checkpoint", ["llada", "llada-gqa"], indirect=True)
def test_fp32_rope_in_bf16_is_the_released_llada_numerics(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = load_model(checkpoint, "cpu", "bfloat16", fused=False)
    from transformers.models.llama import modeling_llama

    stock = modeling_llama.apply_rotary_pos_emb

    def in_fp32(q: Any, k: Any, cos: Any, sin: Any, *args: Any, **kwargs: Any) -> Any:
        q_out, k_out = stock(q.float(), k.float(), cos.float(), sin.float(), *args, **kwargs)
        return q_out.to(q.dtype), k_out.to(k.dtype)

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", in_fp32)
    theirs = witness(checkpoint, torch.bfloat16)
    rotary = theirs.model.rotary_emb
    plain = rotary.forward
    monkeypatch.setattr(rotary, "forward", lambda x, position_ids: plain(x.float(), position_ids))
    ids = canvases(model)
    assert (our_logits(model, ids) - witness_logits(theirs, ids)).abs().max() == 0


def test_a_causal_model_is_far_off(checkpoint: Path) -> None:
    model, _ = load_model(checkpoint, "cpu", "float32")
    ids = canvases(model)
    theirs = witness(checkpoint, torch.float32)
    with torch.inference_mode():
        theirs.config.is_causal = True
        causal = theirs(input_ids=ids, is_causal=True, use_cache=False).logits
    assert (our_logits(model, ids) - causal).abs().max() > 0.5


def test_logits_equal_the_goldens(checkpoint: Path) -> None:
    """Stored once from transformers 5.22.2; they stay when transformers moves."""
    model, _ = load_model(checkpoint, "cpu", "float32", fused=False)
    ids = canvases(model, s=1, n=16)
    name = f"{model.config.family}-{model.config.n_kv_heads}kv"
    golden = torch.tensor(json.loads(GOLDEN.read_text())[name])
    assert (our_logits(model, ids)[0, :, :8] - golden).abs().max() <= 1e-5


def test_a_padded_row_equals_the_same_row_alone(checkpoint: Path) -> None:
    model, _ = load_model(checkpoint, "cpu", "float32")
    ids = canvases(model)
    short = 21
    padded = ids.clone()
    padded[1, short:] = padded[1, short - 1]
    fwd = plain_forward(padded)
    fwd.key_len = torch.tensor([ids.shape[1], short])
    together = model.logits(model.hidden(fwd)).reshape(2, ids.shape[1], -1)
    torch.testing.assert_close(together[0], our_logits(model, ids[:1])[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(together[1, :short], our_logits(model, ids[1:, :short])[0], atol=1e-4, rtol=0)
