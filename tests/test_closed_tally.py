from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dummyaudit
from dummyaudit import Report

RULES = (
    *("last", "even", "even-first", "v1", "v1-mixed", "mixed", "single", "uniform:3", "uniform:20"),
    *("last+context:5", "even+constant:40", "single+max-model-len", "last+plus-one", "even+plus-one"),
)


def facts(report: Report) -> dict[str, object]:
    """What must not depend on how it was counted."""
    return {
        "summary": report.summary,
        "cells": report.cells,
        "outlooks": report.outlooks,
        "worst": report.worst,
        "layouts": list(report.layouts),
    }


@st.composite
def grids(draw: st.DrawFn) -> dict[str, object]:
    first_reqs = draw(st.integers(1, 20))
    first_tokens = draw(st.integers(1, 60))
    reqs = range(first_reqs, first_reqs + draw(st.integers(1, 20)), draw(st.integers(1, 3)))
    tokens = range(first_tokens, max(first_tokens, first_reqs) + draw(st.integers(1, 150)))
    return {
        "num_reqs": reqs,
        "num_tokens": tokens,
        "max_model_len": draw(st.lists(st.integers(1, 90), min_size=1, max_size=3, unique=True)),
        "block_size": draw(st.sampled_from([[1], [8], [16], [48], [8, 256]])),
        "token_alignment": draw(st.sampled_from([128, 0])),
        "max_num_seqs": draw(st.sampled_from([None, reqs[-1], reqs[-1] + 7])),
        "rules": draw(st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique=True)),
    }


@settings(max_examples=150, deadline=None)
@given(grids(), st.sampled_from([1, 2]))
def test_closed_form_and_looking_at_every_shape_say_the_same(grid: dict[str, object], dcp: int) -> None:
    closed = dummyaudit.grid(**grid, dcp=dcp, summary=True, device="none")
    sampled = dummyaudit.grid(**grid, dcp=dcp, summary=True, device="cpu")
    assert not sampled.closed_form
    assert facts(closed) == facts(sampled)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_with_a_closed_form_is_counted_by_it(rule: str) -> None:
    space = {"num_reqs": range(1, 9), "num_tokens": range(1, 100), "max_model_len": 16, "rules": [rule]}
    assert dummyaudit.grid(**space, summary=True).closed_form == (rule not in ("uniform:20+plus-one",))


def test_steps_lists_and_rules_of_users_are_looked_at_one_by_one(
    tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = {"num_reqs": [4], "max_model_len": 16, "summary": True, "device": "none"}
    assert not dummyaudit.grid(**space, num_tokens=range(4, 100, 2)).closed_form
    assert not dummyaudit.grid(**space, num_tokens=[4, 5, 6]).closed_form
    assert not dummyaudit.grid(**space).closed_form
    assert not dummyaudit.grid(**space, num_tokens=range(4, 9), rules=["uniform:2+plus-one"]).closed_form


def test_summary_counts_a_space_that_nobody_can_go_over() -> None:
    report = dummyaudit.grid(
        num_reqs=range(1, 1001), num_tokens=range(1, 2**31), max_model_len=16, rules=["even"], summary=True
    )
    # Over 128 tokens, that is 8 slots, is every num_tokens above num_reqs * 128.
    assert report.summary.overflow == sum(2**31 - 1 - 128 * reqs for reqs in range(1, 1001))
    assert report.summary.layouts == sum(2**31 - reqs for reqs in range(1, 1001))
    assert report.summary.infeasible == sum(2**31 - 1 - 16 * reqs for reqs in range(1, 1001))
    assert report.summary.over_length == report.summary.infeasible - report.summary.overflow
    worst = report.cells[0].worst
    assert (worst.num_reqs, worst.num_tokens, worst.worst.seq_len) == (1, 2**31 - 1, 2**31 - 1)


def test_without_summary_nothing_is_counted_by_closed_form() -> None:
    assert not dummyaudit.grid(num_reqs=[4], num_tokens=range(4, 9), max_model_len=16, device="none").closed_form
