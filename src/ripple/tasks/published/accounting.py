"""Counts the tokens of a response as Fast-dLLM does, beside our own count, which the engine keeps.

Speeds in tokens per second can be compared only when the same tokens are counted. Ours: everything up to
and including the first end token, which is what a reader receives. Fast-dLLM's script decodes the whole
canvas with its special tokens, cuts the text at the stop strings, tokenises it again and counts the ids
that are not its one EOS id, so a second end token such as `<|eot_id|>` counts, and so does text behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ripple.tasks.base import cut

Detokenize = Callable[[Sequence[int]], str]
Encode = Callable[[str], Sequence[int]]


def count_fast_dllm(
    ids: Sequence[int],
    eos_id: int,
    stops: Sequence[str],
    decode: Detokenize,
    encode: Encode,
    cuts: bool = True,
) -> int:
    """Count as Fast-dLLM does; without `cuts` (HumanEval in chat, Dream) the generated ids themselves.

    `decode` must keep special tokens and `encode` must be the plain tokeniser call of the model, with
    whatever it adds on its own.
    """
    tokens = encode(cut(decode(ids), stops)) if cuts else ids
    return sum(token != eos_id for token in tokens)
