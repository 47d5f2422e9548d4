"""How a checkpoint says in its config.json that its matrices are fp8: as compressed-tensors does.

Weights `NAME.weight` are F8_E4M3 and `NAME.weight_scale` their channels' scales [n, 1]; activations are
quantised per row when they are multiplied. Embedding, head, norms and biases are stored as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ripple.models.json_files import read_json

FIELD = "quantization_config"
_WEIGHTS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
_ACTIVATIONS = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}


def quantization_config(head: str) -> dict[str, Any]:
    """Return the field of a checkpoint whose head is the tensor `head`."""
    group = {"targets": ["Linear"], "weights": _WEIGHTS, "input_activations": _ACTIVATIONS}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": [head.removesuffix(".weight")],
        "kv_cache_scheme": None,
    }


def says_fp8(config: Mapping[str, Any]) -> bool:
    """Say whether a parsed config.json tells of fp8 matrices as above; fields without effect may differ."""
    field = config.get(FIELD)
    groups = field.get("config_groups") if isinstance(field, dict) else None
    if not isinstance(field, dict) or not isinstance(groups, dict) or len(groups) != 1:
        return False
    (group,) = groups.values()
    return (
        isinstance(group, dict)
        and (field.get("quant_method"), field.get("format")) == ("compressed-tensors", "float-quantized")
        and field.get("kv_cache_scheme") is None
        and group.get("output_activations") is None
        and _holds(group.get("weights"), _WEIGHTS)
        and _holds(group.get("input_activations"), _ACTIVATIONS)
    )


def is_fp8_checkpoint(folder: Path) -> bool:
    """Say whether a folder holds fp8 matrices."""
    return says_fp8(read_json(folder / "config.json"))


def _holds(value: object, wanted: Mapping[str, object]) -> bool:
    return isinstance(value, dict) and all(
        name in value and value[name] == what for name, what in wanted.items()
    )
