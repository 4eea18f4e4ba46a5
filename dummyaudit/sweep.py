"""Works a grid off in chunks: every shape under every block table by every rule.

Nothing here grows with the number of layouts: what is kept are counts, the worst, and the recipe by which
any layout can be made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from dummyaudit.advice import advise
from dummyaudit.audit import (
    FITS,
    NEXT_ROW,
    OVER_LENGTH,
    PAST_TABLE,
    Peaks,
    count_requests,
    find_peaks,
    find_severity,
    find_worst,
)
from dummyaudit.axes import Ints, Shapes
from dummyaudit.block_table import BlockTable
from dummyaudit.layout import Group, Layout, Needs, Reach, RequestCounts, Verdict, WorstRequest
from dummyaudit.rules import Rule, Runs

CHUNK = 2**14
"""Shapes worked off at once: arrays that a core's cache holds."""

VERDICTS: dict[int, tuple[Verdict, Reach | None]] = {
    FITS: ("fits", None),
    OVER_LENGTH: ("over-length", None),
    NEXT_ROW: ("overflow", "next-row"),
    PAST_TABLE: ("overflow", "past-table"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Every shape under every block table by every rule.

    Attributes:
        shapes: the shapes.
        tables: the block tables, each but for its max_num_seqs.
        rules: the rules.
        max_num_seqs: rows of every block table, or None for as many as the shape has requests.
        strict: whether an over-length layout is to be cured too.
        groups: whether layouts list their runs of equal requests.
    """

    shapes: Shapes
    tables: tuple[BlockTable, ...]
    rules: tuple[Rule, ...]
    max_num_seqs: int | None = None
    strict: bool = False
    groups: bool = False

    @property
    def chunk(self) -> int:
        """Shapes worked off at once: fewer where a user's rule may make a run of every request."""
        longest = 1 if all(rule.is_built_in for rule in self.rules) else int(self.shapes.num_reqs[-1])
        return max(CHUNK // longest, 1)

    @property
    def block_sizes(self) -> list[int]:
        """The block sizes of the tables."""
        return list(dict.fromkeys(table.block_size for table in self.tables))

    def __len__(self) -> int:
        return len(self.shapes) * len(self.tables) * len(self.rules)

    def rows(self, num_reqs: Ints) -> Ints:
        """max_num_seqs [n] of the block tables of n shapes."""
        return num_reqs if self.max_num_seqs is None else np.full_like(num_reqs, self.max_num_seqs)

    def judged(
        self, rule: Rule, num_reqs: Ints, num_tokens: Ints
    ) -> Iterator[tuple[Runs, Peaks, list[tuple[int, BlockTable]]]]:
        """What a rule makes of n shapes, each with the block tables, and their places, for which that is the same."""
        places = list(enumerate(self.tables))
        if rule.needs_max_model_len:
            groups = [[place] for place in places]
        else:
            groups = [[p for p in places if p[1].block_size == block_size] for block_size in self.block_sizes]
        for group in groups:
            table = group[0][1]
            runs = rule.runs(num_reqs, num_tokens, table.max_model_len)
            yield runs, find_peaks(runs, table), group

    def layouts(self, rule: Rule, table: BlockTable, num_reqs: Ints, num_tokens: Ints) -> list[Layout]:
        """The layouts of n shapes num_reqs [n], num_tokens [n]."""
        rows = self.rows(num_reqs)
        runs = rule.runs(num_reqs, num_tokens, table.max_model_len)
        worst = find_worst(runs, table)
        severity = find_severity(runs, worst, rows, table)
        columns = [
            num_reqs,
            num_tokens,
            rows,
            severity.astype(np.int64),
            *count_requests(runs, table),
            worst.request,
            worst.seq_len,
            worst.pages,
            worst.longest,
            table.max_model_len_for(worst.pages),
        ]
        groups = _groups(runs, table) if self.groups else [None] * len(num_reqs)
        slots = table.row_slots
        return [
            self._layout(rule, table, slots, group, *values)
            for *values, group in zip(*(column.tolist() for column in columns), groups, strict=True)
        ]

    def _layout(
        self,
        rule: Rule,
        table: BlockTable,
        slots: int,
        groups: tuple[Group, ...] | None,
        num_reqs: int,
        num_tokens: int,
        rows: int,
        severity: int,
        over_length: int,
        overflow: int,
        request: int,
        seq_len: int,
        pages: int,
        longest: int,
        needs_row: int,
    ) -> Layout:
        verdict, reach = VERDICTS[severity]
        needs = Needs(needs_row, longest)
        return Layout(
            rule=rule.name,
            num_reqs=num_reqs,
            num_tokens=num_tokens,
            max_model_len=table.max_model_len,
            block_size=table.block_size,
            max_num_seqs=rows,
            row_slots=slots,
            verdict=verdict,
            reach=reach,
            feasible=num_tokens <= num_reqs * table.max_model_len,
            live=True,
            requests=RequestCounts(over_length, overflow),
            worst=WorstRequest(request, seq_len, pages, (slots, pages - 1) if pages > slots else None),
            needs_max_model_len=needs,
            groups=groups,
            advice=advise(rule, num_reqs, num_tokens, table, verdict, needs, self.strict, self.max_num_seqs),
        )


def _groups(runs: Runs, table: BlockTable) -> list[tuple[Group, ...]]:
    """The requests of each layout as runs of equal ones; neighbouring runs that are equal are one."""
    columns = (runs.count, runs.query_len, runs.seq_len, table.pages(runs.seq_len))
    result = []
    for layout in zip(*(column.T.tolist() for column in columns), strict=True):
        groups: list[Group] = []
        for count, *same in zip(*layout, strict=True):
            before = groups[-1] if groups else Group(0, 0, 0, 0, 0)
            if [before.query_len, before.seq_len, before.pages] == same:
                groups[-1] = Group(before.first, before.count + count, *same)
            elif count:
                groups.append(Group(before.first + before.count, count, *same))
        result.append(tuple(groups))
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Layouts(Sequence[Layout]):
    """The layouts of a sweep, made when they are asked for: by block table, then by shape, then by rule."""

    sweep: Sweep

    def __len__(self) -> int:
        return len(self.sweep)

    @overload
    def __getitem__(self, index: int) -> Layout: ...
    @overload
    def __getitem__(self, index: slice) -> list[Layout]: ...
    def __getitem__(self, index: int | slice) -> Layout | list[Layout]:
        """The layout, or the layouts, at that place."""
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        sweep = self.sweep
        shape, rule = divmod(range(len(self))[index], len(sweep.rules))
        table, shape = divmod(shape, len(sweep.shapes))
        return sweep.layouts(sweep.rules[rule], sweep.tables[table], *sweep.shapes.slice(shape, shape + 1))[0]

    def __iter__(self) -> Iterator[Layout]:
        sweep = self.sweep
        for table in sweep.tables:
            for first in range(0, len(sweep.shapes), sweep.chunk):
                shapes = sweep.shapes.slice(first, min(first + sweep.chunk, len(sweep.shapes)))
                for layouts in zip(*(sweep.layouts(rule, table, *shapes) for rule in sweep.rules), strict=True):
                    yield from layouts
