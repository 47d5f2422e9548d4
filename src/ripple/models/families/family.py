"""The record that a model family fills in: everything Ripple knows about it, in one file of this folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ripple.models.base import Model, ModelConfig
from ripple.models.byte_vocabulary import ByteVocabulary
from ripple.models.config_fields import ConfigFields
from ripple.models.forward_fields import Allowed

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class CheckpointSizes(NamedTuple):
    """What may be chosen about a checkpoint that is written here."""

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_ff: int
    vocab_size: int
    max_positions: int
    tied_head: bool
    head_dim: int
    block_size: int  # of models that attend block by block


@dataclass(frozen=True)
class ReleasedFormat:
    """What it takes to write a folder as the family's models were released, for tests, demos and recipes."""

    special_tokens: tuple[str, ...]  # in the order of their ids, which follow the ordinary tokens
    # (sizes, ids of special tokens) -> config.json and generation_config.json with every released key
    configs: Callable[[CheckpointSizes, Mapping[str, int]], tuple[dict[str, Any], dict[str, Any]]]
    write_tokenizer: Callable[[Path, ByteVocabulary, Mapping[str, int]], None]
    # Tensors whose random values need another size than most: the input has unit variance, the output logits.
    embed: str
    head: str
    gains: Mapping[str, float]  # end of a name -> factor over unit variance


@dataclass(frozen=True)
class Family:
    """One model family. Nothing outside its file branches on its name."""

    name: str
    architectures: tuple[str, ...]  # values of config.json's `architectures`
    about: str  # one line for listings
    hub_ids: tuple[str, ...]  # released models that are known to fit
    shapes: Mapping[str, ModelConfig]  # full-size released shapes, for measurements with random weights
    tokenizer_class: str  # of transformers, see ripple.tokenizer
    # Per field of config.json, the values that the forward pass implements, where they are others than those
    # of forward_fields.py. None stands for null or absent, and is listed only where the released class then
    # falls back to a value that is implemented too.
    implemented: Mapping[str, Allowed]
    read_config: Callable[[ConfigFields], ModelConfig]
    # -> weights as the network needs them, and for every released tensor name the contiguous view it fills
    empty_weights: Callable[[ModelConfig, torch.device, torch.dtype], tuple[Any, dict[str, Tensor]]]
    unread: re.Pattern[str]  # names of tensors that a checkpoint may hold beside those
    network: Callable[[ModelConfig, Any, bool], Model]  # (config, weights, fused)
    format: ReleasedFormat
    attends_by_block: bool = False  # rows see no further than their block, and canvases grow by blocks
