from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import pytest
from render_cases import BROKEN_NAMES, WILD_NAMES, engine, good_grid, incident, renamed, small_grid, text_of

from dummyaudit import api
from dummyaudit.report import Report


class Annotation(NamedTuple):
    level: str
    properties: dict[str, str]
    message: str


def decode(text: str) -> str:
    return re.sub("%(25|0A|0D|3A|2C)", lambda match: chr(int(match[1], 16)), text)


def read(report: Report) -> tuple[list[Annotation], list[str]]:
    """Annotations and other lines, as GitHub's runner takes them from a log."""
    annotations, others = [], []
    for line in re.split("\r\n|\r|\n", text_of(report, "github").removesuffix("\n")):
        command = re.match(r"\s*::(.*?)::(.*)", line)
        if command:
            level, _, properties = command[1].partition(" ")
            pairs = (pair.partition("=") for pair in properties.split(","))
            annotations.append(Annotation(level, {k: decode(v) for k, _, v in pairs}, decode(command[2])))
        else:
            assert "##[" not in line
            others.append(line)
    return annotations, others


def test_incident_says_which_request_reads_what_and_the_cure() -> None:
    (last, single), _ = read(incident())
    assert last.level == single.level == "error"
    assert last.properties["title"] == "last (old): 256 requests, 496 tokens, max_model_len 16, block_size 16"
    first, second = last.message.split("\n")
    assert "request 255 has seq_len 241" in first
    assert "reads slots 8-15 past the table" in first
    assert second == "Cure: split evenly (at most 2 tokens a request), or max_model_len 129 or more."


def test_verdict_is_the_last_line_and_no_command() -> None:
    for report in (small_grid(), incident(), good_grid(), engine(), renamed(incident(), "last", "::error::x")):
        others = read(report)[1]
        assert len(others) == 1
        assert "layout" in others[0]
        assert text_of(report, "github").endswith(f"{others[0]}\n")


def test_good_run_annotates_nothing() -> None:
    assert read(good_grid()) == ([], ["None of 2 layouts overflows. By arithmetic alone, nothing built."])


def test_failures_come_first_and_are_errors_and_the_rest_warnings() -> None:
    levels = [annotation.level for annotation in read(engine())[0]]
    live = sum(layout.live and layout.verdict == "overflow" for layout in engine().layouts)
    assert 0 < live < len(levels) == len(engine().worst)
    assert levels == ["error"] * live + ["warning"] * (len(levels) - live)


def test_strict_makes_every_finding_an_error() -> None:
    assert {annotation.level for annotation in read(engine(strict=True))[0]} == {"error"}


def grid_with(failures: int, over_length: int) -> Report:
    """A grid with this many overflows by the old rule, and so many that only are over length."""
    return api.grid(
        num_reqs=[256],
        num_tokens=[256 + 16 * n for n in range(16 - failures - over_length, 16)],
        max_model_len=[16],
        rules=["last"],
        device="none",
    )


@pytest.mark.parametrize(
    ("failures", "over_length", "lines"), [(8, 2, 10), (8, 3, 10), (8, 6, 10), (8, 1, 9), (1, 0, 1)]
)
def test_more_than_ten_annotations_are_counted_in_the_tenth(failures: int, over_length: int, lines: int) -> None:
    # 496, 480 ... tokens: the last request has 241, 225 ...; the row of 128 tokens holds the ninth.
    report = grid_with(failures, over_length)
    assert report.summary.overflow == failures
    assert report.summary.over_length == over_length
    annotations = read(report)[0]
    assert len(annotations) == lines
    hidden = failures + over_length - 9
    last = annotations[-1]
    if hidden > 1:
        assert last.level == "warning"
        assert last.message == f"{hidden} more flagged layouts, none of which fail"
    else:
        assert "request 255" in last.message


def test_hidden_failures_are_an_error() -> None:
    report = api.grid(
        num_reqs=[256], num_tokens=[496], max_model_len=range(1, 13), rules=["last"], device="none", worst=3
    )
    annotations = read(report)[0]
    assert [annotation.level for annotation in annotations] == ["error"] * 4
    assert annotations[-1].message == "9 more flagged layouts, 9 of which fail"


@pytest.mark.parametrize("name", WILD_NAMES)
def test_name_is_decoded_to_what_it_was(name: str) -> None:
    annotation = read(renamed(incident(), "last", name))[0][0]
    assert set(annotation.properties) == {"title"}
    assert annotation.properties["title"].startswith(f"{name}: 256 requests")


@pytest.mark.parametrize("name", BROKEN_NAMES)
def test_control_characters_reach_no_log(name: str) -> None:
    text = text_of(renamed(incident(), "last", name), "github")
    assert not re.search("[^\n\x20-\x7e\xa0-\ufffd]", text)
    assert text.count("\n") == text_of(incident(), "github").count("\n")
    title = read(renamed(incident(), "last", name))[0][0].properties["title"]
    assert title.startswith(name[:3])
    assert title.endswith("block_size 16")


def test_setting_at_fault_is_pointed_at() -> None:
    annotation = read(engine())[0][0]
    assert annotation.properties["file"] == "deploy/serve me.yaml"
    assert annotation.properties["line"] in ("3", "4")
    assert annotation.properties["title"].startswith("capture FULL mixed v2 0.26.0: ")


def test_file_name_cannot_end_the_properties() -> None:
    worst = tuple(replace(layout, location=("a,b::c.yaml", 1)) for layout in engine().worst)
    annotation = read(replace(engine(), worst=worst))[0][0]
    assert annotation.properties["file"] == "a,b::c.yaml"
    assert annotation.properties["line"] == "1"
