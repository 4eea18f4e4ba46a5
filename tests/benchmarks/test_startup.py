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
