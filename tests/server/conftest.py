"""Real server processes on loopback, stopped by SIGTERM; one of them serves several modules."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest

import ripple

# A problem that tiny-llada solves, as text and as a conversation.
PROMPT = "Question: Mia has 2 jars with 10 marbles each. How many marbles are there?\nAnswer:\n"
CHAT = [{"role": "user", "content": "Mia has 2 jars with 10 marbles each. How many marbles are there?"}]
LENGTH = 32


class Server:
    """A `ripple serve` process."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "ripple", "serve", "--model", "tiny-llada", "--port", "0", *words]
        quiet = {key: value for key, value in os.environ.items() if key != "RIPPLE_API_KEY"}
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=quiet | {"OMP_NUM_THREADS": "1"} | (env or {})
        )
        self.lines: list[str] = []  # what it has written to stderr
        self.url = ""
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._is_ready.wait(180) and self.url, "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"listening at (http://\S+)", line):
                self.url = found[1]
                self._is_ready.set()
        self._is_ready.set()

    def client(self, **how: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", **({"api_key": "none", "max_retries": 0} | how))

    def http(self, **how: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, **({"timeout": 60} | how))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(10)
        return code


def until(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@contextmanager
def serving(*words: str, **how: Any) -> Iterator[Server]:
    server = Server(*words, **how)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving("--length", str(LENGTH), "--log-prompts") as one:
        yield one


@pytest.fixture(scope="session")
def client(server: Server) -> openai.OpenAI:
    return server.client()


@pytest.fixture(scope="session")
def engine() -> ripple.Engine:
    """The same model in this process."""
    return ripple.load("tiny-llada")
