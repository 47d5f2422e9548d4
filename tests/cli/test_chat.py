"""`ripple chat` in a pipe, and in a real (pseudo) terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

QUESTION = "Mia has 2 jars with 10 marbles each. How many marbles are there?"
LENGTH = ("--length", "32", "--model", "tiny-llada")


class Talk:
    """A chat at a terminal."""

    def __init__(self, home: Path, *words: str) -> None:
        self._master, slave = pty.openpty()
        env = os.environ | {
            "TERM": "xterm",
            "OMP_NUM_THREADS": "1",
            "XDG_STATE_HOME": str(home),
            "COLUMNS": "80",
        }
        env.pop("NO_COLOR", None)
        command = [sys.executable, "-m", "ripple", "chat", *LENGTH, *words]
        self._process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        self.until("> ")

    def until(self, wanted: str) -> str:
        """Read until some text has been drawn, and return everything without its colours."""
        drawn = b""
        while wanted.encode() not in drawn:
            assert select.select([self._master], [], [], 60)[0], drawn
            drawn = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", drawn + os.read(self._master, 1 << 16))
        return drawn.decode(errors="ignore")  # a character may still be on its way

    def say(self, text: str) -> str:
        self.start(text)
        return self.until("\n> ")

    def start(self, text: str) -> None:
        os.write(self._master, text.encode() + b"\n")

    def interrupt(self) -> str:
        """Press Ctrl-C until it is noticed: one that comes just before a read is only seen by the next."""
        for _ in range(60):
            self._process.send_signal(signal.SIGINT)
            if select.select([self._master], [], [], 1)[0]:
                break
        return self.until("\n> ")

    def leave(self, how: bytes = b"\x04") -> int:
        os.write(self._master, how)
        code = self._process.wait(timeout=60)
        os.close(self._master)
        return code


def test_a_conversation_at_a_terminal(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    assert "/decoder" in talk.say("/help")
    said = talk.say(QUESTION)
    assert "2 * 10 = 20" in said and "NFE" in said and "tokens" in said
    assert "rps:lam=0.2" in talk.say("/decoder rps:lam=0.2") and "lam=0.2" in talk.say("/set")
    assert "Did you mean 'rps'?" in talk.say("/decoder rpss").replace("\r\n", "")
    assert "length must be" in talk.say("/set length=0") and "lam=0.2" in talk.say("/decoder")
    assert "Did you mean 'save'" in talk.say("/sav x").replace("\r\n", "")
    talk.say("/watch")
    talk.start(f"{QUESTION}\\")
    assert "masked" in talk.until("\n. ") + talk.say("How many?")
    assert "nothing" not in talk.say(f"/save {tmp_path}/talk.json")
    assert "Cannot write" in talk.say("/save /nowhere/talk.json") and "Say where" in talk.say("/save")
    assert "forgotten" in talk.say("/reset") and "nothing to save" in talk.say(f"/save {tmp_path}/b.md")
    assert talk.leave(b"/quit\n") == 0
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert [message["role"] for message in saved["messages"]] == ["user", "assistant"] * 2
    assert saved["messages"][2]["content"] == f"{QUESTION}\nHow many?" and len(saved["turns"]) == 2
    history = tmp_path / "ripple" / "chat_history"
    assert QUESTION in history.read_text() and history.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_stops_an_answer_and_not_the_chat(tmp_path: Path) -> None:
    (tmp_path / "ripple").mkdir()
    (tmp_path / "ripple" / "chat_history").write_text(f"{QUESTION}\n")
    talk = Talk(tmp_path, "--decoder", "default", "--watch", "--length", "400")
    talk.start("\x10")  # the line before, of an earlier conversation
    assert QUESTION in talk.until("NFE 2")
    assert "the question is forgotten" in talk.interrupt()
    assert "Ctrl-D leaves" in talk.interrupt()
    assert "nothing to save" in talk.say(f"/save {tmp_path}/talk.md")
    assert talk.leave() == 0


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_in_a_pipe_every_line_is_a_question(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, f"{QUESTION}\r\n\n{QUESTION}".encode())
    done = cli("chat", *LENGTH)
    assert (done.code, done.err) == (0, "") and done.out.count("\n\n") == 1
    first, second = done.out.split("\n\n")
    assert "2 * 10 = 20" in first and first != second  # the second was asked after the first
    piped(monkeypatch, b"")
    assert cli("chat", *LENGTH) == (0, "", "")


def test_a_pipe_that_is_no_text(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, b"caf\xe9\n")
    assert cli("chat", *LENGTH) == (2, "", "ripple: Line 1 of stdin is not UTF-8 text.\n")
    monkeypatch.setattr("sys.stdin", None)
    assert cli("chat", *LENGTH).err == "ripple: There is nothing to answer: stdin is closed.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--api-key", "k"), "it goes with --url"),
        (("--url", "nowhere"), "must look like"),
        (("--url", "http://127.0.0.1:9", "--device", "cpu"), "--device belongs to a model of this process"),
        (("--decoder", "rpss"), "Did you mean 'rps'?"),
        (("--length", "many"), "length"),
    ],
)
def test_bad_input_is_one_sentence(cli: Cli, words: tuple[str, ...], said: str) -> None:
    done = cli("chat", *words)
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1
