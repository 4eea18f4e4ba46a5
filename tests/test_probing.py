"""Builders of users: what they equal, the checks that they fail, and the smallest shape of each."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from built_cases import query_lens_of

from dummyaudit.errors import InputError, RuleError
from dummyaudit.probing import probe
from dummyaudit.probing.checks import CHECKS, read_answer

GRID = {"num_reqs": range(1, 9), "num_tokens": range(1, 40), "max_model_len": 16, "device": "none"}

Split = Callable[[int, int], Any]


def split(name: str) -> Split:
    return lambda num_reqs, num_tokens: query_lens_of(name, num_reqs, num_tokens)


def batch_of(query_lens: list[int], **changes: Any) -> dict[str, Any]:
    """A batch as the engine's, of three rows more than it has requests."""
    lengths = np.array(query_lens, dtype=np.int32)
    ends = np.cumsum(lengths)
    start_loc = np.concatenate([[0], ends, [ends[-1]] * 3]).astype(np.int32)
    return {
        "num_scheduled_tokens": lengths,
        "seq_lens": torch.tensor(np.concatenate([lengths, np.zeros(3, dtype=np.int32)])),
        "query_start_loc": torch.tensor(start_loc),
        "query_start_loc_np": start_loc,
        "positions": torch.zeros(int(ends[-1]), dtype=torch.int64),
        **changes,
    }


@pytest.mark.parametrize(
    ("rule", "equals"),
    [
        ("last", "last"),
        ("even", "even"),
        ("even-first", "even-first"),
        ("mixed", "mixed"),
        ("single", "single, single+total"),
    ],
)
@pytest.mark.parametrize("container", [list, tuple, np.array, torch.tensor])
def test_builder_is_named_by_the_rule_that_it_equals(rule: str, equals: str, container: Any) -> None:
    report = probe(lambda r, n: container(query_lens_of(rule, r, n)), ignore=["order"], **GRID)
    assert ", ".join(report.equals) == equals
    assert report.differs is None
    assert report.problems == ()


@pytest.mark.parametrize(("rule", "fill"), [("v1", "total"), ("v1-mixed", "plus-one")])
def test_fill_is_part_of_what_it_equals(rule: str, fill: str) -> None:
    def build(num_reqs: int, num_tokens: int) -> Any:
        lengths = query_lens_of("last" if rule == "v1" else "mixed", num_reqs, num_tokens)
        seq_lens = [num_tokens] * len(lengths) if fill == "total" else [*lengths[:-1], lengths[-1] + 1]
        return SimpleNamespace(num_scheduled_tokens=lengths, seq_lens=seq_lens)

    assert probe(build, **GRID).equals == (rule,)


def test_shapes_that_tell_no_rules_apart_name_them_all() -> None:
    report = probe(split("last"), num_reqs=[4], num_tokens=[4], max_model_len=16, device="none")
    assert {"last", "even"} <= set(report.equals)
    assert any("which these shapes do not tell apart" in note for note in report.notes)


def test_difference_is_the_first_shape_and_how() -> None:
    def build(num_reqs: int, num_tokens: int) -> list[int]:
        lengths = query_lens_of("even", num_reqs, num_tokens)
        return lengths if num_tokens < 20 or num_reqs < 3 else [lengths[0] + lengths[-1] - 1, *lengths[1:-1], 1]

    report = probe(build, ignore=["order"], **GRID)
    assert report.equals == ()
    assert report.differs is not None
    assert (report.differs.rule, report.differs.shape) == ("even", (3, 20))
    assert report.differs.text == ("request 0 has query_len 12 and seq_len 12, by even query_len 6 and seq_len 6")


BAD: dict[str, tuple[Callable[[list[int]], Any], str]] = {
    "requests": (lambda q: [1] * (sum(q) and len(q) + 1), "requests, of"),
    "sum": (lambda q: [*q[:-1], q[-1] + 1], "the tokens add up to"),
    "no-empty": (lambda q: [q[0] + q[-1], *q[1:-1], 0], "has query_len 0"),
    "seq-len": (lambda q: batch_of(q, seq_lens=np.array(q, dtype=np.int32) - 1), "less than its query_len"),
    "query-start-loc": (
        lambda q: batch_of(q, query_start_loc=np.arange(len(q) + 4, dtype=np.int32) * 0, query_start_loc_np=None),
        "query_start_loc[1] is 0, not",
    ),
    "dtype": (lambda q: batch_of(q, seq_lens=np.array(q, dtype=np.int64)), "seq_lens is int64, not int32"),
    "padding": (
        lambda q: batch_of(q, seq_lens=np.array([*q, 5], dtype=np.int32)),
        "behind the last request, is 5, not 0",
    ),
    "order": (lambda q: [*q[1:], q[0]][::-1] if len(q) > 1 else [*q, 1][:1], "only"),
    "copies": (
        lambda q: batch_of(q, query_start_loc_np=np.arange(len(q) + 4)),
        "query_start_loc_np[",
    ),
}


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_fails_with_the_smallest_shape_of_all(name: str) -> None:
    """The builder is good below a border, so that the smallest bad shape lies inside the grid."""
    spoil, says = BAD[name]

    def build(num_reqs: int, num_tokens: int) -> Any:
        lengths = query_lens_of("even", num_reqs, num_tokens)
        return spoil(lengths) if num_reqs >= 3 and num_tokens >= 17 else batch_of(lengths)

    report = probe(build, ignore=[other for other in CHECKS if other != name], **GRID)
    bad = [
        (num_tokens, num_reqs)
        for num_reqs in GRID["num_reqs"]  # type: ignore[attr-defined]
        for num_tokens in GRID["num_tokens"]  # type: ignore[attr-defined]
        if num_reqs <= num_tokens and name in read_answer(build(num_reqs, num_tokens), num_reqs, num_tokens).faults
    ]
    [failure] = [failure for failure in report.failed if failure.name != "overflow"]
    assert failure.name == name
    assert failure.shapes == len(bad)
    assert (failure.num_tokens, failure.num_reqs) == min(bad)
    assert says in failure.text
    assert report.problems == (str(failure),)
    assert report.fails


def test_smallest_shape_is_found_between_those_of_the_grid() -> None:
    def build(num_reqs: int, num_tokens: int) -> list[int]:
        lengths = query_lens_of("even", num_reqs, num_tokens)
        return [*lengths[:-1], lengths[-1] + (num_tokens >= 37 and num_reqs >= 5)]

    report = probe(build, num_reqs=[1, 8, 64], num_tokens=[64, 512], max_model_len=4096, device="none")
    [failure] = report.failed
    assert (failure.name, failure.num_reqs, failure.num_tokens) == ("sum", 5, 37)


def test_overflow_is_shown_with_its_smallest_feasible_shape() -> None:
    report = probe(split("last"), num_reqs=[256], num_tokens=[496], max_model_len=16, device="none")
    [failure] = report.failed
    assert failure.name == "overflow"
    # 129 requests and 257 tokens: one each, the last one 129, which are 9 pages.
    assert (failure.num_reqs, failure.num_tokens) == (129, 257)
    assert "9 pages of 8 slots" in failure.text
    assert report.problems == ()
    assert report.failures == 1


def test_verdicts_are_those_of_the_rule_and_batches_are_built_again() -> None:
    import dummyaudit

    axes = {"num_reqs": [4, 8], "num_tokens": [20, 37], "max_model_len": [1, 16], "block_size": 1}
    report = probe(split("last"), **axes, device="cpu")
    grid = dummyaudit.grid(**axes, rules=["last"], device="cpu")
    assert report.built == grid.built
    assert report.summary == grid.summary
    kept = [
        (one.num_reqs, one.num_tokens, one.max_model_len, one.verdict, one.reach, one.worst, one.requests)
        for one in report.layouts
    ]
    assert kept == [
        (one.num_reqs, one.num_tokens, one.max_model_len, one.verdict, one.reach, one.worst, one.requests)
        for one in grid.layouts
    ]


def test_what_is_no_split_has_its_verdict_and_is_not_built_again() -> None:
    report = probe(lambda r, n: [n] * r, num_reqs=[4], num_tokens=[300], max_model_len=16, device="cpu")
    assert report.summary.overflow == 1
    assert report.built is None or report.built.layouts == 0
    assert [failure.name for failure in report.failed if failure.name == "sum"]


def test_buffers_are_poisoned_and_what_is_not_written_shows() -> None:
    def build(num_reqs: int, num_tokens: int, buffers: Any) -> Any:
        lengths = query_lens_of("even", num_reqs, num_tokens)
        assert (buffers.max_num_reqs, buffers.max_num_tokens, str(buffers.device)) == (4, 9, "cpu")
        buffers.seq_lens[:num_reqs] = torch.tensor(lengths)
        return {"num_scheduled_tokens": lengths, "seq_lens": buffers.seq_lens[:num_reqs]}

    report = probe(build, buffers=True, num_reqs=[2, 4], num_tokens=[8, 9], max_model_len=16, device="cpu")
    [failure] = report.failed
    assert failure.name == "padding"
    assert "buffers.seq_lens[1], behind the last request, is not written, not 0" in failure.text
    with pytest.raises(InputError, match="buffers need a device"):
        probe(build, buffers=True, num_reqs=[2], num_tokens=[8], device="none")


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "returned NoneType, in which the tokens of each request is no row of whole numbers"),
        ("text", "no row of whole numbers"),
        ([[1, 2]], "no row of whole numbers"),
        ([1.5, 2.5], "whole number"),
        ([2**40], "does not fit the engine's int32 tensors"),
        ({"num_scheduled_tokens": [1, 3]}, "returned dict, in which seq_lens is no row"),
        (
            {"num_scheduled_tokens": [1, 3], "seq_lens": [4]},
            "returned 1 seq_lens for 2 requests; return one for each",
        ),
        ({"num_scheduled_tokens": [1, 3], "seq_lens": [[4], [4, 5]]}, "where a list, array or tensor is wanted"),
    ],
)
def test_what_is_no_batch_names_the_shape(returned: Any, says: str) -> None:
    with pytest.raises(RuleError) as raised:
        probe(lambda r, n: returned, num_reqs=[2], num_tokens=[4], max_model_len=16, device="none")
    # Not only the shape that was asked for: the smallest of which it is true.
    assert "at num_reqs 1, num_tokens 1: " in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.parametrize("error", [ValueError("no\n such  thing"), SystemExit(3), KeyError()])
def test_builder_that_raises_names_the_shape(error: BaseException) -> None:
    def build(num_reqs: int, num_tokens: int) -> Any:
        raise error

    with pytest.raises(RuleError, match=r"at num_reqs 1, num_tokens 1: raised") as raised:
        probe(build, num_reqs=[2], num_tokens=[4], max_model_len=16, device="none")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"ignore": ["odd"]}, "unknown check 'odd'; known are requests, sum"),
        ({"shapes": [(1, 2)]}, "shapes were given along with num_reqs or num_tokens"),
        ({"num_reqs": range(1, 3000), "num_tokens": range(1, 3000)}, "are too many to ask for one by one"),
        ({"max_num_seqs": 1}, "num_reqs 2 is more than max_num_seqs 1"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as raised:
        probe(split("even"), **{"num_reqs": [2], "num_tokens": [4], "device": "none", **arguments})
    assert says in str(raised.value)


def test_progress_counts_shapes() -> None:
    seen: list[tuple[int, int]] = []
    probe(split("even"), shapes=[(1, 2), (2, 5)], device="none", progress=lambda *done: seen.append(done))
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize("fault", ["shape", "value", "bound"])
def test_copy_on_the_cpu_that_disagrees_is_found(fault: str) -> None:
    batch = batch_of([2, 3])
    if fault == "shape":
        batch["query_start_loc_cpu"] = np.zeros(2, dtype=np.int32)
    elif fault == "value":
        batch["query_start_loc_cpu"] = np.array([0, 2, 4, 5, 5, 5])
    else:
        batch["seq_lens_cpu_upper_bound"] = np.array([2, 2])
    text = read_answer(batch, 2, 5).faults["copies"]
    assert (
        text
        == {
            "shape": "query_start_loc_cpu has shape [2], query_start_loc [6]",
            "value": "query_start_loc_cpu[2] is 4, query_start_loc[2] is 5",
            "bound": "seq_lens_cpu_upper_bound[1] is 2, less than seq_lens[1]",
        }[fault]
    )


def test_start_loc_that_is_too_short_is_a_fault() -> None:
    answer = read_answer(batch_of([2, 3], query_start_loc=np.array([0, 2], dtype=np.int32)), 2, 5)
    assert answer.faults["query-start-loc"] == "query_start_loc has 2 entries, fewer than 3"


def test_batch_without_requests_is_a_fault_and_no_crash() -> None:
    answer = read_answer([], 2, 5)
    assert {"requests", "sum"} <= set(answer.faults)
    assert not answer.is_split
