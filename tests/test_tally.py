from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dummyaudit
from dummyaudit.layout import Layout
from dummyaudit.report import Report

RULES = ("last", "even", "v1", "v1-mixed", "single", "even-first", "uniform:3", "last+max-model-len")


@st.composite
def grids(draw: st.DrawFn) -> dict[str, Any]:
    reqs = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5, unique=True))
    return {
        "num_reqs": reqs,
        "num_tokens": draw(st.lists(st.integers(max(reqs), 80), min_size=1, max_size=8, unique=True)),
        "max_model_len": draw(st.lists(st.integers(1, 40), min_size=1, max_size=3, unique=True)),
        "block_size": draw(st.sampled_from([[1], [16], [1, 48]])),
        "token_alignment": draw(st.sampled_from([0, 128])),
        "max_num_seqs": draw(st.sampled_from([None, max(reqs), max(reqs) + 3])),
        "rules": draw(st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique=True)),
        "device": "none",
    }


def severity(layout: Layout) -> int:
    return {None: int(layout.verdict != "fits"), "next-row": 2, "past-table": 3}[layout.reach]


def check_cells(report: Report, layouts: list[Layout]) -> None:
    def cell_of(layout: Layout) -> tuple[Any, ...]:
        return layout.rule, layout.max_model_len, layout.block_size, layout.num_reqs

    found = {(cell.rule, cell.max_model_len, cell.block_size, cell.num_reqs[0]): cell for cell in report.cells}
    assert all(cell.num_reqs[0] == cell.num_reqs[1] for cell in report.cells)
    groups = {key: list(same) for key, same in groupby(sorted(layouts, key=cell_of), key=cell_of)}
    assert found.keys() == groups.keys()
    for key, same in groups.items():
        cell = found[key]
        assert cell.shapes == len(same)
        assert cell.overflow == sum(layout.verdict == "overflow" for layout in same)
        assert cell.over_length == sum(layout.verdict == "over-length" for layout in same)
        # The largest num_tokens of the worst ones.
        assert cell.worst == max(
            same, key=lambda one: (severity(one), one.needs_max_model_len.strict, one.num_tokens)
        )


@settings(max_examples=100)
@given(grids(), st.integers(1, 40), st.sampled_from([0, 1, 3, None]))
def test_counts_are_those_of_the_layouts(grid: dict[str, Any], chunk: int, worst: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dummyaudit.sweep.CHUNK", chunk)
        report = dummyaudit.grid(**grid, worst=worst)
        layouts = list(report.layouts)
    assert layouts == list(dummyaudit.grid(**grid).layouts)
    summary = report.summary
    verdicts = [layout.verdict for layout in layouts]
    assert (summary.layouts, summary.fits, summary.over_length, summary.overflow) == (
        len(layouts),
        *(verdicts.count(verdict) for verdict in ("fits", "over-length", "overflow")),
    )
    assert summary.infeasible == sum(not layout.feasible for layout in layouts)
    assert summary.ok == ("overflow" not in verdicts)
    check_cells(report, layouts)
    for outlook in report.outlooks:
        if outlook.rule == "last+max-model-len":
            continue
        same = [one for one in layouts if (one.rule, one.block_size) == (outlook.rule, outlook.block_size)]
        assert outlook.needs_max_model_len.row == max(one.needs_max_model_len.row for one in same)
        assert outlook.needs_max_model_len.strict == max(one.needs_max_model_len.strict for one in same)
    # sorted() keeps equal ones in the order of the layouts.
    flagged = sorted((one for one in layouts if one.verdict != "fits"), key=lambda one: one.badness, reverse=True)
    assert list(report.worst) == flagged[:worst]


def test_many_num_reqs_share_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dummyaudit.tally.MAX_CELLS", 4)
    space = {"num_reqs": range(1, 11), "num_tokens": [20, 40], "rules": ["last"], "device": "none"}
    report = dummyaudit.grid(**space, max_model_len=[4, 16])
    assert [cell.num_reqs for cell in report.cells] == [(1, 5), (6, 10)] * 2
    for cell in report.cells:
        same = [
            layout
            for layout in report.layouts
            if cell.num_reqs[0] <= layout.num_reqs <= cell.num_reqs[1] and layout.max_model_len == cell.max_model_len
        ]
        assert cell.shapes == len(same) == 10
        assert cell.overflow == sum(layout.verdict == "overflow" for layout in same)
        assert severity(cell.worst) == max(map(severity, same))


def test_progress_ends_with_all_layouts() -> None:
    seen: list[tuple[int, int]] = []
    report = dummyaudit.grid(
        num_reqs=range(1, 40), max_model_len=[4, 16], device="none", progress=lambda *done: seen.append(done)
    )
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (report.summary.layouts, report.summary.layouts)
