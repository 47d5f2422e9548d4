"""Benchmarks without local files: downloaded by the real client from a small hub that runs in the test."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ripple.errors import RippleError
from ripple.tasks import BENCHMARKS, open_benchmark
from ripple.tasks.published.data import read_file
from ripple.tasks.published.hub import FILES, parquet_file
from tests.tasks.published import rows

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ASK = """
import json, sys
from ripple.errors import RippleError
from ripple.tasks import find_task
told = {}
for name in sys.argv[1:]:
    try:
        task = find_task(name, allow_code=True)
        told[name] = [[[i.prompt, i.answer, i.tests] for i in task.test_items()], task.sources[0].describe()]
    except RippleError as error:
        told[name] = str(error)
print(json.dumps(told))
"""


class Hub(http.server.ThreadingHTTPServer):
    """Three kinds of pages: a data set, what it holds, and its files."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.sets: dict[str, dict[str, bytes]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Hub)
        for name, files in self.server.sets.items():
            if self.path.startswith(f"/api/datasets/{name}/revision/"):
                listed = [{"rfilename": file} for file in files]
                return self._answer(json.dumps({"id": name, "sha": COMMIT, "siblings": listed}).encode())
            if self.path.startswith(f"/api/datasets/{name}/tree/{COMMIT}"):
                tree = [
                    {"type": "file", "path": file, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                    for file, body in files.items()
                ]
                return self._answer(json.dumps(tree).encode())
            for file, body in files.items():
                if self.path == f"/datasets/{name}/resolve/{COMMIT}/{file}":
                    tag = hashlib.sha1(body).hexdigest()
                    return self._answer(body, {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'})
        self.send_error(404)

    do_HEAD = do_GET

    def _answer(self, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(200)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(hub: Hub, home: Path, *names: str, **more: str) -> dict[str, Any]:
    """Open benchmarks without files in a fresh interpreter: the client reads its settings when imported."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1"} | more
    command = [sys.executable, "-c", ASK, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


def parquet(table: list[dict[str, Any]]) -> bytes:
    pytest.importorskip("pyarrow", reason="the extra `hub` is not installed")
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), out)
    return out.getvalue()


def items(name: str, folder: Path) -> list[list[str]]:
    return [[i.prompt, i.answer, i.tests] for i in open_benchmark(name, folder).test_items()]


def test_every_benchmark_has_files_on_the_hub() -> None:
    assert set(FILES) == set(BENCHMARKS)


def test_a_set_of_json_lines_is_fetched_once(hub: Hub, tmp_path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows.MATH_TEST).encode()
    hub.sets["HuggingFaceH4/MATH-500"] = {"test.jsonl": text, "README.md": b"not wanted"}
    wanted = items("math500", rows.folder(tmp_path / "local"))
    told = ask(hub, tmp_path / "home", "math500", "gsm8k")
    assert told["math500"][0] == wanted
    assert f"(HuggingFaceH4/MATH-500 on the hub, commit {COMMIT})" in told["math500"][1]
    assert told["gsm8k"].startswith("openai/gsm8k is not in the local hub cache and cannot be fetched")
    assert told["gsm8k"].endswith("say with --data where gsm8k's files are.")
    assert not list((tmp_path / "home").rglob("README.md"))
    hub.sets.clear()
    assert ask(hub, tmp_path / "home", "math500", HF_HUB_OFFLINE="1")["math500"][0] == wanted


def test_sets_of_parquet_files_are_the_same_benchmarks(hub: Hub, tmp_path: Path) -> None:
    ids = {row["task_id"]: row for row in rows.MBPP}
    hub.sets = {
        "openai/gsm8k": {
            f"main/{parquet_file('test')}": parquet(rows.GSM_TEST),
            f"main/{parquet_file('train')}": parquet(rows.GSM_TRAIN),
        },
        "openai/openai_humaneval": {f"openai_humaneval/{parquet_file('test')}": parquet(rows.HUMANEVAL)},
        "google-research-datasets/mbpp": {
            f"full/{parquet_file('test')}": parquet([ids[11], ids[12]]),
            f"full/{parquet_file('prompt')}": parquet([ids[2], ids[3], ids[4]]),
        },
    }
    local = rows.folder(tmp_path / "local")
    told = ask(hub, tmp_path / "home", "gsm8k", "humaneval", "mbpp")
    for name in ("gsm8k", "humaneval", "mbpp"):
        assert told[name][0] == items(name, local), name
    hub.sets["openai/gsm8k"].pop(f"main/{parquet_file('train')}")
    said = ask(hub, tmp_path / "other", "gsm8k")["gsm8k"]
    assert said.startswith(
        f"openai/gsm8k lacks the file main/{parquet_file('train')}, on the hub or in its cache"
    )


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_parquet_is_read_without_threads_that_outlive_the_reading(tmp_path: Path) -> None:
    """One that does may meet the interpreter's end and abort the process, in one run of twenty-five."""
    path = tmp_path / "test.parquet"
    path.write_bytes(parquet(rows.GSM_TEST))
    count = "len(os.listdir('/proc/self/task'))"
    code = "import os, pathlib, sys, pyarrow.parquet; from ripple.tasks.published.data import read_file; "
    code += f"before = {count}; read_file(pathlib.Path(sys.argv[1]), {{}}); print({count} - before)"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n", done.stderr


def test_a_damaged_parquet_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "test.parquet"
    path.write_bytes(parquet(rows.GSM_TEST)[:-9])
    with pytest.raises(RippleError, match=r"is a Parquet file, but damaged or cut short\.$"):
        read_file(path, {})


def test_parquet_without_its_reader_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "test.parquet"
    path.write_bytes(b"PAR1 and so on")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RippleError, match=r"needs pyarrow: pip install 'ripple-dllm\[hub\]'\.$"):
        read_file(path, {})
