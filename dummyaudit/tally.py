"""Counts, cells, outlooks and the worst layouts of a sweep, in one pass over its chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dummyaudit.audit import NEXT_ROW, OVER_LENGTH, Severities, Worst, find_severity
from dummyaudit.axes import Ints
from dummyaudit.block_table import BlockTable
from dummyaudit.report import Cell, Layout, Needs, Outlook, Summary
from dummyaudit.rules import Rule, Runs
from dummyaudit.sweep import Sweep

MAX_CELLS = 4096
"""Cells of one rule; a grid with more has several num_reqs in one cell."""

Check = Callable[[Rule, BlockTable, Runs, Ints, Ints, Severities, Worst], None]
"""Holds built batches against the arithmetic of a chunk: rule, table, runs, num_tokens, max_num_seqs, verdicts."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What one pass over a sweep found.

    Attributes:
        summary: counts of layouts.
        cells: by block table, then by num_reqs, then by rule.
        outlooks: by rule, then by block_size.
        worst: flagged layouts, the worst first.
    """

    summary: Summary
    cells: tuple[Cell, ...]
    outlooks: tuple[Outlook, ...]
    worst: tuple[Layout, ...]


class _Counts:
    """The running counts of one rule under one block table, [cells] each."""

    def __init__(self, cells: int) -> None:
        self.overflow = np.zeros(cells, dtype=np.int64)
        self.over_length = np.zeros(cells, dtype=np.int64)
        self.worst_key = np.full(cells, -1, dtype=np.int64)
        self.worst_shape = np.zeros(cells, dtype=np.int64)
        self.needs_pages = 0
        self.needs_strict = 0

    def add(self, severity: Severities, worst: Worst, first_shape: int, cells: slice, starts: Ints) -> None:
        """Adds a chunk whose shapes, from first_shape on, lie in these cells, each from its start on."""
        self.needs_pages = max(self.needs_pages, int(worst.pages.max()))
        self.needs_strict = max(self.needs_strict, int(worst.longest.max()))
        key = (severity.astype(np.int64) << 31) | worst.longest
        # The place in the chunk is the low part of the key, so that one maximum finds value and place.
        place = np.arange(len(key))
        best = np.maximum.reduceat((key << 28) | place, starts)
        better = best >> 28 >= self.worst_key[cells]
        self.worst_key[cells] = np.where(better, best >> 28, self.worst_key[cells])
        self.worst_shape[cells] = np.where(better, first_shape + (best & (2**28 - 1)), self.worst_shape[cells])
        if severity.any():
            self.overflow[cells] += np.add.reduceat(severity >= NEXT_ROW, starts, dtype=np.int64)
            self.over_length[cells] += np.add.reduceat(severity == OVER_LENGTH, starts, dtype=np.int64)


class _Worst:
    """The flagged layouts seen so far that are the worst: [m] each, at most `limit`."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.key = np.zeros(0, dtype=np.int64)
        self.place = np.zeros((0, 3), dtype=np.int64)  # table, shape, rule

    def add(self, severity: Severities, worst: Worst, table: BlockTable, place: tuple[int, int, int]) -> None:
        """Adds those of a chunk of one rule under one table, whose first layout has this place."""
        (flagged,) = np.nonzero(severity)
        if not len(flagged):
            return
        excess = np.where(
            severity[flagged] >= NEXT_ROW,
            worst.pages[flagged] - table.row_slots,
            worst.longest[flagged] - table.max_model_len,
        )
        key = (severity[flagged].astype(np.int64) << 31) | excess
        if self.limit is not None:
            kept = _largest(key, self.limit)
            key, flagged = key[kept], flagged[kept]
        self.key = np.concatenate([self.key, key])
        self.place = np.concatenate([self.place, np.array(place) + flagged[:, None] * [0, 1, 0]])
        if self.limit is not None:
            kept = self._order()[: self.limit]
            self.key, self.place = self.key[kept], self.place[kept]

    def layouts(self, sweep: Sweep) -> tuple[Layout, ...]:
        """The layouts, the worst first; of equal ones in the order of the sweep."""
        return tuple(
            sweep.layouts(sweep.rules[rule], sweep.tables[table], *sweep.shapes.slice(shape, shape + 1))[0]
            for table, shape, rule in self.place[self._order()].tolist()
        )

    def _order(self) -> Ints:
        return np.lexsort((self.place[:, 2], self.place[:, 1], self.place[:, 0], -self.key))


def _largest(key: Ints, limit: int) -> Ints:
    """Indices of the largest `limit` keys; of equal ones the first."""
    if len(key) <= limit:
        return np.arange(len(key))
    least = np.partition(key, -limit)[-limit]
    above = np.flatnonzero(key > least)
    return np.concatenate([above, np.flatnonzero(key == least)[: limit - len(above)]])


def tally(
    sweep: Sweep,
    worst_limit: int | None,
    check: Check | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tally:
    """Goes over a sweep once.

    Args:
        sweep: what to audit.
        worst_limit: how many of the worst flagged layouts to keep, or None for all.
        check: called for every chunk of every rule and block table.
        progress: called after each of them with the number of layouts done, and of all.
    """
    shapes, tables, rules = sweep.shapes, sweep.tables, sweep.rules
    per_cell = -(-len(shapes.num_reqs) * len(tables) // MAX_CELLS)
    cell_starts = shapes.offsets[:-1:per_cell]
    counts = [[_Counts(len(cell_starts)) for _ in rules] for _ in tables]
    worst_layouts = _Worst(worst_limit)
    infeasible = done = 0
    for first in range(0, len(shapes), sweep.chunk):
        last = min(first + sweep.chunk, len(shapes))
        num_reqs, num_tokens = shapes.slice(first, last)
        rows = sweep.rows(num_reqs)
        low, high = np.searchsorted(cell_starts, (first, last - 1), side="right") - 1
        cells = slice(int(low), int(high) + 1)
        starts = (cell_starts[cells] - first).clip(min=0)
        for r, rule in enumerate(rules):
            for t, table, runs, worst in sweep.judged(rule, num_reqs, num_tokens):
                severity = find_severity(runs, worst, rows, table)
                counts[t][r].add(severity, worst, first, cells, starts)
                worst_layouts.add(severity, worst, table, (t, first, r))
                if check:
                    check(rule, table, runs, num_tokens, rows, severity, worst)
                done += last - first
                if progress:
                    progress(done, len(sweep))
        infeasible += sum(int((num_tokens > num_reqs * table.max_model_len).sum()) for table in tables)
    return Tally(
        _summary(sweep, counts, infeasible * len(rules)),
        _cells(sweep, counts, cell_starts, per_cell),
        _outlooks(sweep, counts),
        worst_layouts.layouts(sweep),
    )


def _summary(sweep: Sweep, counts: list[list[_Counts]], infeasible: int) -> Summary:
    overflow = sum(int(c.overflow.sum()) for row in counts for c in row)
    over_length = sum(int(c.over_length.sum()) for row in counts for c in row)
    return Summary(
        layouts=len(sweep),
        fits=len(sweep) - overflow - over_length,
        over_length=over_length,
        overflow=overflow,
        infeasible=infeasible,
        latent=0,
        live_overflow=overflow,
    )


def _cells(sweep: Sweep, counts: list[list[_Counts]], cell_starts: Ints, per_cell: int) -> tuple[Cell, ...]:
    shapes = sweep.shapes
    num_shapes_of_cell = np.diff(cell_starts, append=len(shapes)).tolist()
    first = shapes.num_reqs[::per_cell]
    last = shapes.num_reqs[np.minimum(np.arange(len(first)) * per_cell + per_cell, len(shapes.num_reqs)) - 1]
    spans = list(zip(first.tolist(), last.tolist(), strict=True))
    cells = []
    for table, row in zip(sweep.tables, counts, strict=True):
        by_rule = [
            [
                Cell(rule.name, span, table.max_model_len, table.block_size, num_shapes, overflow, over_length, worst)
                for span, num_shapes, overflow, over_length, worst in zip(
                    spans,
                    num_shapes_of_cell,
                    c.overflow.tolist(),
                    c.over_length.tolist(),
                    sweep.layouts(rule, table, *shapes.at(c.worst_shape)),
                    strict=True,
                )
            ]
            for rule, c in zip(sweep.rules, row, strict=True)
        ]
        cells += [cell for same_shapes in zip(*by_rule, strict=True) for cell in same_shapes]
    return tuple(cells)


def _outlooks(sweep: Sweep, counts: list[list[_Counts]]) -> tuple[Outlook, ...]:
    outlooks = []
    for r, rule in enumerate(sweep.rules):
        for block_size in sweep.block_sizes:
            same = [
                (table, row[r])
                for table, row in zip(sweep.tables, counts, strict=True)
                if table.block_size == block_size
            ]
            needs = Needs(
                row=max(table.max_model_len_for(c.needs_pages) for table, c in same),
                strict=max(c.needs_strict for _, c in same),
            )
            outlooks.append(Outlook(rule.name, block_size, needs))
    return tuple(outlooks)
