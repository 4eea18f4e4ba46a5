from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from render_cases import BROKEN_NAMES, REPORTS, WILD_NAMES, engine, incident, renamed, small_grid, text_of

from dummyaudit.report import Report


def read(report: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of(report, "csv"), newline=""), strict=True))


def leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """What a reader of the JSON would look for in the CSV."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(f"{prefix}_{key}" if prefix else key, inner)
    else:
        words = {None: "", True: "true", False: "false"}
        slots = "-".join(map(str, value)) if isinstance(value, list) else None
        yield prefix, slots or (words[value] if value is None or value is True or value is False else str(value))


@pytest.mark.parametrize("name", REPORTS)
def test_csv_says_what_the_json_says(name: str) -> None:
    report = REPORTS[name]()
    rows = read(report)
    layouts = report.to_dict()["layouts"]
    assert len(rows) == len(layouts)
    for row, layout in zip(rows, layouts, strict=True):
        layout.pop("groups", None)
        if layout["phase"] is None:
            del layout["phase"]
        said = dict(leaves("", layout))
        assert {key: cell for key, cell in row.items() if key in said} == said
        assert {cell for key, cell in row.items() if key not in said} <= {""}


def test_header_has_the_documented_names_in_every_csv() -> None:
    headers = {text_of(REPORTS[name](), "csv").split("\n")[0] for name in REPORTS}
    assert len(headers) == 1
    names = headers.pop().split(",")
    assert {"requests_over_length", "worst_slots_read_outside", "needs_max_model_len_row", "phase_run"} < set(names)


def test_header_is_there_when_nothing_is_listed() -> None:
    report = replace(small_grid(), layouts=[])
    assert text_of(report, "csv").startswith("rule,num_reqs,")
    assert read(report) == []


def test_slots_read_outside_are_a_span_or_nothing() -> None:
    assert [row["worst_slots_read_outside"] for row in read(incident())] == ["8-15", "", "8-30"]


def test_lines_end_in_newline_alone() -> None:
    assert "\r" not in text_of(small_grid(), "csv")
    assert text_of(small_grid(), "csv").endswith("\n")


@pytest.mark.parametrize("name", [*WILD_NAMES, *BROKEN_NAMES, 'a,"b"', "a;b"])
def test_name_is_read_back_as_it_is(name: str) -> None:
    rows = read(renamed(incident(), "last", name))
    assert [row["rule"] for row in rows] == [name.replace("\0", "\\x00"), "even", "single"]


@pytest.mark.parametrize("name", ["=x:y", "+x:y", "-x:y", "@x:y", "\tx:y", "\rx:y", '=cmd|"/c x"!A1'])
def test_name_is_no_formula(name: str) -> None:
    assert read(renamed(incident(), "last", name))[0]["rule"] == f"'{name}"


def test_key_without_a_column_is_not_dropped_in_silence() -> None:
    layouts = [replace(layout, phase={"hook": "lora"}) for layout in engine().layouts]
    with pytest.raises(ValueError, match="phase_hook"):
        text_of(replace(engine(), layouts=layouts), "csv")
