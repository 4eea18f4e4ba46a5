"""Maps of num_reqs by num_tokens, each cell with the worst verdict of the shapes in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TypeVar

import numpy as np

from dummyaudit.audit import FITS, NEXT_ROW, OVER_LENGTH, PAST_TABLE, Severities, find_peaks, find_severity
from dummyaudit.axes import Ints
from dummyaudit.block_table import BlockTable, cdiv
from dummyaudit.errors import InputError
from dummyaudit.frontier_report import Frontier, FrontierReport
from dummyaudit.frontier_space import Space
from dummyaudit.layout import Layout
from dummyaudit.render.words import rule_title
from dummyaudit.report import Cell, DeploymentCase, Report
from dummyaudit.rules import Rule
from dummyaudit.sweep import Layouts, Sweep

_T = TypeVar("_T")

NO_SHAPE = -1
NAMES = {
    FITS: "fits",
    OVER_LENGTH: "over-length",
    NEXT_ROW: "overflow next-row",
    PAST_TABLE: "overflow past-table",
}

_MOST_TRIED = 2**22
"""Shapes of a grid that are looked at; of a larger one as many, evenly spread."""

_NUM_REQS_OF_CELL = 16
"""Values of num_reqs that are looked at in a cell of all shapes; of more as many, evenly spread, with the ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """The worst verdict of the shapes in each cell.

    Attributes:
        title: what the map is of.
        num_reqs: first and last value of each row, ascending.
        num_tokens: first and last value of each column, ascending.
        severity: [rows, columns] the worst severity, or NO_SHAPE.
        every: whether rows and columns hold every value in between, as those of `frontier` do.
        cell: most values of num_reqs, and of num_tokens, of one cell.
        sampled: whether only some of these are tried.
        max_model_len: longest legal request, in tokens.
    """

    title: str
    num_reqs: list[tuple[int, int]]
    num_tokens: list[tuple[int, int]]
    severity: Severities
    every: bool
    cell: tuple[int, int]
    sampled: bool
    max_model_len: int


def make_maps(report: Report, columns: int, rows: int, most: int | None = None) -> tuple[list[list[Map]], int]:
    """The maps of a report, of at most so many columns and rows; those to be seen side by side together.

    Args:
        report: what to draw.
        columns: most columns of a map.
        rows: most rows of a map.
        most: of how many block tables, or deployments, or None for all. Those are the first with an overflow or,
            where there is none, with anything flagged. The others cost nothing.

    Returns:
        The maps, and how many block tables are left out.

    Raises:
        InputError: the report has no shapes to draw.
    """
    if isinstance(report, FrontierReport) and report.space:
        space, rules = report.space, report.audited
        tables = _telling(report.tables, _by_table(report.totals, len(report.tables)), most)
        maps = [[_of_space(space, rule, table, columns, rows) for rule in rules] for table in tables]
        return maps, len(report.tables) - len(tables)
    if isinstance(report.layouts, Layouts):
        sweep = report.layouts.sweep
        tables = _telling(sweep.tables, _by_table(report.cells, len(sweep.tables)), most)
        return list(_of_sweep(replace(sweep, tables=tables), columns, rows)), len(sweep.tables) - len(tables)
    if report.cases:
        verdicts = [{layout.verdict for layout in case.layouts} for case in report.cases]
        cases = _telling(report.cases, [_worst("overflow" in v, "over-length" in v) for v in verdicts], most)
        return [_of_case(case, columns, rows) for case in cases], len(report.cases) - len(cases)
    raise InputError(f"a {report.command} report without shapes has no picture")


def _worst(overflow: object, over_length: object) -> int:
    return NEXT_ROW if overflow else OVER_LENGTH if over_length else FITS


def _by_table(counts: Sequence[Frontier] | Sequence[Cell], tables: int) -> list[int]:
    """The severity of each block table, whose counts follow each other."""
    each = len(counts) // tables
    parts = (counts[i * each : (i + 1) * each] for i in range(tables))
    return [_worst(any(c.overflow for c in part), any(c.over_length for c in part)) for part in parts]


def _telling(items: Sequence[_T], severities: Sequence[int], most: int | None) -> tuple[_T, ...]:
    """All, or at most so many of the worst: with an overflow or, where there is none, with anything flagged."""
    if most is None:
        return tuple(items)
    worst = max(severities)
    return tuple(item for item, severity in zip(items, severities, strict=True) if severity == worst)[:most]


def _of_case(case: DeploymentCase, columns: int, rows: int) -> list[Map]:
    """The maps of a deployment, one for each block table."""
    title = " ".join(filter(None, (case.deployment, case.release, case.runner)))
    by_table = groupby(case.layouts, key=lambda layout: (layout.max_model_len, layout.block_size))
    return [_of_layouts(title, list(layouts), columns, rows) for _, layouts in by_table]


def _title(rule: str, max_model_len: int, block_size: int, row_slots: int) -> str:
    return f"{rule_title(rule)}, max_model_len {max_model_len}, block_size {block_size}, {row_slots} slots a row"


def _spans(low: int, high: int, most: int) -> tuple[Ints, Ints]:
    """First and last value of at most so many stretches, as equal as can be, of the values low to high."""
    edges = low + np.arange(min(most, high - low + 1) + 1) * (high - low + 1) // min(most, high - low + 1)
    return edges[:-1], edges[1:] - 1


def _of_space(space: Space, rule: Rule, table: BlockTable, columns: int, rows: int) -> Map:
    """Every shape within limits; those that are reachable, one for each num_tokens, as a single row.

    Of one num_reqs the worst shape of a column is the one with the most tokens or, under `last`, with the largest
    remainder, num_reqs - 1: only these two are tried. With num_tokens = num_reqs it is the one with the most of both.
    """
    first, last = _spans(1, space.max_num_tokens, columns)
    first_reqs, last_reqs = _spans(1, space.high, 1 if space.reachable else rows)
    if space.reachable:
        most = space.max_num_reqs
        tokens = np.stack([last, (last + 1) // most * most - 1, np.minimum(last, space.high)])[:, None, None]
        reqs = np.minimum(tokens, most)
    else:
        some = min(int((last_reqs - first_reqs).max()) + 1, _NUM_REQS_OF_CELL)
        steps = np.arange(some) / max(some - 1, 1)
        reqs = first_reqs[:, None] + np.rint((last_reqs - first_reqs)[:, None] * steps).astype(np.int64)
        reqs = reqs[:, :, None]
        tokens = np.stack(np.broadcast_arrays(last, (last + 1) // reqs * reqs - 1))
        reqs = np.broadcast_to(reqs, tokens.shape)
    valid = (tokens >= np.maximum(first, reqs)) & (tokens <= last)
    severity = np.full(tokens.shape, NO_SHAPE, dtype=np.int8)  # [tried, rows, num_reqs of a row, columns]
    severity[valid] = _severity(rule, table, reqs[valid], tokens[valid], reqs[valid])
    cell = 1 if space.reachable else int((last_reqs - first_reqs).max()) + 1, int((last - first).max()) + 1
    return Map(
        title=_title(rule.name, table.max_model_len, table.block_size, table.row_slots),
        num_reqs=list(zip(first_reqs.tolist(), last_reqs.tolist(), strict=True)),
        num_tokens=list(zip(first.tolist(), last.tolist(), strict=True)),
        severity=severity.max(axis=(0, 2)),
        every=True,
        cell=cell,
        sampled=cell[0] > _NUM_REQS_OF_CELL,
        max_model_len=table.max_model_len,
    )


def _severity(rule: Rule, table: BlockTable, reqs: Ints, tokens: Ints, max_num_seqs: Ints) -> Severities:
    runs = rule.runs(reqs, tokens, table.max_model_len)
    return find_severity(runs, find_peaks(runs, table), max_num_seqs, table)


def _of_sweep(sweep: Sweep, columns: int, rows: int) -> Iterator[list[Map]]:
    """The shapes of a grid, a row and a column for each value, or for several that follow each other."""
    shapes = sweep.shapes
    values = shapes.values if isinstance(shapes.values, range) else np.unique(np.asarray(shapes.values))
    row_bins, column_bins = min(len(shapes.num_reqs), rows), min(len(values), columns)
    severity = np.full((len(sweep.tables), len(sweep.rules), row_bins, column_bins), NO_SHAPE, dtype=np.int8)
    for reqs, tokens in _tried(sweep):
        row = np.searchsorted(shapes.num_reqs, reqs) * row_bins // len(shapes.num_reqs)
        if isinstance(values, range):
            column = (tokens - values.start) // values.step * column_bins // len(values)
        else:
            column = np.searchsorted(values, tokens) * column_bins // len(values)
        for r, rule in enumerate(sweep.rules):
            for t, table in enumerate(sweep.tables):
                found = _severity(rule, table, reqs, tokens, sweep.rows(reqs))
                np.maximum.at(severity[t, r], (row, column), found)
    reqs_spans, tokens_spans = _bins(shapes.num_reqs, row_bins), _bins(values, column_bins)
    for table, of_table in zip(sweep.tables, severity, strict=True):
        yield [
            Map(
                title=_title(rule.name, table.max_model_len, table.block_size, table.row_slots),
                num_reqs=reqs_spans,
                num_tokens=tokens_spans,
                severity=found,
                every=False,
                cell=(cdiv(len(shapes.num_reqs), row_bins), cdiv(len(values), column_bins)),
                sampled=len(shapes) > _MOST_TRIED,
                max_model_len=table.max_model_len,
            )
            for rule, found in zip(sweep.rules, of_table, strict=True)
        ]


def _tried(sweep: Sweep) -> Iterator[tuple[Ints, Ints]]:
    number = len(sweep.shapes)
    step = cdiv(number, _MOST_TRIED)
    for first in range(0, number, sweep.chunk * step):
        yield sweep.shapes.at(np.arange(first, min(first + sweep.chunk * step, number), step))


def _bins(values: Sequence[int] | Ints, bins: int) -> list[tuple[int, int]]:
    """First and last value of each bin."""
    edges = [-(-i * len(values) // bins) for i in range(bins + 1)]
    return [(int(values[a]), int(values[b - 1])) for a, b in pairwise(edges)]


def _of_layouts(title: str, layouts: Iterable[Layout], columns: int, rows: int) -> Map:
    """The layouts of a deployment, whatever their rules."""
    layouts = list(layouts)
    reqs = np.unique([layout.num_reqs for layout in layouts])
    tokens = np.unique([layout.num_tokens for layout in layouts])
    row_bins, column_bins = min(len(reqs), rows), min(len(tokens), columns)
    severity = np.full((row_bins, column_bins), NO_SHAPE, dtype=np.int8)
    ranks = {None: FITS, "next-row": NEXT_ROW, "past-table": PAST_TABLE}
    for layout in layouts:
        row = int(np.searchsorted(reqs, layout.num_reqs)) * row_bins // len(reqs)
        column = int(np.searchsorted(tokens, layout.num_tokens)) * column_bins // len(tokens)
        rank = OVER_LENGTH if layout.verdict == "over-length" else ranks[layout.reach]
        severity[row, column] = max(severity[row, column], rank)
    one = layouts[0]
    return Map(
        title=f"{title}, max_model_len {one.max_model_len}, block_size {one.block_size}",
        num_reqs=_bins(reqs, row_bins),
        num_tokens=_bins(tokens, column_bins),
        severity=severity,
        every=False,
        cell=(cdiv(len(reqs), row_bins), cdiv(len(tokens), column_bins)),
        sampled=False,
        max_model_len=one.max_model_len,
    )
