"""One shape as its rows of the block table: what each request holds and what is read for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dummyaudit.audit import FITS, NEXT_ROW, OVER_LENGTH, PAST_TABLE
from dummyaudit.block_table import cdiv
from dummyaudit.layout import Layout
from dummyaudit.render import Style
from dummyaudit.render.plot.ink import legend, symbols
from dummyaudit.render.words import count, rule_title, span, visible
from dummyaudit.report import Report

PAGE_NAMES = {
    FITS: "pages of legal tokens",
    OVER_LENGTH: "of tokens over max_model_len",
    NEXT_ROW: "read from other rows",
    PAST_TABLE: "read past the table",
}
"""What the colours of a page mean."""

_MOST = 6
"""Layouts that are shown, unless all are asked for."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Page ids that are read for each of `count` requests from `first` on, and where these come from.

    Attributes:
        first: index of the first of these requests.
        count: how many are alike.
        seq_len: tokens of each.
        own: pages in the request's row; those of tokens over max_model_len are counted in `padding`.
        padding: pages in its row that hold only tokens over max_model_len.
        other: pages read from other rows.
        outside: pages read past the end of the table.
    """

    first: int
    count: int
    seq_len: int
    own: int
    padding: int
    other: int
    outside: int

    @property
    def pages(self) -> tuple[tuple[int, int], ...]:
        """Severity and number of the pages, in the order in which they are read."""
        return (FITS, self.own), (OVER_LENGTH, self.padding), (NEXT_ROW, self.other), (PAST_TABLE, self.outside)


def reads_of(layout: Layout, legal_pages: int) -> Iterator[Reads]:
    """The requests of a layout in runs that are read alike; legal_pages are those of max_model_len tokens."""
    slots = layout.row_slots
    for group in layout.groups or ():
        extra = max(group.pages - slots, 0)
        own = min(group.pages, slots)
        legal = min(own, legal_pages)
        # Request i reads past the table what is left of its pages behind `max_num_seqs - i` rows.
        edge = max(layout.max_num_seqs - cdiv(group.pages, slots) + 1, group.first) if extra else layout.max_num_seqs
        end = group.first + group.count
        if edge > group.first:
            inside = min(edge, end) - group.first
            yield Reads(group.first, inside, group.seq_len, legal, own - legal, extra, 0)
        first = max(edge, group.first)
        if first < end:
            # Of these the last reads furthest: it stands for all.
            outside = group.pages - (layout.max_num_seqs - end + 1) * slots
            yield Reads(
                first,
                end - first,
                group.seq_len,
                legal,
                own - legal,
                extra - min(outside, extra),
                min(outside, extra),
            )


def drawn(report: Report, everything: bool) -> list[Layout]:
    """The layouts to draw: those of the block tables at which something overflows, at most some."""
    rules = len(report.settings["rules"])
    layouts = list(report.layouts)
    tables = [layouts[i : i + rules] for i in range(0, len(layouts), rules)]
    if not everything:
        flagged = [table for table in tables if any(layout.verdict == "overflow" for layout in table)]
        tables = flagged[-max(_MOST // rules, 1) :] or tables[-1:]
    return [layout for table in tables for layout in table]


def page_tokens(report: Report, layout: Layout) -> int:
    """Tokens of a request behind one of its pages, on all ranks together."""
    return int((report.settings["kernel_block_size"] or layout.block_size) * report.settings["dcp"])


def legal_pages(report: Report, layout: Layout) -> int:
    """Pages of a request of max_model_len tokens, at most."""
    return min(cdiv(layout.max_model_len, page_tokens(report, layout)), layout.row_slots)


def rows_picture(report: Report, style: Style) -> str:
    """A bar for each run of equal requests: a mark for each page, or for several."""
    layouts = drawn(report, style.all)
    bars = [list(reads_of(layout, legal_pages(report, layout))) for layout in layouts]
    labels = [[_label(reads) for reads in some] for some in bars]
    margin = max(len(part[0]) for some in labels for part in some)
    tail = max(len(part[1]) for some in labels for part in some)
    most = max(max(layout.worst.pages, layout.row_slots) for layout in layouts)
    room = max(style.width - margin - tail - 6, 8)
    each = cdiv(most, room)
    wide = min(max(room // most, 1), 4) if each == 1 else 1
    left, right, empty = ("▕", "▏", "╌") if style.unicode else ("[", "]", "-")
    lines, found = [], set()
    for layout, some, texts in zip(layouts, bars, labels, strict=True):
        lines += [
            f"{visible(rule_title(layout.rule))}, {count(layout.num_reqs, 'request')}, "
            f"{count(layout.num_tokens, 'token')}, max_model_len {layout.max_model_len}, "
            f"{count(layout.row_slots, 'slot')} a row"
        ]
        for reads, (name, says) in zip(some, texts, strict=True):
            marks = [(severity, cdiv(number, each) * wide) for severity, number in reads.pages if number]
            found |= {severity for severity, _ in marks}
            inside = [severity for severity, number in marks if severity <= OVER_LENGTH for _ in range(number)]
            beyond = [severity for severity, number in marks if severity > OVER_LENGTH for _ in range(number)]
            free = max(cdiv(layout.row_slots, each) * wide - len(inside), 0)
            bar = f"{left}{symbols(inside, style)}{empty * free}{right}{symbols(beyond, style)}"
            lines.append(f"  {name:>{margin}} {bar} {says}")
        lines.append("")
    parts = [(symbols([severity], style), name) for severity, name in PAGE_NAMES.items() if severity in found]
    parts += [(empty, "free slot")] + [("", f"a mark: {each} pages")] * (each > 1)
    lines.append(legend(parts, style.width))
    return "\n".join(lines) + "\n"


def _label(reads: Reads) -> tuple[str, str]:
    name = f"request {span(reads.first, reads.first + reads.count - 1)}"
    pages = sum(number for _, number in reads.pages)
    return name, f"{count(reads.seq_len, 'token')}, {count(pages, 'page')}"
