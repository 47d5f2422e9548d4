"""From the name of a device to the device."""

from __future__ import annotations

import pytest
import torch

from ripple.errors import RippleError
from ripple.models.load import torch_device


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    return current


def test_a_numbered_gpu_becomes_the_current_one(two_gpus: list[torch.device]) -> None:
    assert torch_device("cuda") == torch.device("cuda") and two_gpus == []
    assert torch_device("cuda:1") == torch.device("cuda:1") and two_gpus == [torch.device("cuda:1")]


def test_a_gpu_that_is_not_there_is_an_error(two_gpus: list[torch.device]) -> None:
    with pytest.raises(RippleError, match="'cuda:2' was asked for, but the last one is cuda:1"):
        torch_device("cuda:2")
    assert two_gpus == []


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "meta", "cuda:99999999999", None, 1.5])
def test_an_unknown_device_is_an_error(name: str) -> None:
    with pytest.raises(RippleError, match="use cpu, cuda, cuda:N or auto"):
        torch_device(name)
