"""What is wrong and no verdict, such as a check that a builder fails, in every format of a CI server."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from render_cases import good_grid, small_grid, text_of

from dummyaudit.report import Report

PROBLEMS = ("check sum fails: [num_reqs] of :x:, 2 <not> 3 & more", "request 2, row 2: page id 7 is not in the pool")


def with_problems(report: Report, count: int = 2) -> Report:
    return replace(report, problems=(PROBLEMS * count)[:count])


def test_problem_fails_the_gate_where_every_layout_fits() -> None:
    report = with_problems(good_grid())
    assert report.fails
    assert not report.failures
    assert not good_grid().fails


def test_junit_has_a_failing_case_for_each() -> None:
    plain = ElementTree.fromstring(text_of(good_grid(), "junit"))
    suites = ElementTree.fromstring(text_of(with_problems(good_grid()), "junit"))
    assert int(suites.attrib["tests"]) == int(plain.attrib["tests"]) + 2
    assert suites.attrib["failures"] == "2"
    failing = [case.attrib["name"] for case in suites.iter("testcase") if case.find("failure") is not None]
    assert failing == list(PROBLEMS)
    assert len(list(suites.iter("testcase"))) == int(suites.attrib["tests"])


@pytest.mark.parametrize(("count", "shown", "more"), [(1, 1, 0), (5, 5, 0), (8, 5, 3)])
def test_github_has_an_error_for_each_and_never_more_than_ten(count: int, shown: int, more: int) -> None:
    lines = text_of(with_problems(small_grid(), count), "github").splitlines()
    annotations = [line for line in lines if line.startswith("::")]
    assert len(annotations) <= 10
    named = [line for line in annotations if "title=dummyaudit grid::" in line]
    assert len(named) == shown + bool(more)
    assert named[0] == f"::error title=dummyaudit grid::{PROBLEMS[0]}"
    if more:
        assert named[-1] == f"::error title=dummyaudit grid::{more} more problems"
    assert lines[-1].count(f"{count} problem") == 1


def test_sarif_has_an_error_for_each() -> None:
    run = json.loads(text_of(with_problems(good_grid()), "sarif"))["runs"][0]
    found = [result for result in run["results"] if result["ruleId"] == "dummyaudit/problem"]
    assert [result["message"]["text"] for result in found] == list(PROBLEMS)
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert {result["level"] for result in found} == {"error"}


def test_markdown_and_json_list_each() -> None:
    text = text_of(with_problems(good_grid()), "markdown")
    assert text.startswith("### ❌ ")
    assert text.count("- **problem**: ") == 2
    assert json.loads(text_of(with_problems(good_grid()), "json"))["problems"] == list(PROBLEMS)


def test_table_counts_them_in_its_last_line() -> None:
    assert "2 problems besides" in text_of(with_problems(good_grid()), "table").splitlines()[-1]
