"""Which network runs a dense model: the plain one, or one with GPU kernels, in the usual dtypes or in fp8."""

from __future__ import annotations

import importlib.util

from ripple.models.base import Model, ModelConfig
from ripple.models.dense import Fp8Layer, Weights


def dense_network(config: ModelConfig, weights: Weights, fused: bool = True) -> Model:
    """Return the network for these weights: with GPU kernels where they lie on a GPU and Triton is there."""
    is_fp8 = isinstance(weights.layers[0], Fp8Layer)
    is_power_of_2 = config.head_dim >= 16 and config.head_dim.bit_count() == 1  # a Triton tile's width
    on_gpu = weights.embed.device.type == "cuda"
    if on_gpu and fused and is_power_of_2 and importlib.util.find_spec("triton"):
        if is_fp8:
            from ripple.models.gpu.fast_fp8 import FastFp8Transformer

            return FastFp8Transformer(config, weights)
        from ripple.models.gpu.fast import FastTransformer

        return FastTransformer(config, weights)
    if is_fp8:
        from ripple.models.fp8 import Fp8Transformer

        return Fp8Transformer(config, weights)
    from ripple.models.transformer import Transformer

    return Transformer(config, weights, fused)
