"""One sweep on several cores: processes that each judge a part of its shapes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from dummyaudit.errors import DeviceError
from dummyaudit.tally import Check, Part, Plan, Progress, tally_part

PART = 2**25
"""Layouts that a process judges before it reports; fewer if they are built too."""

PART_BUILT = 2**17

_task: list[tuple[Plan, Check | None]] = []
"""What this process is there for, if it is one of several."""


def tally_with_jobs(
    plan: Plan, jobs: int, device: str | None, progress: Progress | None, stop: Callable[[], bool] | None
) -> Part:
    """Judges all shapes in `jobs` processes. What comes out does not depend on their number.

    Args:
        plan: what to audit and to keep.
        jobs: number of processes, at most; no more are made than there are cores, or parts.
        device: torch device on which each of them builds its layouts, or None.
        progress: called after each part.
        stop: asked after each part whether to end here.

    Raises:
        DummyAuditError: as in one process; or a process was killed.
    """
    sweep = plan.sweep
    per_shape = len(sweep.rules) * len(sweep.tables)
    size = max((PART_BUILT if device else PART) // (per_shape * sweep.chunk), 1) * sweep.chunk
    jobs = min(jobs, -(-len(sweep.shapes) // size), os.cpu_count() or 1)
    found: Part | None = None
    with _pool(plan, jobs, device) as pool:
        for part in _parts(pool, len(sweep.shapes), size, jobs):
            if found is None:
                found = part
            else:
                found.merge(part)
            if progress:
                progress(found.last * per_shape, len(sweep))
            if stop and stop():
                break
    assert found is not None  # there is at least one shape
    return found


@contextlib.contextmanager
def _pool(plan: Plan, jobs: int, device: str | None) -> Iterator[ProcessPoolExecutor]:
    # Spawned, since torch may have threads here, which a fork would lose.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin, (plan, device))
    try:
        yield pool
    except BrokenProcessPool as error:
        raise DeviceError("a process of --jobs was killed", "there may be too little memory: use fewer") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _parts(pool: ProcessPoolExecutor, shapes: int, size: int, jobs: int) -> Iterator[Part]:
    """The parts in their order; a few more than there are processes are under way, and no more are kept."""
    waiting: list[Future[Part]] = []
    for first in range(0, shapes, size):
        waiting.append(pool.submit(_work, first, min(first + size, shapes)))
        if len(waiting) > 2 * jobs:
            yield waiting.pop(0).result()
    while waiting:
        yield waiting.pop(0).result()


def _begin(plan: Plan, device: str | None) -> None:
    """Sets a process up. Ctrl-C is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    check = None
    if device:
        import torch

        from dummyaudit.evidence import Evidence

        torch.set_num_threads(1)
        check = Evidence(device).check
    _task.append((plan, check))


def _work(first: int, last: int) -> Part:
    plan, check = _task[0]
    return tally_part(plan, first, last, check)
