"""What of a response is final, how it ends, and how it looks."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ripple
from ripple.canvas import Canvas, Window
from ripple.decoders.base import Conversation
from ripple.engine.response import ResponseReader
from ripple.look import Ask
from ripple.models.random_checkpoint import write_random_checkpoint


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> ripple.Engine:
    """An engine whose checkpoint has a byte-level tokenizer."""
    folder = tmp_path_factory.mktemp("talker")
    write_random_checkpoint(folder, "llada", seed=2, vocab_size=340, d_model=32, n_heads=2, d_ff=64)
    return ripple.load(folder, device="cpu", dtype="float32")


class Saying(ripple.Confidence):
    """Writes given tokens from left to right, one per forward, and end tokens behind them."""

    said: tuple[int, ...] = ()

    def decode(self, canvas: Canvas) -> Conversation:
        for window in canvas.windows():
            for pos in range(*window):
                yield Ask(window)
                i = pos - canvas.prompt_len
                token = self.said[i] if i < len(self.said) else self.end
                canvas.commit(np.array([pos]), np.array([token]), np.ones(1, np.float32), "standard")

    end = 0


def say(engine: ripple.Engine, text: str, ends: bool = True) -> ripple.Decoder:
    decoder = Saying()
    filler = engine.model.config.end_ids[0] if ends else engine.tokenizer.encode(" the")[0]
    object.__setattr__(decoder, "said", tuple(engine.tokenizer.encode(text)))
    object.__setattr__(decoder, "end", filler)
    return decoder


def stream(engine: ripple.Engine, decoder: ripple.Decoder, **how: Any) -> tuple[list[str], ripple.Event]:
    events = list(engine.stream("How many?", decoder=decoder, length=24, block=8, **how))
    return [e.data["text"] for e in events if e.kind == "text"], events[-1]


@pytest.mark.parametrize("text", ["step by step", "Zoë counts 7 €", "数 of 数", "🙂🙃"])
def test_a_character_is_never_sent_in_parts(talker: ripple.Engine, text: str) -> None:
    pieces, end = stream(talker, say(talker, text))
    assert "".join(pieces) == text == end.data["text"]
    assert len(pieces) > 1 and not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("stop", ["by step", "STOP", "ep by", "s", "step by step."])
def test_the_beginning_of_a_stop_string_is_held_back(talker: ripple.Engine, stop: str) -> None:
    text = "step by step"
    pieces, end = stream(talker, say(talker, text), stop=[stop])
    expected = text[: text.index(stop)] if stop in text else text
    assert "".join(pieces) == expected == end.data["text"]
    assert end.data["finish"] == ("stop" if stop in text else "end")


@settings(max_examples=60, deadline=None)
@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_streamed_text_is_never_taken_back(text: str, stops: list[str]) -> None:
    """Whatever arrives next, what was streamed is a prefix of the text cut at the first stop string."""
    reader = ResponseReader(Canvas(np.array([1]), 1, 1, 0), Config(), Letters(), stops)  # type: ignore[arg-type]
    streamed = ""
    for n in range(len(text) + 1):
        now = reader.streamable([ord(c) for c in text[:n]])
        assert now.startswith(streamed)
        streamed = now
    whole = reader.text([ord(c) for c in text])
    assert whole.startswith(streamed)


class Config:
    mask_id, end_ids = 0, (1,)


class Letters:
    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))


@pytest.mark.parametrize(
    ("text", "how", "finish", "is_full"),
    [
        ("step", {}, "end", True),
        ("step", {"stop_at_end": True}, "end", False),
        ("step by step", {"stop": ["by"]}, "stop", False),
        ("step by step", {"stop": ["never"]}, "end", True),
        ("the sum of each step is the price of the answer and more", {}, "length", True),
    ],
)
def test_finish_says_how_the_text_ends(
    talker: ripple.Engine, text: str, how: dict[str, Any], finish: str, is_full: bool
) -> None:
    decoder = say(talker, text, ends=finish != "length")
    result = talker.generate("How many?", decoder=decoder, length=16, block=8, **how)
    assert (result.finish, result.is_full) == (finish, is_full)
    assert (result.new_tokens[-1] in talker.model.config.end_ids) == (finish == "end")


def test_a_stop_string_in_the_last_block_is_a_stop(talker: ripple.Engine) -> None:
    """The decoder is done before anybody could stop it early; the text is cut all the same."""
    n = len(talker.tokenizer.encode("step by"))
    result = talker.generate("How many?", decoder=say(talker, "step by"), length=n, block=n, stop=["by"])
    assert result.finish == "stop" and result.text == "step " and result.is_full


def test_final_tokens_end_at_the_first_mask_or_the_open_block() -> None:
    canvas = Canvas(np.array([9]), 6, 3, 0)
    canvas.commit(np.array([1, 2, 3, 4, 6]), np.array([5, 5, 5, 5, 5]), np.ones(5, np.float32), "standard")
    reader = ResponseReader(canvas, Config(), None, ())  # type: ignore[arg-type]
    assert len(reader.final_tokens(Window(4, 7), revokes=False)) == 4
    assert len(reader.final_tokens(Window(4, 7), revokes=True)) == 3
    assert len(reader.final_tokens(None, revokes=True)) == 4


def test_a_result_shows_itself_in_a_notebook(talker: ripple.Engine) -> None:
    result = talker.generate("How <many>?", decoder="rps", length=24, block=8)
    page = result._repr_html_()
    shown = re.findall(r'<span style="[^"]+" title="(\w+)">', page)
    assert shown == result.causes and f"NFE {result.nfe}" in page
    assert "<script" not in page and page.count("<span") == page.count("</span>")
    masked = talker.prepare("How", length=8)
    masked.cancel()
    assert masked.result()._repr_html_().count("▒") == 8


def test_a_result_without_a_tokenizer_shows_ids(folders: dict[str, Path]) -> None:
    engine = ripple.load(folders["llada"], device="cpu", dtype="float32")
    result = engine.generate([1, 2], decoder="default", length=4)
    assert all(f">{token} <" in result._repr_html_() for token in result.token_ids)
    assert engine.tokenizer is None and result.text == ""


def test_a_result_can_be_sent_to_another_process(talker: ripple.Engine) -> None:
    result = talker.generate("How?", decoder="rps", length=24, block=8, trace=True)
    sent = pickle.loads(pickle.dumps(result))
    assert sent == result and result.tokenizer is talker.tokenizer
