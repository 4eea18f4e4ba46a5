"""One shape as tables: rules side by side, the picture of a row that overflows, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from dummyaudit.block_table import cdiv
from dummyaudit.layout import Group, Layout, Reach, Verdict
from dummyaudit.render import Style
from dummyaudit.render.terminal import new_table, to_text
from dummyaudit.render.words import (
    STYLES,
    count,
    cure_sentence,
    rule_title,
    slots_words,
    span,
    verdict_line,
    verdict_words,
)
from dummyaudit.report import Report

_DETAILED = 2
"""Block tables that are shown in full; of a longer ladder only the last one that overflows is."""

_PICTURE = 40
"""Columns of the picture of a row."""


def render(report: Report, style: Style) -> Iterator[str]:
    """The tables of a comparison."""
    rungs = _rungs(report)
    detailed = rungs
    if len(rungs) > _DETAILED:
        overflowing = [rung for rung in rungs if any(layout.verdict == "overflow" for layout in rung)]
        detailed = (overflowing or rungs)[-1:]
        yield to_text([*_ladder(report, rungs), Text()], style)
    for rung in detailed:
        yield to_text([*_detail(report, rung, style), Text()], style)
    style_of_verdict = STYLES["overflow" if report.failures else "over-length" if report.worst else "fits"]
    yield to_text([Text(verdict_line(report), style=style_of_verdict)], style)


def _rungs(report: Report) -> list[list[Layout]]:
    """The layouts of each block table: of one max_model_len and block_size, all rules."""
    rules = len(report.settings["rules"])
    layouts = list(report.layouts)
    return [layouts[first : first + rules] for first in range(0, len(layouts), rules)]


def _ladder(report: Report, rungs: list[list[Layout]]) -> Iterator[Table | Text]:
    yield Text(f"{count(rungs[0][0].num_reqs, 'request')}, {count(rungs[0][0].num_tokens, 'token')}")
    yield Text()
    several = len(report.settings["block_size"]) > 1
    titles = [("max_model_len", True)] + [("block_size", True)] * several + [("row_slots", True)]
    table = new_table(*titles, *((rule_title(layout.rule), False) for layout in rungs[0]))
    for rung in rungs:
        first = rung[0]
        keys = [first.max_model_len] + [first.block_size] * several + [first.row_slots]
        table.add_row(*(Text(str(key)) for key in keys), *map(_rung_cell, rung))
    yield table


def _rung_cell(layout: Layout) -> Text:
    words = verdict_words(layout.verdict, layout.reach)
    pages = f"{layout.worst.pages}/{layout.row_slots}"
    return Text(f"{words} {pages}", style=STYLES[layout.verdict])


def _detail(report: Report, rung: list[Layout], style: Style) -> Iterator[Table | Text]:
    first = rung[0]
    page_size = report.settings["kernel_block_size"] or first.block_size
    tokens = first.row_slots * page_size * report.settings["dcp"]
    yield Text(
        f"{count(first.num_reqs, 'request')}, {count(first.num_tokens, 'token')}, max_model_len "
        f"{first.max_model_len}, block_size {first.block_size}: rows of {count(first.row_slots, 'slot')} "
        f"({count(tokens, 'token')}), "
        f"table of {count(first.max_num_seqs, 'row')}"
    )
    yield Text()
    table = new_table(
        ("rule", False),
        ("requests", False),
        ("query_len", True),
        ("seq_len", True),
        ("pages/slots", True),
        ("verdict", False),
    )
    for layout in rung:
        title = rule_title(layout.rule)
        for group, verdict, reach in _judged(layout, style.all):
            table.add_row(
                Text(title),
                Text(span(group.first, group.first + group.count - 1)),
                Text(str(group.query_len)),
                Text(str(group.seq_len)),
                Text(f"{group.pages}/{layout.row_slots}"),
                Text(_explained(layout, group, verdict, reach), style=STYLES[verdict]),
            )
            title = ""
    yield table
    for layout in rung:
        if layout.verdict == "overflow":
            yield Text()
            yield _picture(layout, style)
    for layout in rung:
        if layout.advice:
            yield Text()
            kind = "Cure" if layout.feasible else "Infeasible, no split helps; cure"
            yield Text(f"{kind} for {rule_title(layout.rule)}: {cure_sentence(layout.advice)}.")


def _judged(layout: Layout, each: bool) -> Iterator[tuple[Group, Verdict, Reach | None]]:
    """Runs of requests that are equal in their verdict too, or each request on its own."""
    for group in layout.groups or ():
        if group.pages <= layout.row_slots:
            verdict: Verdict = "over-length" if group.seq_len > layout.max_model_len else "fits"
            parts: list[tuple[Group, Verdict, Reach | None]] = [(group, verdict, None)]
        else:
            # Requests from this one on read past the end of the table.
            edge = layout.max_num_seqs - cdiv(group.pages, layout.row_slots) + 1
            inside = min(max(edge - group.first, 0), group.count)
            beyond = replace(group, first=group.first + inside, count=group.count - inside)
            parts = [
                (replace(group, count=inside), "overflow", "next-row"),
                (beyond, "overflow", "past-table"),
            ]
        for part, verdict, reach in parts:
            if each:
                for i in range(part.count):
                    yield replace(part, first=part.first + i, count=1), verdict, reach
            elif part.count:
                yield part, verdict, reach


def _explained(layout: Layout, group: Group, verdict: Verdict, reach: Reach | None) -> str:
    words = verdict_words(verdict, reach)
    if verdict != "overflow":
        return words
    slots = slots_words(layout.row_slots, group.pages - 1)
    rows = cdiv(group.pages, layout.row_slots) - 1
    lies = "of the next row" if rows == 1 else f"of the next {rows} rows"
    return f"{words}: reads {slots}{f', {lies}' if reach == 'next-row' else ''}"


def _picture(layout: Layout, style: Style) -> Text:
    """The slots that the worst request holds and reads, one mark each or for several."""
    worst, slots = layout.worst, layout.row_slots
    to_end = (layout.max_num_seqs - worst.request) * slots
    other = min(worst.pages, to_end) - slots
    outside = max(worst.pages - to_end, 0)
    each = cdiv(worst.pages, _PICTURE)
    held, next_rows, past = (cdiv(number, each) for number in (slots, other, outside))
    text = Text(f"{rule_title(layout.rule)} request {worst.request}  ").append("[" + "#" * held + "]", style="green")
    text.append(">" * next_rows, style=STYLES["over-length"]).append("x" * past, style=STYLES["overflow"])
    says = [f"{count(slots, 'slot')} held"]
    says += [f"{other} read from other rows"] * bool(other)
    says += [f"{outside} read past the end of the table"] * bool(outside)
    if each > 1:
        says.append(f"a mark for {each}")
    return text.append("  " + ", ".join(says))
