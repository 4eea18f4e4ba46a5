from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from built_cases import Case, cases, pages_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dummyaudit.audit import Reads, count_reads
from dummyaudit.batch import CANARY, MIN_GUARD, DummyBatch, to_device
from dummyaudit.block_table import BlockTable
from dummyaudit.walk import walk

INCIDENT = Case("last", [(256, 496)], [256], BlockTable(max_model_len=16))


def triples(reads: Reads) -> list[tuple[int, int, int]]:
    return list(zip(reads.own.tolist(), reads.other_row.tolist(), reads.outside.tolist(), strict=True))


def read_entry_by_entry(batch: DummyBatch) -> list[tuple[int, int, int]]:
    """Own, other row and outside of each layout; each by the place that is read and by what lies there."""
    memory, seq_lens, slots = batch.memory.tolist(), iter(batch.seq_lens.tolist()), batch.table.row_slots
    found = []
    for rows in batch.max_num_seqs.tolist():
        others = len(batch.block_table) - rows
        by_place, by_content = [0, 0, 0], [0, 0, 0]
        for row in range(rows):
            for slot in range(pages_of(batch.table, next(seq_lens))):
                place = row * slots + slot
                by_place[0 if slot < slots else 1 if place < rows * slots else 2] += 1
                page_id = memory[MIN_GUARD + others * slots + place]
                by_content[2 if page_id == CANARY else 0 if page_id // slots == others + row else 1] += 1
        assert by_place == by_content
        found.append((by_content[0], by_content[1], by_content[2]))
    return found


@settings(max_examples=60)
@example(Case("last", [(2, 100), (3, 40), (3, 90)], [2, 3, 4], BlockTable(max_model_len=1, block_size=1)), 3)
@given(cases(), st.sampled_from([7, 64, 2**22]))
def test_walk_is_that_of_a_loop_over_entries(case: Case, window: int) -> None:
    batch = case.build()
    with mock.patch("dummyaudit.walk.WINDOW", window):
        reads = walk(batch)
    assert triples(reads) == read_entry_by_entry(batch)


@given(cases())
def test_walk_agrees_with_the_arithmetic(case: Case) -> None:
    said = count_reads(case.runs, np.array(case.rows), case.table)
    assert triples(walk(case.build())) == triples(said)


def test_incident_reads_eight_ids_behind_the_table() -> None:
    # 255 requests of one page, and one of 16 pages whose row is the last: 8 of its own, 8 of nobody's.
    assert triples(walk(INCIDENT.build())) == [(255 + 8, 0, 8)]


def test_incident_in_a_taller_table_reads_the_next_row() -> None:
    assert triples(walk(replace(INCIDENT, rows=[257]).build())) == [(255 + 8, 8, 0)]


@pytest.mark.parametrize("window", [1, 5, 64, 271, 272])
def test_windows_that_cut_a_row_count_every_read_once(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr("dummyaudit.walk.WINDOW", window)
    case = Case("last", [(256, 496), (256, 256), (256, 511)], [256, 300, 256], BlockTable(max_model_len=16))
    assert triples(walk(case.build())) == [(263, 0, 8), (256, 0, 0), (263, 0, 8)]


@pytest.mark.parametrize("window", [1, 10, 2**22])
def test_walk_works_its_reads_off_by_windows(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr("dummyaudit.walk.WINDOW", window)
    slots = []

    def recorded(array: np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
        slots.append(array.tolist())
        return to_device(array, device)

    batch = INCIDENT.build()
    monkeypatch.setattr("dummyaudit.walk.to_device", recorded)
    walk(batch)
    first, *others = slots
    assert first == list(range(0, 256 * 8, 8))
    assert max(map(len, others)) == min(window, 15)
    assert [slot for some in others for slot in some] == list(range(255 * 8 + 1, 255 * 8 + 16))


def test_walk_tells_ids_apart_by_what_it_reads() -> None:
    batch = Case("even", [(4, 64)], [4], BlockTable(max_model_len=16)).build()
    assert triples(walk(batch)) == [(4, 0, 0)]
    batch.block_table[3, 0] = CANARY
    assert triples(walk(batch)) == [(3, 0, 1)]
    batch.block_table[2, 0] = batch.block_table[1, 0]  # of another row, where it does not belong
    assert triples(walk(batch)) == [(2, 0, 1)]
    batch.block_table[0, 0] += 1  # of the same row
    assert triples(walk(batch)) == [(1, 0, 1)]


def test_walk_reads_no_padding_slot_of_a_row_that_fits() -> None:
    batch = Case("even", [(4, 64)], [4], BlockTable(max_model_len=16)).build()
    batch.block_table[:, 1:] = CANARY
    assert triples(walk(batch)) == [(4, 0, 0)]


def test_read_behind_the_allocation_would_be_an_error_and_not_a_read() -> None:
    batch = INCIDENT.build()
    table_end = MIN_GUARD + 256 * 8
    enough = replace(batch, memory=batch.memory[: table_end + 8].clone())
    assert triples(walk(enough)) == [(263, 0, 8)]
    with pytest.raises(IndexError):
        walk(replace(batch, memory=batch.memory[: table_end + 7].clone()))


@pytest.mark.cuda
@given(cases(), st.sampled_from([3, 2**22]))
def test_cuda_walk_is_that_of_the_cpu(case: Case, window: int) -> None:
    with mock.patch("dummyaudit.walk.WINDOW", window):
        assert triples(walk(case.build("cuda"))) == triples(walk(case.build("cpu")))
