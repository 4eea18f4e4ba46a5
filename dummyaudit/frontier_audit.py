"""`frontier`: what rules do to every shape within limits, by closed form.

The shapes are `1 <= num_reqs <= max_num_reqs`, `num_reqs <= num_tokens <= max_num_tokens`; with `reachable` only
those of an engine that starts as many requests as it has tokens for: num_reqs = min(num_tokens, max_num_reqs).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dummyaudit.axes import as_axis, pairs
from dummyaudit.block_table import BlockTable, TokenAlignment, positive
from dummyaudit.closed_form import ClosedForm, closed_form
from dummyaudit.errors import InputError
from dummyaudit.frontier_report import Frontier, FrontierReport
from dummyaudit.frontier_space import Space
from dummyaudit.layout import Layout, Needs
from dummyaudit.report import Outlook, Summary
from dummyaudit.rules import Rule
from dummyaudit.space import DEFAULT_MAX_MODEL_LEN, DEFAULT_RULES, Axis, find_rules, make_tables
from dummyaudit.sweep import Sweep

DEFAULT_MAX_NUM_REQS = 256
DEFAULT_MAX_NUM_TOKENS = 2048
MOST_ROWS = 4096
"""Values of num_reqs for which rows may be asked."""


def frontier(
    *,
    max_num_reqs: int = DEFAULT_MAX_NUM_REQS,
    max_num_tokens: int = DEFAULT_MAX_NUM_TOKENS,
    max_model_len: Axis = DEFAULT_MAX_MODEL_LEN,
    block_size: Axis = 16,
    rules: Sequence[str] = DEFAULT_RULES,
    num_reqs: Axis | None = None,
    reachable: bool = False,
    dcp: int = 1,
    interleave: int = 1,
    token_alignment: TokenAlignment = 128,
    kernel_block_size: int | None = None,
    strict: bool = False,
) -> FrontierReport:
    """Says of every shape within limits how rules treat it, exactly and without trying.

    Args:
        max_num_reqs: most requests.
        max_num_tokens: most tokens.
        max_model_len: longest legal request, in tokens.
        block_size: tokens of one KV page.
        rules: names, as in `dummyaudit.rules.find_rule`; others are held against the first.
        num_reqs: for which the report has rows; powers of two, the ends, and where a smallest shape is if not given.
        reachable: whether to keep to num_reqs = min(num_tokens, max_num_reqs).
        dcp: ranks of decode context parallelism.
        interleave: consecutive tokens that one such rank holds.
        token_alignment: how rows are widened, see BlockTable.
        kernel_block_size: tokens of the kernel's page, where it is smaller than block_size.
        strict: whether over-length shapes count as failures.

    Raises:
        DummyAuditError: a setting cannot be used, or no closed form is known for a rule.
    """
    space = Space(positive("max_num_reqs", max_num_reqs), positive("max_num_tokens", max_num_tokens), bool(reachable))
    found = find_rules(rules)
    tables = make_tables(max_model_len, block_size, dcp, interleave, token_alignment, kernel_block_size)
    totals: list[Frontier] = []
    rows: list[Frontier] = []
    for table in tables:
        of_table = [_frontier(space, found, rule, table, None) for rule in found]
        totals += of_table
        for reqs in _rows(space, of_table) if num_reqs is None else _asked(space, num_reqs):
            rows += [_frontier(space, found, rule, table, reqs) for rule in found]
    layouts = _layouts(found, tables, totals, strict)
    settings = {
        "max_num_reqs": space.max_num_reqs,
        "max_num_tokens": space.max_num_tokens,
        "reachable": space.reachable,
        "max_model_len": sorted({table.max_model_len for table in tables}),
        "block_size": sorted({table.block_size for table in tables}),
        "rules": [rule.name for rule in found],
        "dcp": dcp,
        "interleave": interleave,
        "token_alignment": token_alignment,
        "kernel_block_size": kernel_block_size,
        "strict": strict,
    }
    return FrontierReport(
        command="frontier",
        settings=settings,
        summary=_summary(totals, space, tables),
        layouts=layouts,
        worst=layouts,
        outlooks=_outlooks(found, tables, totals),
        strict=strict,
        totals=tuple(totals),
        rows=tuple(rows),
        space=space,
        tables=tables,
        audited=found,
    )


def _frontier(space: Space, rules: tuple[Rule, ...], rule: Rule, table: BlockTable, num_reqs: int | None) -> Frontier:
    form = closed_form(rule, table.row_tokens)
    base = closed_form(rules[0], table.row_tokens)
    length = table.max_model_len
    feasible_lines = ClosedForm(((length, 0),))
    overflow = space.over(form, num_reqs)
    smallest = space.smallest(form, length, False, num_reqs)
    safe = smallest[1] - 1 if smallest else space.most_tokens(num_reqs)
    longest = space.longest(rule, length, num_reqs)
    if rule.needs_max_model_len:
        needs: Needs | None = Needs(1, 1)
    else:
        needs = None if longest is None else Needs(table.max_model_len_for(table.pages(longest)), longest)
    return Frontier(
        rule=rule.name,
        max_model_len=length,
        block_size=table.block_size,
        num_reqs=num_reqs,
        shapes=space.shapes(num_reqs),
        overflow=overflow,
        infeasible=overflow - space.only(form, feasible_lines, num_reqs),
        over_length=space.over(closed_form(rule, length), num_reqs) - overflow,
        smallest=smallest,
        smallest_feasible=space.smallest(form, length, True, num_reqs),
        safe_num_tokens=safe if safe >= (num_reqs or 1) else None,
        only_first=0 if rule is rules[0] else space.only(base, form, num_reqs),
        only_this=0 if rule is rules[0] else space.only(form, base, num_reqs),
        needs=needs,
    )


def _rows(space: Space, totals: Sequence[Frontier]) -> list[int]:
    """Powers of two, the ends, and the num_reqs of the smallest shapes."""
    powers = {1 << i for i in range(space.high.bit_length())}
    shapes = [shape for total in totals for shape in (total.smallest, total.smallest_feasible) if shape]
    return sorted(powers | {space.high} | {shape[0] for shape in shapes})


def _asked(space: Space, num_reqs: Axis) -> Sequence[int]:
    axis = as_axis("num_reqs", num_reqs)
    if len(axis) > MOST_ROWS:
        raise InputError(f"num_reqs: {len(axis)} rows are asked for", f"ask for at most {MOST_ROWS}")
    if axis[-1] > space.high:
        raise InputError(f"num_reqs {axis[-1]} has no shape within the limits", f"use at most {space.high}")
    return axis


def _layouts(
    rules: Sequence[Rule], tables: Sequence[BlockTable], totals: Sequence[Frontier], strict: bool
) -> tuple[Layout, ...]:
    """The smallest layouts that overflow: where there is one, that of the feasible shapes, else that of all."""
    layouts = []
    for i, total in enumerate(totals):
        shape = total.smallest_feasible or total.smallest
        if shape is None:
            continue
        table, rule = tables[i // len(rules)], rules[i % len(rules)]
        sweep = Sweep(pairs([shape]), (table,), (rule,), None, strict)
        layouts += sweep.layouts(rule, table, *(np.array([size]) for size in shape))
    return tuple(layouts)


def _summary(totals: Sequence[Frontier], space: Space, tables: Sequence[BlockTable]) -> Summary:
    rules = len(totals) // len(tables)
    layouts = sum(total.shapes for total in totals)
    overflow = sum(total.overflow for total in totals)
    over_length = sum(total.over_length for total in totals)
    infeasible = sum(space.over(ClosedForm(((table.max_model_len, 0),)), None) for table in tables) * rules
    return Summary(
        layouts=layouts,
        fits=layouts - overflow - over_length,
        over_length=over_length,
        overflow=overflow,
        infeasible=infeasible,
        latent=0,
        live_overflow=overflow,
    )


def _outlooks(rules: Sequence[Rule], tables: Sequence[BlockTable], totals: Sequence[Frontier]) -> tuple[Outlook, ...]:
    """From which max_model_len on each rule is safe, for each block_size, where int32 can hold that length."""
    needs = {(total.rule, total.block_size): total.needs for total in totals}
    sizes = dict.fromkeys(table.block_size for table in tables)
    found = ((rule.name, size, needs[rule.name, size]) for rule in rules for size in sizes)
    return tuple(Outlook(rule, size, least) for rule, size, least in found if least is not None)
