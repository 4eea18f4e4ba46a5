"""What all tests share: no deadlines, and no tests that need what is not there."""

from __future__ import annotations

import importlib.util
import signal

import pytest
from hypothesis import settings

# The first example of a test may import torch, which takes longer than any deadline.
settings.register_profile("dummyaudit", deadline=None)
settings.load_profile("dummyaudit")


def pytest_configure() -> None:
    # In the background a shell has Ctrl-C ignored, by what it starts too; the tests that send it need it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("engine") and not importlib.util.find_spec("vllm"):
        pytest.skip("needs a real vLLM")
    if item.get_closest_marker("cuda") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes how text looks must not come from whoever runs the tests."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "DUMMYAUDIT_GUARD"):
        monkeypatch.delenv(name, raising=False)
