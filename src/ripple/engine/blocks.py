"""Models that attend block by block: their canvas grows, and a decoder fills it one block after the other."""

from __future__ import annotations

from dataclasses import replace

from ripple.canvas import BlockCanvas, Canvas, Ints, Window
from ripple.decoders.base import Conversation, Decoder
from ripple.errors import RippleError
from ripple.look import Ask
from ripple.models.base import ModelConfig
from ripple.options import LENGTH, Options


def check_options(options: Options, config: ModelConfig) -> None:
    """Raise where an option has no meaning on this kind of model."""
    block, cache = config.attention_block, options.policy
    if block is None and cache.needs_blocks:
        raise RippleError(
            f"The cache {cache.name!r} is for models that attend block by block, which {config.family} "
            "does not."
        )
    if block is not None and not (cache.needs_blocks or cache.name == "none"):
        raise RippleError(
            f"The cache {cache.name!r} has no meaning for {config.family}, whose finished blocks never "
            "change; use 'exact' or 'none'."
        )
    if block is not None and options.block not in (None, block):
        raise RippleError(
            f"This model attends in blocks of {block}, so block must be {block} or left out, got "
            f"{options.block}; a model trained with other blocks is loaded with block_size."
        )


def suits(options: Options, config: ModelConfig) -> bool:
    """Whether the options' cache has a meaning on this kind of model."""
    cache = options.policy
    return cache.name == "none" or cache.needs_blocks == (config.attention_block is not None)


def block_of(options: Options, config: ModelConfig) -> int:
    """Return the positions per block."""
    return config.attention_block or options.block_size


def with_length(options: Options, n_prompt: int, config: ModelConfig, most_positions: int) -> Options:
    """Return options that say a length where nobody did: of a canvas that grows, all that there is room for.

    `most_positions` are those that memory holds, beside the model's own.
    """
    if config.attention_block is None:
        return replace(options, length=LENGTH)
    origin = n_prompt if config.causal_context else 0  # blocks are counted from here
    stop = min(config.max_positions, most_positions)
    stop -= (stop - origin) % config.attention_block
    return replace(options, length=max(1, stop - n_prompt))


def new_canvas(prompt: Ints, options: Options, config: ModelConfig) -> Canvas:
    """Return the canvas that a prompt is decoded on, or raise where the model has too few positions."""
    length = options.length or LENGTH
    how = (length, block_of(options, config), config.mask_id, options.seed, config.vocab_size)
    blocks = {"end_ids": config.end_ids, "has_next_token": config.causal_context}
    grows = config.attention_block is not None
    if len(prompt) + length <= config.max_positions:
        canvas = BlockCanvas(prompt, *how, **blocks) if grows else Canvas(prompt, *how)  # type: ignore[arg-type]
        if canvas.max_len <= config.max_positions:
            return canvas
    whole = f", in whole blocks of {config.attention_block}," if grows else ""
    raise RippleError(
        f"Prompt of {len(prompt)} tokens and length {length}{whole} exceed the model's "
        f"{config.max_positions} positions."
    )


def conversation(decoder: Decoder, canvas: Canvas, config: ModelConfig) -> Conversation:
    """Have a decoder fill the canvas, and what it grows by, one block after the other."""
    while True:
        if config.causal_context:
            start = int(canvas.masked(Window(canvas.prompt_len, len(canvas.ids)))[0])
            look = (yield Ask(Window(start, len(canvas.ids)), next_token=True)).base
            canvas.commit(look.pos, look.token, look.p, "next_token")
        yield from decoder.decode(canvas)
        if canvas.n_masked or not canvas.grow():
            return
