"""Measures with pytest-benchmark, and ends with one table of what was measured against what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Row = tuple[str, str, str, str, str]
"""What, measured, compared with, result, limit."""

ROWS = pytest.StashKey[list[Row]]()
TIMES = pytest.StashKey[dict[str, float]]()


@pytest.fixture
def add_row(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Adds a row to the table at the end."""
    rows = request.config.stash.setdefault(ROWS, [])
    return lambda *cells: rows.append(cells)


@pytest.fixture
def times(request: pytest.FixtureRequest) -> dict[str, float]:
    """Seconds that earlier benchmarks of this run took."""
    return request.config.stash.setdefault(TIMES, {})


@pytest.fixture
def timed(benchmark: Any, times: dict[str, float]) -> Callable[..., Any]:
    """Times a call as `name`, the quickest of some rounds, and returns what it returned."""

    def run(name: str, function: Callable[[], Any], rounds: int) -> Any:
        result = benchmark.pedantic(function, rounds=rounds, warmup_rounds=1)
        times[name] = benchmark.stats["min"]
        return result

    return run


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    header: list[Row] = [("what", "measured", "compared with", "result", "limit"), ("---",) * 5]
    if rows := config.stash.get(ROWS, []):
        terminalreporter.section("measured in this run")
        for row in header + rows:
            terminalreporter.write_line(f"| {' | '.join(row)} |")
