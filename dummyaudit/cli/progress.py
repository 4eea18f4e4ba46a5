"""Progress of long runs, on stderr if that is a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.progress

PATIENCE = 0.5
"""Seconds that a run may take before its progress is shown."""


class Progress:
    """A bar that appears when a run turns out to be long."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.bar: rich.progress.Progress | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Takes the number of layouts done, and of all."""
        if self.bar is None:
            if time.monotonic() - self.start < PATIENCE or not (sys.stderr and sys.stderr.isatty()):
                return
            self.bar = _bar()
            self.bar.start()
            self.bar.add_task("layouts")
        self.bar.update(self.bar.task_ids[0], completed=done, total=total)


def _bar() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
