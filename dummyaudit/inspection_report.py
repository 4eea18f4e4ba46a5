"""InspectReport: the report on a saved batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dummyaudit.findings import Finding
from dummyaudit.page_faults import PageFault
from dummyaudit.report import Report


@dataclass(frozen=True, slots=True)
class StartLocFault:
    """An entry of query_start_loc that is wrong.

    Attributes:
        request: whose start, or end, it is.
        text: what is wrong.
    """

    request: int
    text: str

    def __str__(self) -> str:
        return f"request {self.request}: {self.text}"


@dataclass(frozen=True, slots=True)
class InspectReport(Report):
    """The report on a saved batch: one layout, and what is wrong with it request by request.

    Attributes:
        findings: requests that do not fit.
        page_faults: page ids that are wrong.
        start_loc_faults: entries of query_start_loc that are wrong.
        unchecked: what was not looked at, and why.
        has_max_model_len: whether max_model_len is known; if not, what the row holds stands for it.
    """

    findings: tuple[Finding, ...] = ()
    page_faults: tuple[PageFault, ...] = ()
    start_loc_faults: tuple[StartLocFault, ...] = ()
    unchecked: tuple[str, ...] = ()
    has_max_model_len: bool = True

    def head(self) -> dict[str, Any]:
        """The report as JSON holds it, without `layouts`; what a grid does not have stands under `inspect`."""
        findings = [
            {
                "verdict": f.verdict,
                "request": f.request,
                "row": f.request,
                "seq_len": f.seq_len,
                "pages": f.pages,
                "reach": f.reach,
                "slots_read_outside": [f.row_slots, f.pages - 1] if f.verdict == "overflow" else None,
                "text": str(f),
            }
            for f in self.findings
        ]
        pages = [
            {
                "kind": f.kind,
                "request": f.request,
                "row": f.row,
                "column": f.column,
                "last_column": f.last_column,
                "count": f.count,
                "page": f.page,
                "other": None if f.other is None else {"request": f.other[0], "column": f.other[1]},
                "text": str(f),
            }
            for f in self.page_faults
        ]
        starts = [{"request": f.request, "text": f.text} for f in self.start_loc_faults]
        return Report.head(self) | {
            "inspect": {
                "max_model_len_known": self.has_max_model_len,
                "findings": findings,
                "page_faults": pages,
                "query_start_loc_faults": starts,
            }
        }
