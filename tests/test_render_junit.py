from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from junitparser import Failure, JUnitXml
from render_cases import (
    BROKEN_NAMES,
    REPORTS,
    WILD_NAMES,
    engine,
    good_grid,
    incident,
    renamed,
    small_grid,
    text_of,
)

from dummyaudit import api
from dummyaudit.layout import Layout
from dummyaudit.render.words import cure_sentence, worst_sentence
from dummyaudit.report import Report


def read(report: Report) -> ET.Element:
    """The suite; what its counts say is held against its cases."""
    text = text_of(report, "junit")
    root = ET.fromstring(text)
    (suite,) = root
    cases = suite.findall("testcase")
    names = [(case.get("classname"), case.get("name")) for case in cases]
    assert len(set(names)) == len(names)
    for element in (root, suite):
        assert element.get("tests") == str(len(cases))
        assert element.get("failures") == str(len(suite.findall("testcase/failure")))
        assert element.get("errors") == "0"
        assert "timestamp" not in element.attrib
    parsed = JUnitXml.fromstring(text.encode())
    assert parsed.tests == len(cases)
    assert [[type(result) for result in case.result] for case in next(iter(parsed))] == [
        [Failure] * len(case.findall("failure")) for case in cases
    ]
    return suite


@pytest.mark.parametrize("name", REPORTS)
def test_every_layout_is_a_case_and_only_failures_fail(name: str) -> None:
    report = REPORTS[name]()
    cases = read(report).findall("testcase")
    for case, layout in zip(cases, report.listed(), strict=True):
        assert case.get("classname") == f"dummyaudit.{report.command}.{layout.rule}"
        assert f"num_reqs={layout.num_reqs} num_tokens={layout.num_tokens} " in case.get("name", "")
        failure, said = case.find("failure"), case.findtext("system-out")
        if report.is_failure(layout):
            assert failure is not None
            assert failure.get("message") == worst_sentence(layout)
            assert cure_sentence(layout.advice) in (failure.text or "")
            assert said is None
        else:
            assert failure is None
            assert (said is None) == (layout.verdict == "fits")
            if said is not None:
                assert worst_sentence(layout) in said
                assert cure_sentence(layout.advice) in said


def test_case_says_what_passes_though_it_is_flagged() -> None:
    cases = zip(read(engine()).findall("testcase"), engine().layouts, strict=True)
    found = {"latent": 0, "infeasible": 0, "over-length": 0}
    for case, layout in cases:
        text = "".join(case.itertext())
        if layout.verdict != "fits":
            said = {"latent": not layout.live, "infeasible": not layout.feasible}
            said["over-length"] = layout.verdict == "over-length"
            for word, right in said.items():
                assert (f"{word}: " in text) == right
                found[word] += right
    assert all(found.values())


def test_suite_says_the_verdict() -> None:
    assert read(incident()).findtext("system-out") == "2 of 3 layouts overflow. Built and walked on cpu."


def test_same_shape_twice_gives_two_names() -> None:
    layouts = [*engine().layouts, *engine().layouts]
    summary = replace(engine().summary, layouts=2 * len(engine().layouts), live_overflow=2 * engine().failures)
    report = replace(engine(), layouts=layouts, summary=summary)
    names = [case.get("name", "") for case in read(report).findall("testcase")]
    assert sum(name.endswith(" #2") for name in names) == len(engine().layouts)


def test_phase_is_part_of_the_name() -> None:
    names = [case.get("name", "") for case in read(engine()).findall("testcase")]
    assert all(name.endswith("run=capture graph=FULL kind=mixed runner=v2 release=0.26.0") for name in names)


def large(num_tokens: int, **options: object) -> Report:
    """64 num_reqs by so many num_tokens by two rules by one block_size and two max_model_len."""
    return api.grid(
        num_reqs=range(1, 65),
        num_tokens=range(128, 128 + num_tokens),
        max_model_len=[16, 32],
        device="none",
        **options,  # type: ignore[arg-type]
    )


def test_5000_layouts_are_a_case_each_and_more_are_not() -> None:
    at_limit = api.grid(
        num_reqs=range(1, 51), num_tokens=range(64, 114), max_model_len=[16], device="none", rules=["last", "even"]
    )
    assert len(at_limit.layouts) == 5000
    assert len(read(at_limit).findall("testcase")) == 5000
    report = large(20)
    assert len(report.layouts) == 5120
    names = [(case.get("classname"), case.get("name")) for case in read(report).findall("testcase")]
    assert names == [
        (f"dummyaudit.grid.{rule}", f"max_model_len={length} block_size=16")
        for length in (16, 32)
        for rule in ("last", "even")
    ]


@pytest.mark.parametrize("strict", [False, True])
def test_case_of_many_layouts_fails_if_one_of_them_does(strict: bool) -> None:
    report = large(20, strict=strict)
    for case in read(report).findall("testcase"):
        rule = case.get("classname", "").rpartition(".")[2]
        length = int(re.findall(r"\d+", case.get("name", ""))[0])
        same = [layout for layout in report.layouts if layout.rule == rule and layout.max_model_len == length]
        overflow = sum(layout.verdict == "overflow" for layout in same)
        over_length = sum(layout.verdict == "over-length" for layout in same)
        failure = case.find("failure")
        assert (failure is not None) == any(report.is_failure(layout) for layout in same)
        text = failure.get("message", "") if failure is not None else case.findtext("system-out", "")
        assert (text == "") == (overflow + over_length == 0)
        if text:
            worst = max(same, key=lambda layout: (layout.badness, layout.worst.seq_len))
            assert f"{overflow} of {len(same)} shapes overflow, {over_length} over length" in text
            assert worst_sentence(worst) in text


def test_flagged_layouts_of_a_large_grid_are_a_case_each() -> None:
    report = large(20, only_flagged=True)
    flagged = [layout for layout in report.layouts if layout.verdict != "fits"]
    assert 0 < len(flagged) <= 5000
    assert len(read(report).findall("testcase")) == len(flagged)


def test_block_sizes_are_cases_of_their_own() -> None:
    report = api.grid(
        num_reqs=range(1, 65), num_tokens=range(64, 128), max_model_len=[16], block_size=[16, 32], device="none"
    )
    names = [case.get("name") for case in read(report).findall("testcase")]
    assert sorted(set(names)) == ["max_model_len=16 block_size=16", "max_model_len=16 block_size=32"]


@pytest.mark.parametrize("name", [*WILD_NAMES, "two\nlines", "return\rend"])
def test_name_is_read_back_as_it_is(name: str) -> None:
    case = read(renamed(incident(), "last", name)).find("testcase")
    assert case is not None
    assert case.get("classname") == f"dummyaudit.compare.{name}"


@pytest.mark.parametrize("name", BROKEN_NAMES)
def test_no_character_comes_out_that_xml_forbids(name: str) -> None:
    text = text_of(renamed(incident(), "last", name), "junit")
    assert not re.search("[^\t\n\r\x20-\x7e]", text)
    assert name[:3] in ET.fromstring(text).findall(".//testcase")[0].get("classname", "")


def test_advice_is_read_back_as_it_is_without_what_xml_forbids() -> None:
    def advise(layout: Layout) -> Layout:
        return replace(layout, advice=tuple(replace(cure, text="a\r\n]]>&<b>\x1bé") for cure in layout.advice[:1]))

    report = replace(incident(), layouts=[advise(layout) for layout in incident().layouts])
    failure = read(report).find("testcase/failure")
    assert failure is not None
    assert (failure.text or "").endswith("Cure: a\r\n]]>&<b>\\x1bé.")


def test_good_grid_has_no_failure() -> None:
    assert [list(case) for case in read(good_grid()).findall("testcase")] == [[], []]


def test_small_grid_strict_fails_what_is_over_length() -> None:
    strict, lax = read(small_grid(strict=True)), read(small_grid())
    assert int(strict.get("failures", "")) > int(lax.get("failures", "")) > 0
