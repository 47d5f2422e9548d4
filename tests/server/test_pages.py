"""What the playground is told of a model."""

from __future__ import annotations

from pathlib import Path

import ripple
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.server.pages import has_memory


def test_the_page_knows_whether_a_chat_template_passes_on_earlier_turns(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path / "m", "dream", seed=1, vocab_size=320)
    models = {"tiny-llada": False, str(folder): True}
    for name, is_remembered in models.items():
        tokenizer = ripple.load(name, device="cpu").tokenizer
        assert tokenizer is not None and tokenizer.has_chat
        assert has_memory(tokenizer) == is_remembered
