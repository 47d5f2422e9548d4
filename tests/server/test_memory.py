"""An idle server gives back what it has freed; a busy one is left alone."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from ripple.server import memory
from ripple.server.memory import GiveBack

pytestmark = pytest.mark.skipif(memory.trim() is None, reason="needs glibc")
MB = 1 << 20


def resident() -> int:
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024


@pytest.mark.parametrize("is_busy", [False, True])
def test_memory_in_pieces_goes_back_when_there_is_nothing_to_do(
    is_busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "QUIET_S", 0.05)
    blocks = [bytearray(60_000) for _ in range(2000)]  # too small for pages of their own
    kept = blocks[::100]  # so that the C library cannot shrink its heap
    del blocks
    before = resident()

    async def rest() -> None:
        give_back = GiveBack(lambda: is_busy)
        give_back.soon()
        give_back.soon()
        await asyncio.sleep(0.5)

    asyncio.run(rest())
    given = before - resident()
    assert given < 10 * MB if is_busy else given > 60 * MB
    assert len(kept) == 20
