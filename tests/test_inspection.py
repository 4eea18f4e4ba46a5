"""`inspect`, its findings by brute force, and `check` and `assert_fits`, which share them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_helpers import Result, assert_refused, call
from hypothesis import given
from hypothesis import strategies as st

import dummyaudit
from dummyaudit.errors import InputError
from dummyaudit.page_faults import find_page_faults

Capture = pytest.CaptureFixture[str]

GOOD = {"seq_lens": [16, 33, 0], "block_table": [[1, 0, 0], [2, 3, 4], [0, 0, 0]], "block_size": 16}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def inspect(capsys: Capture, content: dict[str, Any], *options: str) -> Result:
    Path("b.json").write_text(json.dumps(content))
    return call(capsys, "inspect", "b.json", *options)


def document(capsys: Capture, content: dict[str, Any], *options: str) -> dict[str, Any]:
    result = inspect(capsys, content, *options, "-f", "json")
    assert result.status in (0, 1), result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


def verdicts_of(
    lengths: list[int], rows: int, slots: int, block_size: int, limit: int | None
) -> list[tuple[Any, ...]]:
    """request, verdict and reach of what does not fit."""
    found: list[tuple[Any, ...]] = []
    for request, length in enumerate(lengths):
        pages = len(range(0, length, block_size))
        if request * slots + pages > rows * slots:
            found.append((request, "overflow", "past-table"))
        elif pages > slots:
            found.append((request, "overflow", "next-row"))
        elif limit is not None and length > limit:
            found.append((request, "over-length", None))
    return found


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=6),
    st.integers(0, 2),
    st.integers(1, 4),
    st.sampled_from([1, 16, 48]),
    st.sampled_from([None, 1, 16, 40]),
    st.sampled_from([list, np.array, torch.tensor]),
)
def test_check_finds_every_request_that_does_not_fit_and_no_other(
    lengths: list[int], more: int, slots: int, block_size: int, limit: int | None, container: Any
) -> None:
    rows = len(lengths) + more
    limit = None if limit is None else min(limit, slots * block_size)
    found = dummyaudit.check(container(lengths), (rows, slots), block_size, limit)
    assert [(f.request, f.verdict, f.reach) for f in found] == verdicts_of(lengths, rows, slots, block_size, limit)
    table = torch.zeros(rows, slots, dtype=torch.int32)
    assert dummyaudit.check(container(lengths), table, block_size, limit) == found
    if found:
        with pytest.raises(AssertionError) as raised:
            dummyaudit.assert_fits(container(lengths), table, block_size, limit)
        assert str(raised.value).splitlines()[1:] == [str(finding) for finding in found]
    else:
        dummyaudit.assert_fits(container(lengths), table, block_size, limit)


def test_assertion_says_what_the_guard_says() -> None:
    with pytest.raises(AssertionError) as raised:
        dummyaudit.assert_fits([20, 241], (2, 8), block_size=16, max_model_len=16)
    assert str(raised.value).splitlines() == [
        "dummy batch does not fit its block table:",
        "request 0 has seq_len 20, over max_model_len 16: 2 pages of 8 slots",
        "request 1 has seq_len 241: 16 pages of 8 slots, reads slots 8 to 15 past the end of the table (past-table)",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([[1]], (1, 1), 16), "seq_lens must be one row of whole numbers, got 2-D"),
        (([1.5], (1, 1), 16), "seq_lens must be one row of whole numbers"),
        (([-1], (1, 1), 16), "seq_lens holds -1, a negative length"),
        (([1, 2], (1, 1), 16), "2 seq_lens for a block table of 1 rows"),
        (([1], (1,), 16), "a block table has 2 dimensions"),
        (([1], (1, 0), 16), "row_slots must be at least 1"),
        (([1], (1, 1), 0), "block_size must be at least 1"),
        (([1], (1, 1), 16, 0), "max_model_len must be at least 1"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        dummyaudit.check(*arguments)


def page_faults_of(
    rows: list[list[int]], used: list[int], num_blocks: int | None, null: int | None
) -> tuple[set[tuple[str, int, int]], dict[int, tuple[int, int]]]:
    """Kind, request and column of every wrong id, and where each page is used first."""
    expected: set[tuple[str, int, int]] = set()
    first: dict[int, tuple[int, int]] = {}
    for request, row in enumerate(rows):
        for column, page in enumerate(row[: used[request]]):
            if page == null or page < 0:
                expected.add(("null-page" if page == null else "negative-page", request, column))
                continue
            if num_blocks is not None and page >= num_blocks:
                expected.add(("page-out-of-pool", request, column))
            if page in first:
                expected.add(("shared-page", request, column))
            first.setdefault(page, (request, column))
    return expected, first


@given(
    st.lists(st.lists(st.integers(-1, 6), min_size=3, max_size=3), min_size=1, max_size=4),
    st.data(),
    st.sampled_from([None, 3, 5]),
    st.sampled_from([None, 0]),
)
def test_page_faults_are_those_of_every_id_on_its_own(
    rows: list[list[int]], data: st.DataObject, num_blocks: int | None, null: int | None
) -> None:
    used = [data.draw(st.integers(0, 3)) for _ in rows]
    table = np.array(rows)
    expected, first = page_faults_of(rows, used, num_blocks, null)
    if null is not None and (table == null).all():
        expected = set()
    found = find_page_faults(table, np.array(used), num_blocks=num_blocks, null_block=null)
    by_kind: dict[tuple[str, int], list[int]] = {}
    for kind, request, column in expected:
        by_kind.setdefault((kind, request), []).append(column)
    counts: dict[tuple[str, int], int] = {}
    for fault in found:
        counts[fault.kind, fault.request] = counts.get((fault.kind, fault.request), 0) + fault.count
        columns = by_kind[fault.kind, fault.request]
        assert {fault.column, fault.last_column} <= set(columns)
        assert fault.page == rows[fault.request][fault.column]
        if fault.other:
            assert first[fault.page] == fault.other
    assert counts == {key: len(columns) for key, columns in by_kind.items()}


def test_shared_prefix_is_no_fault_where_prefixes_are_cached() -> None:
    table, used = np.array([[1, 2, 3], [1, 2, 4], [9, 2, 5]]), np.array([3, 3, 3])
    assert len(find_page_faults(table, used)) == 2
    [fault] = find_page_faults(table, used, shared_prefixes=True)
    assert (fault.request, fault.column, fault.other) == (2, 1, (0, 1))
    assert str(fault) == "request 2, row 2, column 1: page 2 is used by request 0 too, row 0, column 1"


def test_each_fault_is_a_sentence_with_request_row_and_columns(capsys: Capture) -> None:
    content = GOOD | {"seq_lens": [48, 48, 48], "block_table": [[-1, 0, 9], [2, 9, 2], [5, 0, 0]]}
    report = document(capsys, content, "--num-blocks", "8")
    assert report["problems"] == [
        "request 0, row 0, column 0: page id -1 is negative",
        "request 0, row 0, column 1: the used part of the row holds the null page 0",
        "request 0, row 0, column 2: page id 9 is not in the pool",
        "request 1, row 1, column 1: page id 9 is not in the pool",
        "request 1, row 1, column 1: page 9 is used by request 0 too, row 0, column 2",
        "request 1, row 1, column 2: page 2 is used by the same request too, row 1, column 0",
        "request 2, row 2, columns 1 to 2: the used part of the row holds the null page 0",
    ]
    assert inspect(capsys, content).status == 1
    assert inspect(capsys, content, "--exit-zero").status == 0


def test_good_batch_passes_and_says_what_was_not_looked_at(capsys: Capture) -> None:
    result = inspect(capsys, GOOD)
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "b.json: 2 requests, 49 tokens, block_size 16, block table of 3 rows by 3 slots\n\n"
        "max_model_len is not known: no request is called over-length\n"
        "Every request fits.\n"
    )
    dummy = inspect(capsys, GOOD | {"block_table": [[0, 0, 0]] * 3, "max_model_len": 48})
    assert "every page id is the null page 0, as in a dummy batch: page ids are not checked" in dummy.out
    shape = {"seq_lens": [16], "block_table_shape": [4, 8], "block_size": 16}
    assert "no block table: page ids are not checked" in inspect(capsys, shape).out


def test_read_that_leaves_the_row_and_the_table_is_told_apart(capsys: Capture) -> None:
    content = {"seq_lens": [60, 20, 60], "block_table_shape": [3, 3], "block_size": 16, "max_model_len": 16}
    report = document(capsys, content)
    [layout] = report["layouts"]
    assert (layout["verdict"], layout["reach"], layout["requests"]) == (
        "overflow",
        "past-table",
        {"over_length": 1, "overflow": 2},
    )
    assert layout["worst"] == {"request": 2, "seq_len": 60, "pages": 4, "slots_read_outside": [3, 3]}
    assert [(f["request"], f["verdict"], f["reach"]) for f in report["inspect"]["findings"]] == [
        (0, "overflow", "next-row"),
        (1, "over-length", None),
        (2, "overflow", "past-table"),
    ]
    assert "2 requests overflow, 1 request is over length." in inspect(capsys, content).out
    over = {**content, "seq_lens": [20]}
    assert inspect(capsys, over).status == 0
    assert inspect(capsys, over, "--strict").status == 1


@pytest.mark.parametrize(
    ("starts", "says"),
    [
        ([0, 16, 49, 49], []),
        ([1, 16, 49, 49], ["request 0: query_start_loc[0] is 1, not 0"]),
        ([0, 17, 49], ["request 0: its query_len by query_start_loc, 17, is more than its seq_len 16"]),
        ([0, 16, 9], ["request 1: its query_len by query_start_loc, -7, is negative"]),
    ],
)
def test_query_start_loc_is_held_against_the_lengths(capsys: Capture, starts: list[int], says: list[str]) -> None:
    report = document(capsys, GOOD | {"query_start_loc": starts})
    assert report["problems"] == says
    assert [f["text"] for f in report["inspect"]["query_start_loc_faults"]] == [one.split(": ", 1)[1] for one in says]


def test_names_and_sizes_can_be_given(capsys: Capture) -> None:
    content = {"lens": [16], "tables": [[1, 2]], "starts": [0, 16]}
    names = ("--seq-lens", "lens", "--block-table", "tables", "--query-start-loc", "starts", "--block-size", "16")
    assert document(capsys, content, *names)["layouts"][0]["verdict"] == "fits"
    given = document(capsys, GOOD, "--block-table-shape", "4,1", "--block-size", "8", "--max-model-len", "8")
    kept = ("max_num_seqs", "row_slots", "block_size", "max_model_len", "reach")
    assert [given["layouts"][0][name] for name in kept] == [4, 1, 8, 8, "past-table"]


@pytest.mark.parametrize("form", ["json", "csv", "markdown", "junit", "github", "sarif", "table"])
def test_every_format_tells_of_every_fault(capsys: Capture, form: str) -> None:
    content = GOOD | {"seq_lens": [16, 16, 16], "block_table": [[1, 0, 0], [9, 0, 0], [1, 0, 0]]}
    result = inspect(capsys, content, "--num-blocks", "8", "-f", form)
    assert result.status == 1
    if form != "csv":
        assert "page id 9 is not in the pool" in result.out
        assert "page 1 is used by request 0 too" in result.out


def test_many_faults_are_counted_and_all_shown_if_asked_for(capsys: Capture) -> None:
    content = {"seq_lens": [16] * 30, "block_table": [[9]] * 30, "block_size": 16}
    short, long = inspect(capsys, content), inspect(capsys, content, "--all")
    assert "and 9 more (--all shows them)" in short.out
    assert long.out.count("is used by request 0 too") == 29
    assert document(capsys, content)["problems"][-1] == "and 9 more"


@pytest.mark.parametrize(
    ("change", "options", "says"),
    [
        ({"seq_lens": None}, (), "has no 'seq_lens'"),
        ({"block_table": None}, (), "has no 'block_table'; it holds block_size, seq_lens"),
        ({"block_size": None}, (), "has no block_size; give --block-size"),
        ({"block_size": [1, 2]}, (), "'block_size' holds 2 numbers, not one"),
        ({"block_size": 0}, (), "block_size must be at least 1"),
        ({"seq_lens": [[1]]}, (), "'seq_lens' has 2 dimensions, not 1"),
        ({"seq_lens": [-1]}, (), "'seq_lens' holds -1 for request 0, which is negative"),
        ({"seq_lens": [2**31]}, (), "more than the engine's int32 tensors hold"),
        ({"seq_lens": [0, 0]}, (), "nothing to audit: 'b.json' has no request of one token or more"),
        ({"seq_lens": [1] * 9}, (), "9 seq_lens for a block table of 3 rows"),
        ({"block_table": [1]}, (), "'block_table' has 1 dimensions, not 2"),
        ({"block_table": None, "block_table_shape": [1]}, (), "'block_table_shape' is not rows and slots"),
        ({"query_start_loc": [0]}, (), "'query_start_loc' has 1 entries, too few for request 1"),
        ({}, ("--seq-lens", "x"), "has no 'x'"),
        ({}, ("--block-table-shape", "3"), "'3' is not ROWS,SLOTS; write it as 256,8"),
        ({}, ("--block-table-shape", "0,3"), "block_table_shape must be at least 1"),
        ({}, ("--null-block", "x"), "null_block: 'x' is no page id"),
        ({}, ("--num-blocks", "0"), "num_blocks must be at least 1"),
    ],
)
def test_batch_that_cannot_be_used_is_refused(
    capsys: Capture, change: dict[str, Any], options: tuple[str, ...], says: str
) -> None:
    content = {key: value for key, value in (GOOD | change).items() if value is not None}
    assert_refused(inspect(capsys, content, *options), says)


def test_too_many_requests_are_refused(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dummyaudit.inspection.MAX_REQUESTS", 1)
    assert_refused(inspect(capsys, GOOD), "'seq_lens' has 3 entries, more requests than 1")


@pytest.mark.parametrize(("null", "faults"), [("none", 0), ("7", 1), ("0", 0), ("-1", 0)])
def test_null_page_is_the_one_that_was_named(capsys: Capture, null: str, faults: int) -> None:
    content = GOOD | {"seq_lens": [16], "block_table": [[7, 7]]} | {"block_table": [[7, 3]]}
    assert len(document(capsys, content, f"--null-block={null}")["problems"]) == faults


def test_unsigned_ids_beyond_int64_are_out_of_the_pool() -> None:
    table = np.array([[2**64 - 1]], dtype=np.uint64)
    [fault] = find_page_faults(table, np.array([1]), num_blocks=8)
    assert fault.kind == "page-out-of-pool"
