"""A grid as tables: rules side by side, then the flagged layouts, then what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from dummyaudit.block_table import INT32_MAX
from dummyaudit.layout import Layout
from dummyaudit.render import Style
from dummyaudit.render.terminal import new_table, to_text
from dummyaudit.render.words import (
    STYLES,
    count,
    cure_sentence,
    outlook_sentence,
    rule_title,
    short_cures,
    span,
    verdict_line,
    verdict_words,
)
from dummyaudit.report import Cell, Report

_MARKS = {"over-length": "~", "next-row": "!", "past-table": "!!"}
_LEGEND = "worst case: num_tokens: #request seq_len pages/slots; ~ over-length, ! next-row, !! past-table"
_GAP = 2
_ROOM_FOR_CURES = 120
"""Columns from which on each flagged layout is shown with its own cures."""


def render(report: Report, style: Style) -> Iterator[str]:
    """The tables of a grid."""
    yield to_text([_heading(report), Text(), *_comparison(report, style)], style)
    if report.worst:
        yield to_text([Text(), *_flagged(report, style)], style)
    yield to_text([Text(), *_closing(report)], style)


def _heading(report: Report) -> Text:
    settings = report.settings
    shapes = report.summary.layouts
    for axis in ("rules", "max_model_len", "block_size"):
        shapes //= len(settings[axis])
    rows = settings["max_num_seqs"] or "num_reqs"
    axes = ", ".join(f"{name} {_values(settings[name])}" for name in ("max_model_len", "block_size"))
    return Text(f"{count(shapes, 'shape')}, {axes}, tables of {rows} rows")


def _values(values: list[int]) -> str:
    return "/".join(map(str, values)) if len(values) <= 8 else f"{values[0]} to {values[-1]}"


def _comparison(report: Report, style: Style) -> Iterator[Table | Text]:
    """Every rule a column: as many side by side as fit, then the next."""
    by_rule = {rule: [cell for cell in report.cells if cell.rule == rule] for rule in report.settings["rules"]}
    keys = _key_columns(report, next(iter(by_rule.values())))
    room = style.width - sum(max(map(len, key)) + _GAP for key in keys)
    columns = [_rule_column(rule, cells, wide=True) for rule, cells in by_rule.items()]
    wide = sum(map(_width, columns[:2])) <= room
    if not wide:
        columns = [_rule_column(rule, cells, wide=False) for rule, cells in by_rule.items()]
    while columns:
        fitting = 1
        while fitting < len(columns) and sum(map(_width, columns[: fitting + 1])) <= room:
            fitting += 1
        some, columns = columns[:fitting], columns[fitting:]
        table = new_table(*((f"\n{key[0]}", True) for key in keys), *((column[0].plain, False) for column in some))
        for row in zip(*(map(Text, key[1:]) for key in keys), *(column[1:] for column in some), strict=True):
            table.add_row(*row)
        yield table
        if columns:
            yield Text()
    if not wide:
        yield Text(_LEGEND)


def _key_columns(report: Report, cells: Sequence[Cell]) -> list[list[str]]:
    """The columns that name a row, of the axes that vary; the title first."""
    columns = [["num_reqs", *(span(*cell.num_reqs) for cell in cells)]]
    if len(report.settings["max_model_len"]) > 1:
        columns.append(["max_model_len", *(str(cell.max_model_len) for cell in cells)])
    if len(report.settings["block_size"]) > 1:
        columns.append(["block_size", *(str(cell.block_size) for cell in cells)])
    return columns


def _width(column: Sequence[Text]) -> int:
    return max(text.cell_len if i else max(map(len, text.plain.split("\n"))) for i, text in enumerate(column)) + _GAP


def _rule_column(rule: str, cells: Sequence[Cell], wide: bool) -> list[Text]:
    """What a rule does in each cell, numbers one below the other; the title first."""
    numbers = [
        (
            f"{cell.overflow or '-'}/{cell.shapes}",
            f"{cell.worst.num_tokens}",
            f"{cell.worst.worst.request}",
            f"{cell.worst.worst.seq_len}",
            f"{cell.worst.worst.pages}/{cell.worst.row_slots}",
        )
        for cell in cells
    ]
    a, b, c, d, e = (max(map(len, column)) for column in zip(*numbers, strict=True))
    column = [Text(f"{rule_title(rule)}\noverflow, worst case")]
    for cell, (overflow, tokens, request, seq_len, pages) in zip(cells, numbers, strict=True):
        layout = cell.worst
        text = Text(f"{overflow:>{a}}", style=STYLES["overflow"] if cell.overflow else "")
        if wide:
            text.append(
                f"  {tokens:>{b}} tokens: request {request:>{c}}, {seq_len:>{d}}, {pages:>{e}}", style="default"
            )
            mark = verdict_words(layout.verdict, layout.reach) if layout.verdict != "fits" else ""
        else:
            text.append(f"  {tokens:>{b}}: #{request:<{c}} {seq_len:>{d}} {pages:>{e}}", style="default")
            mark = _MARKS.get(layout.reach or layout.verdict, "")
        column.append(text.append(f" {mark}" if mark else "", style=STYLES[layout.verdict]))
    return column


def _flagged(report: Report, style: Style) -> Iterator[Table | Text]:
    lengths, sizes = (len(report.settings[name]) > 1 for name in ("max_model_len", "block_size"))
    titles = [("rule", False), ("num_reqs", True), ("num_tokens", True)]
    titles += [("max_model_len", True)] * lengths + [("block_size", True)] * sizes
    titles += [("request", True), ("seq_len", True), ("pages", True), ("verdict", False)]
    cures = style.width >= _ROOM_FOR_CURES
    table = new_table(*titles, *[("cure", False)] * cures)
    for layout in report.worst:
        values = [layout.rule, layout.num_reqs, layout.num_tokens]
        values += [layout.max_model_len] * lengths + [layout.block_size] * sizes
        values += [layout.worst.request, layout.worst.seq_len, f"{layout.worst.pages}/{layout.row_slots}"]
        row = [*(Text(str(value)) for value in values), _flag(layout), Text(short_cures(layout.advice))]
        table.add_row(*row[: len(table.columns)])
    yield table
    hidden = report.summary.overflow + report.summary.over_length - len(report.worst)
    if hidden and not report.summary_only:
        yield Text(f"and {hidden} more (--all shows them)")


def _flag(layout: Layout) -> Text:
    text = Text(layout.reach or layout.verdict, style=STYLES[layout.verdict])
    return text if layout.feasible else text.append(" infeasible", style="default")


def _closing(report: Report) -> Iterator[Text]:
    for outlook in report.outlooks:
        yield Text(outlook_sentence(report, outlook))
    for rule in report.settings["rules"]:
        flagged = [layout for layout in report.worst if layout.rule == rule]
        yield from _cures(report, rule, [layout for layout in flagged if layout.feasible])
        for layout in [layout for layout in flagged if not layout.feasible][:1]:
            yield Text(
                f"Infeasible, no split helps: {count(layout.num_reqs, 'request')} with {layout.num_tokens} tokens "
                f"at max_model_len {layout.max_model_len}. Cure: {cure_sentence(layout.advice)}."
            )
    style = STYLES["overflow" if report.fails else "over-length" if report.worst else "fits"]
    yield Text(verdict_line(report), style=style)


def _cures(report: Report, rule: str, flagged: Sequence[Layout]) -> Iterator[Text]:
    """What cures every feasible layout of a rule."""
    if not flagged:
        return
    texts = []
    if any(cure.change == "rule" for layout in flagged for cure in layout.advice):
        texts.append("split evenly")
    needs = [outlook.needs_max_model_len for outlook in report.outlooks if outlook.rule == rule]
    length = max(need.strict if report.strict else need.row for need in needs)
    if length <= INT32_MAX:
        texts.append(f"max_model_len {length} or more")
    yield Text(f"Cure for {rule_title(rule)}: {', or '.join(texts)}.")
