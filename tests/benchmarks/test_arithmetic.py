"""Layouts a second by arithmetic alone, and memory, in a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from processes import run_python
from rules import RULES
from triad import triad_seconds

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


SHAPES = 2**23

CORES = """
import json, sys, time
import dummyaudit

if __name__ == "__main__":
    seconds = {}
    for jobs in (1, 2):
        start = time.perf_counter()
        report = dummyaudit.grid(
            num_reqs=range(1, 1001),
            num_tokens=range(1000, 401000),
            max_model_len=[16, 1024, 4096],
            rules=["last", "even"],
            device="none",
            jobs=jobs,
        )
        seconds[jobs] = time.perf_counter() - start
    print(json.dumps({**seconds, "layouts": report.summary.layouts}))
"""


@pytest.mark.parametrize("rule", RULES)
def test_rule_against_the_bandwidth_of_memory(
    timed: Callable[..., Any], times: dict[str, float], add_row: Callable[..., None], rule: str
) -> None:
    import dummyaudit

    def audit() -> Any:
        return dummyaudit.grid(
            num_reqs=range(1, 1025),
            num_tokens=range(1024, 1024 + SHAPES // 1024),
            max_model_len=64,
            rules=[rule],
            device="none",
        )

    report = timed(f"arithmetic of {rule}", audit, rounds=5)
    assert report.summary.layouts == SHAPES
    # Of each layout num_reqs, num_tokens and its longest request, 8 bytes each.
    rate, bandwidth = SHAPES / times[f"arithmetic of {rule}"] / 1e6, SHAPES / triad_seconds(SHAPES) / 1e6
    add_row(
        f"arithmetic of `{rule}`, one max_model_len",
        f"{rate:.0f} M layouts/s",
        f"NumPy triad on as many numbers: {bandwidth:.0f} M/s",
        f"{rate / bandwidth:.0%}",
        "at least 40 M" if rule in ("last", "even") else "",
    )


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")
def test_two_cores_against_one(benchmark: Any, add_row: Callable[..., None], tmp_path: Any) -> None:
    script = tmp_path / "cores.py"
    script.write_text(CORES)
    code = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    runs: list[dict[str, float]] = []
    benchmark.pedantic(lambda: runs.append(json.loads(run_python(code))), rounds=1)
    one, two = runs[0]["1"], runs[0]["2"]
    add_row(
        f"`--jobs 2`, {runs[0]['layouts'] / 1e9:.1f} billion layouts",
        f"{two:.1f} s",
        f"`--jobs 1`: {one:.1f} s",
        f"{one / two:.2f} times as fast",
        "at least 1.7",
    )
