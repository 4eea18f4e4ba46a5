"""The real command for tests: as a process of its own, or in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import dummyaudit
from dummyaudit.cli.main import run

OVERFLOWS = ("compare", "--num-reqs", "256", "--num-tokens", "496", "--max-model-len", "16", "--device", "none")
"""The incident of vLLM PR #49751: `last` overflows, `even` fits."""

FITS = (*OVERFLOWS, "--rule", "even")

OVER_LENGTH = ("grid", "--num-reqs", "1", "--num-tokens", "1016", "--max-model-len", "1000", "--device", "none")
"""1016 tokens are 64 pages of 64 slots, but more than max_model_len."""

COMMAND = (sys.executable, "-m", "dummyaudit")


def environment(**changes: str) -> dict[str, str]:
    """The environment of this process, without what changes how text looks."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM"}
        and not name.startswith(("LC_", "PYTHON"))
    }
    home = str(Path(dummyaudit.__file__).parents[1])
    path = os.pathsep.join([home] + [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p])
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **changes}


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


def start(*arguments: str, stdin: str | bytes = b"", cwd: Path | None = None, **changes: str) -> Result:
    """Runs the command as a process of its own, with these changes to its environment."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        cwd=cwd,
        env=environment(**changes),
        timeout=60,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def shell(script: str, *arguments: str, cwd: Path | None = None, **changes: str) -> Result:
    """Runs a shell script in which `"$@"` is the command with these arguments."""
    done = subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=cwd,
        env=environment(**changes),
        timeout=60,
        check=False,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> Result:
    """Runs the command in this process."""
    capsys.readouterr()
    status = run(arguments)
    captured = capsys.readouterr()
    return Result(status, captured.out, captured.err)


def assert_refused(result: Result, *says: str) -> None:
    """No verdict: status 2, nothing on stdout, and on stderr one line that a person can act on."""
    assert result.status == 2, result
    assert result.out == ""
    assert len(result.err.splitlines()) == 1, result.err
    assert result.err.startswith("dummyaudit: error: ")
    assert result.err.endswith("\n")
    assert "internal error" not in result.err
    for text in says:
        assert text in result.err


def assert_crashed(result: Result, *says: str) -> None:
    """A fault of ours: status 2 and one line too, but one that says so."""
    assert result.status == 2, result
    assert result.out == ""
    assert len(result.err.splitlines()) == 1, result.err
    assert result.err.startswith("dummyaudit: error: internal error, please report it: ")
    for text in says:
        assert text in result.err
