from __future__ import annotations

import copy
import importlib.resources
import json
from collections.abc import Callable
from itertools import islice
from typing import Any, get_args

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from render_cases import (
    BROKEN_NAMES,
    REPORTS,
    WILD_NAMES,
    Watched,
    engine,
    incident,
    renamed,
    report_of,
    small_grid,
    text_of,
)

from dummyaudit import api
from dummyaudit.block_table import TokenAlignment
from dummyaudit.engine.graphs import Runner
from dummyaudit.layout import Change, Reach, Verdict
from dummyaudit.render import Format, Style, render
from dummyaudit.report import SCHEMA

SCHEMA_FILE = importlib.resources.files("dummyaudit") / "report.schema.json"
REPORT_SCHEMA: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(REPORT_SCHEMA)


def test_schema_in_the_package_is_one() -> None:
    assert SCHEMA_FILE.is_file()
    jsonschema.Draft202012Validator.check_schema(REPORT_SCHEMA)
    assert REPORT_SCHEMA["properties"]["schema"]["const"] == SCHEMA


@pytest.mark.parametrize("name", REPORTS)
def test_all_ways_to_json_agree_and_keep_to_the_schema(name: str) -> None:
    report = REPORTS[name]()
    said = report.to_dict()
    VALIDATOR.validate(said)
    assert json.loads(report.to_json()) == said
    assert json.loads(text_of(report, "json")) == said


sizes = st.integers(1, 300)
axes = st.lists(sizes, min_size=1, max_size=3)


@given(
    num_reqs=axes,
    num_tokens=st.lists(st.integers(300, 2000), min_size=1, max_size=3),
    max_model_len=axes,
    block_size=st.lists(st.sampled_from([1, 16, 48, 256]), min_size=1, max_size=2),
    rules=st.lists(
        st.sampled_from(["last", "v1", "v1-mixed", "single", "uniform:7+context:9", "even-first+max-model-len"]),
        min_size=1,
        max_size=2,
    ),
    token_alignment=st.sampled_from(get_args(TokenAlignment)),
    max_num_seqs=st.sampled_from([None, 300]),
    strict=st.booleans(),
    only_flagged=st.booleans(),
)
def test_schema_takes_any_grid(**options: Any) -> None:
    said = api.grid(**options, device="none").to_dict()
    VALIDATOR.validate(json.loads(json.dumps(said)))


def test_schema_takes_keys_that_are_added_later() -> None:
    said = engine().to_dict()
    said["later"] = said["layouts"][0]["later"] = said["summary"]["later"] = 1
    said["layouts"][0]["phase"]["later"] = "x"
    VALIDATOR.validate(said)


Spoil = Callable[[dict[str, Any]], Any]
SPOILED: dict[str, Spoil] = {
    "unknown verdict": lambda said: said["layouts"][0].update(verdict="overflows"),
    "overflow without reach": lambda said: said["layouts"][0].update(reach=None),
    "overflow that fits": lambda said: said["layouts"][0].update(verdict="fits"),
    "fit that overflows": lambda said: said["layouts"][1].update(verdict="overflow"),
    "fit that is over length": lambda said: said["layouts"][1].update(verdict="over-length"),
    "unknown reach": lambda said: said["layouts"][0].update(reach="row"),
    "one slot": lambda said: said["layouts"][0]["worst"].update(slots_read_outside=[8]),
    "no slots": lambda said: said["layouts"][0]["worst"].update(slots_read_outside=None),
    "no overflowing request": lambda said: said["layouts"][0]["requests"].update(overflow=0),
    "zero tokens": lambda said: said["layouts"][0].update(num_tokens=0),
    "more than int32": lambda said: said["layouts"][0].update(num_reqs=2**31),
    "a fraction": lambda said: said["layouts"][0].update(num_reqs=1.5),
    "a number as text": lambda said: said["layouts"][0].update(num_reqs="256"),
    "live as a number": lambda said: said["layouts"][0].update(live=1),
    "phase as text": lambda said: said["layouts"][0].update(phase="capture"),
    "compare without groups": lambda said: said["layouts"][0].pop("groups"),
    "group without requests": lambda said: said["layouts"][0]["groups"][0].update(count=0),
    "not ok without overflow": lambda said: said["summary"].update(overflow=0),
    "negative count": lambda said: said["summary"].update(fits=-1),
    "other schema": lambda said: said.update(schema="dummyaudit.report/2"),
    "unknown device": lambda said: said["built"].update(device="tpu"),
    "unknown alignment": lambda said: said["settings"].update(token_alignment=64),
    "empty axis": lambda said: said["settings"].update(num_reqs=[]),
    "unknown change": lambda said: said["advice"][0]["cures"][0].update(change="pray"),
    "rule as a length": lambda said: said["advice"][0]["cures"][1].update(to="even"),
    "setting left out": lambda said: said["settings"].pop("dcp"),
}


@pytest.mark.parametrize("fault", SPOILED)
def test_schema_refuses(fault: str) -> None:
    said = incident().to_dict()
    VALIDATOR.validate(said)
    SPOILED[fault](said)
    assert not VALIDATOR.is_valid(said)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every key of nested dicts and lists."""
    if isinstance(value, list):
        return [place for i, inner in enumerate(value) for place in places(inner, (*path, i))]
    if not isinstance(value, dict):
        return []
    return [place for key, inner in value.items() for place in [(*path, key), *places(inner, (*path, key))]]


@pytest.mark.parametrize("make", [incident, engine])
def test_schema_refuses_a_report_with_any_key_left_out(make: Callable[[], Any]) -> None:
    said = make().to_dict()
    said["layouts"] = said["layouts"][:1]
    optional = {("settings", "strict"), ("layouts", 0, "location")} if make is engine else set()
    for path in places(said):
        if path in optional or "phase" in path[:-1]:
            continue
        spoiled = copy.deepcopy(said)
        inner = spoiled
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]
        assert not VALIDATOR.is_valid(spoiled), path


def test_closed_sets_are_those_of_the_code() -> None:
    layout = REPORT_SCHEMA["$defs"]["layout"]["properties"]
    assert tuple(layout["verdict"]["enum"]) == get_args(Verdict)
    assert tuple(layout["reach"]["enum"]) == (*get_args(Reach), None)
    assert tuple(layout["phase"]["properties"]["runner"]["enum"]) == get_args(Runner)
    assert tuple(REPORT_SCHEMA["$defs"]["cure"]["properties"]["change"]["enum"]) == get_args(Change)
    alignment = REPORT_SCHEMA["$defs"]["settings"]["properties"]["token_alignment"]["enum"]
    assert tuple(alignment) == get_args(TokenAlignment)


@pytest.mark.parametrize("name", [*WILD_NAMES, *BROKEN_NAMES, "lone \udcff surrogate"])
def test_name_is_read_back_as_it_is(name: str) -> None:
    text = text_of(renamed(incident(), "last", name), "json")
    assert text.isascii()
    assert json.loads(text)["layouts"][0]["rule"] == name


@pytest.mark.parametrize("form", ["json", "csv", "sarif", "junit"])
def test_layouts_are_written_one_by_one(form: Format) -> None:
    watched = Watched([layout for layout in small_grid().layouts if layout.verdict != "fits"] * 200)
    report = report_of(watched, worst=())
    watched.made = 0
    pieces = render(report, form, Style())
    # The keys of the head are pieces too.
    for _ in islice(pieces, 40):
        pass
    assert watched.made <= 40
    assert sum(1 for _ in pieces) > 1000
    assert watched.made == len(watched)
