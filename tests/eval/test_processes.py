"""Several processes share requests and end up with the same answers; two of them really run."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
import torch

from ripple.errors import RippleError
from ripple.eval.processes import Processes, leave
from tests.eval.forks import fork, wait


def take_part(rank: int, port: int, folder: Path) -> None:
    """What one of two processes does, with what it found out in a file."""
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    of = Processes()
    of.check_alike("same")
    answers = of.gather({i: i * i for i in of.share(5)}, 5)
    with pytest.raises(RippleError, match="hold different requests"):
        of.check_alike(f"not the same: {of.rank}")
    (folder / str(rank)).write_text(json.dumps([of.n, list(of.share(5)), answers]))
    leave()


def test_alone_everything_is_mine() -> None:
    of = Processes({})
    assert of.is_alone and list(of.share(3)) == [0, 1, 2] and of.gather({1: "b", 0: "a"}, 2) == ["a", "b"]
    assert of.device("auto") == "auto" and of.device("cpu") == "cpu"
    of.check_alike("anything")
    with pytest.raises(RippleError, match="WORLD_SIZE, RANK and LOCAL_RANK must be whole numbers"):
        Processes({"WORLD_SIZE": "two"})


def test_the_harnesss_default_device_is_each_processs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    of = Processes({"LOCAL_RANK": "3"})
    for has_gpu, n, wanted in ((False, 2, "auto"), (True, 1, "cuda:0"), (True, 4, "cuda:3")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        of.n = n
        assert of.device("cuda:0") == wanted and of.device("cuda:1") == "cuda:1"


def test_processes_that_nobody_joins_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(
        RippleError, match=r"says 2 processes, but they cannot be joined: .* torchrun"
    ) as said:
        Processes({"WORLD_SIZE": "2"})
    assert "\n" not in str(said.value)


def test_two_processes_share_their_answers(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    children = [fork(lambda rank=rank: take_part(rank, port, tmp_path)) for rank in (0, 1)]
    assert [wait(child) for child in children] == [0, 0]
    told = [json.loads((tmp_path / str(rank)).read_text()) for rank in (0, 1)]
    assert told == [[2, [0, 2, 4], [0, 1, 4, 9, 16]], [2, [1, 3], [0, 1, 4, 9, 16]]]
