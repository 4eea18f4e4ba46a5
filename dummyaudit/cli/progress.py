"""Progress of long runs, on stderr if that is a terminal, and how Ctrl-C ends them."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.progress

PATIENCE = 0.5
"""Seconds that a run may take before its progress is shown."""


class Progress:
    """A bar that appears when a run turns out to be long."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.bar: rich.progress.Progress | None = None
        self.interrupted = False
        self.handler: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()
        self._restore()

    def __call__(self, done: int, total: int) -> None:
        """Takes the number of layouts done, and of all."""
        if self.bar is None:
            if time.monotonic() - self.start < PATIENCE or not (sys.stderr and sys.stderr.isatty()):
                return
            self.bar = _bar()
            self.bar.start()
            self.bar.add_task("layouts", rate="")
        rate = done / (time.monotonic() - self.start)
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, rate=f"{rate / 1e6:.2f} M/s")

    def until_interrupted(self) -> Callable[[], bool]:
        """Whether Ctrl-C was pressed, which from now on ends a run where it asks for it; a second one ends all."""
        in_charge = threading.current_thread() is threading.main_thread()
        if in_charge and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.handler = signal.signal(signal.SIGINT, self._interrupt)
        return lambda: self.interrupted

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self._restore()

    def _restore(self) -> None:
        if self.handler is not None:
            signal.signal(signal.SIGINT, self.handler)
            self.handler = None


def _bar() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
