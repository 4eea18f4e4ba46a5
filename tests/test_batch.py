from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from built_cases import Case, cases, pages_of
from hypothesis import example, given, settings

import dummyaudit
from dummyaudit.batch import CANARY, MIN_GUARD, DummyBatch
from dummyaudit.block_table import BlockTable

DATA = Path(__file__).parent / "data"
SECOND_RUNNER = json.loads((DATA / "make_dummy.json").read_text())["rows"]
FIRST_RUNNER = json.loads((DATA / "v1_dummy_run.json").read_text())["rows"]
TENSORS = ("seq_lens", "query_start_loc", "positions", "logits_indices")


def expand(runs: list[list[int]]) -> list[int]:
    return [value for count, value in runs for _ in range(count)]


def rule_of(row: dict[str, Any]) -> str:
    return "even" if [int(part) for part in row["engine"].split(".")] >= [0, 27] else "last"


def query_start_loc_of(query_lens: list[int], max_num_seqs: int) -> list[int]:
    return list(accumulate([0, *query_lens, *[0] * (max_num_seqs - len(query_lens))]))


def assert_engine_dtypes(batch: DummyBatch) -> None:
    assert batch.num_scheduled_tokens.dtype == np.int32
    assert batch.seq_lens.dtype == batch.query_start_loc.dtype == batch.logits_indices.dtype == torch.int32
    assert batch.memory.dtype == torch.int32
    assert batch.positions.dtype == torch.int64


@pytest.mark.parametrize(
    "row", SECOND_RUNNER, ids=lambda row: "-".join(str(row[key]) for key in ("engine", "num_reqs", "num_tokens"))
)
def test_batch_is_that_of_the_second_runner(row: dict[str, Any]) -> None:
    table = BlockTable(max_model_len=16, max_num_seqs=row["max_num_seqs"])
    batch = dummyaudit.build(rule_of(row), row["num_reqs"], row["num_tokens"], table)
    query_lens = expand(row["num_scheduled_tokens"])
    assert_engine_dtypes(batch)
    assert batch.num_scheduled_tokens.tolist() == query_lens
    assert batch.seq_lens.tolist() == expand(row["seq_lens"])
    query_start_loc = batch.query_start_loc.tolist()
    assert len(query_start_loc) == row["max_num_seqs"] + 1
    assert (query_start_loc[-1], sum(query_start_loc)) == (row["query_start_loc_last"], row["query_start_loc_sum"])
    assert query_start_loc == query_start_loc_of(query_lens, row["max_num_seqs"])
    assert batch.logits_indices.tolist() == [end - 1 for end in query_start_loc[1 : len(query_lens) + 1]]
    assert batch.positions.tolist() == [0] * row["num_tokens"]


@pytest.mark.parametrize(
    "row",
    FIRST_RUNNER,
    ids=lambda row: "-".join(str(row[key]) for key in ("max_model_len", "num_tokens", "create_mixed_batch")),
)
def test_batch_is_that_of_the_first_runner(row: dict[str, Any]) -> None:
    max_num_seqs, num_tokens = row["max_num_seqs"], row["num_tokens"]
    table = BlockTable(max_model_len=row["max_model_len"], block_size=row["block_size"], max_num_seqs=max_num_seqs)
    rule = "v1-mixed" if row["create_mixed_batch"] else "v1"
    batch = dummyaudit.build(rule, min(num_tokens, max_num_seqs), num_tokens, table)
    query_lens, seq_lens = expand(row["query_lens"]), expand(row["seq_lens"])
    assert_engine_dtypes(batch)
    assert list(batch.block_table.shape) == row["block_table_shape"]
    assert batch.num_scheduled_tokens.tolist() == query_lens
    assert batch.seq_lens.tolist() == seq_lens + row["buffer_tail"] * (max_num_seqs - len(seq_lens))
    assert batch.query_start_loc.tolist() == query_start_loc_of(query_lens, max_num_seqs)


@pytest.mark.parametrize("rule", ["last", "even"])
def test_all_recorded_batches_at_once_are_the_same(rule: str) -> None:
    rows = [row for row in SECOND_RUNNER if rule_of(row) == rule]
    case = Case(
        rule,
        [(row["num_reqs"], row["num_tokens"]) for row in rows],
        [row["max_num_seqs"] for row in rows],
        BlockTable(max_model_len=16),
    )
    batch = case.build()
    assert batch.num_scheduled_tokens.tolist() == [n for row in rows for n in expand(row["num_scheduled_tokens"])]
    assert batch.seq_lens.tolist() == [n for row in rows for n in expand(row["seq_lens"])]
    first = 0
    for row in rows:
        query_start_loc = batch.query_start_loc[first : first + row["max_num_seqs"] + 1]
        assert query_start_loc[0] == 0
        assert query_start_loc[-1] == row["query_start_loc_last"]
        assert query_start_loc.sum() == row["query_start_loc_sum"]
        first += len(query_start_loc)
    assert first == len(batch.query_start_loc)


@given(cases())
def test_batch_holds_every_request(case: Case) -> None:
    batch = case.build()
    assert_engine_dtypes(batch)
    num_scheduled_tokens, seq_lens, query_start_loc, logits_indices = [], [], [], []
    for i, rows in enumerate(case.rows):
        query_lens = [query_len for query_len, _ in case.requests(i)]
        padding = [0] * (rows - len(query_lens))
        num_scheduled_tokens += query_lens
        seq_lens += [seq_len for _, seq_len in case.requests(i)] + padding
        query_start_loc += query_start_loc_of(query_lens, rows)
        logits_indices += [end - 1 for end in accumulate(query_lens)]
    assert batch.num_scheduled_tokens.tolist() == num_scheduled_tokens
    assert batch.seq_lens.tolist() == seq_lens
    assert batch.query_start_loc.tolist() == query_start_loc
    assert batch.logits_indices.tolist() == logits_indices
    assert batch.positions.tolist() == [0] * sum(num_tokens for _, num_tokens in case.shapes)
    assert batch.num_reqs.tolist() == [len(case.requests(i)) for i in range(len(case.shapes))]


@settings(max_examples=50)
@given(cases())
def test_many_layouts_at_once_are_those_of_one_at_a_time(case: Case) -> None:
    together = case.build()
    apart = [
        Case(case.rule, [shape], [rows], case.table).build()
        for shape, rows in zip(case.shapes, case.rows, strict=True)
    ]
    for name in TENSORS:
        assert torch.equal(getattr(together, name), torch.cat([getattr(batch, name) for batch in apart]))
    assert together.num_scheduled_tokens.tolist() == [n for b in apart for n in b.num_scheduled_tokens.tolist()]
    for batch, rows in zip(apart, case.rows, strict=True):
        ids = together.block_table[-rows:]
        assert torch.equal(ids - ids[0, 0], batch.block_table)


@given(cases())
def test_every_slot_holds_an_id_of_its_own_and_all_else_the_canary(case: Case) -> None:
    memory, size = case.build().memory.tolist(), max(case.rows) * case.table.row_slots
    before, table, behind = memory[:MIN_GUARD], memory[MIN_GUARD : MIN_GUARD + size], memory[MIN_GUARD + size :]
    assert table == list(range(size))
    assert len(behind) >= MIN_GUARD
    assert set(before) == set(behind) == {CANARY}


# Far behind tables of one and of two slots.
@example(Case("single", [(1, 1000)], [1], BlockTable(max_model_len=1, block_size=1, token_alignment=0)))
@example(Case("single", [(1, 900), (2, 9)], [1, 2], BlockTable(max_model_len=1, block_size=1, token_alignment=0)))
@settings(max_examples=50)
@given(cases())
def test_guard_behind_the_table_holds_every_read_of_the_last_rows(case: Case) -> None:
    batch = case.build()
    slots = case.table.row_slots
    for i, rows in enumerate(case.rows):
        for request, (_, seq_len) in enumerate(case.requests(i)):
            row = max(case.rows) - rows + request
            assert MIN_GUARD + row * slots + pages_of(case.table, seq_len) <= len(batch.memory)


def test_block_table_of_a_batch_is_its_memory() -> None:
    batch = dummyaudit.build("last", 3, 8, BlockTable(max_model_len=16, max_num_seqs=4))
    assert batch.block_table.tolist() == [list(range(8 * row, 8 * row + 8)) for row in range(4)]
    batch.block_table[3, 7] = 99
    assert 99 in batch.memory.tolist()


def test_block_table_of_several_layouts_is_that_of_the_tallest() -> None:
    batch = Case("last", [(2, 5), (4, 6), (3, 8)], [2, 4, 3], BlockTable(max_model_len=16)).build()
    assert batch.block_table.tolist() == [list(range(8 * row, 8 * row + 8)) for row in range(4)]


def test_incident_is_built_with_its_long_last_request() -> None:
    batch = dummyaudit.build("last", 256, 496, BlockTable(max_model_len=16, max_num_seqs=256))
    assert batch.seq_lens.tolist() == [1] * 255 + [241]
    assert batch.query_start_loc[-2:].tolist() == [255, 496]
    assert batch.block_table.shape == (256, 8)


@pytest.mark.cuda
@given(cases())
def test_cuda_batch_is_that_of_the_cpu(case: Case) -> None:
    on_cuda, on_cpu = case.build("cuda"), case.build("cpu")
    for name in (*TENSORS, "memory"):
        tensor = getattr(on_cuda, name)
        assert tensor.device.type == "cuda"
        assert tensor.dtype == getattr(on_cpu, name).dtype
        assert torch.equal(tensor.cpu(), getattr(on_cpu, name))
    assert on_cuda.num_scheduled_tokens.tolist() == on_cpu.num_scheduled_tokens.tolist()
