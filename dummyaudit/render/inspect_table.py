"""A saved batch: its sizes in one line, what is wrong request by request, the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from dummyaudit.findings import Finding
from dummyaudit.inspection_report import InspectReport, StartLocFault
from dummyaudit.page_faults import PageFault
from dummyaudit.render import Style
from dummyaudit.render.terminal import to_text
from dummyaudit.render.words import STYLES, count, visible
from dummyaudit.report import Report

MOST = 20
"""Findings of one kind that are shown, unless all are asked for."""


def render(report: Report, style: Style) -> Iterator[str]:
    """What was found, the requests first, then page ids, then query_start_loc."""
    assert isinstance(report, InspectReport), "`inspect` returns no other"
    layout = report.layouts[0]
    length = f"max_model_len {layout.max_model_len}, " if report.has_max_model_len else ""
    head = (
        f"{visible(report.settings['file'])}: {count(layout.num_reqs, 'request')}, "
        f"{count(layout.num_tokens, 'token')}, {length}block_size {layout.block_size}, "
        f"block table of {count(layout.max_num_seqs, 'row')} by {count(layout.row_slots, 'slot')}"
    )
    lines = [Text(head), Text()]
    for findings in (report.findings, report.page_faults, report.start_loc_faults):
        lines += _lines(findings, style)
    lines += map(Text, report.unchecked)
    yield to_text([*lines, *_verdict(report)], style)


def _lines(findings: Sequence[Finding | PageFault | StartLocFault], style: Style) -> Iterator[Text]:
    shown = findings if style.all else findings[:MOST]
    for finding in shown:
        is_mild = isinstance(finding, Finding) and finding.verdict == "over-length"
        yield Text(visible(str(finding)), style=STYLES["over-length" if is_mild else "overflow"])
    if hidden := len(findings) - len(shown):
        yield Text(f"and {hidden} more (--all shows them)")
    if findings:
        yield Text()


def _verdict(report: InspectReport) -> Iterator[Text]:
    """The counts in one line, each kind of fault with its own."""
    requests = report.layouts[0].requests
    counts = [(requests.overflow, "request overflows", "requests overflow")]
    counts += [(requests.over_length, "request is over length", "requests are over length")]
    kinds = [fault.kind for fault in report.page_faults]
    counts += [(kinds.count(kind), f"{kind} fault", f"{kind} faults") for kind in dict.fromkeys(kinds)]
    counts += [(len(report.start_loc_faults), "query_start_loc fault", "query_start_loc faults")]
    said = [f"{number} {one if number == 1 else many}" for number, one, many in counts if number]
    bad = report.fails
    colour = STYLES["overflow" if bad else "over-length" if said else "fits"]
    yield Text(f"{', '.join(said)}." if said else "Every request fits.", style=colour)
