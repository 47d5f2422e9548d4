"""Several processes share requests and end up with the same answers; two of them really run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ripple.errors import RippleError
from ripple.eval.processes import Processes

TWO = """
import json, sys
from ripple.errors import RippleError
from ripple.eval.processes import Processes, leave
of = Processes()
of.check_alike("same")
found = of.gather({i: i * i for i in of.share(5)}, 5)
try:
    of.check_alike(f"not the same: {of.rank}")
except RippleError as error:
    said = str(error)
with open(f"{sys.argv[1]}/{of.rank}", "w") as file:
    json.dump([of.n, list(of.share(5)), found, said], file)
leave()
"""


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


@pytest.mark.slow  # three starts of an interpreter
def test_two_processes_hear_each_other(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / str(rank)).read_text()) for rank in (0, 1)]
    assert [one[:3] for one in told] == [[2, [0, 2, 4], [0, 1, 4, 9, 16]], [2, [1, 3], [0, 1, 4, 9, 16]]]
    assert all("hold different requests" in one[3] for one in told)
