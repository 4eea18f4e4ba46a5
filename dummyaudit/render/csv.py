"""The layouts as CSV, with the names of the JSON."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from dummyaudit.layout import Layout
from dummyaudit.render import Style
from dummyaudit.report import Report

COLUMNS = (
    *("rule", "num_reqs", "num_tokens", "max_model_len", "block_size", "max_num_seqs", "row_slots"),
    *("verdict", "reach", "feasible", "live", "requests_over_length", "requests_overflow"),
    *("worst_request", "worst_seq_len", "worst_pages", "worst_slots_read_outside"),
    *("needs_max_model_len_row", "needs_max_model_len_strict"),
    *("phase_run", "phase_graph", "phase_kind", "phase_runner", "phase_release", "phase_deployment"),
    *("location_file", "location_line"),
)

_FORMULA = tuple("=+-@\t\r")
"""What a spreadsheet takes for the beginning of a formula."""


class _Echo:
    """A stream whose `write` hands back what a csv writer made."""

    def write(self, text: str) -> str:
        return text


def render(report: Report, style: Style) -> Iterator[str]:
    """A header and a row a layout; nested names joined by `_`, groups left out."""
    # With "\r\n" as its line end the writer quotes a cell that has either; with "\n" alone it would forget "\r".
    writer: Any = csv.DictWriter(_Echo(), COLUMNS, restval="", lineterminator="\r\n")
    yield writer.writeheader()[:-2] + "\n"
    for layout in report.listed():
        yield writer.writerow(dict(_cells("", _record(layout))))[:-2] + "\n"


def _record(layout: Layout) -> dict[str, Any]:
    record = layout.to_dict() | {"phase": layout.phase or {}}
    record.pop("groups", None)
    return record


def _cells(prefix: str, record: dict[str, Any]) -> Iterator[tuple[str, str | int]]:
    for key, value in record.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _cells(f"{name}_", value)
        elif value is None:
            yield name, ""
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, list):
            yield name, "-".join(map(str, value))
        elif isinstance(value, str):
            # Before Python 3.11 the csv module writes no NUL.
            yield name, "'" * value.startswith(_FORMULA) + value.replace("\0", "\\x00")
        else:
            yield name, value
