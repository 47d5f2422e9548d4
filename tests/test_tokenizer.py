"""Tokenizers and chat templates, without remote code."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.errors import RippleError
from ripple.models.config import read_config
from ripple.models.families import FAMILIES
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.tokenizer import Tokenizer

HEADER = "<|start_header_id|>{}<|end_header_id|>\n\n"
ASK = [{"role": "user", "content": " What is the sum? "}]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One checkpoint with a tokenizer per family."""
    place = tmp_path_factory.mktemp("models")
    sizes = {"vocab_size": 512, "d_model": 8, "n_heads": 2, "d_ff": 8}
    return {family: write_random_checkpoint(place / family, family, **sizes) for family in ("llada", "dream")}


@pytest.fixture(params=["llada", "dream"])
def folder(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    return folders[request.param]


@pytest.fixture
def text(folder: Path) -> Tokenizer:
    return load(folder)


def load(folder: Path) -> Tokenizer:
    loaded = tokenizer_of(folder)
    assert loaded is not None
    return loaded


def tokenizer_of(folder: Path) -> Tokenizer | None:
    return Tokenizer.load(folder, FAMILIES[read_config(folder).family].tokenizer_class)


def is_llada(folder: Path) -> bool:
    return read_config(folder).family == "llada"


@pytest.mark.parametrize(
    "sample", ["", "the answer is 42.", "x = [1,\n\t2]\r\n", "naïve 漢字 🙂", "  two  spaces "]
)
def test_any_text_survives_the_round_trip(text, sample):
    assert text.decode(text.encode(sample)) == sample


def test_raw_text_gets_nothing_added(text):
    # 72 = "i", 82 = "s" and so on: printable bytes come first, words from 256 on
    assert text.encode("is the answer") == [72, 82, 258, 284]


def test_special_tokens_have_the_ids_of_the_config(folder, text):
    config = read_config(folder)
    names = ("<|mdm_mask|>", "<|endoftext|>", "<|eot_id|>")
    mask, end, turn = names if is_llada(folder) else ("<|mask|>", "<|endoftext|>", "<|im_end|>")
    assert text.encode(mask) == [config.mask_id]
    assert config.end_ids == (text.encode(end)[0], text.encode(turn)[0])
    assert max(config.mask_id, *config.end_ids) < config.vocab_size - 4


def test_special_tokens_and_unused_rows_give_no_text(folder, text):
    config = read_config(folder)
    ids = [*text.encode("one"), config.mask_id, config.vocab_size - 1, *config.end_ids, *text.encode(" two")]
    assert text.decode(ids) == "one two"
    assert "mask|>" in text.decode(ids, skip_special=False)


def test_the_chat_template_opens_the_assistants_turn(folder, text):
    got = text.decode(text.encode_chat(ASK), skip_special=False)
    if is_llada(folder):
        user = HEADER.format("user") + "What is the sum?<|eot_id|>"
        assert got == "<|startoftext|>" + user + HEADER.format("assistant")
    else:
        system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        user = "<|im_start|>user\n What is the sum? <|im_end|>\n"
        assert got == system + user + "<|im_start|>assistant\n"


def test_a_conversation_keeps_its_own_system_line(folder, text):
    turns = [{"role": "system", "content": "Be brief."}, *ASK, {"role": "assistant", "content": "4"}, *ASK]
    got = text.decode(text.encode_chat(turns), skip_special=False)
    assert "helpful" not in got
    assert got.count("Be brief.") == 1
    assert got.count("assistant") == 2
    assert ("<|startoftext|>" in got) == is_llada(folder)


def test_llada_appends_the_assistant_header_even_when_not_asked_to(folders):
    got = load(folders["llada"])._inner.apply_chat_template(ASK, tokenize=False, add_generation_prompt=False)
    assert got.endswith(HEADER.format("assistant"))


def test_the_template_is_part_of_the_ids(folder, text):
    user, assistant, newline = [84, 82, 68, 81], [64, 82, 82, 72, 82, 83, 64, 77, 83], 198
    ids = text.encode_chat([{"role": "user", "content": "is"}])
    if is_llada(folder):
        blank = [322, newline, newline]
        assert ids == [318, 321, *user, *blank, 72, 82, 323, 321, *assistant, *blank]
    else:
        said = [319, *user, newline, 72, 82, 320, newline]
        assert ids[0] == 319
        assert ids[-21:] == [*said, 319, *assistant, newline]


def test_dream_settings_ask_for_remote_code_and_do_not_get_it(folders):
    folder = folders["dream"]
    assert "tokenization_dream.DreamTokenizer" in (folder / "tokenizer_config.json").read_text()
    assert not list(folder.glob("*.py"))
    assert type(load(folder)._inner).__name__ == "Qwen2Tokenizer"


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "non-empty list"),
        ("hello", "non-empty list"),
        (["hello"], "Message 0 must be a dict, not str"),
        ([{"content": "x"}], "Message 0 needs a 'role'"),
        ([*ASK, {"role": "user"}], "Message 1 needs a 'content'"),
        ([{"role": "user", "content": None}], "Message 0 needs a 'content'"),
        ([{"role": "asistant", "content": "x"}], "Did you mean 'assistant'"),
    ],
)
def test_malformed_messages_are_refused(text, messages, sentence):
    with pytest.raises(RippleError, match=sentence):
        text.encode_chat(messages)


def test_a_prompt_that_is_not_text_is_refused(text):
    with pytest.raises(RippleError, match="must be text, not int"):
        text.encode(3)


@pytest.mark.parametrize("broken", ["\ud800", "caf\udce9", "\ud83d"])
def test_text_that_is_no_unicode_is_refused(text, broken):
    with pytest.raises(
        RippleError, match=r"^A prompt holds '\\ud.*' at character \d, which is no Unicode text\.$"
    ):
        text.encode(broken)
    with pytest.raises(RippleError, match=r"^Message 1 holds '\\ud.*"):
        text.encode_chat([*ASK, {"role": "user", "content": broken}])


@pytest.mark.parametrize("ids", [[-1], [2**40], ["x"], [None]])
def test_ids_that_are_no_ids_are_refused(text, ids):
    with pytest.raises(RippleError, match="Token ids must be whole numbers from 0 on, got"):
        text.decode(ids)


def test_an_unknown_class_names_the_nearest(folder):
    with pytest.raises(RippleError, match="Did you mean 'Qwen2Tokenizer'"):
        Tokenizer.load(folder, "Qwen2Tokeniser")


class OneAtATime:
    """A tokenizer that, as the library's may, refuses to be used by two threads at once."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._busy, self.chat_template = inner, False, inner.chat_template

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if self._busy:
                raise RuntimeError("Already borrowed")
            self._busy = True
            time.sleep(1e-4)
            try:
                return getattr(self._inner, name)(*args, **options)
            finally:
                self._busy = False

        return call


def test_threads_may_share_a_tokenizer(folder):
    shared = Tokenizer(OneAtATime(load(folder)._inner))
    alone = load(folder).encode_chat(ASK)

    def work(number: int) -> bool:
        sample = f"is the answer {number}? " * 9
        same = [shared.decode(shared.encode(sample)) == sample for _ in range(20)]
        return all(same) and shared.encode_chat(ASK) == alone

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_without_tokenizer_files_there_is_no_text(tmp_path):
    write_random_checkpoint(tmp_path, vocab_size=299)
    assert tokenizer_of(tmp_path) is None


def test_the_smallest_vocabulary_with_a_tokenizer_encodes_all_bytes(tmp_path):
    write_random_checkpoint(tmp_path, vocab_size=300)
    config = read_config(tmp_path)
    text = tokenizer_of(tmp_path)
    sample = "".join(map(chr, range(1, 700)))
    assert text.decode(text.encode(sample)) == sample
    assert max(config.mask_id, *config.end_ids) < 296


def test_a_broken_tokenizer_file_is_one_sentence(tmp_path):
    write_random_checkpoint(tmp_path, vocab_size=300)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(RippleError, match=r"tokenizer files in .* cannot be loaded\.$"):
        tokenizer_of(tmp_path)


def test_a_checkpoint_without_chat_template_takes_only_text(text):
    text._inner.chat_template = None
    with pytest.raises(RippleError, match="no chat template"):
        text.encode_chat(ASK)


def test_importing_the_module_does_not_import_transformers():
    code = "import sys, ripple.tokenizer; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_special_token_is_spelled_as_text() -> None:
    tokenizer = ripple.load("tiny-llada").tokenizer
    assert tokenizer is not None
    (mask,) = tokenizer.encode("<|mdm_mask|>")
    spelled = tokenizer.spelled(mask)
    assert mask not in spelled and tokenizer.decode(spelled) == "<|mdm_mask|>"
