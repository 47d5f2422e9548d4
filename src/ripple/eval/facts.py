"""What a run is: the facts that determine what is decoded, and the machine that decoded it."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

import ripple
from ripple.decoders import Decoder, family_decoder
from ripple.decoders.learn2pd import FILTER_FILE
from ripple.engine.blocks import block_of
from ripple.engine.engine import Engine
from ripple.errors import RippleError
from ripple.eval.lines import make_line, short_hash
from ripple.files import Line
from ripple.models.config import family_of
from ripple.models.families import FAMILIES
from ripple.models.hub import resolve
from ripple.models.load import dtype_name
from ripple.models.safetensors_files import shard_paths
from ripple.options import LENGTH, Options
from ripple.tasks import Task

_SAMPLES, _SAMPLE_BYTES = 32, 4096  # of each weight file, which tell two checkpoints apart


class ModelChoice(NamedTuple):
    """A model that somebody named, before it is loaded."""

    name: str  # in result lines: a folder's own name, so that no machine's paths get into them
    given: str  # what is loaded
    family: str
    folder: Path | None  # None: on the hub, not fetched yet
    block_size: int | None = None  # None: as the folder says

    @property
    def has_filter(self) -> bool:
        """Whether it comes with a filter for the decoder learn2pd."""
        return self.folder is not None and (self.folder / FILTER_FILE).is_file()

    @property
    def attends_by_block(self) -> bool:
        """Whether it is a block-diffusion model, which has a cache of its own."""
        return FAMILIES[self.family].attends_by_block


def choose_model(given: str, block_size: int | None = None) -> ModelChoice:
    """Look a model up and find its family; a released model on the hub is known without fetching it.

    With a block size of the caller's it is another model, and has another name.
    """
    known = [family.name for family in FAMILIES.values() if given in family.hub_ids]
    folder = None if known else resolve(given)
    name = given if folder is None or not Path(given).is_dir() else folder.resolve().name
    family = known[0] if folder is None else family_of(folder).name
    if block_size is None:
        return ModelChoice(name, given, family, folder)
    if not FAMILIES[family].attends_by_block:
        raise RippleError(f"block_size is for models that attend block by block, which {name} does not.")
    return ModelChoice(f"{name} in blocks of {block_size}", given, family, folder, block_size)


def run_facts(engine: Engine, task: Task, options: Options, model: str, chat: bool) -> Line:
    """Return `lines.RUN_FACTS`: everything that determines what is decoded."""
    network, policy = engine.model, options.policy
    family = network.config.family
    asked = family_decoder(options.decoder, family)
    facts = {
        "model": model, "model_family": family, "weights": weights_hash(engine.folder),
        "device": network.device.type, "dtype": dtype_name(network),
        "fused": getattr(network, "fused", None),  # a network without the choice has no such attribute
        "task": task.name, "task_facts": task.facts(chat), "chat": chat,
        "decoder": asked.name, "setting": setting_label(asked, Variant(options.end_fill, options.lookahead)),
        "fields": _portable(engine.decoder_of(options).settings()),
        "length": options.length or LENGTH, "block": block_of(options, network.config),
        "cache": policy.describe(), "lookahead": options.lookahead, "seed": options.seed,
        "temperature": options.temperature, "stop_at_end": options.stop_at_end, "stop": list(options.stop),
        "version": ripple.__version__,
    }  # fmt: skip
    budget = options.lookahead_budget
    limited = {} if budget is None else {"lookahead_budget": budget}
    return facts | ({"end_fill": True} if options.fills_end(asked) else {}) | limited


class Variant(NamedTuple):
    """How a decoder is run, beside its own fields, where that is not the usual way."""

    end_fill: bool | None = None  # None: as the decoder does
    lookahead: str = "packed"


def setting_label(decoder: Decoder, variant: Variant) -> str:
    """Return how result lines and tables name a setting."""
    filled, how = variant
    is_own = filled is None or filled == decoder.fills_end
    label = decoder.describe() + ("" if is_own else " + end fill" if filled else " - end fill")
    return label if how == "packed" else f"{label}, {how}"


def _portable(fields: dict[str, Any]) -> dict[str, Any]:
    """Name a file among a decoder's fields by its content: where it lies differs from machine to machine."""
    files = {
        name: Path(value)
        for name, value in fields.items()
        if isinstance(value, str) and "/" in value and Path(value).is_file()
    }
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest()[:12] for name, path in files.items()}
    return fields | {name: f"{path.name} {digests[name]}" for name, path in files.items()}


def environment_line(engine: Engine) -> Line:
    """Return the line that says what a run was made with: code, libraries, machine."""
    facts = {
        "ripple": ripple.__version__, "source": _source_hash(), "torch": str(torch.__version__),
        "cuda": torch.version.cuda, "tokenizers": version("tokenizers"),
        "python": platform.python_version(), "platform": f"{platform.system()}-{platform.machine()}",
        "device_name": device_name(engine), "dtype": dtype_name(engine.model),
        "threads": torch.get_num_threads(), "batch": engine.max_batch,
    }  # fmt: skip
    return make_line("environment", {"environment": short_hash(facts), **facts})


def device_name(engine: Engine) -> str:
    """Return the GPU's name, or the kind of processor."""
    device = engine.model.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def weights_hash(folder: Path | None) -> str | None:
    """Hash a sample of the weight files: a folder's name does not say which checkpoint lies in it today."""
    if folder is None:
        return None
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in shard_paths(folder):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for i in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:12]


def _source_hash() -> str:
    """Hash the package's own source; told in the environment only, or every edit would end a run."""
    root = Path(ripple.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]
