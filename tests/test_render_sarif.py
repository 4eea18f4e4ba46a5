from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from render_cases import BROKEN_NAMES, REPORTS, WILD_NAMES, engine, good_grid, incident, renamed, small_grid, text_of

from dummyaudit.report import Report

SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft4Validator(SCHEMA)


def read(report: Report) -> dict[str, Any]:
    log = json.loads(text_of(report, "sarif"))
    VALIDATOR.validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    found: dict[str, Any] = run
    return found


@pytest.mark.parametrize("name", REPORTS)
def test_every_flagged_layout_is_a_valid_result_with_its_level(name: str) -> None:
    report = REPORTS[name]()
    results = read(report)["results"]
    flagged = [layout for layout in report.layouts if layout.verdict != "fits"]
    by_properties = {json.dumps(result["properties"]): result["level"] for result in results}
    assert by_properties == {
        json.dumps(layout.to_dict()): "error" if report.is_failure(layout) else "warning" if layout.live else "note"
        for layout in flagged
    }
    assert len(results) == len(flagged)


def test_the_validator_would_find_a_fault() -> None:
    log = json.loads(text_of(incident(), "sarif"))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError, match="fatal"):
        VALIDATOR.validate(log)


def test_rules_say_what_went_wrong() -> None:
    found = {
        (result["ruleId"], p["verdict"], p["reach"], p["feasible"])
        for result in read(small_grid())["results"]
        for p in [result["properties"]]
    }
    assert found == {
        ("dummyaudit/overflow-past-table", "overflow", "past-table", True),
        ("dummyaudit/over-length", "over-length", None, True),
        ("dummyaudit/infeasible", "overflow", "past-table", False),
        ("dummyaudit/infeasible", "over-length", None, False),
    }
    assert {result["ruleId"] for result in read(incident())["results"]} == {
        "dummyaudit/overflow-past-table",
        "dummyaudit/overflow-next-row",
    }


def test_message_has_the_request_and_the_cure() -> None:
    text = read(incident())["results"][0]["message"]["text"]
    assert "request 255 has seq_len 241" in text
    assert "Cure: split evenly (at most 2 tokens a request), or max_model_len 129 or more." in text


def fingerprints(report: Report) -> list[str]:
    return [result["partialFingerprints"]["layout/v1"] for result in read(report)["results"]]


def test_fingerprints_are_the_same_in_every_run_and_differ_in_a_run() -> None:
    first = fingerprints(small_grid())
    assert len(set(first)) == len(first) > 5
    assert sorted(fingerprints(small_grid(strict=True, worst=3))) == sorted(first)
    assert set(fingerprints(engine())).isdisjoint(first)


def test_all_flagged_layouts_are_there_though_the_report_keeps_only_the_worst() -> None:
    assert len(read(small_grid(worst=3))["results"]) == len(read(small_grid())["results"]) > 3


def test_good_grid_has_no_result() -> None:
    assert read(good_grid())["results"] == []


def test_setting_at_fault_is_a_place_in_a_file() -> None:
    (location,) = read(engine())["results"][0]["locations"]
    place = location["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "deploy/serve%20me.yaml"
    assert place["region"]["startLine"] in (3, 4)


def test_file_is_named_by_a_plain_relative_uri() -> None:
    layouts = tuple(replace(layout, location=(".\\a\\..\\b#c.yaml", 1)) for layout in engine().worst)
    (location,) = read(replace(engine(), worst=layouts))["results"][0]["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "b%23c.yaml"


def test_layout_of_a_grid_has_a_logical_place_only() -> None:
    (location,) = read(incident())["results"][0]["locations"]
    assert list(location) == ["logicalLocations"]
    assert location["logicalLocations"][0]["fullyQualifiedName"].startswith("last num_reqs=256 num_tokens=496 ")


@pytest.mark.parametrize("name", [*WILD_NAMES, *BROKEN_NAMES, "lone \udcff surrogate"])
def test_name_is_read_back_as_it_is(name: str) -> None:
    text = text_of(renamed(incident(), "last", name), "sarif")
    assert text.isascii()
    result = read(renamed(incident(), "last", name))["results"][0]
    assert result["properties"]["rule"] == name
    assert result["locations"][0]["logicalLocations"][0]["name"] == name
    assert result["message"]["text"].startswith(name)
