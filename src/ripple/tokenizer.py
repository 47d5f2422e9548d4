"""Text to token ids and back, with the tokenizer and chat template that a checkpoint brings along."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ripple.errors import RippleError, unknown

_ROLES = ("system", "user", "assistant")
# Classes of transformers, and the files each can be made from: any one of the sets.
_FILES = {
    "PreTrainedTokenizerFast": (("tokenizer.json",),),
    "Qwen2Tokenizer": (("tokenizer.json",), ("vocab.json", "merges.txt")),
}


class Tokenizer:
    """One checkpoint's tokenizer, for use from any thread; transformers is imported when one is loaded."""

    __slots__ = ("_inner", "_lock")

    def __init__(self, inner: Any) -> None:
        """Wrap a tokenizer of transformers."""
        self._inner = inner
        self._lock = threading.Lock()  # the Rust object below refuses to be used by two threads at once

    @classmethod
    def load(cls, folder: str | Path, tokenizer_class: str) -> Tokenizer | None:
        """Return the tokenizer of `folder`, or None when it holds no tokenizer files.

        The class is named, not found by AutoTokenizer: Dream's settings ask for remote Python, though its
        files are a Qwen2 tokenizer, and the automatic way warns about model types it does not know.
        """
        if tokenizer_class not in _FILES:
            raise unknown("tokenizer class", tokenizer_class, _FILES)
        file_sets = _FILES[tokenizer_class]
        if not any(all(os.path.isfile(Path(folder) / name) for name in names) for names in file_sets):
            return None
        import transformers

        try:
            kind = getattr(transformers, tokenizer_class)
            return cls(kind.from_pretrained(Path(folder), local_files_only=True))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as cause:  # many types for a bad file; Rust's panics are no Exceptions
            raise RippleError(f"The tokenizer files in {folder} cannot be loaded.") from cause

    def encode(self, prompt: str) -> list[int]:
        """Return the ids of raw text, with nothing added before or after it."""
        _check_text("A prompt", prompt)
        with self._lock:
            ids = self._inner.encode(prompt, add_special_tokens=False)
        return [int(i) for i in ids]

    @property
    def has_chat(self) -> bool:
        """Whether the checkpoint brings a chat template along."""
        return self._inner.chat_template is not None

    def spelled(self, token: int) -> list[int]:
        """Return the ids that spell the text of a special token as any other text."""
        with self._lock:
            text = self._inner.decode([token], skip_special_tokens=False)
            ids = self._inner.encode(text, add_special_tokens=False, split_special_tokens=True)
        return [int(i) for i in ids]

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the ids of a conversation in the chat template, ending where the assistant is to speak."""
        _check_messages(messages)
        if not self.has_chat:
            raise RippleError("This checkpoint has no chat template; give the prompt as text instead.")
        try:
            with self._lock:
                text = self._inner.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as cause:  # templates raise whatever they like
            raise RippleError(f"The chat template rejects these messages: {cause}.") from cause
        return self.encode(text)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of `ids`; rows that stand for no token give no text."""
        try:
            with self._lock:
                text = self._inner.decode(
                    [int(i) for i in ids],
                    skip_special_tokens=skip_special,
                    clean_up_tokenization_spaces=False,
                )
        except (OverflowError, TypeError, ValueError):
            raise RippleError(f"Token ids must be whole numbers from 0 on, got {str(ids)[:80]}.") from None
        return str(text)


def _check_text(what: str, text: object) -> None:
    """Raise unless `text` is text that UTF-8 can spell."""
    if not isinstance(text, str):
        raise RippleError(f"{what} must be text, not {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as cause:
        raise RippleError(
            f"{what} holds {text[cause.start]!a} at character {cause.start}, which is no Unicode text."
        ) from None


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
        _check_text(f"Message {number}", message["content"])
