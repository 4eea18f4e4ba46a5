"""`--plot` as an option: what is drawn where, and what is refused before anything is printed."""

from __future__ import annotations

import errno
import io
import re
import sys
from pathlib import Path
from unittest import mock

import pytest
from cli_helpers import OVERFLOWS, assert_refused, call, shell, start

from dummyaudit.cli.main import run

Capture = pytest.CaptureFixture[str]

FRONTIER = ("frontier", "--max-model-len", "16")
GRID = ("grid", "--max-model-len", "16", "--device", "none")
COMMANDS = {"compare": OVERFLOWS, "frontier": FRONTIER, "grid": GRID}
ESCAPE = re.compile("\x1b\\[[0-9;]*m")


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return COMMANDS[request.param]


def test_the_picture_follows_the_result(
    capsys: Capture, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    without, with_picture = call(capsys, *command), call(capsys, *command, "--plot")
    assert with_picture.status == without.status == 1
    assert with_picture.err == ""
    assert with_picture.out.startswith(f"{without.out}\n")
    picture = with_picture.out[len(without.out) :]
    assert "█" in picture
    assert "past" in picture
    assert max(map(len, picture.splitlines())) <= 80


@pytest.mark.parametrize("columns", [80, 140])
def test_colours_are_those_that_the_environment_asks_for(command: tuple[str, ...], columns: int) -> None:
    plain = start(*command, "--plot", COLUMNS=str(columns))
    coloured = start(*command, "--plot", COLUMNS=str(columns), FORCE_COLOR="1")
    assert "\x1b" not in plain.out
    assert "\x1b[38;5;" in coloured.out
    assert max(map(len, ESCAPE.sub("", coloured.out).splitlines())) <= columns
    assert "\x1b" not in start(*command, "--plot", COLUMNS="80", FORCE_COLOR="1", NO_COLOR="1").out


def test_a_stream_without_unicode_gets_ascii(command: tuple[str, ...]) -> None:
    result = start(*command, "--plot", COLUMNS="80", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert result.status == 1
    assert result.out.isascii()
    assert "\\u" not in result.out
    assert "#" in result.out


@pytest.mark.parametrize("form", ["png", "svg"])
def test_a_file_is_drawn_beside_the_result(
    capsys: Capture, command: tuple[str, ...], form: str, tmp_path: Path
) -> None:
    path = tmp_path / f"picture.{form}"
    result = call(capsys, *command, "--plot", str(path))
    assert (result.status, result.err) == (1, "")
    assert result.out == call(capsys, *command).out
    assert path.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml"}[form])
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_machine_format_and_a_file_go_together(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    result = call(capsys, *FRONTIER, "--format", "csv", f"--plot={path}")
    assert result.out == call(capsys, *FRONTIER, "--format", "csv").out
    assert path.exists()


def test_the_picture_is_not_mixed_with_a_machine_format(
    capsys: Capture, command: tuple[str, ...], tmp_path: Path
) -> None:
    assert_refused(call(capsys, *command, "--plot", "--format", "json"), "--plot draws where --format json goes to")
    result = call(capsys, *command, "--plot", "--format", "json", "--output", str(tmp_path / "report.json"))
    assert result.status == 1
    assert "█" in result.out


def test_without_matplotlib_a_file_is_refused_with_the_line_that_installs_it(
    capsys: Capture, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    path = tmp_path / "picture.png"
    assert_refused(call(capsys, *command, "--plot", str(path)), "pip install 'dummyaudit[plot]'")
    assert not path.exists()
    assert "█" in call(capsys, *command, "--plot").out


@pytest.mark.parametrize("name", ["picture.jpg", "picture.PDF", "missing/picture.png"])
def test_a_file_that_cannot_be_drawn_is_refused_before_anything_is_printed(
    capsys: Capture, command: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    assert_refused(call(capsys, *command, "--plot", str(tmp_path / name)), name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["missing/picture.png", "directory.svg", "picture.jpg"])
def test_a_file_that_cannot_be_written_is_refused_before_any_work(
    capsys: Capture, command: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    (tmp_path / "directory.svg").mkdir()
    with mock.patch("dummyaudit.cli.run.run", side_effect=AssertionError("the audit ran")):
        assert_refused(call(capsys, *command, "--plot", str(tmp_path / name)), name)


def test_a_closed_pipe_keeps_the_verdict(command: tuple[str, ...]) -> None:
    result = shell('"$@" --plot | head -n 1 >/dev/null; echo "${PIPESTATUS[0]}"', *command)
    assert (result.out, result.err) == ("1\n", "")


def test_a_full_disk_is_named(command: tuple[str, ...]) -> None:
    result = shell('"$@" --plot >/dev/full', *command)
    assert result.status == 2
    assert "cannot write" in result.err
    assert len(result.err.splitlines()) == 1


class Failing(io.TextIOWrapper):
    """A stream that takes the result and not the picture."""

    error: OSError

    def write(self, text: str) -> int:
        if "█" in text:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize(
    ("error", "status"), [(BrokenPipeError(), 1), (OSError(errno.ENOSPC, "No space left on device"), 2)]
)
def test_a_picture_that_cannot_be_written_is_told_from_one_that_nobody_reads(
    error: OSError, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with Failing((tmp_path / "out").open("wb"), encoding="utf-8") as stream:
        stream.error = error
        monkeypatch.setattr(sys, "stdout", stream)
        assert run([*FRONTIER, "--plot"]) == status
    assert ("cannot write the picture: No space left" in capsys.readouterr().err) == (status == 2)


def test_no_stdout_at_all_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run([*FRONTIER, "--plot"]) == 1


def test_a_refusal_draws_nothing(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    assert_refused(call(capsys, *FRONTIER, "--rule", "nope", "--plot", str(path)), "nope")
    assert not path.exists()


def test_picture_of_a_summary_is_refused_before_anything_is_counted(capsys: Capture) -> None:
    assert_refused(call(capsys, *GRID, "--summary", "--plot"), "--summary does not keep")
