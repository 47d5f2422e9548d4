"""Text to token ids and back, with the tokenizer and chat template that a checkpoint brings along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ripple.errors import RippleError, unknown
from ripple.models.records import ModelConfig

_ROLES = ("system", "user", "assistant")


class Text:
    """One checkpoint's tokenizer; transformers is imported only when one is loaded."""

    __slots__ = ("_tokenizer",)

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, folder: str | Path, config: ModelConfig) -> Text | None:
        """Return the tokenizer of `folder`, or None when it holds no tokenizer files."""
        folder = Path(folder)
        has_fast = (folder / "tokenizer.json").is_file()
        has_pair = (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
        if not (has_fast or has_pair):
            return None
        from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

        # Classes are named here, not found by AutoTokenizer: Dream's settings ask for remote Python, though
        # its files are a Qwen2 tokenizer, and the automatic way warns about model types it does not know.
        kind = PreTrainedTokenizerFast if has_fast and config.family == "llada" else Qwen2Tokenizer
        try:
            return cls(kind.from_pretrained(folder, local_files_only=True))
        except Exception as cause:  # the library raises many types for a bad file, Rust ones included
            raise RippleError(f"The tokenizer files in {folder} cannot be loaded.") from cause

    def encode(self, prompt: str) -> list[int]:
        """Return the ids of raw text, with nothing added before or after it."""
        if not isinstance(prompt, str):
            raise RippleError(f"A prompt must be text, not {type(prompt).__name__}.")
        return [int(i) for i in self._tokenizer.encode(prompt, add_special_tokens=False)]

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the ids of a conversation in the chat template, ending where the assistant is to speak."""
        _check_messages(messages)
        if self._tokenizer.chat_template is None:
            raise RippleError("This checkpoint has no chat template; give the prompt as text instead.")
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as cause:  # templates raise whatever they like
            raise RippleError(f"The chat template rejects these messages: {cause}.") from cause
        return self.encode(text)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of `ids`; rows that stand for no token give no text."""
        text = self._tokenizer.decode(
            [int(i) for i in ids], skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return str(text)


def _check_messages(messages: object) -> None:
    """Raise unless `messages` is a non-empty list of {"role": ..., "content": ...} in text."""
    if not isinstance(messages, list) or not messages:
        raise RippleError("Messages must be a non-empty list of {'role': ..., 'content': ...}.")
    for number, message in enumerate(messages):
        if not isinstance(message, dict):
            raise RippleError(f"Message {number} must be a dict, not {type(message).__name__}.")
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise RippleError(f"Message {number} needs a {key!r} that is text.")
        if message["role"] not in _ROLES:
            raise unknown("role", message["role"], _ROLES)
