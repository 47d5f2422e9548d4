"""The server under what clients do: they wait, leave, send nonsense or read slowly; and what is kept of it.

Every answer is compared with what the engine gives for the same prompt alone. Memory is read when the server
is idle: after the first tenth of the requests, and after each further tenth. Before, every client has asked
for the largest cached request at the same time, so that the key store has the size that it keeps.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ripple.bench.http_client import Connection, Exchange
from ripple.bench.serve import prompts_of
from ripple.bench.server_process import ServerProcess, serving
from ripple.engine.load import load
from ripple.errors import RippleError
from ripple.fields import param
from ripple.files import append_line, check_folder
from ripple.measurement import Measurement
from ripple.options import Options
from ripple.progress import Progress

PATH = "/v1/completions"
PARTS = 10  # of a run, with a look at the memory after each
N_PROMPTS = 8
HOW = (  # what requests ask for beside a prompt
    {"decoder": "glide"}, {"decoder": "rps:lam=0.2", "cache": "dual"}, {"decoder": "confidence"},
    {"decoder": "wino"},
)  # fmt: skip
BAD = (  # bodies that are refused, and how
    (b"", 400), (b"{", 400), (b"[" * 2000, 400), (b'{"prompt": 5}', 400), (b'{"prompt": [-1]}', 400),
    (b'{"prompt": "a", "top_p": 0.5}', 400), (b'{"prompt": "a", "ripple": {"decoder": "none such"}}', 400),
    (b'{"prompt": "a", "model": "none such"}', 404), (b'{"prompt": "a", "max_tokens": 1000000}', 400),
    (b'{"prompt": "' + b"x" * 5_000_000 + b'"}', 413),
)  # fmt: skip
AGAIN_S = 0.05  # after a 429
SLOW_S = 0.02  # before every read of a slow client
WINDOW = 1024  # bytes that the system receives ahead of it
VANISH_S = 0.1  # a client that leaves does so within this time
SILENCE_S = 60.0
RESTED_S = 2.0  # an idle server gives memory back
N_FILLS = 4  # of the key store before the first request
OUTCOMES = ("answered", "vanished", "refused", "wrong", "lost")  # every request has one of them


class Case(NamedTuple):
    """One request and its answer."""

    fields: dict[str, Any]
    text: str
    n_tokens: int

    def size(self) -> int:
        """Return about how many positions its canvas has."""
        return len(self.fields["prompt"]) + int(self.fields["max_tokens"])

    def body(self, stream: str | None = None) -> bytes:
        """Return the request, whole, or with a stream of text or of the canvas."""
        fields = self.fields | ({} if stream is None else {"stream": True})
        if stream == "canvas":
            fields |= {"ripple": fields["ripple"] | {"stream": stream}}
        return json.dumps(fields).encode()


@dataclass(frozen=True)
class Soak(Measurement):
    """Send many short requests, some broken, broken off or read slowly: what is lost, what is kept."""

    name = "soak"

    out: Path | None = param(None, "result lines; none is results/soak-DEVICE.jsonl; one is added")
    model: str = param("tiny-llada", "an embedded model, a checkpoint folder or a hub id")
    device: str = param("cpu", "cpu, cuda or cuda:N")
    requests: int = param(10_000, "requests in all", within="[10, inf)")
    vanish: float = param(0.1, "share of clients that leave before their answer", within="[0, 1]")
    bad: float = param(0.0, "share of bodies that must be refused", within="[0, 1]")
    slow: float = param(0.0, "share of clients that read slowly", within="[0, 1]")
    clients: int = param(32, "clients at a time", within="[1, inf)")
    length: int = param(8, "response positions of a request", within="[1, inf)")
    prompt: int | None = param(None, "characters of a prompt; none: whole problems", within="[1, inf)")
    seed: int = param(0, "seed of who does what")

    def run(self) -> dict[str, Any]:
        """Send all requests and return what became of them."""
        if self.vanish + self.bad + self.slow > 1:
            raise RippleError(
                "vanish, bad and slow are shares of the same requests: their sum must not exceed 1."
            )
        out = self.out or Path("results") / f"soak-{self.device.partition(':')[0]}.jsonl"
        check_folder(out.parent, "the results' folder").mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(1)
        cases = list(self._cases())
        words = ("--model", self.model, "--device", self.device, "--max-batch", str(self.clients))
        with serving(*words, "--queue", str(4 * self.clients)) as server:
            line = SoakRun(self, server, cases).line()
        append_line(out, line)
        return line | {"files": str(out)}

    def _cases(self) -> Iterator[Case]:
        """Yield the requests and what the engine answers to each of them alone."""
        engine = load(self.model, device=self.device)
        for number, whole in enumerate(prompts_of(N_PROMPTS)):
            prompt = whole[: self.prompt]
            for how in HOW:
                length = self.length + number % 3
                options = Options.of({"length": length, "stop_at_end": True} | how)
                result = engine.generate(prompt, options)
                fields = {"prompt": prompt, "max_tokens": length, "ripple": dict(how)}
                yield Case(fields, result.text, len(result.new_tokens))


class SoakRun:
    """One run: what was sent, what came back, what the server holds in between."""

    def __init__(self, soak: Soak, server: ServerProcess, cases: Sequence[Case]) -> None:
        self._soak = soak
        self._server = server
        self._cases = cases
        self._random = random.Random(soak.seed)
        self._counts: Counter[str] = Counter()
        self._examples: list[str] = []  # of what went wrong

    def line(self) -> dict[str, Any]:
        """Send everything, a tenth at a time, and return what became of it."""
        soak, server, counts = self._soak, self._server, self._counts
        asyncio.run(self._fill_store())
        n_before, start = server.metric("ripple_requests_total"), time.perf_counter()
        rss_mb, n_files = list[float](), list[int]()
        with Progress("tenths", PARTS) as progress:
            for part in range(PARTS):
                n = (part + 1) * soak.requests // PARTS - part * soak.requests // PARTS
                asyncio.run(self._send(n))
                self._wait_for_silence()
                time.sleep(RESTED_S)
                rss_mb.append(round(server.rss_mb(), 1))
                n_files.append(server.n_files())
                progress.update(note=f"{rss_mb[-1]} MB")
        return {
            "bench": soak.name, "model": soak.model, "requests": soak.requests, "clients": soak.clients,
            "length": soak.length, "prompt": soak.prompt, "vanish": soak.vanish, "bad": soak.bad,
            "slow": soak.slow, "seed": soak.seed, "seconds": round(time.perf_counter() - start, 1),
            **{name: counts[name] for name in OUTCOMES}, "retried": counts["retried"],
            "examples": self._examples[:3],
            "decoded": int(server.metric("ripple_requests_total") - n_before), "rss_mb": rss_mb,
            "growth": round(rss_mb[-1] / rss_mb[0] - 1, 4), "open_files": n_files, "torch": torch.__version__,
        }  # fmt: skip

    async def _fill_store(self) -> None:
        """Have as many cached requests decoded at once as there ever can be, a few times."""
        body = max((case for case in self._cases if "cache" in case.fields["ripple"]), key=Case.size).body()
        connections = [Connection(self._server.url) for _ in range(self._soak.clients)]
        for _ in range(N_FILLS):
            await asyncio.gather(*(self._answer(connection, body) for connection in connections))
        self._counts.clear()
        for connection in connections:
            connection.close()

    def _wait_for_silence(self) -> None:
        """Wait until the server has noticed who left."""
        names = ("ripple_requests_running", "ripple_requests_waiting")
        until = time.perf_counter() + SILENCE_S
        while any(self._server.metric(name) for name in names):
            if time.perf_counter() > until:
                raise RippleError(f"The server still decodes {SILENCE_S:g} s after its last client has left.")
            time.sleep(AGAIN_S)

    async def _send(self, n: int) -> None:
        left = iter(range(n))

        async def client() -> None:
            connection = Connection(self._server.url)
            for _ in left:
                outcome = await self._outcome(connection)
                self._counts[outcome] += 1
            connection.close()

        await asyncio.gather(*(client() for _ in range(self._soak.clients)))

    async def _outcome(self, connection: Connection) -> str:
        """Send one request of some kind and return what became of it."""
        soak, case, dice = self._soak, self._random.choice(self._cases), self._random.random()
        try:
            if dice < soak.vanish:
                return await self._vanish(connection, case)
            if dice < soak.vanish + soak.bad:
                body, status = self._random.choice(BAD)
                answer = await connection.post(PATH, body)
                return "refused" if answer.status == status else self._wrong("wrong", answer)
            if dice < soak.vanish + soak.bad + soak.slow:
                reader = Connection(self._server.url, window=WINDOW)
                answer = await self._answer(reader, case.body("canvas"), SLOW_S)
                reader.close()
            else:
                answer = await self._answer(connection, case.body(self._random.choice((None, "text"))))
        except (OSError, EOFError, ValueError) as error:
            connection.close()
            self._examples.append(repr(error))
            return "lost"
        is_right = answer.status == 200 and answer.text() == case.text
        return "answered" if is_right else self._wrong("wrong", answer)

    async def _answer(self, connection: Connection, body: bytes, pause_s: float = 0.0) -> Exchange:
        """Send a body until the queue has room for it."""
        while (answer := await connection.post(PATH, body, pause_s)).status == 429:
            self._counts["retried"] += 1
            await asyncio.sleep(AGAIN_S)
        return answer

    async def _vanish(self, connection: Connection, case: Case) -> str:
        """Send a request and leave at some moment before its answer."""
        await connection.send(PATH, case.body(self._random.choice((None, "text", "canvas"))))
        await asyncio.sleep(self._random.random() * VANISH_S)
        connection.close()
        return "vanished"

    def _wrong(self, outcome: str, answer: Exchange) -> str:
        self._examples.append(f"{answer.status} {answer.body[:300]!r}")
        return outcome
