from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_helpers import COMMAND, Result, assert_refused, environment, start

import dummyaudit
from dummyaudit import jobs

SPACE = {
    "num_reqs": range(1, 120),
    "num_tokens": range(40, 400, 3),
    "max_model_len": [16, 100],
    "block_size": [16, 48],
}


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few shapes are several parts, whatever the machine."""
    monkeypatch.setattr("dummyaudit.sweep.CHUNK", 500)
    monkeypatch.setattr(jobs, "PART", 1)
    monkeypatch.setattr(jobs, "PART_BUILT", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


@pytest.mark.usefixtures("many_parts")
def test_number_of_jobs_changes_nothing() -> None:
    alone = dummyaudit.grid(**SPACE, device="none", worst=7)
    for count in (2, 3):
        shared = dummyaudit.grid(**SPACE, device="none", worst=7, jobs=count)
        assert shared.to_dict() == alone.to_dict()
        assert (shared.cells, shared.worst) == (alone.cells, alone.worst)


@pytest.mark.usefixtures("many_parts")
def test_every_process_builds_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dummyaudit.sweep.CHUNK", 20)
    report = dummyaudit.grid(num_reqs=[4, 8], num_tokens=range(8, 40), max_model_len=8, device="cpu", jobs=2)
    assert report.built is not None
    assert report.built.layouts == report.summary.layouts == 2 * 2 * 32
    assert report.to_dict()["layouts"] == [
        layout.to_dict()
        for layout in dummyaudit.grid(
            num_reqs=[4, 8], num_tokens=range(8, 40), max_model_len=8, device="none"
        ).layouts
    ]


@pytest.mark.usefixtures("many_parts")
def test_progress_reaches_all_layouts_and_never_falls() -> None:
    seen: list[tuple[int, int]] = []
    report = dummyaudit.grid(**SPACE, device="none", jobs=2, progress=lambda *done: seen.append(done))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (report.summary.layouts, report.summary.layouts)


def test_no_more_processes_are_made_than_there_is_work(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    pool = jobs.ProcessPoolExecutor

    def recorded(count: int, *arguments: object) -> object:
        made.append(count)
        return pool(count, *arguments)

    monkeypatch.setattr(jobs, "ProcessPoolExecutor", recorded)
    dummyaudit.grid(num_reqs=[4], num_tokens=[8], max_model_len=16, device="none", jobs=100000)
    assert made == [1]


@pytest.mark.usefixtures("many_parts")
@pytest.mark.parametrize("count", [1, 2])
def test_stopped_audit_is_that_of_its_first_shapes(count: int) -> None:
    whole = dummyaudit.grid(**SPACE, device="none")
    asked: list[int] = []

    def third_time() -> bool:
        asked.append(1)
        return len(asked) == 3

    report = dummyaudit.grid(**SPACE, device="none", jobs=count, stop=third_time)
    assert report.planned == whole.summary.layouts
    assert 0 < report.summary.layouts < whole.summary.layouts
    kept = report.summary.layouts // 8  # two rules, four block tables
    shapes = sorted({(layout.num_reqs, layout.num_tokens) for layout in whole.layouts})[:kept]
    again = dummyaudit.grid(shapes=shapes, max_model_len=[16, 100], block_size=[16, 48], device="none")
    assert report.summary == again.summary
    assert list(report.layouts) == list(again.layouts)
    assert [(cell.num_reqs, cell.shapes, cell.overflow, cell.worst) for cell in report.cells] == [
        (cell.num_reqs, cell.shapes, cell.overflow, cell.worst) for cell in again.cells
    ]
    assert (report.outlooks, report.worst) == (again.outlooks, again.worst)


def test_rule_of_a_user_works_in_every_process_and_its_fault_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def split(r, n):\n    return [1] * (r - 1) + [n - r + 1 - (n == 30)]\n")
    grid = ("grid", "--rule", "mine:split", "--num-reqs", "4", "--max-model-len", "16", "--device", "none", "-j", "2")
    fine = start(*grid, "--num-tokens", "4:29", cwd=tmp_path)
    assert (fine.status, fine.err) == (0, "")
    assert_refused(start(*grid, "--num-tokens", "4:30", cwd=tmp_path), "num_reqs 4, num_tokens 30", "add up to 29")


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5"])
def test_number_of_jobs_that_is_none_is_refused(value: str) -> None:
    assert_refused(start("grid", "--device", "none", "--jobs", value), "jobs")


def interrupt(*arguments: str, times: int = 1) -> Result:
    """Runs a long grid and presses Ctrl-C, which every process of a terminal gets."""
    process = subprocess.Popen(
        [*COMMAND, "grid", "--num-reqs", "1:1000", "--num-tokens", "1000:2000000000", "--device", "none", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    time.sleep(2.5)
    for _ in range(times):
        os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return Result(process.returncode, out, err)


@pytest.mark.skipif(sys.platform == "win32", reason="no process groups")
@pytest.mark.parametrize("options", [(), ("--jobs", "2")])
def test_ctrl_c_prints_what_was_counted_so_far(options: tuple[str, ...]) -> None:
    result = interrupt(*options)
    assert result.status == 130
    assert result.err.startswith("dummyaudit: interrupted after ")
    assert len(result.err.splitlines()) == 1
    assert re.search(r"Partial, interrupted: the first \d+ of 19999\d+ layouts\.", " ".join(result.out.split()))
    assert "Traceback" not in result.err
