from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from typing import Any

import pytest

import dummyaudit
from dummyaudit.layout import Advice, Group, Layout, Needs, RequestCounts, WorstRequest
from dummyaudit.report import Built, Cell, DeploymentCase, Outlook, Report, Setting, Summary

OVERFLOW = Layout(
    rule="last",
    num_reqs=256,
    num_tokens=496,
    max_model_len=16,
    block_size=16,
    max_num_seqs=256,
    row_slots=8,
    verdict="overflow",
    reach="past-table",
    feasible=True,
    live=True,
    requests=RequestCounts(over_length=0, overflow=1),
    worst=WorstRequest(request=255, seq_len=241, pages=16, slots_read_outside=(8, 15)),
    needs_max_model_len=Needs(row=129, strict=241),
    advice=(Advice("rule", "even", "split evenly"), Advice("max_model_len", 129, "max_model_len 129 or more")),
)
FITS = replace(
    OVERFLOW,
    rule="even",
    verdict="fits",
    reach=None,
    requests=RequestCounts(0, 0),
    worst=WorstRequest(255, 2, 1, None),
    needs_max_model_len=Needs(1, 2),
    advice=(),
)
OVER_LENGTH = replace(FITS, verdict="over-length", requests=RequestCounts(1, 0), worst=WorstRequest(255, 17, 2, None))
LATENT = replace(OVERFLOW, live=False, phase={"release": "0.26.0"}, location=("deploy.yaml", 7))


def report_of(*layouts: Layout, **options: Any) -> Report:
    verdicts = [layout.verdict for layout in layouts]
    summary = Summary(
        layouts=len(layouts),
        fits=verdicts.count("fits"),
        over_length=verdicts.count("over-length"),
        overflow=verdicts.count("overflow"),
        infeasible=0,
        latent=sum(not layout.live for layout in layouts),
        live_overflow=sum(layout.live and layout.verdict == "overflow" for layout in layouts),
    )
    return Report("grid", {"rules": ["last", "even"]}, summary, layouts, **options)


# Layout of the design, word for word.
DESIGNED = {
    "rule": "last", "num_reqs": 256, "num_tokens": 496, "max_model_len": 16, "block_size": 16, "max_num_seqs": 256,
    "row_slots": 8, "verdict": "overflow", "reach": "past-table", "feasible": True, "live": True,
    "requests": {"over_length": 0, "overflow": 1},
    "worst": {"request": 255, "seq_len": 241, "pages": 16, "slots_read_outside": [8, 15]},
    "needs_max_model_len": {"row": 129, "strict": 241}, "phase": None,
}  # fmt: skip


def test_layout_as_json_has_the_keys_and_the_order_that_programs_know() -> None:
    assert list(OVERFLOW.to_dict().items()) == list(DESIGNED.items())


def test_layout_that_fits_reads_nothing_outside() -> None:
    assert FITS.to_dict()["worst"] == {"request": 255, "seq_len": 2, "pages": 1, "slots_read_outside": None}
    assert FITS.to_dict()["reach"] is None


def test_layout_says_where_it_comes_from_if_that_is_known() -> None:
    assert LATENT.to_dict() == {
        **DESIGNED,
        "live": False,
        "phase": {"release": "0.26.0"},
        "location": {"file": "deploy.yaml", "line": 7},
    }


def test_groups_are_added_where_they_were_asked_for() -> None:
    grouped = replace(OVERFLOW, groups=(Group(0, 255, 1, 1, 1), Group(255, 1, 241, 241, 16)))
    assert grouped.to_dict() == {
        **DESIGNED,
        "groups": [
            {"first": 0, "count": 255, "query_len": 1, "seq_len": 1},
            {"first": 255, "count": 1, "query_len": 241, "seq_len": 241},
        ],
    }


def test_incident_is_the_layout_of_the_design() -> None:
    report = dummyaudit.grid(
        num_reqs=[256], num_tokens=[496], max_model_len=[16], block_size=[16], rules=["last", "even"], device="none"
    )
    document = report.to_dict()
    assert document["schema"] == "dummyaudit.report/1"
    assert document["tool"] == {"name": "dummyaudit", "version": dummyaudit.__version__}
    assert document["command"] == "grid"
    assert document["built"] is None
    assert document["settings"].items() >= {
        "num_reqs": [256], "num_tokens": [496], "max_model_len": [16], "block_size": [16], "rules": ["last", "even"],
    }.items()  # fmt: skip
    assert document["summary"] == {
        "ok": False, "layouts": 2, "fits": 1, "over_length": 0, "overflow": 1, "infeasible": 0, "latent": 0,
    }  # fmt: skip
    assert document["layouts"][0] == DESIGNED


@pytest.mark.parametrize(
    ("layouts", "ok", "failures", "strict_failures"),
    [
        ([FITS, FITS], True, 0, 0),
        ([FITS, OVER_LENGTH], True, 0, 1),
        ([OVERFLOW, FITS], False, 1, 1),
        ([OVERFLOW, OVERFLOW, OVER_LENGTH], False, 2, 3),
        ([LATENT], True, 0, 1),
        ([LATENT, OVERFLOW], False, 1, 2),
        ([replace(OVER_LENGTH, live=False)], True, 0, 1),
    ],
)
def test_gate_fails_for_live_overflows_and_if_strict_for_all_that_is_flagged(
    layouts: list[Layout], ok: bool, failures: int, strict_failures: int
) -> None:
    for strict, expected in ((False, failures), (True, strict_failures)):
        report = report_of(*layouts, strict=strict)
        assert report.ok is report.summary.ok is report.to_dict()["summary"]["ok"] is ok
        assert report.failures == expected
        assert sum(report.is_failure(layout) for layout in layouts) == expected


def test_only_flagged_lists_neither_less_nor_more() -> None:
    report = report_of(OVERFLOW, FITS, OVER_LENGTH, LATENT, FITS)
    assert list(report.listed()) == list(report.layouts)
    flagged = replace(report, only_flagged=True)
    assert list(flagged.listed()) == [OVERFLOW, OVER_LENGTH, LATENT]
    assert [layout["verdict"] for layout in flagged.to_dict()["layouts"]] == ["overflow", "over-length", "overflow"]
    assert flagged.to_dict()["summary"] == report.to_dict()["summary"]


def test_layouts_sort_by_what_they_do() -> None:
    def variant(layout: Layout, seq_len: int, pages: int) -> Layout:
        needs = replace(layout.needs_max_model_len, strict=seq_len)
        return replace(layout, worst=replace(layout.worst, seq_len=seq_len, pages=pages), needs_max_model_len=needs)

    next_row = replace(OVERFLOW, reach="next-row")
    ascending = [
        replace(FITS, live=False),
        LATENT,
        FITS,
        OVER_LENGTH,  # by one token
        variant(OVER_LENGTH, 18, 2),
        variant(OVER_LENGTH, 128, 8),
        variant(next_row, 129, 9),
        variant(next_row, 5000, 313),
        variant(OVERFLOW, 129, 9),  # less far, but past the table
        OVERFLOW,
    ]
    badness = [layout.badness for layout in ascending]
    assert all(less < more for less, more in pairwise(badness))


def test_report_holds_plain_values_only() -> None:
    report = dummyaudit.grid(num_reqs=[4, 256], num_tokens=range(256, 520, 8), max_model_len=[16, 64], device="cpu")

    def assert_plain(value: object) -> None:
        assert type(value) in (dict, list, str, int, bool, type(None))
        for inner in (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        ):
            assert type(inner[0]) in (str, int)
            assert_plain(inner[1])

    assert_plain(report.to_dict())
    assert_plain(dummyaudit.compare(num_reqs=256, num_tokens=496, device="none").to_dict())
    assert_plain(dummyaudit.grid(max_model_len=16, summary=True).to_dict())
    assert json.loads(report.to_json()) == report.to_dict()


def test_number_that_json_does_not_have_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(report_of(FITS), settings={"x": float("nan")}).to_json()


def test_whole_report_as_json() -> None:
    case = DeploymentCase(
        deployment="prod",
        release="0.26.0",
        runner="v2",
        settings=(Setting("max_model_len", "16", "given"),),
        capture_sizes=(1, 496),
        dropped=((512, "over max_num_batched_tokens"),),
        lora_split="last",
        layouts=(OVERFLOW,),
        cures=(Advice("cudagraph_capture_sizes", [1, 256], "--cudagraph-capture-sizes 1 256"),),
    )
    report = report_of(
        OVERFLOW,
        FITS,
        worst=(OVERFLOW,),
        cells=(Cell("last", (1, 256), 16, 16, 59, 3, 2, OVERFLOW),),
        outlooks=(Outlook("last", 16, Needs(129, 241)),),
        cases=(case,),
        notes=("a note",),
        built=Built("cuda:1", 2),
        closed_form=True,
        planned=99,
    )
    expected = {
        "schema": "dummyaudit.report/1",
        "tool": {"name": "dummyaudit", "version": dummyaudit.__version__},
        "command": "grid",
        "settings": {"rules": ["last", "even"]},
        "built": {"device": "cuda:1", "layouts": 2},
        "closed_form": True,
        "planned": 99,
        "summary": {
            "ok": False, "layouts": 2, "fits": 1, "over_length": 0, "overflow": 1, "infeasible": 0, "latent": 0,
        },
        "outlooks": [{"rule": "last", "block_size": 16, "needs_max_model_len": {"row": 129, "strict": 241}}],
        "advice": [
            {
                "rule": "last", "num_reqs": 256, "num_tokens": 496, "max_model_len": 16, "block_size": 16,
                "cures": [
                    {"change": "rule", "to": "even", "text": "split evenly"},
                    {"change": "max_model_len", "to": 129, "text": "max_model_len 129 or more"},
                ],
            }
        ],
        "cases": [
            {
                "deployment": "prod", "release": "0.26.0", "runner": "v2",
                "settings": [{"name": "max_model_len", "value": "16", "origin": "given"}],
                "capture_sizes": [1, 496],
                "dropped": [{"size": 512, "reason": "over max_num_batched_tokens"}],
                "lora_split": "last",
                "cures": [
                    {
                        "change": "cudagraph_capture_sizes", "to": [1, 256],
                        "text": "--cudagraph-capture-sizes 1 256",
                    }
                ],
            }
        ],
        "notes": ["a note"],
        "problems": [],
        "layouts": [DESIGNED, FITS.to_dict()],
    }  # fmt: skip
    assert report.to_dict() == expected
    assert report.head() == {key: value for key, value in expected.items() if key != "layouts"}
    cell = {
        "rule": "last", "num_reqs": [1, 256], "max_model_len": 16, "block_size": 16, "shapes": 59, "overflow": 3,
        "over_length": 2, "worst": DESIGNED,
    }  # fmt: skip
    assert replace(report, summary_only=True).to_dict() == {**expected, "cells": [cell]}


def test_report_cannot_be_changed_by_a_renderer() -> None:
    report = report_of(OVERFLOW)
    for part, name in ((report, "strict"), (OVERFLOW, "verdict"), (report.summary, "overflow")):
        with pytest.raises(FrozenInstanceError):
            setattr(part, name, None)
        with pytest.raises((AttributeError, TypeError)):
            part.other = None  # type: ignore[attr-defined]
