"""What a builder does, as tables: the builder, the rule that it equals, its checks, then the grid."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from dummyaudit.probing.result import ProbeReport, equality
from dummyaudit.render import Style, grid_table
from dummyaudit.render.terminal import to_text
from dummyaudit.render.words import STYLES, count, visible
from dummyaudit.report import Report


def render(report: Report, style: Style) -> Iterator[str]:
    """The builder, what it equals, what fails with the smallest shape that does; then the tables of a grid."""
    if isinstance(report, ProbeReport):
        yield to_text([*_head(report), Text()], style)
    yield from grid_table.render(report, style)


def _head(report: ProbeReport) -> Iterator[Text]:
    yield Text(visible(report.builder), style="bold")
    failed = {failure.name for failure in report.failed}
    good = [name for name in report.checks if name not in failed]
    yield Text(equality(report.equals, report.differs))
    for failure in report.failed:
        yield Text(visible(str(failure)), style=STYLES["overflow"])
    if good:
        yield Text(
            f"{count(len(good), 'check')} hold{'s' * (len(good) == 1)}: {', '.join(good)}", style=STYLES["fits"]
        )
