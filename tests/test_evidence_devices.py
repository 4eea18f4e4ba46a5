from __future__ import annotations

import importlib.util

import pytest
import torch

import dummyaudit
from dummyaudit.api import find_check, resolve_device
from dummyaudit.errors import DeviceError
from dummyaudit.evidence import find_device


@pytest.mark.parametrize("name", ["", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "cuda:0:1", "cpu:0", "mps", " cpu"])
def test_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(DeviceError) as raised:
        resolve_device(name)
    assert raised.value.message == f"unknown device {name!r}"
    assert "cuda:N" in raised.value.hint


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:99"])
def test_cuda_without_cuda_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match=rf"^device {name}: torch .* sees 0 CUDA devices; use cpu$"):
        dummyaudit.grid(device=name)


def test_cuda_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [find_device(name) for name in ("cuda", "cuda:0", "cuda:1")] == ["cuda", "cuda:0", "cuda:1"]
    for name in ("cuda:2", "cuda:99"):
        with pytest.raises(DeviceError, match=f"^device {name}: torch .* sees 2 CUDA devices"):
            find_device(name)


def test_auto_is_the_cpu_where_there_is_torch() -> None:
    assert resolve_device("auto") == resolve_device("cpu") == "cpu"
    assert resolve_device("none") is None
    assert find_check("none") == (None, None)
    assert find_check("auto")[0] == "cpu"


def test_auto_is_none_without_torch_and_a_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find_spec(name, *rest)
    )
    assert dummyaudit.grid(num_reqs=4, num_tokens=9).built is None
    for name in ("cpu", "cuda", "cuda:0"):
        with pytest.raises(DeviceError, match=f"^device {name}: torch is not installed; install torch"):
            dummyaudit.grid(num_reqs=4, num_tokens=9, device=name)
