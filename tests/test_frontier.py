from __future__ import annotations

import csv
import importlib.resources
import json

import jsonschema
import pytest

from dummyaudit import api
from dummyaudit.errors import DummyAuditError, InputError
from dummyaudit.frontier_audit import frontier
from dummyaudit.render import Style, frontier_csv, frontier_markdown, frontier_table
from dummyaudit.render import json as json_format

INT32_MAX = 2**31 - 1
SCHEMA = (importlib.resources.files("dummyaudit") / "report.schema.json").read_text("utf-8")
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA))


def test_summary_counts_what_a_grid_of_the_same_shapes_counts() -> None:
    lengths = [1, 16, 100, 300]
    rules = ["last", "even", "v1-mixed", "even-first+context:9"]
    asked = frontier(max_num_reqs=40, max_num_tokens=700, max_model_len=lengths, block_size=[16, 48], rules=rules)
    tried = api.grid(
        num_reqs=range(1, 41),
        num_tokens=range(1, 701),
        max_model_len=lengths,
        block_size=[16, 48],
        rules=rules,
        device="none",
    )
    assert asked.summary == tried.summary
    assert asked.outlooks == tried.outlooks


def test_rows_count_what_the_cells_of_a_grid_count() -> None:
    asked = frontier(max_num_reqs=30, max_num_tokens=500, max_model_len=16, num_reqs=range(1, 31))
    tried = api.grid(num_reqs=range(1, 31), num_tokens=range(1, 501), max_model_len=16, device="none")
    assert [(row.rule, row.num_reqs, row.shapes, row.overflow, row.over_length) for row in asked.rows] == [
        (cell.rule, cell.num_reqs[0], cell.shapes, cell.overflow, cell.over_length) for cell in tried.cells
    ]


def test_safe_num_tokens_is_the_last_before_the_first_overflow_or_the_limit() -> None:
    report = frontier(max_num_reqs=256, max_num_tokens=2048, max_model_len=16, num_reqs=[1, 64, 256])
    assert [row.safe_num_tokens for row in report.rows if row.rule == "last"] == [128, 2048, 383]


def test_one_reachable_shape_is_safe_up_to_itself() -> None:
    report = frontier(max_num_reqs=256, max_num_tokens=2048, max_model_len=16, num_reqs=[5, 256], reachable=True)
    assert [row.safe_num_tokens for row in report.rows if row.rule == "even"] == [5, 2048]


@pytest.mark.parametrize("rule", ["last", "even", "v1-mixed", "last+constant:300"])
def test_json_of_every_kind_of_rule_keeps_to_the_schema(rule: str) -> None:
    for limit in (2, 300, INT32_MAX):
        report = frontier(max_num_reqs=limit, max_num_tokens=limit, rules=["v1", rule], reachable=limit == 300)
        VALIDATOR.validate(report.to_dict())


def test_nothing_is_safe_where_the_first_shape_already_overflows() -> None:
    report = frontier(max_num_reqs=8, max_num_tokens=64, max_model_len=16, rules=["last+constant:1000"], num_reqs=8)
    assert [row.safe_num_tokens for row in report.rows] == [None]
    assert report.totals[0].overflow == report.totals[0].shapes


def test_even_is_strictly_better_than_last_and_leaves_only_infeasible_shapes() -> None:
    last, even = frontier(max_model_len=16).totals
    assert even.only_first == last.overflow - even.overflow > 0
    assert even.only_this == 0
    assert even.overflow == even.infeasible
    assert even.smallest_feasible is None


def test_v1_is_worse_in_one_place_and_never_better_than_last() -> None:
    report = frontier(max_model_len=16, rules=["last", "v1"])
    assert report.totals[1].only_first == 0
    assert report.totals[1].only_this > 0


def test_largest_limits_are_answered_exactly() -> None:
    # Of even: N > R * T for R up to N / T, of which sum(N - R * T) is a triangle.
    report = frontier(max_num_reqs=INT32_MAX, max_num_tokens=INT32_MAX, max_model_len=4096)
    last, even = report.totals
    rows = INT32_MAX // 4096
    assert even.overflow == rows * INT32_MAX - 4096 * rows * (rows + 1) // 2
    assert last.shapes == INT32_MAX * (INT32_MAX + 1) // 2
    assert even.only_first == last.overflow - even.overflow
    assert last.smallest_feasible == (4097, 8193)


def test_needs_are_none_where_int32_holds_no_such_length() -> None:
    report = frontier(max_num_reqs=2, max_num_tokens=INT32_MAX, max_model_len=16, rules=["v1-mixed"])
    assert report.totals[0].needs is None
    assert report.outlooks == ()
    assert "none" in "".join(frontier_table.render(report, Style()))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_num_reqs": 0}, "max_num_reqs"),
        ({"max_num_tokens": 2**31}, "max_num_tokens"),
        ({"num_reqs": 257}, "has no shape"),
        ({"num_reqs": range(1, 10**6), "max_num_reqs": 10**6, "max_num_tokens": 10**6}, "rows are asked for"),
        ({"rules": []}, "no rule"),
    ],
)
def test_settings_that_cannot_be_used_are_named(options: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        frontier(**options)  # type: ignore[arg-type]


def test_every_error_is_one_that_a_caller_can_catch() -> None:
    with pytest.raises(DummyAuditError):
        frontier(rules=["uniform:4+plus-one"])


def test_a_report_that_overflows_fails_and_one_that_is_over_length_fails_if_strict() -> None:
    assert frontier(max_model_len=16).failures > 0
    small = {"max_num_reqs": 2, "max_num_tokens": 100, "max_model_len": 16}
    assert frontier(**small).failures == 0  # type: ignore[arg-type]
    assert frontier(**small, strict=True).failures > 0  # type: ignore[arg-type]


def test_json_has_totals_rows_and_the_smallest_layouts() -> None:
    report = frontier(max_model_len=16)
    document = json.loads("".join(json_format.render(report, Style())))
    assert document == report.to_dict()
    VALIDATOR.validate(document)
    assert [total["overflow"] for total in document["frontiers"]] == [92666, 15360]
    assert document["frontiers"][0]["smallest_feasible"] == {"num_reqs": 129, "num_tokens": 257}
    assert document["layouts"][0]["num_tokens"] == 257
    assert {row["num_reqs"] for row in document["rows"]} >= {1, 2, 128, 129, 256}


def test_csv_has_a_row_for_all_num_reqs_and_one_for_each() -> None:
    report = frontier(max_model_len=16, num_reqs=[64, 256])
    rows = list(csv.DictReader("".join(frontier_csv.render(report, Style())).splitlines()))
    assert [row["num_reqs"] for row in rows] == ["", "", "64", "64", "256", "256"]
    assert rows[0]["smallest_feasible_num_tokens"] == "257"
    assert rows[1]["smallest_feasible_num_tokens"] == ""
    assert rows[4]["overflow"] == "917"


def test_table_says_what_overflows_what_is_better_and_the_cure() -> None:
    text = "".join(frontier_table.render(frontier(max_model_len=16), Style(width=120)))
    assert "Every shape up to 256 requests and 2048 tokens: 491648 shapes" in text
    assert "even is strictly better than last: cures 77306 shapes, adds none" in text
    assert "max_model_len 129 or more" in text
    assert text.endswith("By closed form, nothing tried.\n")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_width_cuts_a_number(width: int) -> None:
    report = frontier(max_model_len=16, max_num_reqs=INT32_MAX, max_num_tokens=INT32_MAX, num_reqs=1 << 20)
    text = "".join(frontier_table.render(report, Style(width=width)))
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    if width >= 80:
        assert str(report.totals[0].overflow) in text


def test_rows_say_where_the_second_rule_is_better() -> None:
    # Of 256 requests: for each q from 1 to 7 the 127 + q largest remainders.
    text = "".join(frontier_table.render(frontier(max_model_len=16, num_reqs=[64, 256]), Style(width=120)))
    lines = [line.split() for line in text.splitlines()]
    assert [line[-1] for line in lines if line[:2] == ["even", "(new)"]] == ["77306", "-", "917"]


def test_table_of_one_rule_has_no_comparison() -> None:
    text = "".join(frontier_table.render(frontier(max_model_len=16, rules=["even"]), Style()))
    assert "cured" not in text
    assert "better" not in text


def test_rules_that_differ_nowhere_or_both_ways_are_said_to() -> None:
    same = "".join(frontier_table.render(frontier(max_model_len=4096), Style()))
    assert "even overflows at the same shapes as last" in same
    mixed = frontier(max_model_len=16, rules=["uniform:3", "last"])
    assert mixed.totals[1].only_first > 0
    assert mixed.totals[1].only_this > 0
    assert "last is better than uniform:3 in some places and worse in others" in "".join(
        frontier_table.render(mixed, Style())
    )
    worse = "".join(frontier_table.render(frontier(max_model_len=16, rules=["even", "last"]), Style()))
    assert "last is strictly worse than even: adds 77306 shapes" in worse


def test_several_block_tables_are_listed_by_num_reqs_only_if_all_are_asked_for() -> None:
    report = frontier(max_model_len=[16, 64], num_reqs=256)
    assert "slots (128 tokens)" not in "".join(frontier_table.render(report, Style()))
    assert "".join(frontier_table.render(report, Style(all=True))).count("slots (128 tokens)") == 2


def test_markdown_of_a_rule_that_never_overflows_has_no_sentences() -> None:
    text = "".join(frontier_markdown.render(frontier(max_num_reqs=4, max_num_tokens=16, rules=["even"]), Style()))
    assert text.startswith("### ✅ dummyaudit frontier: None of ")
    assert text.endswith(" |\n")


def test_markdown_has_a_row_for_each_rule_and_block_table() -> None:
    report = frontier(max_model_len=[16, 64])
    text = "".join(frontier_markdown.render(report, Style()))
    assert text.startswith("### ❌ dummyaudit frontier: ")
    assert sum(line.startswith("| ") for line in text.splitlines()) == 1 + 4
    assert "❌" not in "".join(frontier_markdown.render(report, Style(unicode=False)))
