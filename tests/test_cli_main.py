"""How the command ends: its exit status, and what it says where there is no verdict."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_helpers import (
    COMMAND,
    FITS,
    OVER_LENGTH,
    OVERFLOWS,
    Result,
    assert_crashed,
    assert_refused,
    call,
    environment,
    shell,
    start,
)

import dummyaudit
from dummyaudit import api
from dummyaudit.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (FITS, 0),
        (OVERFLOWS, 1),
        ((*OVERFLOWS, "--exit-zero"), 0),
        ((*OVERFLOWS, "--strict", "--exit-zero"), 0),
        ((*OVER_LENGTH, "--rule", "v1"), 0),
        ((*OVER_LENGTH, "--rule", "v1", "--strict"), 1),
        ((*OVER_LENGTH, "--rule", "v1", "--strict", "--exit-zero"), 0),
        ((*OVER_LENGTH, "--rule", "v1", "--token-alignment", "0"), 1),
        ((*FITS, "--strict"), 0),
    ],
)
def test_status_tells_a_clean_audit_from_one_that_found_something(
    capsys: Capture, arguments: tuple[str, ...], status: int
) -> None:
    result = call(capsys, *arguments)
    assert result.status == status
    assert result.out
    assert result.err == ""


def test_process_ends_with_the_status_that_run_returns() -> None:
    assert [start(*arguments).status for arguments in (FITS, OVERFLOWS, (*FITS, "--dcp", "0"))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "command"),
        (("frobnicate",), "frobnicate"),
        (("--frobnicate",), "--frobnicate"),
        (("grid", "--frobnicate"), "--frobnicate"),
        (("grid", "surplus"), "surplus"),
        (("grid", "--max-model-len"), "--max-model-len"),
        (("grid", "--format", "xml"), "xml"),
        (("grid", "--format", "JSON"), "JSON"),
        (("grid", "--token-alignment", "64"), "64"),
        (("compare", "--num-reqs", "1"), "--num-tokens"),
        (("compare", "--num-tokens", "1"), "--num-reqs"),
        (("grid", "--strict=yes"), "--strict"),
        (("grid", "-x"), "-x"),
        (("grid", "a\nb\rc\x0bd\u2028e"), "d"),
    ],
)
def test_wrong_usage_is_one_line_and_no_verdict(capsys: Capture, arguments: tuple[str, ...], says: str) -> None:
    assert_refused(call(capsys, *arguments), says)
    assert_refused(call(capsys, *arguments, *["--exit-zero"] * bool(arguments)))


def test_wrong_usage_of_the_process_is_one_line_and_no_verdict() -> None:
    assert_refused(start("grid", "--frobnicate"), "--frobnicate")
    assert_refused(start("grid", "--max-model-len", "0"), "max_model_len must be at least 1")


class _UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("first\nsecond"),
        AssertionError(),
        MemoryError(),
        RecursionError("too deep"),
        OSError("no such thing"),
        BrokenPipeError(32, "Broken pipe"),
        SystemExit(0),
        SystemExit(1),
        GeneratorExit(),
        asyncio.CancelledError(),
        _UnspeakableError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("more", [(), ("--exit-zero",)])
def test_crash_is_never_a_verdict(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: BaseException, more: tuple[str, ...]
) -> None:
    def crash(**_: object) -> None:
        raise error

    # Typer puts wrappers of its own in their place where the pipe is broken.
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(api, "compare", crash)
    assert_crashed(call(capsys, *FITS, *more), type(error).__name__)


def test_crash_names_the_place(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(**_: object) -> None:
        raise ZeroDivisionError("why")

    monkeypatch.setattr(api, "compare", crash)
    line = crash.__code__.co_firstlineno + 1
    assert_crashed(call(capsys, *FITS), f"ZeroDivisionError: why (test_cli_main.py:{line})")


def test_interrupt_in_this_process_is_130(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "compare", interrupt)
    assert call(capsys, *OVERFLOWS, "--exit-zero") == Result(130, "", "")


def test_interrupt_leaves_no_traceback_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "def split(num_reqs, num_tokens):\n"
        "    pathlib.Path('started').touch()\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [*COMMAND, *OVERFLOWS, "--rule", "slow:split", "--report", "json=r.json", "-o", "out.txt"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(list(tmp_path.glob(".dummyaudit.*"))) == 2, "it writes beside the files that it will replace"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slow.py", "started"]


def test_version_is_that_of_the_package(capsys: Capture) -> None:
    assert call(capsys, "--version") == Result(0, f"dummyaudit {dummyaudit.__version__}\n", "")
    assert start("--version") == Result(0, f"dummyaudit {dummyaudit.__version__}\n", "")


COMMANDS = sorted(command.callback.__name__ for command in main.app.registered_commands if command.callback)


def help_of(capsys: Capture, *command: str) -> str:
    result = call(capsys, *command, "--help")
    assert (result.status, result.err) == (0, "")
    return result.out


def test_help_names_every_command_and_the_statuses(capsys: Capture) -> None:
    text = help_of(capsys)
    assert {"grid", "compare"} <= set(COMMANDS)
    assert all(f"\n  {command} " in text for command in COMMANDS)
    assert "0 nothing overflows, 1 something does, 2 there is no verdict, 130 interrupted" in text
    assert call(capsys, "-h").out == text


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_in_brackets_vanishes_from_the_help(capsys: Capture, command: str) -> None:
    text = " ".join(help_of(capsys, command).split())
    given = re.findall(r"\[default: [^]]+\]", text)
    assert "[default: table]" in given
    assert len(given) >= {"env": 1, "inspect": 2}.get(command, 5)
    expected = {
        "grid": ["[default: 1:256:x2]", "[default: 16,64,256,1024,4096]", "[default: the shape's num_reqs]"],
        "compare": ["[default: powers of two around the answer]", "[default: last, even]", "[required]"],
    }
    for bracketed in expected.get(command, []):
        assert bracketed in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_but_for_its_examples(capsys: Capture, command: str) -> None:
    options, _, _ = help_of(capsys, command).partition("Examples:")
    assert max(map(len, options.splitlines())) <= 80


def examples() -> list[str]:
    found = []
    for epilog in [main.EPILOG, *(command.epilog or "" for command in main.app.registered_commands)]:
        found += re.findall(r"^  (dummyaudit .+)$", epilog, re.MULTILINE)
    return list(dict.fromkeys(found))


def test_every_help_ends_with_two_examples(capsys: Capture) -> None:
    for command in ([], *([name] for name in COMMANDS)):
        shown = re.findall(r"^    (dummyaudit .+)$", help_of(capsys, *command), re.MULTILINE)
        assert len(shown) == 2
        assert set(shown) <= set(examples())


@pytest.fixture
def example_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("mymodule.py").write_text("def make_batch(r, n):\n    return [n // r] * (r - 1) + [n // r + n % r]\n")
    batch = {"seq_lens": [16, 3], "block_table": [[1, 2], [3, 4]]}
    np.savez("batch.npz", **batch)
    torch.save({"lens": torch.tensor(batch["seq_lens"]), "tables": torch.tensor(batch["block_table"])}, "dump.pt")


@pytest.mark.usefixtures("example_files")
@pytest.mark.parametrize("example", examples())
def test_example_of_the_help_gives_a_verdict(capsys: Capture, example: str) -> None:
    result = call(capsys, *example.split()[1:])
    if example == "dummyaudit probe --max-model-len 16" and not importlib.util.find_spec("vllm"):
        assert_refused(result, "vLLM is not installed here; pip install vllm")
        return
    assert result.status in (0, 1), result.err
    assert result.out
    assert "error" not in result.err


def test_exit_is_kept_where_stdout_is_closed() -> None:
    assert shell('"$@" >&-', *OVERFLOWS) == Result(1, "", "")
    assert shell('"$@" >&-', *FITS) == Result(0, "", "")
    assert shell('"$@" >&-', "--help") == Result(0, "", "")


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", "2> >(exec true)"])
def test_exit_is_kept_where_nobody_can_read_stderr(stderr: str) -> None:
    assert shell(f'"$@" {stderr}', "grid", "--frobnicate") == Result(2, "", "")
    assert shell(f'"$@" {stderr} >/dev/null', *OVERFLOWS) == Result(1, "", "")


def test_all_streams_closed_is_survived() -> None:
    assert shell('"$@" <&- >&- 2>&-', *OVERFLOWS).status == 1
    assert shell('"$@" <&- >&- 2>&-', *FITS).status == 0
    assert shell('"$@" <&- >&- 2>&-', "grid", "--frobnicate").status == 2


@pytest.mark.parametrize("reader", ["true", "head -1"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (OVERFLOWS, 1),
        (("grid", "--device", "none", "--format", "json"), 1),
        (("grid", "--device", "none", "--format", "json", "-o", "/dev/stdout"), 1),
        (("--help",), 0),
    ],
)
def test_closed_pipe_keeps_the_verdict_quietly(arguments: tuple[str, ...], status: int, reader: str) -> None:
    result = shell(f'"$@" | {reader}; exit ${{PIPESTATUS[0]}}', *arguments)
    assert (result.status, result.err) == (status, "")


def test_reader_that_goes_away_at_once_keeps_the_verdict_quietly() -> None:
    for arguments, status in ((OVERFLOWS, 1), (("--version",), 0), (("grid", "--help"), 0)):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=write, stderr=subprocess.PIPE, env=environment(), timeout=60, check=False
        )
        os.close(write)
        assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.parametrize(
    "arguments", [OVERFLOWS, FITS, ("--help",), ("--version",), ("grid", "--device", "none", "--format", "json")]
)
def test_full_disk_behind_stdout_is_no_verdict(arguments: tuple[str, ...]) -> None:
    assert_refused(shell('"$@" >/dev/full', *arguments), "No space left on device")


def test_stdout_that_is_not_open_for_writing_is_no_verdict() -> None:
    assert_refused(shell('"$@" 1</dev/null', *OVERFLOWS), "Bad file descriptor")
