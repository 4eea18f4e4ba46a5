from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from render_cases import (
    BROKEN_NAMES,
    REPORTS,
    WILD_NAMES,
    engine,
    good_grid,
    incident,
    renamed,
    report_of,
    small_grid,
    text_of,
)

from dummyaudit import api
from dummyaudit.layout import Layout
from dummyaudit.render import Style
from dummyaudit.report import Report


class Page(HTMLParser):
    """What a reader sees: tables as rows of cells, and all text that is not code."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.headings: list[str] = []
        self.items: list[str] = []
        self.prose = ""
        self.code = 0
        self.target: list[str] | None = None
        self.feed(MarkdownIt("commonmark").enable("table").render(markdown))

    def handle_starttag(self, tag: str, attributes: object) -> None:
        assert tag in {
            *("h3", "h4", "p", "ul", "li", "code", "br", "strong"),
            *("table", "thead", "tbody", "tr", "th", "td"),
        }
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td", "h3", "h4", "li"):
            self.target = self.tables[-1][-1] if tag[0] == "t" else self.items if tag == "li" else self.headings
            self.target.append("")
        elif tag == "br":
            self.handle_data("\n")
        self.code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td", "h3", "h4", "li"):
            self.target = None
        self.code -= tag == "code"

    def handle_data(self, data: str) -> None:
        if self.target is not None:
            self.target[-1] += data
        if not self.code:
            self.prose += data


def flagged_table(page: Page) -> list[dict[str, str]]:
    head, *rows = page.tables[-1]
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.parametrize("name", REPORTS)
def test_tables_are_whole_and_nothing_of_ours_is_markup(name: str) -> None:
    text = text_of(REPORTS[name](), "markdown")
    page = Page(text)
    assert all(len(row) == len(table[0]) for table in page.tables for row in table)
    assert len(page.tables) == text.count("\n| ---")
    assert "|" not in page.prose
    assert page.headings[0].partition(" ")[2].startswith(f"dummyaudit {REPORTS[name]().command}: ")


def test_incident_is_one_row_a_layout_with_its_cure() -> None:
    page = Page(text_of(incident(), "markdown"))
    assert page.headings == ["❌ dummyaudit compare: 2 of 3 layouts overflow", "256 requests, 496 tokens"]
    last, even, single = flagged_table(page)
    assert last["rule"] == "last (old)"
    assert last["pages"] == "16/8"
    assert last["verdict"] == "OVERFLOW past-table, reads slots 8-15"
    assert last["cure"] == "split evenly (at most 2 tokens a request), or max_model_len 129 or more"
    assert (even["verdict"], even["cure"]) == ("fits", "")
    assert single["verdict"] == "OVERFLOW next-row, reads slots 8-30"
    assert page.items[0].startswith("last (old): overflows up to max_model_len 128, safe from 129")
    assert "Built and walked on cpu" in page.prose


def test_comparison_of_a_grid_counts_each_rule_by_max_model_len() -> None:
    report = small_grid()
    head, *rows = Page(text_of(report, "markdown")).tables[0]
    assert head == ["max_model_len", "last (old)", "even (new)", "v1"]
    assert [row[0] for row in rows] == ["16", "4096"]
    for row in rows:
        for rule, cell in zip(("last", "even", "v1"), row[1:], strict=True):
            same = [one for one in report.layouts if one.rule == rule and one.max_model_len == int(row[0])]
            overflow = sum(layout.verdict == "overflow" for layout in same)
            worst = max(same, key=lambda layout: (layout.badness, layout.worst.seq_len))
            pages = f"{worst.worst.pages}/{worst.row_slots}"
            assert cell.startswith(f"{overflow} of 5; seq_len {worst.worst.seq_len}, {pages} pages")


def test_flagged_layouts_are_worst_first_and_bold_only_if_they_fail() -> None:
    text = text_of(engine(), "markdown")
    rows = flagged_table(Page(text))
    assert [(row["rule"].split(" ")[0], row["num_tokens"]) for row in rows] == [
        (layout.rule, str(layout.num_tokens)) for layout in engine().worst
    ]
    assert text.count("**OVERFLOW") == engine().failures
    assert all(row["phase"] == "capture FULL mixed v2 0.26.0" for row in rows)
    assert "over-length, latent, infeasible" in {row["verdict"] for row in rows}


def test_case_of_a_deployment_says_how_many_fail_and_the_cure() -> None:
    head, row = Page(text_of(engine(), "markdown")).tables[0]
    assert dict(zip(head, row, strict=True)) == {
        "vLLM": "0.26.0",
        "runner": "v2",
        "result": "3 of 30 layouts fail",
        "cure": "leave out 496: -cc.cudagraph_capture_sizes=[16]",
    }


def test_several_deployments_are_named_and_the_good_ones_are_safe() -> None:
    case = engine().cases[0]
    good = replace(case, deployment="b|:x:", layouts=tuple(good_grid().layouts), cures=())
    page = Page(text_of(replace(engine(), cases=(replace(case, deployment="a"), good)), "markdown"))
    assert [(row[0], row[3]) for row in page.tables[0][1:]] == [("a", "3 of 30 layouts fail"), ("b|:x:", "safe")]


def test_good_grid_is_short() -> None:
    text = text_of(good_grid(), "markdown")
    assert text.startswith("### ✅ dummyaudit grid: None of 2 layouts overflows\n")
    assert not Page(text).tables
    assert len(text.splitlines()) < 8


def over_length_only() -> Report:
    return api.grid(num_reqs=[256], num_tokens=[280], max_model_len=[16], rules=["last"], device="none")


@pytest.mark.parametrize(("report", "mark"), [(incident, "❌"), (good_grid, "✅"), (over_length_only, "⚠️")])
def test_mark_says_the_verdict_where_unicode_can(report: Callable[[], Report], mark: str) -> None:
    assert text_of(report(), "markdown").startswith(f"### {mark} dummyaudit")
    assert text_of(report(), "markdown", Style(unicode=False)).isascii()


def rows_below(text: str) -> int:
    return len(Page(text).tables[-1]) - 1


def test_twenty_rows_are_shown_and_the_rest_is_counted() -> None:
    report = api.grid(num_reqs=[256], num_tokens=range(448, 498), max_model_len=[16], rules=["last"], device="none")
    assert report.summary.overflow + report.summary.over_length == 50
    text = text_of(report, "markdown")
    assert rows_below(text) == 20
    assert "\nand 30 more (`--all` shows them)\n" in text
    everything = api.grid(
        num_reqs=[256], num_tokens=range(448, 498), max_model_len=[16], rules=["last"], device="none", worst=None
    )
    text = text_of(everything, "markdown", Style(all=True))
    assert rows_below(text) == 50
    assert "more (" not in text


def test_long_ladder_shows_its_flagged_layouts_the_worst_first() -> None:
    report = api.compare(num_reqs=256, num_tokens=496, max_model_len=range(200, 240), rules=["last"], device="none")
    rows = flagged_table(Page(text_of(report, "markdown")))
    assert len(rows) == 20
    assert [row["max_model_len"] for row in rows] == [str(length) for length in range(200, 220)]
    assert "and 20 more" in text_of(report, "markdown")
    assert rows_below(text_of(report, "markdown", Style(all=True))) == 40


def test_job_summary_stays_under_its_limit_and_says_what_is_left_out() -> None:
    worst = [layout for layout in small_grid().layouts if layout.verdict == "overflow"] * 4000
    report = report_of(worst, cells=small_grid().cells, notes=("a long note " * 50,) * 1000)
    text = text_of(report, "markdown", Style(all=True))
    assert 900_000 < len(text.encode()) < 2**20
    left = re.search(r"\nand (\d+) more \(left out", text)
    assert left
    assert rows_below(text) + int(left[1]) == len(worst)


def test_job_summary_has_a_limit_for_the_comparison_too() -> None:
    cell = small_grid().cells[0]
    cells = tuple(replace(cell, max_model_len=length) for length in range(1, 20_000))
    text = text_of(replace(small_grid(), cells=cells), "markdown", Style(all=True))
    assert len(text.encode()) < 2**20
    assert rows_below(text) == len(small_grid().worst)
    assert re.search(r"\nand \d+ more \(left out", text)


@pytest.mark.parametrize("name", [*WILD_NAMES, "two\nlines", "https://example.com", "1. x", "---", " x ", "a  b"])
def test_name_shows_as_it_is(name: str) -> None:
    page = Page(text_of(renamed(incident(), "last", name), "markdown"))
    shown = [row["rule"] for row in flagged_table(page)]
    assert shown[1:] == ["even (new)", "single"]
    assert shown[0].split() == name.split()
    assert page.items[0].startswith(shown[0])
    # GitHub makes emoji, mentions and links of what is not code.
    assert not re.search(r":\w+:|@\w|#\d|://", page.prose)


@pytest.mark.parametrize("name", BROKEN_NAMES)
def test_control_characters_are_shown_and_not_sent(name: str) -> None:
    text = text_of(renamed(incident(), "last", name), "markdown")
    assert not re.search("[^\n\x20-\x7e\xa0-\ufffd]", text)
    assert flagged_table(Page(text))[0]["rule"].startswith(name[:3])


def test_advice_and_notes_are_no_markup() -> None:
    worst: list[Layout] = []
    for layout in small_grid().worst:
        advice = tuple(replace(cure, text="a|b <i>[x](y) `c`\n_d_ max_model_len *e*") for cure in layout.advice[:1])
        worst.append(replace(layout, advice=advice))
    page = Page(text_of(replace(small_grid(), worst=tuple(worst), notes=(":x: <i>|", "`a`")), "markdown"))
    assert {row["cure"] for row in flagged_table(page)} == {"a|b <i>[x](y) `c`\n_d_ max_model_len *e*"}
    assert page.items[-2:] == [":x: <i>|", "`a`"]
