"""A conversation with a real server says what the same model says in this process."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import ripple
from ripple.chat.conversation import Chat
from ripple.chat.local import LocalModel
from ripple.chat.remote import RemoteModel
from ripple.errors import RippleError
from ripple.trace import Event
from tests.server.conftest import CHAT, Server, serving

QUESTION = CHAT[0]["content"]
OPTIONS = {"stop_at_end": True, "length": "32", "decoder": "rps", "lam": "0.2", "cache": "dual"}
KEY = "a key"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--api-key", KEY) as one:
        yield one


@pytest.fixture
def model(server: Server) -> RemoteModel:
    return RemoteModel(server.url, f"{KEY}\n")  # as a file may have it


def test_a_server_answers_as_the_model_does_here(model: RemoteModel) -> None:
    here = LocalModel(ripple.load("tiny-llada"), "tiny-llada")
    talks = [Chat(one, OPTIONS, system="Be brief.") for one in (model, here)]
    assert model.name == "tiny-llada"
    for question in (QUESTION, "And with 3 jars?"):
        far, near = (talk.ask(question, lambda event: None) for talk in talks)
        assert (far.text, far.n_tokens, far.nfe_normal, far.nfe_lookahead, far.finish) == (
            near.text, near.n_tokens, near.nfe_normal, near.nfe_lookahead, near.finish
        )  # fmt: skip
    assert talks[0].messages == talks[1].messages and len(talks[0].messages) == 5


@pytest.mark.parametrize("where", ["remote", "local"])
def test_whoever_watches_is_told_of_every_forward(model: RemoteModel, where: str) -> None:
    answerer = model if where == "remote" else LocalModel(ripple.load("tiny-llada"), "tiny-llada")
    told: list[Event] = []
    turn = Chat(answerer, OPTIONS).ask(QUESTION, told.append, watch=True)
    forwards = [event for event in told if event.kind == "forward"]
    assert len(forwards) == turn.nfe_normal + turn.nfe_lookahead and told[0].kind == "start"
    assert "".join(event.data["text"] for event in told if event.kind == "text") == turn.text
    commits = {
        p: t for e in told if e.kind == "commit" for p, t in zip(e.data["pos"], e.data["token"], strict=True)
    }
    assert "".join(answerer.piece(commits[pos]) for pos in sorted(commits)).startswith(turn.text[:20])


def test_what_a_server_refuses_is_told_in_its_words(server: Server, model: RemoteModel) -> None:
    with pytest.raises(RippleError, match="API key is needed"):
        RemoteModel(server.url, "another")
    talk = Chat(model, {"length": "100000000"})
    with pytest.raises(RippleError, match="length"):
        talk.ask(QUESTION, lambda event: None)
    assert talk.messages == [] and talk.turns == []
    talk.change({"length": "16", "seed": "3", "temperature": "0.5", "stop": ["\n"]})
    assert talk.ask(QUESTION, lambda event: None).n_tokens <= 16


def test_a_chat_in_a_pipe_talks_to_the_server(server: Server) -> None:
    command = [
        sys.executable,
        "-m",
        "ripple",
        "chat",
        "--url",
        server.url,
        "--api-key",
        KEY,
        "--length",
        "32",
    ]
    done = subprocess.run(
        command, input=f"{QUESTION}\n\n{QUESTION}\n", capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "") and "\n\n" in done.stdout and "10" in done.stdout


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:8000", "must look like"),
        ("http://", "must look like"),
        ("http://[::1", "must look like"),
        ("http://127.0.0.1:99999", "must look like"),
        ("ftp://127.0.0.1", "must look like"),
        ("http://127.0.0.1:9", "Cannot reach http://127.0.0.1:9: Connection refused"),
        ("http://a..b", "Cannot reach"),
    ],
)
def test_an_address_where_nobody_answers(url: str, said: str) -> None:
    with pytest.raises(RippleError, match=said):
        RemoteModel(url)


@contextmanager
def answering(*parts: bytes, status: int = 200) -> Iterator[str]:
    """A server that is none of ours and sends whatever it is told to."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            for part in parts:
                self.wfile.write(part)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{other.server_address[1]}"
        other.shutdown()


@pytest.mark.parametrize(
    "said", [b"", b"<html>", b"{}", b"[]", b'{"data": []}', b'{"data": [7]}', b"\xff", b"null"]
)
@pytest.mark.parametrize("status", [200, 404, 502])
def test_a_server_of_another_kind_is_one_sentence(said: bytes, status: int) -> None:
    with answering(said, status=status) as url, pytest.raises(RippleError):
        RemoteModel(url)


@pytest.mark.parametrize(
    "said",
    [
        b"", b"data: {\n", b"data: 7\n", b"data: {}\n", b"data: [DONE]\n", b"x" * (1 << 17),
        b'data: {"choices": [{"delta": 7}]}\n', b'data: {"choices": [{"delta": {"content": 7}}]}\n',
        b'data: {"error": {"message": "no"}}\n', b'data: {"error": 3}\n',
        b'data: {"choices": [], "ripple": {"events": [{}]}}\n',
    ],
)  # fmt: skip
def test_a_stream_of_another_kind_is_one_sentence(said: bytes) -> None:
    with answering(said) as url, pytest.raises(RippleError):
        Chat(RemoteModel(url, model="any"), {}).ask("hi", lambda event: None, watch=True)


def test_a_stream_may_hold_remarks() -> None:
    last = {"normal": 1, "lookahead": 0, "seconds": 0.1, "finish": "end"}
    chunk = {"choices": [{"delta": {"content": "ab"}, "ripple": last}], "usage": {"completion_tokens": 2}}
    with answering(b": remark\r\n\r\n", b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n") as url:
        turn = Chat(RemoteModel(url, model="any"), {}).ask("hi", lambda event: None)
    assert (turn.text, turn.n_tokens) == ("ab", 2)
