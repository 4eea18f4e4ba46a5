"""Reports of this class of fault in public issue threads, and the right answer to each.

Pages count blocks of 16 tokens, and rows are those of the newest vLLM, unless said otherwise.
"""

from __future__ import annotations

from typing import Any

import pytest

import dummyaudit
from dummyaudit.layout import Layout
from dummyaudit.walk import walk


@pytest.fixture(params=["none", "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def layout_of(rule: str, num_reqs: int, num_tokens: int, max_model_len: int, **options: Any) -> Layout:
    """The one layout, which `grid` and `compare` have to agree on."""
    settings = {"num_reqs": num_reqs, "num_tokens": num_tokens, "max_model_len": max_model_len, "rules": [rule]}
    (compared,) = dummyaudit.compare(**settings, **options).to_dict()["layouts"]
    report = dummyaudit.grid(**settings, **options)
    (layout,) = report.layouts
    assert layout.to_dict() == {key: value for key, value in compared.items() if key != "groups"}
    assert report.ok is (layout.verdict != "overflow")
    return layout


def pages_of_slots(layout: Layout) -> tuple[int, int]:
    return layout.worst.pages, layout.row_slots


def test_vllm_49751_last_request_takes_the_remainder(device: str) -> None:
    report = dummyaudit.compare(
        num_reqs=256, num_tokens=496, max_model_len=16, max_num_seqs=256, rules=["last"], device=device
    )
    (layout,) = report.layouts
    assert not report.ok
    assert (layout.verdict, layout.reach, layout.feasible) == ("overflow", "past-table", True)
    assert (layout.worst.request, layout.worst.seq_len) == (255, 241)
    assert pages_of_slots(layout) == (16, 8)
    assert layout.worst.slots_read_outside == (8, 15)
    assert (layout.requests.overflow, layout.requests.over_length) == (1, 0)
    assert [(g.first, g.count, g.query_len, g.seq_len) for g in layout.groups or ()] == [
        (0, 255, 1, 1),
        (255, 1, 241, 241),
    ]


def test_vllm_49751_even_split_cures_it(device: str) -> None:
    layout = layout_of("even", 256, 496, 16, max_num_seqs=256, device=device)
    assert (layout.verdict, layout.reach, layout.worst.seq_len) == ("fits", None, 2)
    assert (layout.requests.overflow, layout.requests.over_length) == (0, 0)
    (flagged,) = dummyaudit.compare(num_reqs=256, num_tokens=496, max_model_len=16, device=device).worst
    assert ("rule", "even") in [(advice.change, advice.to) for advice in flagged.advice]


def test_vllm_53658_full_graph_of_max_model_len_tokens_fits(device: str) -> None:
    layout = layout_of("v1", 256, 4096, 4096, max_num_seqs=256, device=device)
    assert layout.verdict == "fits"
    assert pages_of_slots(layout) == (256, 256)


@pytest.mark.parametrize(("num_tokens", "pages"), [(4097, 257), (4128, 258)])
def test_vllm_53658_larger_full_graph_overflows_every_row(device: str, num_tokens: int, pages: int) -> None:
    layout = layout_of("v1", 256, num_tokens, 4096, max_num_seqs=256, device=device)
    assert (layout.verdict, layout.reach, layout.requests.overflow) == ("overflow", "past-table", 256)
    assert pages_of_slots(layout) == (pages, 256)
    assert layout.worst.slots_read_outside == (256, pages - 1)
    assert ("num_tokens", 4096) in [(advice.change, advice.to) for advice in layout.advice]


@pytest.mark.parametrize(("num_tokens", "beyond"), [(4097, 1), (4128, 2)])
def test_vllm_53658_only_the_last_row_leaves_the_table(device: str, num_tokens: int, beyond: int) -> None:
    one_less = layout_of("v1", 255, num_tokens, 4096, max_num_seqs=256, device=device)
    assert (one_less.verdict, one_less.reach, one_less.requests.overflow) == ("overflow", "next-row", 255)
    table = dummyaudit.BlockTable(max_model_len=4096, max_num_seqs=256)
    reads = walk(dummyaudit.build("v1", 256, num_tokens, table))
    assert (int(reads.other_row[0]), int(reads.outside[0])) == (255 * beyond, beyond)


def test_vllm_53671_full_graph_of_eight_tokens_too_many(device: str) -> None:
    layout = layout_of("v1", 256, 1032, 1024, max_num_seqs=256, device=device)
    assert layout.verdict == "overflow"
    assert pages_of_slots(layout) == (65, 64)


def test_padding_slots_of_an_aligned_row_hide_the_same_fault(device: str) -> None:
    aligned = layout_of("v1", 256, 1016, 1000, device=device)
    assert (aligned.verdict, aligned.reach) == ("over-length", None)
    assert pages_of_slots(aligned) == (64, 64)
    assert aligned.requests.over_length == 256
    unaligned = layout_of("v1", 256, 1016, 1000, token_alignment=0, device=device)
    assert unaligned.verdict == "overflow"
    assert pages_of_slots(unaligned) == (64, 63)


def test_vllm_17853_more_tokens_than_any_split_can_place(device: str) -> None:
    layout = layout_of("even", 5, 8192, 448, max_num_seqs=5, device=device)
    assert (layout.verdict, layout.feasible) == ("overflow", False)
    assert layout.worst.seq_len == 1639
    assert pages_of_slots(layout) == (103, 32)
    assert [(advice.change, advice.to) for advice in layout.advice] == [("num_tokens", 2240), ("num_reqs", 19)]
    assert layout_of("even", 5, 2240, 448, max_num_seqs=5, device=device).verdict == "fits"
    assert layout_of("even", 19, 8192, 448, max_num_seqs=19, device=device).verdict == "fits"
    assert not layout_of("even", 5, 2241, 448, max_num_seqs=5, device=device).feasible
    assert not layout_of("even", 18, 8192, 448, max_num_seqs=18, device=device).feasible


def test_mixed_warm_up_is_one_token_over_max_model_len(device: str) -> None:
    unaligned = layout_of("v1-mixed", 1, 16, 16, max_num_seqs=1, token_alignment=0, device=device)
    assert (unaligned.verdict, unaligned.reach, unaligned.worst.seq_len) == ("overflow", "past-table", 17)
    assert pages_of_slots(unaligned) == (2, 1)
    aligned = layout_of("v1-mixed", 1, 16, 16, max_num_seqs=1, device=device)
    assert (aligned.verdict, aligned.worst.seq_len) == ("over-length", 17)
    assert pages_of_slots(aligned) == (2, 8)


def test_vllm_39324_row_of_a_length_that_no_alignment_divides(device: str) -> None:
    unaligned = layout_of("even", 1, 9416, 9416, block_size=32, token_alignment=0, device=device)
    aligned = layout_of("even", 1, 9416, 9416, block_size=32, device=device)
    assert (unaligned.verdict, unaligned.row_slots) == ("fits", 295)
    assert (aligned.verdict, aligned.row_slots) == ("fits", 296)


def test_sglang_21112_bucket_that_one_request_cannot_hold(device: str) -> None:
    one = layout_of("single", 1, 8192, 2048, device=device)
    assert (one.verdict, one.feasible, one.worst.seq_len) == ("overflow", False, 8192)
    assert ("num_reqs", 4) in [(advice.change, advice.to) for advice in one.advice]
    assert not layout_of("single", 3, 8192, 2048, device=device).feasible
    four = layout_of("single", 4, 8192, 2048, device=device)
    assert (four.verdict, four.feasible) == ("overflow", True)
    assert layout_of("even", 4, 8192, 2048, device=device).verdict == "fits"
