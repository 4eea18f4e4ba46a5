"""How long a command takes, against importing what it cannot do without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from processes import run_python

COMMAND = "from dummyaudit.cli.main import main; main()"
"""What the console script runs."""

BASELINES = (
    "import typer, rich.console, rich.table",
    "import typer, rich.console, numpy",
    "import torch",
)

GRID = ("grid", "--max-model-len", "4096", "--device")


@pytest.mark.parametrize("code", BASELINES)
def test_imports(timed: Callable[..., Any], code: str) -> None:
    timed(code, lambda: run_python(code), rounds=10)


@pytest.mark.parametrize(
    ("arguments", "baseline", "limit"),
    [
        (("--help",), BASELINES[0], 1.5),
        (("--version",), BASELINES[0], 1.5),
        ((*GRID, "none"), BASELINES[1], 2.5),
    ],
)
def test_command_in_times_its_imports(
    timed: Callable[..., Any],
    times: dict[str, float],
    add_row: Callable[..., None],
    arguments: tuple[str, ...],
    baseline: str,
    limit: float,
) -> None:
    name = f"dummyaudit {' '.join(arguments)}"
    assert timed(name, lambda: run_python(COMMAND, *arguments), rounds=10)
    base = times[baseline]
    add_row(
        f"`{name}`",
        f"{times[name]:.3f} s",
        f"`{baseline}`: {base:.3f} s",
        f"{times[name] / base:.2f} times",
        f"at most {limit}",
    )


def test_grid_on_the_cpu_in_seconds_more_than_torch(
    timed: Callable[..., Any], times: dict[str, float], add_row: Callable[..., None]
) -> None:
    name = f"dummyaudit {' '.join(GRID)} cpu"
    assert timed(name, lambda: run_python(COMMAND, *GRID, "cpu"), rounds=10)
    base = times["import torch"]
    add_row(
        f"`{name}`",
        f"{times[name]:.3f} s",
        f"`import torch`: {base:.3f} s",
        f"{times[name] - base:.2f} s more",
        "at most 0.4 s",
    )


def test_release_against_grid(
    timed: Callable[..., Any], times: dict[str, float], add_row: Callable[..., None]
) -> None:
    arguments = ("vllm", "--release", "0.33.0", "--max-model-len", "4096", "--device", "none")
    name = f"dummyaudit {' '.join(arguments)}"
    assert timed(name, lambda: run_python(COMMAND, *arguments), rounds=10)
    grid = f"dummyaudit {' '.join(GRID)} none"
    add_row(
        f"`{name}`",
        f"{times[name]:.3f} s",
        f"`{grid}`: {times[grid]:.3f} s",
        f"{times[name] / times[grid]:.2f} times",
        "at most 1.5",
    )


def test_frontier_of_all_that_int32_holds(
    timed: Callable[..., Any], times: dict[str, float], add_row: Callable[..., None]
) -> None:
    limit = str(2**31 - 1)
    arguments = ("frontier", "--max-num-reqs", limit, "--max-num-tokens", limit, "--exit-zero")
    name = f"dummyaudit {' '.join(arguments)}"
    assert timed(name, lambda: run_python(COMMAND, *arguments), rounds=5)
    add_row(f"`{name}`", f"{times[name]:.2f} s", "", "", "at most 1 s")
