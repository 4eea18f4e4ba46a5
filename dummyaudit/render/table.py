"""Tables for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from dummyaudit.render import Style
from dummyaudit.report import Report


def render(report: Report, style: Style) -> Iterator[str]:
    """Tables as the command calls for."""
    if report.command == "compare":
        from dummyaudit.render import compare_table

        return compare_table.render(report, style)
    if report.command == "vllm":
        from dummyaudit.render import vllm_table

        return vllm_table.render(report, style)
    from dummyaudit.render import grid_table

    return grid_table.render(report, style)
