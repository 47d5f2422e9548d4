"""A small HTTP client for load: it must cost little beside the server that it measures."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Exchange(NamedTuple):
    """One request and its answer."""

    status: int
    body: bytes
    first_s: float  # until the first bytes of the body
    seconds: float  # until the last

    def text(self) -> str:
        """Return the text of a completion, whole or streamed."""
        return "".join(choice["text"] for chunk in self.objects() for choice in chunk["choices"])

    def objects(self) -> list[dict[str, Any]]:
        """Return the object of the body, or those of its server-sent events."""
        if not self.body.startswith(b"data: "):
            return [json.loads(self.body)]
        events = [line.removeprefix(b"data: ") for line in self.body.split(b"\n\n") if line]
        return [json.loads(event) for event in events if event != b"[DONE]"]


class Connection:
    """One connection to a server, opened when it is needed and kept alive."""

    def __init__(self, url: str, window: int | None = None) -> None:
        """`window` limits how many bytes the system receives ahead of whoever reads."""
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), int(parts.port or 80)
        self._limit = window or 1 << 16
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes, pause_s: float = 0.0) -> Exchange:
        """Send a body and read the answer; with a pause before every read, as a slow client does."""
        start = time.perf_counter()
        await self.send(path, body)
        assert self._reader is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        parts: list[bytes] = []
        first_s = 0.0
        async for part in self._parts(head):
            first_s = first_s or time.perf_counter() - start
            parts.append(part)
            if pause_s:
                await asyncio.sleep(pause_s)
        if b"connection: close" in head:
            self.close()
        return Exchange(int(head[9:12]), b"".join(parts), first_s, time.perf_counter() - start)

    async def send(self, path: str, body: bytes) -> None:
        """Send a body and do not wait for its answer."""
        if self._writer is None or self._writer.is_closing():
            self._reader, self._writer = await asyncio.open_connection(
                self._host, self._port, limit=self._limit
            )
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    def close(self) -> None:
        """Leave, whatever is under way."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _parts(self, head: bytes) -> Any:
        """Yield the body part by part; of server-sent events, as they come."""
        assert self._reader is not None
        if b"transfer-encoding: chunked" not in head:
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            yield await self._reader.readexactly(length)
            return
        while size := int(await self._reader.readline(), 16):
            part = await self._reader.readexactly(size + 2)
            yield part[:-2]
        await self._reader.readline()
