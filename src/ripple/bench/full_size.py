"""What the benchmarks of full-size networks share."""

from __future__ import annotations

import torch

from ripple.errors import RippleError, unknown
from ripple.measurement import listed
from ripple.models.base import ExpertsConfig, Model, ModelConfig
from ripple.models.shapes import random_network, shape_named

DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}  # of the layers' products
MOST_NETWORKS = 4  # side by side in a GPU's memory


class Networks:
    """Full-size networks with random weights; the last few that were asked for stay."""

    def __init__(self, device: torch.device, layers: int) -> None:
        self.device, self.layers = device, layers or None
        self._known: dict[tuple[str, str], Model] = {}

    def get(self, shape: str, dtype: str) -> Model:
        """Return the network of that shape and dtype."""
        if (shape, dtype) not in self._known:
            if len(self._known) == MOST_NETWORKS:
                del self._known[next(iter(self._known))]
            config = shape_named(shape, self.layers)
            self._known[shape, dtype] = random_network(config, self.device, DTYPES[dtype])
        return self._known[shape, dtype]


def listed_dtypes(text: str, config: ModelConfig | None = None) -> list[str]:
    """Return the dtypes of a list that is joined by commas: those that this kind of model can have."""
    names = listed(text)
    for name in names:
        if name not in DTYPES:
            raise unknown("dtype", name, DTYPES)
    if not isinstance(config, ExpertsConfig):
        return names
    if names == ["fp8"]:
        raise RippleError(f"{config.family} has experts, for which there is no fp8; measure it in bf16.")
    return [name for name in names if name != "fp8"]


def ordinary_tokens(config: ModelConfig) -> int:
    """Return below which ids no token ends a response or is the mask."""
    return min(config.mask_id, *config.end_ids, config.vocab_size)


def check_device(bench: str, device: torch.device, layers: int) -> None:
    """Refuse to build a full-size network on a CPU, where a line would take minutes."""
    if device.type != "cuda" and not layers:
        raise RippleError(
            f"Benchmark {bench} runs a full-size network and wants a GPU; on {device.type} say how few "
            "layers it may have, as in --layers 1."
        )


def device_name(device: torch.device) -> str:
    """Return a GPU's own name, or the kind of device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
