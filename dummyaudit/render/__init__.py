"""One module a format, each a pure function from a Report to text."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from dummyaudit.report import Report

Format = Literal["table", "json", "csv", "markdown", "junit", "github", "sarif"]
FORMATS: tuple[Format, ...] = get_args(Format)

OWN = {
    ("frontier", "table"): "frontier_table",
    ("frontier", "csv"): "frontier_csv",
    ("frontier", "markdown"): "frontier_markdown",
    ("inspect", "table"): "inspect_table",
    ("probe", "table"): "probe_table",
}
"""Modules for the formats that a command has for itself."""


@dataclass(frozen=True, slots=True)
class Style:
    """How text for a person is set.

    Attributes:
        width: columns.
        colour: whether escape codes may be used.
        unicode: whether characters beyond ASCII may be used.
        all: whether every flagged layout, and every request, is shown.
    """

    width: int = 160
    colour: bool = False
    unicode: bool = True
    all: bool = False


def render(report: Report, form: Format, style: Style) -> Iterator[str]:
    """The report in that format, piece by piece, so that a large one is never held whole."""
    module = importlib.import_module(f"dummyaudit.render.{OWN.get((report.command, form), form)}")
    pieces: Iterator[str] = module.render(report, style)
    return pieces
