"""Counts, cells, outlooks and the worst layouts of a sweep, in one pass over its chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dummyaudit.audit import Severities, Worst, find_severity, find_worst
from dummyaudit.axes import Ints
from dummyaudit.block_table import BlockTable
from dummyaudit.counts import Cells, Counts, Ranks, WorstLayouts, make_cells
from dummyaudit.layout import Layout, Needs
from dummyaudit.report import Cell, Outlook, Summary
from dummyaudit.rules import Rule, Runs
from dummyaudit.sweep import Sweep

MAX_CELLS = 4096
"""Cells of one rule; a grid with more has several num_reqs in one cell."""

Check = Callable[[Rule, BlockTable, Ints, Ints, Ints, Runs, Severities, Worst], None]
"""Holds built batches against the arithmetic of a chunk: rule, table, shapes and rows, runs, verdicts."""

Progress = Callable[[int, int], None]
"""Called with the number of layouts done, and of all."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What one pass over a sweep found.

    Attributes:
        sweep: what was audited: the sweep or, if the pass was stopped, its first shapes.
        summary: counts of layouts.
        cells: by block table, then by num_reqs, then by rule.
        outlooks: by rule, then by block_size.
        worst: flagged layouts, the worst first.
    """

    sweep: Sweep
    summary: Summary
    cells: tuple[Cell, ...]
    outlooks: tuple[Outlook, ...]
    worst: tuple[Layout, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to keep of a sweep.

    Attributes:
        sweep: the sweep.
        cells: its cells under one block table.
        worst_limit: how many of the worst flagged layouts to keep, or None for all.
    """

    sweep: Sweep
    cells: Cells
    worst_limit: int | None


class Part:
    """What was found in some of the shapes, from the first on.

    Attributes:
        counts: by block table, then by rule.
        worst: the worst layouts.
        infeasible: layouts that no split can help.
        last: number of the shape behind them.
    """

    def __init__(self, plan: Plan, first: int) -> None:
        self.counts = [[Counts(len(plan.cells)) for _ in plan.sweep.rules] for _ in plan.sweep.tables]
        self.worst = WorstLayouts(plan.worst_limit)
        self.infeasible = 0
        self.last = first

    def merge(self, later: Part) -> None:
        """Adds the part that begins where this one ends."""
        for row, later_row in zip(self.counts, later.counts, strict=True):
            for counts, later_counts in zip(row, later_row, strict=True):
                counts.merge(later_counts)
        self.worst.merge(later.worst)
        self.infeasible += later.infeasible
        self.last = later.last


def plan(sweep: Sweep, worst_limit: int | None, cells: int | None = None) -> Plan:
    """What to keep: of each table and rule at most `cells` cells, if given; of all tables at most MAX_CELLS."""
    return Plan(sweep, make_cells(sweep.shapes, cells or MAX_CELLS // len(sweep.tables)), worst_limit)


def tally_part(
    plan: Plan,
    first: int,
    last: int,
    check: Check | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Part:
    """Judges the shapes first to last - 1, chunk by chunk.

    Args:
        plan: what to audit and to keep.
        first: number of the first shape.
        last: number of the shape behind the last.
        check: called for every chunk of every rule and block table.
        progress: called after each of them.
        stop: asked after each chunk whether to end here.
    """
    sweep = plan.sweep
    part = Part(plan, first)
    per_shape = len(sweep.rules) * len(sweep.tables)
    for start in range(first, last, sweep.chunk):
        end = min(start + sweep.chunk, last)
        num_reqs, num_tokens = sweep.shapes.slice(start, end)
        rows = sweep.rows(num_reqs)
        cells, starts = plan.cells.of(start, end)
        done = (start - first) * per_shape
        for r, rule in enumerate(sweep.rules):
            for runs, peaks, tables in sweep.judged(rule, num_reqs, num_tokens):
                ranks = Ranks(peaks, start, cells, starts)
                for t, table in tables:
                    severity = find_severity(runs, peaks, rows, table)
                    part.counts[t][r].add(severity, ranks)
                    part.worst.add(severity, ranks, table, (t, start, r))
                    if check:
                        check(rule, table, num_reqs, num_tokens, rows, runs, severity, find_worst(runs, table))
                    done += end - start
                    if progress:
                        progress(done, (last - first) * per_shape)
        infeasible = sum(int((num_tokens > num_reqs * table.max_model_len).sum()) for table in sweep.tables)
        part.infeasible += infeasible * len(sweep.rules)
        part.last = end
        if stop and stop():
            break
    return part


def finish(plan: Plan, part: Part) -> Tally:
    """The tally of a part that begins with the first shape."""
    sweep, cells = plan.sweep, plan.cells
    if part.last < len(sweep.shapes):
        sweep = replace(sweep, shapes=sweep.shapes.prefix(part.last))
        cells = cells.prefix(part.last, int(sweep.shapes.num_reqs[-1]))
    part.worst.sort()
    worst = tuple(
        sweep.layouts(sweep.rules[rule], sweep.tables[table], *sweep.shapes.slice(shape, shape + 1))[0]
        for table, shape, rule in part.worst.place.tolist()
    )
    return Tally(sweep, _summary(sweep, part), _cells(sweep, part, cells), _outlooks(sweep, part), worst)


def _summary(sweep: Sweep, part: Part) -> Summary:
    overflow = sum(int(c.overflow.sum()) for row in part.counts for c in row)
    over_length = sum(int(c.over_length.sum()) for row in part.counts for c in row)
    return Summary(
        layouts=len(sweep),
        fits=len(sweep) - overflow - over_length,
        over_length=over_length,
        overflow=overflow,
        infeasible=part.infeasible,
        latent=0,
        live_overflow=overflow,
    )


def _cells(sweep: Sweep, part: Part, cells: Cells) -> tuple[Cell, ...]:
    found = []
    for table, row in zip(sweep.tables, part.counts, strict=True):
        by_rule = [
            [
                Cell(rule.name, span, table.max_model_len, table.block_size, shapes, overflow, over_length, worst)
                for span, shapes, overflow, over_length, worst in zip(
                    cells.spans,
                    cells.shapes,
                    c.overflow[: len(cells)].tolist(),
                    c.over_length[: len(cells)].tolist(),
                    sweep.layouts(rule, table, *sweep.shapes.at(c.worst_shape[: len(cells)])),
                    strict=True,
                )
            ]
            for rule, c in zip(sweep.rules, row, strict=True)
        ]
        found += [cell for same_shapes in zip(*by_rule, strict=True) for cell in same_shapes]
    return tuple(found)


def _outlooks(sweep: Sweep, part: Part) -> tuple[Outlook, ...]:
    outlooks = []
    for r, rule in enumerate(sweep.rules):
        for block_size in sweep.block_sizes:
            same = [
                (table, row[r])
                for table, row in zip(sweep.tables, part.counts, strict=True)
                if table.block_size == block_size
            ]
            needs = Needs(
                row=max(table.max_model_len_for(c.needs_pages) for table, c in same),
                strict=max(c.needs_strict for _, c in same),
            )
            outlooks.append(Outlook(rule.name, block_size, needs))
    return tuple(outlooks)


def tally(
    sweep: Sweep, worst_limit: int | None, check: Check | None = None, progress: Progress | None = None
) -> Tally:
    """Goes over a sweep once, in this process."""
    planned = plan(sweep, worst_limit)
    return finish(planned, tally_part(planned, 0, len(sweep.shapes), check, progress))
