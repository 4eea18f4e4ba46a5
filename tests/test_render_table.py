from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from render_cases import WILD_NAMES, good_grid, incident, renamed, small_grid, text_of

from dummyaudit.render import Style
from dummyaudit.report import Report


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", [60, 160])
@pytest.mark.parametrize("make", [incident, small_grid])
@pytest.mark.parametrize("name", WILD_NAMES)
def test_name_shows_as_it_is(name: str, make: Callable[[], Report], width: int, colour: bool) -> None:
    text = text_of(renamed(make(), "last", name), "table", Style(width=width, colour=colour))
    shown = re.sub("\x1b\\[[0-9;]*m", "", text)
    assert any(line.startswith(f"{name} ") or f"  {name}" in line for line in shown.splitlines())
    assert f"Cure for {name}: " in shown


@pytest.mark.parametrize("make", [incident, small_grid, good_grid])
def test_colour_changes_nothing_but_colour(make: Callable[[], Report]) -> None:
    report = make()
    plain, coloured = (text_of(report, "table", Style(width=140, colour=colour)) for colour in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert [line.rstrip() for line in re.sub("\x1b\\[[0-9;]*m", "", coloured).splitlines()] == plain.splitlines()


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("make", [incident, small_grid, good_grid])
def test_no_line_is_wider_than_the_terminal(make: Callable[[], Report], width: int) -> None:
    text = text_of(make(), "table", Style(width=width))
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_verdict_is_the_last_line() -> None:
    for report in (incident(), small_grid(), good_grid(), replace(small_grid(), worst=())):
        last = text_of(report, "table").splitlines()[-1]
        assert re.match(r"(\d+ of|None of) \d+ layouts overflows?", last)


@pytest.mark.parametrize("make", [incident, small_grid])
@pytest.mark.parametrize("name", ["esc\x1b[31m", "nul\0", "bell\x07\x85", "title\x1b]0;x\x07"])
def test_control_characters_never_reach_the_terminal(name: str, make: Callable[[], Report]) -> None:
    text = text_of(renamed(make(), "last", name), "table", Style(width=160))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
