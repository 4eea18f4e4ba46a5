"""The option `--plot`: a picture in the terminal, or in a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from dummyaudit.cli import streams
from dummyaudit.cli.progress import Progress
from dummyaudit.errors import InputError
from dummyaudit.report import Report

TERMINAL = "-"

Plot = Annotated[
    str | None,
    typer.Option(
        "--plot",
        metavar="[FILE]",
        help="Draw a picture: in the terminal, or to FILE, a .png or .svg (needs dummyaudit[plot]).",
        show_default=False,
    ),
]

_FILES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".eps")
"""How a word after --plot ends that is meant as its FILE; those that cannot be drawn are refused later."""


def name_plots(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line with the FILE of each `--plot` written out, which Typer has to have."""
    named: list[str] = []
    for i, argument in enumerate(arguments):
        if argument == "--":
            return [*named, *arguments[i:]]
        following = arguments[i + 1] if i + 1 < len(arguments) else ""
        is_file = following == TERMINAL or os.path.splitext(following)[1].lower() in _FILES
        named.append(f"--plot={TERMINAL}" if argument == "--plot" and not is_file else argument)
    return named


def run_with_plot(audit: Callable[[Progress], Report], plot: str | None, **options: Any) -> int:
    """`run`, and then the picture, if one is asked for.

    Raises:
        DummyAuditError: there is no verdict, or the picture cannot be drawn.
    """
    from dummyaudit.cli.run import run

    if plot is None:
        return run(audit, **options)
    if plot != TERMINAL:
        from dummyaudit.render.plot import check_path, save

        check_path(plot)
    elif options["form"] != "table" and options["output"] in (None, "-"):
        raise InputError(f"--plot draws where --format {options['form']} goes to", "name a file: --plot picture.png")
    kept: list[Report] = []

    def audit_and_save(progress: Progress) -> Report:
        report = audit(progress)
        if plot == TERMINAL:
            kept.append(report)
        else:
            save(report, plot)
        return report

    status = run(audit_and_save, **options)
    for report in kept:
        _print(report, bool(options["show_all"]))
    return status


def _print(report: Report, show_all: bool) -> None:
    from dummyaudit.cli.output import _stdout_style
    from dummyaudit.render.plot import picture

    if sys.stdout is None:
        return
    try:
        sys.stdout.write("\n" + picture(report, _stdout_style(show_all)))
        sys.stdout.flush()
    except OSError as error:
        streams.give_up(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise InputError(f"cannot write the picture: {error.strerror}") from error
