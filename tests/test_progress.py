from __future__ import annotations

import io
import os
import signal
import sys
import threading

import pytest

from dummyaudit.cli import progress
from dummyaudit.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return stream


def test_long_run_shows_counts_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", 0)
    with Progress() as bar:
        bar(3_000_000, 12_000_000)
        bar(6_000_000, 12_000_000)
        assert bar.bar is not None
        bar.bar.refresh()  # as its own thread does, ten times a second
    shown = terminal.getvalue()
    assert "layouts" in shown
    assert "6000000/12000000" in shown
    assert "M/s" in shown


def test_short_run_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    with Progress() as bar:
        bar(1, 2)
    assert terminal.getvalue() == ""


def test_no_terminal_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE", 0)
    with Progress() as bar:
        bar(1, 2)
    monkeypatch.setattr(sys, "stderr", None)
    with Progress() as bar:
        bar(1, 2)
    assert stream.getvalue() == ""


def test_first_ctrl_c_asks_to_stop_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Progress() as bar:
        stop = bar.until_interrupted()
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        assert signal.getsignal(signal.SIGINT) is before
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_handler_is_gone_after_a_run_without_ctrl_c() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Progress() as bar:
        bar.until_interrupted()
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Progress() as bar:
            bar.until_interrupted()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_ctrl_c_alone() -> None:
    seen: list[bool] = []

    def work() -> None:
        with Progress() as bar:
            seen.append(bar.until_interrupted()())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
