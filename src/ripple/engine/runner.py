"""Between the engine and a device: work in, answers out.

The engine knows requests; a runner knows forwards. Graphs, kernels, the key store, the KL history and the
host's warm-up live behind it, and so would other devices or ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from ripple.canvas import Ints
from ripple.engine.graphs import Graphs
from ripple.engine.grouping import RowGroup, group_layouts
from ripple.engine.host_inputs import HostInputs, device_view, pack, shape_of
from ripple.engine.host_memory import available_bytes
from ripple.engine.host_warmup import host_warmup
from ripple.engine.kl_history import KLEntry, KLHistory
from ripple.engine.layout import AskLayout
from ripple.engine.readback import HostReadback, TickStats
from ripple.engine.reduce import reduce_tick
from ripple.engine.work import Work
from ripple.look import Answer
from ripple.models.base import Model, ModelConfig
from ripple.models.kv_store import KVStore

Outcome = Answer | Exception  # of one request's work


class Runner(Protocol):
    """Runs the work of a tick. A failure is the outcome of the work it belongs to, never an exception."""

    @property
    def config(self) -> ModelConfig:
        """The model that is run."""
        ...

    @property
    def position_bytes(self) -> int:
        """Bytes of the keys and values of one position."""
        ...

    def free_bytes(self) -> float:
        """Memory that keys may take when nobody says how much."""
        ...

    def run(self, work: Sequence[Work]) -> list[Outcome]:
        """Run one forward for every work and return what came of each."""
        ...

    def hidden_states(self, layouts: Sequence[AskLayout]) -> torch.Tensor:
        """Run everything that was laid out; return the rows that are read. Measurements ask for no more."""
        ...

    def release_inputs(self) -> None:
        """Take note that the device has finished: the buffers it was fed from may be written again."""
        ...

    def resize_store(self, n_slots: int, n_positions: int) -> None:
        """Give the key store this many slots and positions; what is stored in both old and new stays."""
        ...

    def kl_rows(self, lengths: Sequence[int]) -> int:
        """How many rows the KL history has once such requests are opened in this order."""
        ...

    def open_kl(self, length: int) -> KLEntry:
        """Make room for the previous looks of a request."""
        ...

    def close_kl(self, entry: KLEntry) -> None:
        """Release it."""
        ...


class DeviceRunner:
    """Runs a model on one device."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.store = KVStore(model.config, model.device, model.dtype)
        self._history = KLHistory(model.config.vocab_size, model.device)
        self._readback = HostReadback(model.device)
        self._graphs = Graphs(model, self.store) if model.has_static_shapes else None

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return self.model.config

    @property
    def position_bytes(self) -> int:
        """Bytes of the keys and values of one position."""
        c = self.config
        return 2 * c.n_layers * c.n_kv_heads * c.head_dim * self.model.dtype.itemsize

    def free_bytes(self) -> float:
        """Return the share of the device's free memory that keys may take; activations need the rest."""
        if self.model.device.type == "cuda":
            return 0.8 * torch.cuda.mem_get_info(self.model.device)[0]
        return 0.5 * available_bytes()

    def run(self, work: Sequence[Work]) -> list[Outcome]:
        """Run the forwards, then one statistics pass; failures stay with the work they belong to."""
        hidden, errors = self._hidden_states([one.layout for one in work])
        if len(errors) == len(work):
            return [errors[number] for number in range(len(work))]
        try:
            stats = self._statistics(hidden, work)
        except Exception as error:
            outcomes = self._one_by_one(hidden, work, error)
        else:
            outcomes = [_outcome(stats, number, one) for number, one in enumerate(work)]
        return [errors.get(number, outcome) for number, outcome in enumerate(outcomes)]

    def hidden_states(self, layouts: Sequence[AskLayout]) -> torch.Tensor:
        """Run everything that was laid out; return the rows that are read, in the order of the spans."""
        hidden, errors = self._hidden_states(layouts)
        for error in errors.values():
            raise error
        return hidden

    def release_inputs(self) -> None:
        """Take note that the device has finished: the buffers it was fed from may be written again."""
        if self._graphs is not None:
            self._graphs.release_inputs()

    def resize_store(self, n_slots: int, n_positions: int) -> None:
        """Give the key store this many slots and positions."""
        self.store.resize(n_slots, n_positions)

    def kl_rows(self, lengths: Sequence[int]) -> int:
        """How many rows the KL history has once such requests are opened in this order."""
        return self._history.rows_with(lengths)

    def open_kl(self, length: int) -> KLEntry:
        """Make room for the previous looks of a request."""
        return self._history.open(length)

    def close_kl(self, entry: KLEntry) -> None:
        """Release it."""
        self._history.close(entry)

    # -- forwards -----------------------------------------------------------------------------------

    def _hidden_states(self, layouts: Sequence[AskLayout]) -> tuple[torch.Tensor, dict[int, Exception]]:
        """Run all groups; return the rows read (zeros where a forward failed) and the failed layouts."""
        groups, reads = group_layouts(layouts)
        outputs: list[torch.Tensor] = []
        failed: dict[int, Exception] = {}  # id of a batch row -> why its forward failed
        for group, read in zip(groups, reads, strict=True):
            try:
                output = self._forward(group, read)
                # A graph's output is overwritten when its shape comes again.
                outputs.append(output.clone() if len(groups) > 1 else output)
            except Exception as error:
                outputs.append(torch.zeros(len(read), self.config.d_model, device=self.model.device))
                failed |= dict.fromkeys(map(id, group.members), _forgotten(error))
        errors = {
            number: failed[id(span.row)]
            for number, layout in enumerate(layouts if failed else ())
            for span in layout.spans
            if id(span.row) in failed
        }
        if len(outputs) == 1:
            return outputs[0], errors
        return torch.cat([output.to(self.model.dtype) for output in outputs]), errors

    def _forward(self, group: RowGroup, read: Ints) -> torch.Tensor:
        if self._graphs is not None:
            return self._graphs.hidden(group, read)
        inputs = pack(group, read, HostInputs(shape_of(group, len(read))))
        flat = torch.from_numpy(inputs.flat).to(self.model.device)
        return self.model.hidden(device_view(flat, inputs), self.store)

    # -- statistics ---------------------------------------------------------------------------------

    def _statistics(self, hidden: torch.Tensor, work: Sequence[Work]) -> TickStats:
        queued = reduce_tick(self.model, hidden, work, self._history)
        warmup = host_warmup(work[0], queued)
        stats = self._readback.wait(queued, while_waiting=warmup)
        self.release_inputs()
        return stats

    def _one_by_one(self, hidden: torch.Tensor, work: Sequence[Work], error: Exception) -> list[Outcome]:
        """Reduce each work's rows apart, after the joint pass has failed, to find whose fault it was."""
        self.release_inputs()
        if len(work) == 1:
            return [_forgotten(error)]
        outcomes: list[Outcome] = []
        for one in work:
            spans, start = one.layout.spans, 0
            rows = torch.cat([hidden[span.rows] for span in spans])
            for span in spans:
                n = span.rows.stop - span.rows.start
                span.rows, start = slice(start, start + n), start + n
            try:
                outcomes.append(_outcome(self._statistics(rows, [one]), 0, one))
            except Exception as own:
                outcomes.append(_forgotten(own))
        return outcomes


def run_contained(runner: Runner, work: Sequence[Work]) -> list[Outcome]:
    """Run a tick's work; whatever a runner raises all the same is the outcome of all of it."""
    try:
        return runner.run(work)
    except Exception as error:
        return [_forgotten(error)] * len(work)


class NotFinite(ArithmeticError):
    """The model returned NaN or infinity."""


def _outcome(stats: TickStats, number: int, work: Work) -> Outcome:
    try:
        if not stats.is_finite(work.layout):
            return NotFinite("the model returned logits that are not finite (NaN or infinity)")
        return stats.answer(number, work.layout, len(work.ask.probes), work.top)
    except Exception as error:
        return _forgotten(error)


def _forgotten(error: Exception) -> Exception:
    """Return an error without its traceback, whose frames would keep tensors of the device alive."""
    return error.with_traceback(None)
