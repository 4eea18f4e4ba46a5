"""Pictures of a report: for a terminal as text, for a file by matplotlib (the extra `plot`)."""

from __future__ import annotations

import errno
import os
import tempfile
from typing import TYPE_CHECKING

from dummyaudit.errors import InputError
from dummyaudit.render import Style

if TYPE_CHECKING:
    from dummyaudit.report import Report

IMAGES = (".png", ".svg")
"""How the names of files end that pictures are saved to."""


def picture(report: Report, style: Style) -> str:
    """The picture for a terminal of that style: maps of num_reqs by num_tokens, or of one shape its rows.

    Raises:
        InputError: the report has nothing to draw.
    """
    if report.command == "compare":
        from dummyaudit.render.plot.rows import rows_picture

        return rows_picture(report, style)
    from dummyaudit.render.plot.terminal import maps_picture

    return maps_picture(report, style)


def check_path(path: str) -> None:
    """Refuses a file that `save` cannot write, before any work is done.

    Raises:
        InputError: the name ends in nothing that is known, it cannot be written, or matplotlib is not installed.
    """
    if os.path.splitext(path)[1].lower() not in IMAGES:
        raise InputError(f"--plot {path!r}: a picture is {' or '.join(IMAGES)}", "name the file picture.png")
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))):
            pass
    except OSError as error:
        raise InputError(f"cannot write {path!r}: {error.strerror or error}") from error
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise InputError(
            "matplotlib, which draws to files, is not installed", "pip install 'dummyaudit[plot]'"
        ) from None


def save(report: Report, path: str) -> None:
    """Draws the picture to a .png or .svg file, which is written whole or not at all.

    Raises:
        InputError: the file cannot be written, matplotlib is not installed, or the report has nothing to draw.
    """
    check_path(path)
    from dummyaudit.render.plot.image import save_image

    save_image(report, path)
