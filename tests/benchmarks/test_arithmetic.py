"""Layouts a second by arithmetic alone, and memory, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from processes import run_python

AUDIT = """
import json, sys, time
import dummyaudit
import dummyaudit.api

num_reqs = int(sys.argv[1])
start = time.perf_counter()
report = dummyaudit.grid(
    num_reqs=range(1, num_reqs + 1),
    num_tokens=range(num_reqs, num_reqs + 1000),
    max_model_len=[16 << i for i in range(10)],
    rules=["last", "even"],
    device="none",
)
seconds = time.perf_counter() - start
# Not getrusage: what it says of a new process includes the one that started it.
peak_kb = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"seconds": seconds, "layouts": report.summary.layouts, "peak_mb": int(peak_kb) / 1024}))
"""


@pytest.mark.parametrize("num_reqs", [1000, 4000])
def test_arithmetic(benchmark: Any, add_row: Callable[..., None], num_reqs: int) -> None:
    runs: list[dict[str, float]] = []
    benchmark.pedantic(lambda: runs.append(json.loads(run_python(AUDIT, str(num_reqs)))), rounds=3)

    layouts = num_reqs * 1000 * 10 * 2
    assert {run["layouts"] for run in runs} == {layouts}
    seconds = min(run["seconds"] for run in runs)
    peak = max(run["peak_mb"] for run in runs)
    name = f"arithmetic, {num_reqs} x 1000 shapes, 10 max_model_len, 2 rules"
    per_second = layouts / seconds / 1e6
    add_row(name, f"{seconds:.2f} s", f"{layouts} layouts", f"{per_second:.0f} M layouts/s", "at least 10 M")
    add_row(name, f"{peak:.0f} MB", "peak resident memory", "", "at most 500 MB")
