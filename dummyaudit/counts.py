"""The running counts of a sweep: what is kept of the layouts that were judged, part by part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dummyaudit.audit import NEXT_ROW, OVER_LENGTH, PAST_TABLE, Peaks, Severities
from dummyaudit.axes import Ints, Shapes
from dummyaudit.block_table import BlockTable

PLACE_BITS = 28
"""Low bits of a key that hold a place in a chunk; above them are the 31 of a seq_len."""

SEVERITY_SHIFT = PLACE_BITS + 31

EXCESS_BITS = 31
FLAGGED = OVER_LENGTH << EXCESS_BITS
"""Least key, `severity << EXCESS_BITS | pages or tokens too many`, of a flagged layout."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of a grid under one block table: each one num_reqs or, where those are many, a span of them.

    Attributes:
        starts: [cells] number of the first shape of each.
        spans: first and last num_reqs of each.
        shapes: number of shapes of each.
    """

    starts: Ints
    spans: list[tuple[int, int]]
    shapes: list[int]

    def __len__(self) -> int:
        return len(self.spans)

    def of(self, first: int, last: int) -> tuple[slice, Ints]:
        """The cells of the shapes first to last - 1, and where each of those starts among these shapes."""
        low, high = np.searchsorted(self.starts, (first, last - 1), side="right") - 1
        cells = slice(int(low), int(high) + 1)
        return cells, (self.starts[cells] - first).clip(min=0)

    def prefix(self, last: int, num_reqs: int) -> Cells:
        """Those of the first `last` shapes, the last one of which has this num_reqs."""
        count = self.of(0, last)[0].stop
        spans = [*self.spans[: count - 1], (self.spans[count - 1][0], num_reqs)]
        return Cells(self.starts[:count], spans, np.diff(self.starts[:count], append=last).tolist())


def make_cells(shapes: Shapes, most: int) -> Cells:
    """Cells of equally many num_reqs, at most `most`."""
    per_cell = -(-len(shapes.num_reqs) // max(most, 1))
    starts = shapes.offsets[:-1:per_cell]
    first = shapes.num_reqs[::per_cell]
    last = shapes.num_reqs[np.minimum(np.arange(len(first)) * per_cell + per_cell, len(shapes.num_reqs)) - 1]
    spans = list(zip(first.tolist(), last.tolist(), strict=True))
    return Cells(starts, spans, np.diff(starts, append=len(shapes)).tolist())


class Ranks:
    """A chunk of shapes by one rule, ranked for what its layouts have in common under several block tables.

    Attributes:
        peaks: those of each, [n] each.
        first_shape: the number of the first.
        cells: the cells in which they lie.
        starts: where each of those starts.
        key: [n] `longest << PLACE_BITS | place`, of which one maximum finds both; a severity may stand before it.
        best: [cells] largest key of each cell.
        pages: most pages of all.
        longest: largest seq_len of all.
    """

    def __init__(self, peaks: Peaks, first_shape: int, cells: slice, starts: Ints) -> None:
        self.peaks, self.first_shape, self.cells, self.starts = peaks, first_shape, cells, starts
        self.key = (peaks.longest << PLACE_BITS) | np.arange(len(peaks.longest))
        self.best = np.maximum.reduceat(self.key, starts)
        self.pages = int(peaks.pages.max())
        self.longest = int(peaks.longest.max())


class Counts:
    """The counts of one rule under one block table, [cells] each."""

    def __init__(self, cells: int) -> None:
        self.overflow = np.zeros(cells, dtype=np.int64)
        self.over_length = np.zeros(cells, dtype=np.int64)
        self.worst_key = np.full(cells, -1, dtype=np.int64)
        self.worst_shape = np.zeros(cells, dtype=np.int64)
        self.needs_pages = 0
        self.needs_strict = 0

    def add(self, severity: Severities, ranks: Ranks) -> None:
        """Adds a chunk."""
        self.needs_pages = max(self.needs_pages, ranks.pages)
        self.needs_strict = max(self.needs_strict, ranks.longest)
        cells, starts, best = ranks.cells, ranks.starts, ranks.best
        if severity.any():
            best = np.maximum.reduceat(ranks.key + (severity.astype(np.int64) << SEVERITY_SHIFT), starts)
            self.overflow[cells] += np.add.reduceat(severity >= NEXT_ROW, starts, dtype=np.int64)
            self.over_length[cells] += np.add.reduceat(severity == OVER_LENGTH, starts, dtype=np.int64)
        self._rank(best >> PLACE_BITS, ranks.first_shape + (best & (2**PLACE_BITS - 1)), cells)

    def merge(self, later: Counts) -> None:
        """Adds the counts of shapes behind these."""
        self.needs_pages = max(self.needs_pages, later.needs_pages)
        self.needs_strict = max(self.needs_strict, later.needs_strict)
        self.overflow += later.overflow
        self.over_length += later.over_length
        self._rank(later.worst_key, later.worst_shape, slice(None))

    def _rank(self, key: Ints, shape: Ints, cells: slice) -> None:
        better = key >= self.worst_key[cells]
        self.worst_key[cells] = np.where(better, key, self.worst_key[cells])
        self.worst_shape[cells] = np.where(better, shape, self.worst_shape[cells])


class WorstLayouts:
    """The flagged layouts that are the worst, at most `limit`, worst first; of equal ones in the order of the sweep.

    Attributes:
        key: [m] `severity << EXCESS_BITS | pages or tokens too many`.
        place: [m, 3] block table, shape and rule.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.key = np.zeros(0, dtype=np.int64)
        self.place = np.zeros((0, 3), dtype=np.int64)

    def add(self, severity: Severities, ranks: Ranks, table: BlockTable, place: tuple[int, int, int]) -> None:
        """Adds those of a chunk of one rule under one table, whose first layout has this place."""
        full = self.limit is not None and len(self.key) == self.limit
        least = int(self.key[-1]) if full and self.limit else FLAGGED
        too_long, too_many = ranks.longest - table.max_model_len, ranks.pages - table.row_slots
        if too_long <= 0 or (PAST_TABLE << EXCESS_BITS | too_many if too_many > 0 else FLAGGED | too_long) < least:
            return
        peaks = ranks.peaks
        excess = np.where(severity >= NEXT_ROW, peaks.pages - table.row_slots, peaks.longest - table.max_model_len)
        key = (severity.astype(np.int64) << EXCESS_BITS) + excess
        (flagged,) = np.nonzero(key >= least)
        key = key[flagged]
        if self.limit is not None:
            kept = _largest(key, self.limit)
            key, flagged = key[kept], flagged[kept]
        self._take(key, np.array(place) + flagged[:, None] * np.array([0, 1, 0]))

    def merge(self, other: WorstLayouts) -> None:
        """Adds those of another part."""
        self._take(other.key, other.place)

    def sort(self) -> None:
        """Puts the worst first where there is no limit, which keeps them in order."""
        order = np.lexsort((self.place[:, 2], self.place[:, 1], self.place[:, 0], -self.key))[: self.limit]
        self.key, self.place = self.key[order], self.place[order]

    def _take(self, key: Ints, place: Ints) -> None:
        self.key = np.concatenate([self.key, key])
        self.place = np.concatenate([self.place, place])
        if self.limit is not None:
            self.sort()


def _largest(key: Ints, limit: int) -> Ints:
    """Indices of the largest `limit` keys; of equal ones the first."""
    if len(key) <= limit or not limit:
        return np.arange(min(len(key), limit))
    least = np.partition(key, -limit)[-limit]
    above = np.flatnonzero(key > least)
    return np.concatenate([above, np.flatnonzero(key == least)[: limit - len(above)]])
