"""The tally of a grid by closed form, without going over its shapes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dummyaudit.axes import Ints, Shapes, grouped
from dummyaudit.closed_form import ClosedForm, closed_form
from dummyaudit.errors import RuleError
from dummyaudit.frontier_counts import count_each
from dummyaudit.sweep import Sweep
from dummyaudit.tally import Tally, finish, plan, tally_part


def tally_closed(sweep: Sweep) -> Tally | None:
    """Counts, and the worst layout of each rule and block table, or None if there is no closed form for them.

    There is one if the num_tokens are all whole numbers of a range, and every rule is one of ours. Of each num_reqs
    the worst layout is that of the largest num_tokens, since the requests of all splits but `last` only grow with
    it, or, under `last`, that of the largest one that leaves the remainder num_reqs - 1. These are judged as any
    shape is; the counts are those of `frontier`.
    """
    values = sweep.shapes.values
    if not isinstance(values, range) or values.step != 1:
        return None
    try:
        forms = [
            [(closed_form(rule, table.row_tokens), closed_form(rule, table.max_model_len)) for rule in sweep.rules]
            for table in sweep.tables
        ]
    except RuleError:
        return None
    shapes = sweep.shapes
    candidates = replace(sweep, shapes=_candidates(shapes))
    planned = plan(candidates, worst_limit=0, cells=1)
    found = finish(planned, tally_part(planned, 0, len(candidates.shapes)))
    counts = [(_count(shapes, row), _count(shapes, limit)) for by_rule in forms for row, limit in by_rule]
    overflow, over = (sum(column) for column in zip(*counts, strict=True))
    infeasible = sum(_count(shapes, ClosedForm(((table.max_model_len, 0),))) for table in sweep.tables)
    return replace(
        found,
        sweep=sweep,
        summary=replace(
            found.summary,
            layouts=len(sweep),
            fits=len(sweep) - over,
            over_length=over - overflow,
            overflow=overflow,
            infeasible=infeasible * len(sweep.rules),
            live_overflow=overflow,
        ),
        cells=tuple(
            replace(cell, shapes=len(shapes), overflow=row, over_length=limit - row)
            for cell, (row, limit) in zip(found.cells, counts, strict=True)
        ),
    )


def _candidates(shapes: Shapes) -> Shapes:
    """Of each num_reqs the largest num_tokens, and the largest that leaves the remainder num_reqs - 1."""
    most = shapes.values[-1]
    least = np.maximum(shapes.num_reqs, shapes.values[0])
    uneven = np.maximum((most + 1) // shapes.num_reqs * shapes.num_reqs - 1, least)
    two = uneven < most
    values = np.stack([uneven, np.full_like(uneven, most)], axis=1)
    return grouped(shapes.num_reqs, values[np.stack([two, np.ones_like(two)], axis=1)], 1 + two)


def _count(shapes: Shapes, form: ClosedForm) -> int:
    """The shapes over the limit of a form."""
    num_reqs: Ints = shapes.num_reqs
    first = np.maximum(num_reqs, shapes.values[0])
    most = np.full_like(num_reqs, shapes.values[-1])
    return int((count_each(form, num_reqs, most) - count_each(form, num_reqs, first - 1)).sum())
