"""Which experts a forward's rows go to, counted: it decides how many weights the forward reads."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ripple.engine.layout import AskLayout
from ripple.engine.runner import DeviceRunner
from ripple.models.base import ExpertsConfig
from ripple.models.dense import LayerWeights
from ripple.models.experts import ExpertLayer, ExpertTransformer, route
from ripple.models.transformer import rms_norm


class CountingTransformer(ExpertTransformer):
    """A plain network that notes, for each layer with experts, how many of them its rows go to."""

    n_hit: list[int]

    def feed_forward(self, layer: LayerWeights, x: Tensor) -> Tensor:
        """Count, and return what the layer adds."""
        if isinstance(layer, ExpertLayer):
            normed = rms_norm(x, layer.mlp_norm, self.config.norm_eps)
            chosen, _ = route(normed.flatten(0, 1), layer, self.config)
            self.n_hit.append(len(chosen.unique()))  # type: ignore[no-untyped-call]
        return super().feed_forward(layer, x)


def experts_hit(runner: DeviceRunner, layouts: Sequence[AskLayout]) -> float | None:
    """Run a forward on the plain path; return the experts that are hit, in the mean of the layers."""
    config = runner.model.config
    if not isinstance(config, ExpertsConfig) or config.n_layers == config.n_dense:
        return None
    model = CountingTransformer(config, runner.model.weights)  # type: ignore[attr-defined]
    model.n_hit = []
    twin = DeviceRunner(model)
    twin.store = runner.store
    twin.hidden_states(layouts)
    return sum(model.n_hit) / len(model.n_hit)
