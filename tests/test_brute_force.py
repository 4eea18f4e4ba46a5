"""The closed forms and the report against every request on its own, written from the definitions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from built_cases import RULES, Case, cases, pages_of, requests_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dummyaudit
from dummyaudit.audit import (
    FITS,
    NEXT_ROW,
    OVER_LENGTH,
    PAST_TABLE,
    count_reads,
    count_requests,
    find_severity,
    find_worst,
    first_past_table,
)
from dummyaudit.block_table import INT32_MAX, BlockTable
from dummyaudit.layout import Layout
from dummyaudit.rules import find_rule
from dummyaudit.sweep import VERDICTS, Sweep

SEVERITIES = {verdict: severity for severity, verdict in VERDICTS.items()}


def row_slots_of(table: BlockTable) -> int:
    """Blocks that hold max_model_len on each rank, widened until their tokens are whole multiples of 128, or not."""
    size = table.block_size
    align = {
        0: 1,
        "128-floor": max(128 // size, 1),
        128: next(n for n in range(1, 129) if n * size % 128 == 0),
    }[table.token_alignment]
    slots = math.ceil(table.max_model_len / (size * table.dcp))
    while slots % align:
        slots += 1
    return slots * (size // (table.kernel_block_size or size))


def severity_of(request: int, seq_len: int, rows: int, table: BlockTable) -> int:
    pages, slots = pages_of(table, seq_len), row_slots_of(table)
    if request * slots + pages > rows * slots:
        return PAST_TABLE
    if pages > slots:
        return NEXT_ROW
    return OVER_LENGTH if seq_len > table.max_model_len else FITS


def judge(case: Case, i: int) -> dict[str, object]:
    """All that is to be said of a layout."""
    table, rows, slots = case.table, case.rows[i], row_slots_of(case.table)
    lengths = [seq_len for _, seq_len in case.requests(i)]
    pages = [pages_of(table, length) for length in lengths]
    each = [severity_of(request, length, rows, table) for request, length in enumerate(lengths)]
    worst = max(range(len(pages)), key=lambda request: (pages[request], request))
    memory = ["row"] * slots  # what follows the start of a row: itself, the rows behind it, and then no table
    reads = [(memory + ["other"] * (rows - request - 1) * slots)[: pages[request]] for request in range(len(pages))]
    return {
        "severity": max(each),
        "worst": (worst, lengths[worst], pages[worst], max(lengths)),
        "counts": (each.count(OVER_LENGTH), sum(pages > slots for pages in pages)),
        "past": next((request for request, found in enumerate(each) if found == PAST_TABLE), -1),
        "reads": (
            sum(read.count("row") for read in reads),
            sum(read.count("other") for read in reads),
            sum(pages) - sum(map(len, reads)),
        ),
    }


@settings(max_examples=300)
@given(cases())
@example(Case("last", [(1, 1)], [1], BlockTable(max_model_len=1, block_size=1)))
@example(Case("v1-mixed", [(1, 16)], [1], BlockTable(max_model_len=16, token_alignment=0)))
@example(
    Case("uniform:3+query", [(4, 4), (4, 13)], [4, 5], BlockTable(max_model_len=3, token_alignment=0, block_size=1))
)
def test_closed_forms_are_what_each_request_says(case: Case) -> None:
    runs, rows = case.runs, np.array(case.rows)
    worst = find_worst(runs, case.table)
    severity = find_severity(runs, worst, rows, case.table)
    over_length, overflow = count_requests(runs, case.table)
    reads = count_reads(runs, rows, case.table)
    past = first_past_table(runs, rows, case.table)
    assert case.table.row_slots == row_slots_of(case.table)
    for i in range(len(case.shapes)):
        assert {
            "severity": int(severity[i]),
            "worst": tuple(int(x[i]) for x in (worst.request, worst.seq_len, worst.pages, worst.longest)),
            "counts": (int(over_length[i]), int(overflow[i])),
            "past": int(past[i]),
            "reads": (int(reads.own[i]), int(reads.other_row[i]), int(reads.outside[i])),
        } == judge(case, i)


@settings(max_examples=100)
@given(cases())
def test_runs_are_the_requests_in_their_order(case: Case) -> None:
    runs = case.runs
    for i in range(len(case.shapes)):
        made = [
            (int(query_len), int(seq_len))
            for count, query_len, seq_len in zip(
                runs.count[:, i], runs.query_len[:, i], runs.seq_len[:, i], strict=True
            )
            for _ in range(count)
        ]
        assert made == case.requests(i)


def layouts_of(case: Case, **changes: object) -> list[Layout]:
    """The report's layouts of a case, all of whose tables have as many rows."""
    table = case.table
    arguments = {
        "shapes": case.shapes,
        "max_model_len": table.max_model_len,
        "block_size": table.block_size,
        "max_num_seqs": max(case.rows),
        "rules": [case.rule],
        "dcp": table.dcp,
        "interleave": table.interleave,
        "token_alignment": table.token_alignment,
        "kernel_block_size": table.kernel_block_size,
        "device": "none",
    }
    return list(dummyaudit.grid(**{**arguments, **changes}).layouts)


@settings(max_examples=150)
@given(cases(), st.integers(1, 3))
def test_report_says_of_every_layout_what_its_requests_say(case: Case, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dummyaudit.sweep.CHUNK", chunk)
        layouts = layouts_of(case)
    shapes = sorted(set(case.shapes))
    case = replace(case, shapes=shapes, rows=[max(case.rows)] * len(shapes))
    assert [(layout.num_reqs, layout.num_tokens) for layout in layouts] == shapes
    for i, layout in enumerate(layouts):
        said, slots = judge(case, i), row_slots_of(case.table)
        request, seq_len, pages, longest = said["worst"]
        assert SEVERITIES[layout.verdict, layout.reach] == said["severity"]
        assert (layout.worst.request, layout.worst.seq_len, layout.worst.pages) == (request, seq_len, pages)
        assert layout.worst.slots_read_outside == ((slots, pages - 1) if pages > slots else None)
        assert (layout.requests.over_length, layout.requests.overflow) == said["counts"]
        assert layout.row_slots == slots
        assert layout.feasible == (layout.num_tokens <= layout.num_reqs * layout.max_model_len)
        if case.rule != "mixed+max-model-len":
            assert layout.needs_max_model_len.strict == longest
            row = layout.needs_max_model_len.row
            assert row_slots_of(replace(case.table, max_model_len=row)) >= pages
            assert row == 1 or row_slots_of(replace(case.table, max_model_len=row - 1)) < pages


@settings(max_examples=150)
@given(cases(), st.booleans())
def test_advice_cures_and_one_step_less_does_not(case: Case, strict: bool) -> None:
    rows = max(case.rows)
    for layout in layouts_of(case, strict=strict, max_num_seqs=rows):

        def severity(rule: str, num_reqs: int, num_tokens: int, length: int, rows: int = rows) -> int:
            table = replace(case.table, max_model_len=length)
            requests = requests_of(rule, num_reqs, num_tokens, length)
            return max(severity_of(i, seq_len, max(rows, num_reqs), table) for i, (_, seq_len) in enumerate(requests))

        rule, num_reqs = case.rule, layout.num_reqs
        num_tokens, length = layout.num_tokens, layout.max_model_len
        # An overflow is cured if nothing leaves its row; an over-length layout, or under strict, if nothing is long.
        allowed = FITS if strict or layout.verdict == "over-length" else OVER_LENGTH
        assert bool(layout.advice) == (layout.verdict != "fits")
        evenly = "even" if not layout.feasible else rule
        for cure in layout.advice:
            match cure.change:
                case "rule":
                    assert cure.to == "even"
                    assert severity("even", num_reqs, num_tokens, length) == FITS
                case "max_model_len":
                    assert severity(rule, num_reqs, num_tokens, cure.to) <= allowed
                    assert severity(rule, num_reqs, num_tokens, cure.to - 1) > allowed
                case "num_tokens":
                    assert severity(evenly, num_reqs, cure.to, length) <= allowed
                    worse = [severity(evenly, num_reqs, more, length) for more in (cure.to + 1, num_tokens)]
                    assert min(worse) > (FITS if not layout.feasible else allowed)
                case "num_reqs":
                    assert not layout.feasible
                    assert severity("even", cure.to, num_tokens, length) == FITS
                    assert severity("even", cure.to - 1, num_tokens, length) > FITS


@settings(max_examples=100)
@given(
    st.sampled_from(["last", "even", "v1", "v1-mixed", "single", "even-first", "uniform:7"]),
    st.integers(1, INT32_MAX),
    st.integers(1, INT32_MAX),
    st.sampled_from([1, 15, 16, 4096, INT32_MAX - 1, INT32_MAX]),
    st.sampled_from([1, 16, 48, 256, INT32_MAX]),
)
@example("last", INT32_MAX, INT32_MAX, INT32_MAX, 1)
@example("last", 2**30, INT32_MAX, 1, 1)
@example("v1", INT32_MAX, INT32_MAX, 1, 1)
@example("single", 1, INT32_MAX, INT32_MAX, 256)
def test_no_sum_overflows_up_to_what_int32_holds(
    rule: str, num_reqs: int, num_tokens: int, max_model_len: int, block_size: int
) -> None:
    num_reqs, num_tokens = sorted((num_reqs, num_tokens))
    if rule == "v1-mixed":
        num_tokens = min(num_tokens, INT32_MAX - 1)
        num_reqs = min(num_reqs, num_tokens)
    table = BlockTable(max_model_len=max_model_len, block_size=block_size)
    [layout] = dummyaudit.grid(
        shapes=[(num_reqs, num_tokens)],
        max_model_len=max_model_len,
        block_size=block_size,
        rules=[rule],
        device="none",
    ).layouts
    # In Python's own whole numbers, run by run.
    q, r = divmod(num_tokens, num_reqs)
    runs = {
        "last": [(num_reqs - 1, q), (1, q + r)],
        "even": [(num_reqs - r, q), (r, q + 1)],
        "even-first": [(r, q + 1), (num_reqs - r, q)],
        "v1": [(num_reqs, num_tokens)],
        "single": [(1, num_tokens)],
        "v1-mixed": [
            (decodes := min(num_reqs - 1, num_tokens // 2), 1),
            (1, num_tokens - decodes + 1),
        ],
        "uniform:7": [
            (full := min(num_reqs, -(-num_tokens // 7)) - 1, 7),
            (1, num_tokens - 7 * full),
        ],
    }[rule]
    slots = row_slots_of(table)
    end, found = 0, []
    for count, length in runs:
        if count:
            end += count
            pages = -(-length // block_size)
            found.append((pages, end - 1, length, pages > slots, (end - 1) * slots + pages > num_reqs * slots, count))
    pages, request, length, _, _, _ = max(found)
    assert (layout.worst.pages, layout.worst.request, layout.worst.seq_len) == (pages, request, length)
    assert layout.requests.overflow == sum(count for *_, over, _, count in found if over)
    reach = "past-table" if any(past for *_, past, _ in found) else "next-row"
    assert layout.reach == (reach if any(over for *_, over, _, _ in found) else None)
    longest = max(length for _, _, length, *_ in found)
    assert layout.needs_max_model_len.strict == longest
    if layout.verdict != "overflow":
        assert layout.verdict == ("over-length" if longest > max_model_len else "fits")


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_found_by_its_name_in_another_process(rule: str) -> None:
    function, (name,) = find_rule(rule).__reduce__()
    found = function(name)
    runs = [one.runs(np.array([5]), np.array([17]), 16) for one in (found, find_rule(rule))]
    assert [runs[0].seq_len.tolist(), runs[0].count.tolist()] == [runs[1].seq_len.tolist(), runs[1].count.tolist()]


def test_places_in_a_sweep_are_those_of_its_iteration() -> None:
    report = dummyaudit.grid(num_reqs=[2, 4], num_tokens=[4, 9, 30], max_model_len=[4, 16], device="none")
    layouts = list(report.layouts)
    assert len(report.layouts) == len(layouts) == 2 * 3 * 2 * 2
    assert [report.layouts[i] for i in range(len(layouts))] == layouts
    assert report.layouts[-1] == layouts[-1]
    assert report.layouts[3:20:5] == layouts[3:20:5]
    with pytest.raises(IndexError):
        report.layouts[len(layouts)]
    assert isinstance(report.layouts.sweep, Sweep)
