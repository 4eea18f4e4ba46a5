"""The report as JSON, see report.schema.json."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dummyaudit.render import Style
from dummyaudit.report import Report


def render(report: Report, style: Style) -> Iterator[str]:
    """One JSON document, a line for each key and for each layout."""
    yield "{"
    for key, value in report.head().items():
        yield f"\n {json.dumps(key)}: {json.dumps(value, allow_nan=False)},"
    yield '\n "layouts": ['
    separator = "\n  "
    for layout in report.listed():
        yield separator + json.dumps(layout.to_dict(), allow_nan=False)
        separator = ",\n  "
    yield "\n ]\n}\n"
