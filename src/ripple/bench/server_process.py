"""A `ripple serve` process to be measured: started, watched and stopped."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from ripple.errors import RippleError

START_S = 600.0  # a large model takes its time to load


class ServerProcess:
    """A server on a free port of this machine."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "ripple", "serve", "--port", "0", "--timeout", "3600", *words]
        env = {name: value for name, value in os.environ.items() if name != "RIPPLE_API_KEY"}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self.url = ""
        self._said: list[str] = []
        self._is_ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not (self._is_ready.wait(START_S) and self.url):
            self.process.kill()
            raise RippleError(f"The server did not start: {''.join(self._said)[-500:].strip()}")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if self.url:
                continue  # the access log
            self._said.append(line)
            if address := re.search(r"listening at (http://\S+)", line):
                self.url = address[1]
                self._is_ready.set()
        self._is_ready.set()

    def rss_mb(self) -> float:
        """Return the memory that the process holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1e3

    def cpu_s(self) -> float:
        """Return the processor time that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def n_files(self) -> int:
        """Return how many files and connections the process has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def metric(self, name: str) -> float:
        """Return the sum of a metric's series."""
        with urllib.request.urlopen(f"{self.url}/metrics") as page:
            values = re.findall(rf"^{re.escape(name)}{{[^}}]*}} (\S+)$", page.read().decode(), re.MULTILINE)
        return sum(map(float, values))


@contextlib.contextmanager
def serving(*words: str) -> Iterator[ServerProcess]:
    """Start a server, and stop it in the end, also where that is a SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    server = ServerProcess(*words)
    try:
        yield server
    finally:
        signal.signal(signal.SIGTERM, before)
        server.process.terminate()
        try:
            server.process.wait(60)
        except subprocess.TimeoutExpired:
            server.process.kill()
