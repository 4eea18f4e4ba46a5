"""A frontier as CSV: a row for all num_reqs, whose num_reqs is empty, then one for each that is listed."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from dummyaudit.frontier_report import Frontier, FrontierReport
from dummyaudit.render import Style

COLUMNS = (
    *("rule", "max_model_len", "block_size", "num_reqs", "shapes", "overflow", "infeasible", "over_length"),
    *("smallest_num_reqs", "smallest_num_tokens", "smallest_feasible_num_reqs", "smallest_feasible_num_tokens"),
    *("safe_num_tokens", "only_first", "only_this", "needs_max_model_len_row", "needs_max_model_len_strict"),
)


class _Echo:
    def write(self, text: str) -> str:
        return text


def render(report: FrontierReport, style: Style) -> Iterator[str]:
    """A header and the rows, with the names of the JSON, nested ones joined by `_`."""
    writer: Any = csv.DictWriter(_Echo(), COLUMNS, restval="", lineterminator="\n")
    yield writer.writeheader()
    for frontier in (*report.totals, *report.rows):
        yield writer.writerow(_record(frontier))


def _record(frontier: Frontier) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in frontier.to_dict().items():
        if isinstance(value, dict):
            record |= {f"{key}_{name}": number for name, number in value.items()}
        elif value is not None:
            record[key] = value
    return record
