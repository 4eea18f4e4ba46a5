"""The closed forms against every shape of all small spaces, tried one after the other."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from dummyaudit.block_table import BlockTable
from dummyaudit.closed_form import ClosedForm, closed_form
from dummyaudit.frontier_audit import frontier
from dummyaudit.frontier_counts import count_diagonal, count_each, count_only, count_over, count_shapes
from dummyaudit.frontier_report import Frontier
from dummyaudit.frontier_space import Space
from dummyaudit.rules import find_rule

MAX_NUM_REQS, MAX_NUM_TOKENS = 64, 1500
REQS = np.arange(1, MAX_NUM_REQS + 1)[:, None]
TOKENS = np.arange(1, MAX_NUM_TOKENS + 1)[None]
IS_SHAPE = TOKENS >= REQS

RULES = [
    *("last", "even", "even-first", "v1", "v1-mixed", "single", "mixed", "uniform:3", "uniform:40"),
    *("last+plus-one", "even+plus-one", "even-first+plus-one", "single+plus-one", "even-first+total"),
    *("last+context:7", "mixed+context:30", "uniform:5+context:2", "even+constant:60", "even+max-model-len"),
]
TABLES = [
    BlockTable(max_model_len=length, block_size=size, token_alignment=alignment)
    for length in range(1, 81)
    for size in (1, 8, 16, 48)
    for alignment in (128, "128-floor", 0)
]
LIMITS = sorted({table.row_tokens for table in TABLES} | {table.max_model_len for table in TABLES})


@cache
def longest(rule: str) -> np.ndarray:
    """[num_reqs, num_tokens] the longest seq_len of each shape, 0 where there is no shape."""
    reqs, tokens = (column.ravel() for column in np.broadcast_arrays(REQS, TOKENS))
    found = np.zeros(len(reqs), dtype=np.int64)
    kept = IS_SHAPE.ravel()
    # Under max-model-len 1 is the shortest legal request, which is over no limit.
    found[kept] = find_rule(rule).runs(reqs[kept], tokens[kept], 1).seq_len.max(axis=0)
    return found.reshape(len(REQS), -1)


def firsts(over: np.ndarray) -> list[int | None]:
    """Of each row the first num_tokens that is marked."""
    return [int(row.argmax()) + 1 if row.any() else None for row in over]


def test_overflow_is_the_same_as_more_tokens_than_a_row_holds() -> None:
    seq_len = np.arange(1, 2 * MAX_NUM_TOKENS)
    tables = [
        *TABLES,
        BlockTable(max_model_len=77, block_size=16, dcp=3, interleave=4),
        BlockTable(max_model_len=500, block_size=48, dcp=2, interleave=48, kernel_block_size=16),
        BlockTable(max_model_len=500, block_size=48, kernel_block_size=12, token_alignment=0),
    ]
    for table in tables:
        assert ((table.pages(seq_len) > table.row_slots) == (seq_len > table.row_tokens)).all()


@pytest.mark.parametrize("rule", RULES)
def test_counts_and_first_of_each_num_reqs_are_those_of_every_shape(rule: str) -> None:
    for limit in LIMITS:
        form = closed_form(find_rule(rule), limit)
        over = longest(rule) > limit
        every = [count_over(form, reqs, reqs, MAX_NUM_TOKENS) for reqs in range(1, MAX_NUM_REQS + 1)]
        assert every == over.sum(axis=1).tolist()
        assert count_each(form, REQS[:, 0], np.full(MAX_NUM_REQS, MAX_NUM_TOKENS)).tolist() == every
        assert count_over(form, 1, MAX_NUM_REQS, MAX_NUM_TOKENS) == over.sum()
        first = [form.first(reqs) for reqs in range(1, MAX_NUM_REQS + 1)]
        assert [n if n is not None and n <= MAX_NUM_TOKENS else None for n in first] == firsts(over)


@pytest.mark.parametrize("rule", RULES)
def test_counts_hold_for_any_stretch_of_num_reqs_and_any_most(rule: str) -> None:
    source = random.Random(rule)
    for _ in range(300):
        low, high = sorted((source.randint(1, MAX_NUM_REQS), source.randint(1, MAX_NUM_REQS)))
        most, limit = source.randint(1, MAX_NUM_TOKENS), source.choice([*LIMITS, source.randint(1, MAX_NUM_TOKENS)])
        form = closed_form(find_rule(rule), limit)
        inside = IS_SHAPE[low - 1 : high, :most]
        over = longest(rule)[low - 1 : high, :most] > limit
        assert count_over(form, low, high, most) == over.sum()
        assert count_shapes(low, high, most) == inside.sum()
        diagonal = range(low, high + 1)
        on_diagonal = sum(bool(longest(rule)[n - 1, n - 1] > limit) for n in diagonal)
        assert count_diagonal(form.on_diagonal, low, high) == on_diagonal


@pytest.mark.parametrize("first", RULES)
def test_counts_of_two_rules_are_those_of_every_shape(first: str) -> None:
    for limit in LIMITS:
        one = closed_form(find_rule(first), limit)
        over = longest(first) > limit
        for second in RULES:
            other = closed_form(find_rule(second), limit)
            only = over & ~(longest(second) > limit)
            assert count_only(one, other, 1, MAX_NUM_REQS, MAX_NUM_TOKENS) == only.sum(), (limit, second)


@pytest.mark.parametrize("rule", RULES)
def test_infeasible_and_smallest_shapes_are_those_of_every_shape(rule: str) -> None:
    space = Space(MAX_NUM_REQS, MAX_NUM_TOKENS, False)
    for limit, length in sorted({(table.row_tokens, table.max_model_len) for table in TABLES}):
        form = closed_form(find_rule(rule), limit)
        over = longest(rule) > limit
        feasible = over & (REQS * length >= TOKENS)
        assert space.only(form, ClosedForm(((length, 0),)), None) == feasible.sum()
        for kept, only_feasible in ((over, False), (feasible, True)):
            tokens, reqs = np.nonzero(kept.T)
            smallest = (int(reqs[0]) + 1, int(tokens[0]) + 1) if len(reqs) else None
            assert space.smallest(form, length, only_feasible, None) == smallest, (limit, length)


@pytest.mark.parametrize("rule", RULES)
def test_smallest_shapes_are_those_within_any_limits(rule: str) -> None:
    source = random.Random(rule)
    for _ in range(150):
        most_reqs, most_tokens = source.randint(1, MAX_NUM_REQS), source.randint(1, MAX_NUM_TOKENS)
        limit = source.choice([*LIMITS, source.randint(1, MAX_NUM_TOKENS)])
        length = source.randint(1, limit)
        form, space = closed_form(find_rule(rule), limit), Space(most_reqs, most_tokens, False)
        over = longest(rule)[:most_reqs, :most_tokens] > limit
        feasible = over & (REQS * length >= TOKENS)[:most_reqs, :most_tokens]
        assert space.only(form, ClosedForm(((length, 0),)), None) == feasible.sum()
        for kept, only_feasible in ((over, False), (feasible, True)):
            tokens, reqs = np.nonzero(kept.T)
            smallest = (int(reqs[0]) + 1, int(tokens[0]) + 1) if len(reqs) else None
            assert space.smallest(form, length, only_feasible, None) == smallest, (most_reqs, most_tokens, limit)


@pytest.mark.parametrize("max_num_reqs", [1, 2, 7, 64, 2000])
@pytest.mark.parametrize("rule", RULES)
def test_reachable_shapes_are_tried_too(rule: str, max_num_reqs: int) -> None:
    tokens = np.arange(1, MAX_NUM_TOKENS + 1)
    reqs = np.minimum(tokens, max_num_reqs)
    found = find_rule(rule).runs(reqs, tokens, 1).seq_len.max(axis=0)
    for max_model_len in (1, 5, 16, 80):
        report = frontier(
            max_num_reqs=max_num_reqs,
            max_num_tokens=MAX_NUM_TOKENS,
            max_model_len=max_model_len,
            token_alignment=0,
            rules=[rule, "last", "v1", "even+plus-one"],
            reachable=True,
        )
        table = report.tables[0]
        over = found > table.row_tokens
        feasible = over & (tokens <= reqs * max_model_len)
        total = report.totals[0]
        assert total.shapes == MAX_NUM_TOKENS
        assert (total.overflow, total.infeasible) == (over.sum(), over.sum() - feasible.sum())
        if not find_rule(rule).needs_max_model_len:
            assert total.over_length == (found > max_model_len).sum() - over.sum()
        for mask, shape in ((over, total.smallest), (feasible, total.smallest_feasible)):
            assert shape == ((int(reqs[mask.argmax()]), int(mask.argmax()) + 1) if mask.any() else None)
        for other in report.totals[1:]:
            theirs = find_rule(other.rule).runs(reqs, tokens, 1).seq_len.max(axis=0) > table.row_tokens
            assert (other.only_first, other.only_this) == ((over & ~theirs).sum(), (theirs & ~over).sum())


@pytest.mark.parametrize("reachable", [False, True])
@pytest.mark.parametrize("rule", [rule for rule in RULES if "max-model-len" not in rule])
def test_needs_are_the_smallest_max_model_len_at_which_nothing_overflows(rule: str, reachable: bool) -> None:
    def ask(max_model_len: int) -> list[Frontier]:
        report = frontier(
            max_num_reqs=12,
            max_num_tokens=300,
            max_model_len=max_model_len,
            block_size=48,
            rules=[rule],
            reachable=reachable,
        )
        return [*report.totals, *report.rows]

    for i, asked in enumerate(ask(16)):
        assert asked.needs is not None
        row, strict = asked.needs.row, asked.needs.strict
        num_reqs = asked.num_reqs

        def at(max_model_len: int, num_reqs: int | None = num_reqs) -> Frontier:
            return next(found for found in ask(max_model_len) if found.num_reqs == num_reqs)

        assert at(row).overflow == 0, i
        assert row == 1 or at(row - 1).overflow > 0
        assert at(strict).overflow + at(strict).over_length == 0
        assert strict == 1 or at(strict - 1).overflow + at(strict - 1).over_length > 0


def test_a_sample_agrees_request_by_request() -> None:
    source = random.Random(5)
    for _ in range(400):
        table = source.choice(TABLES)
        rule = find_rule(source.choice(RULES))
        reqs = source.randint(1, MAX_NUM_REQS)
        tokens = source.randint(reqs, MAX_NUM_TOKENS)
        runs = rule.runs(np.array([reqs]), np.array([tokens]), table.max_model_len)
        seq_lens = np.repeat(runs.seq_len[:, 0], runs.count[:, 0]).tolist()
        overflows = any(-(-seq_len // table.block_size) > table.row_slots for seq_len in seq_lens)
        form = closed_form(rule, table.row_tokens)
        counted = count_over(form, reqs, reqs, tokens) - count_over(form, reqs, reqs, tokens - 1)
        assert counted == overflows


def test_large_counts_are_exact() -> None:
    # Sums over many num_reqs are those of their parts; of one they are added up with Python's integers.
    most, limit = 2**31 - 1, 4096
    form = closed_form(find_rule("last"), limit)
    edges = [1, 2, 3, 4000, 46340, 46341, 46342, 10**6, 10**6 + 1, 2**30, 2**30 + 1, 2**31 - 2, 2**31]
    parts = [count_over(form, low, high - 1, most) for low, high in pairwise(edges)]
    assert sum(parts) == count_over(form, 1, most, most)
    for reqs in (3, 5000, 46341, 10**6, 2**30 + 7, 2**31 - 1):
        q, r = divmod(most, reqs)
        some = sum(max(0, reqs - 1 - (limit - i)) for i in range(1, min(q, limit + 1)))
        last_row = max(0, r + 1 - max(limit - q + 1, 0))
        assert count_over(form, reqs, reqs, most) == some + max(q - 1 - limit, 0) * reqs + last_row
