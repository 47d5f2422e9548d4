"""A small byte-level vocabulary for checkpoints that are written here, and its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_WORDS = "the and of to in is for with a number answer what step sum price each total more than how many"


class ByteVocabulary(NamedTuple):
    """Ordinary tokens with their ids, and the merges that make the longer ones."""

    ids: dict[str, int]
    merges: list[tuple[str, str]]

    @property
    def merge_lines(self) -> list[str]:
        """The merges as files spell them."""
        return [" ".join(pair) for pair in self.merges]


def byte_vocabulary(room: int) -> ByteVocabulary:
    """Return a vocabulary of at most `room` tokens: 256 bytes, then prefixes of common words."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    # Byte-level files spell a byte as a visible character: itself, or else the next free one from 256 on.
    others = [byte for byte in range(256) if byte not in printable]
    ids = {chr(byte): i for i, byte in enumerate(printable)}
    ids |= {chr(256 + i): len(printable) + i for i in range(len(others))}
    space = chr(256 + others.index(32))
    merges = []
    for word in _WORDS.split():
        left = space
        for letter in word:
            if left + letter not in ids and len(ids) < room:
                ids[left + letter] = len(ids)
                merges.append((left, letter))
            left += letter
    return ByteVocabulary(ids, merges)


def tokenizer_json(vocabulary: ByteVocabulary, ids: Mapping[str, int]) -> dict[str, Any]:
    """Return a fast tokenizer's file: the vocabulary, and special tokens by name."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": _added_tokens(ids),
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary.ids, "merges": vocabulary.merge_lines},
    }


def added_tokens_decoder(ids: Mapping[str, int]) -> dict[int, dict[str, Any]]:
    """Return special tokens as a tokenizer_config.json lists them."""
    return {entry.pop("id"): entry for entry in _added_tokens(ids)}


def _added_tokens(ids: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return special tokens as a tokenizer.json lists them."""
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return [{"id": token_id, "content": token, **flags} for token, token_id in ids.items()]
