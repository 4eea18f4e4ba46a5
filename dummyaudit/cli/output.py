"""Where results go: stdout, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from dummyaudit.cli import streams
from dummyaudit.errors import InputError
from dummyaudit.render import FORMATS, Format, Style, render

if TYPE_CHECKING:
    from dummyaudit.report import Report

PIPE_WIDTH = 160
"""Columns for text that goes to no terminal, so that nothing is folded that need not be."""


def parse_reports(reports: Sequence[str]) -> list[tuple[Format, str]]:
    """Formats and files of `FORMAT=FILE` options.

    Raises:
        InputError: one is not of that form, or its format is not known.
    """
    parsed: list[tuple[Format, str]] = []
    for report in reports:
        name, _, path = report.partition("=")
        known = [form for form in FORMATS if form == name]
        if not known or not path:
            raise InputError(f"--report {report!r} is not FORMAT=FILE", f"FORMAT is one of {', '.join(FORMATS)}")
        if path == "-":
            raise InputError(f"--report {report!r}: a file has to be named", f"for stdout use --format {name}")
        parsed.append((known[0], path))
    return parsed


@contextlib.contextmanager
def open_files(paths: Sequence[str]) -> Iterator[list[TextIO]]:
    """Opens files for writing; each appears under its name when this context ends, and only if all went well.

    Raises:
        InputError: one cannot be written.
    """
    if len(set(map(_real, paths))) < len(paths):
        raise InputError("two results go to the same file", "give each its own")
    opened: list[TextIO] = []
    parts: list[tuple[str, str]] = []
    try:
        for path in paths:
            with _naming(path):
                opened.append(_open(path, parts))
        yield opened
        for path, stream in zip(paths, opened, strict=True):
            with _naming(path):
                stream.close()
        while parts:
            part, path = parts[-1]
            with _naming(path):
                os.replace(part, path)
            parts.pop()
    finally:
        for stream in opened:
            with contextlib.suppress(OSError):
                stream.close()
        for part, _ in parts:
            with contextlib.suppress(OSError):
                os.unlink(part)


def _open(path: str, parts: list[tuple[str, str]]) -> TextIO:
    """A stream to a new file beside `path`, which is added to `parts`; to a device or a pipe, the thing itself."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if not os.path.basename(path):
            raise
        os.umask(umask := os.umask(0))
        mode = stat.S_IFREG | 0o666 & ~umask
    else:
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if not stat.S_ISREG(mode):
        return _open_text(path)
    path = _real(path)
    handle, part = tempfile.mkstemp(prefix=".dummyaudit.", dir=os.path.dirname(path))
    parts.append((part, path))
    os.chmod(part, stat.S_IMODE(mode))
    return _open_text(handle)


def _open_text(file: str | int) -> TextIO:
    return open(file, "w", encoding="utf-8", errors="backslashreplace", newline="")


def _real(path: str) -> str:
    with _naming(path):
        return os.path.realpath(path)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors that name the file; that the reader of a pipe has gone away is none."""
    try:
        yield
    except BrokenPipeError:
        return
    except OSError as error:
        raise InputError(f"cannot write {path!r}: {error.strerror or error}") from error


def write_all(
    report: Report,
    files: Sequence[tuple[Format, str]],
    opened: Sequence[TextIO],
    stdout: Format | None,
    show_all: bool,
) -> None:
    """Writes the report to files, which are opened, then to stdout.

    Raises:
        InputError: one does not take it.
    """
    for (form, path), stream in zip(files, opened, strict=True):
        with _naming(path):
            stream.writelines(render(report, form, Style(width=PIPE_WIDTH, all=show_all)))
            stream.flush()
    if stdout is None or sys.stdout is None:
        return
    try:
        sys.stdout.writelines(render(report, stdout, _stdout_style(show_all)))
        sys.stdout.flush()
    except OSError as error:
        streams.give_up(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise InputError(f"cannot write the result: {error.strerror}") from error


def _stdout_style(show_all: bool) -> Style:
    terminal = sys.stdout.isatty()
    colour = not os.environ.get("NO_COLOR") and (terminal or bool(os.environ.get("FORCE_COLOR")))
    width = PIPE_WIDTH
    if terminal or "COLUMNS" in os.environ:
        # Before Python 3.11 a terminal that does not know its size is 0 columns wide.
        width = shutil.get_terminal_size((PIPE_WIDTH, 0)).columns or PIPE_WIDTH
    unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    return Style(width=width, colour=colour, unicode=unicode, all=show_all)
