"""What the playground is told of a model."""

from __future__ import annotations

from pathlib import Path

import ripple
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.options import Options
from ripple.server.pages import has_memory, what_is_offered
from ripple.server.service import Service


def test_the_page_knows_whether_a_chat_template_passes_on_earlier_turns(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path / "m", "dream", seed=1, vocab_size=320)
    models = {"tiny-llada": False, str(folder): True}
    for name, is_remembered in models.items():
        tokenizer = ripple.load(name, device="cpu").tokenizer
        assert tokenizer is not None and tokenizer.has_chat
        assert has_memory(tokenizer) == is_remembered


def test_no_seed_is_shown_as_one_that_a_request_with_a_temperature_gets() -> None:
    service = Service(ripple.load("tiny-llada", device="cpu"), "tiny-llada", Options(seed=7))
    (seed,) = (one for one in what_is_offered(service)["options"] if one["name"] == "seed")
    service.close()
    assert seed["default"] is None
    assert "none is 7, or with a temperature a random one" in seed["about"]
