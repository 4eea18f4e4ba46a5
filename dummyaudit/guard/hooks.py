"""Where the guard takes hold of vLLM: functions that build dummy batches, wrapped when their module is loaded."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from dummyaudit.guard import watch
from dummyaudit.guard.runs import Describe, describe_capture, describe_capture_model, describe_v1, describe_v2

TARGETS: dict[str, dict[str, Describe]] = {
    # The first runner, of which the CPU's is a subclass.
    "vllm.v1.worker.gpu_model_runner": {"GPUModelRunner._dummy_run": describe_v1},
    # The second runner.
    "vllm.v1.worker.gpu.model_runner": {
        "GPUModelRunner._dummy_run": describe_v2,
        "GPUModelRunner.capture_model": describe_capture_model,
    },
    "vllm.v1.worker.gpu.cudagraph_utils": {"prepare_inputs_to_capture": describe_capture},
}
"""By module and name what is wrapped, and what says of a call which dummy run it is."""

_MARK = "_dummyaudit_guard"


def install(mode: str) -> None:
    """Turns the guard on, once in a process.

    Args:
        mode: `warn` or `raise`; of another value a warning is all that comes.
    """
    if mode not in ("warn", "raise"):
        watch.warn_once(f"DUMMYAUDIT_GUARD={mode} is not known; use warn or raise. Nothing is checked.")
        return
    watch.mode = mode
    for name in TARGETS:
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            wrap(module)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def wrap(module: ModuleType) -> None:
    """Wraps what TARGETS names of a module; what is not there is warned of and left alone."""
    for path, describe in TARGETS[module.__name__].items():
        *owners, name = path.split(".")
        owner: Any = module
        with contextlib.suppress(AttributeError):
            owner = functools.reduce(getattr, owners, module)
            function = getattr(owner, name)
            if not hasattr(function, _MARK):
                setattr(owner, name, _wrapped(function, describe))
            continue
        watch.warn_once(f"{module.__name__} has no {path}: this vLLM is not known, and those runs are not checked.")


def _wrapped(function: Callable[..., Any], describe: Describe) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with watch.during(lambda: describe(function, args, kwargs)):
            return function(*args, **kwargs)

    setattr(call, _MARK, True)
    return call


class _Finder(importlib.abc.MetaPathFinder):
    """Leaves the finding of modules to others, and has those of TARGETS wrapped after they are loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in TARGETS:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader)
                    return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, then wraps what is to be wrapped."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        wrap(module)
