from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from built_cases import Case, cases
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dummyaudit
from dummyaudit import evidence
from dummyaudit.audit import find_severity, find_worst
from dummyaudit.batch import CANARY, MIN_GUARD, DummyBatch
from dummyaudit.block_table import BlockTable
from dummyaudit.errors import DeviceError, DisagreementError
from dummyaudit.evidence import Evidence
from dummyaudit.rules import find_rule

Damage = Callable[[DummyBatch], object]

# Of four requests in a table of six rows the last overflows: rows of one slot, 19 tokens, then 23.
TWO = Case("last", [(4, 19), (4, 23)], [6, 6], BlockTable(max_model_len=4, block_size=4, token_alignment=0))


def check(case: Case, **said: Any) -> None:
    """Holds the case against the arithmetic, parts of which may be replaced."""
    runs, rows = case.runs, np.array(case.rows)
    worst = find_worst(runs, case.table)
    arguments = {"severity": find_severity(runs, worst, rows, case.table), "worst": worst} | said
    Evidence("cpu").check(find_rule(case.rule), case.table, *case.num_reqs_and_tokens, rows, runs, **arguments)


def damaged(damage: Damage) -> Any:
    """Lets every batch be built with damage."""
    build = evidence.build_batch

    def build_damaged(*args: Any) -> DummyBatch:
        batch = build(*args)
        changed = damage(batch)
        return changed if isinstance(changed, DummyBatch) else batch

    return mock.patch.object(evidence, "build_batch", build_damaged)


def disagreement(case: Case, **said: Any) -> str:
    with pytest.raises(DisagreementError) as raised:
        check(case, **said)
    assert "\n" not in raised.value.message
    assert raised.value.hint
    return raised.value.message


def set_entry(name: str, index: int, value: int) -> Damage:
    def damage(batch: DummyBatch) -> None:
        getattr(batch, name)[index] = value

    return damage


def set_slot(layout: int, row: int, slot: int, value: int) -> Damage:
    def damage(batch: DummyBatch) -> None:
        first = (len(batch.block_table) - int(batch.max_num_seqs[layout])) * batch.table.row_slots
        batch.memory[MIN_GUARD + first + row * batch.table.row_slots + slot] = value

    return damage


@given(cases())
def test_sound_batches_agree(case: Case) -> None:
    check(case)


# Tensors of TWO: six rows a layout, num_scheduled_tokens 4 4 4 7, 5 5 5 8.
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(
            set_entry("seq_lens", 9, 24), "sum of seq_lens is 23", id="seq_len of the last request too long"
        ),
        pytest.param(set_entry("seq_lens", 7, 4), "sum of seq_lens is 23", id="seq_len of another request too short"),
        pytest.param(set_entry("seq_lens", 6, 0), "number of requests", id="request without seq_len"),
        pytest.param(set_entry("seq_lens", 11, 1), "number of requests", id="padding of seq_lens not zero"),
        pytest.param(set_entry("num_scheduled_tokens", 4, 6), "num_scheduled_tokens", id="token too many"),
        pytest.param(set_entry("query_start_loc", 13, 22), "query_start_loc", id="wrong end of query_start_loc"),
        pytest.param(set_entry("query_start_loc", 7, 1), "query_start_loc", id="does not begin with zero"),
        pytest.param(set_entry("query_start_loc", 9, 9), "query_start_loc", id="wrong query_start_loc"),
        pytest.param(set_entry("query_start_loc", 12, 0), "query_start_loc", id="zeros as padding"),
        pytest.param(set_entry("logits_indices", 7, 23), "logits_indices", id="last of logits_indices"),
        pytest.param(set_entry("logits_indices", 4, 5), "logits_indices", id="first of logits_indices"),
    ],
)
def test_damaged_tensor_ends_the_audit_and_names_the_layout(damage: Damage, says: str) -> None:
    with damaged(damage):
        message = disagreement(TWO)
    assert "rule last at num_reqs 4, num_tokens 23, max_model_len 4, block_size 4: " in message
    assert says in message
    assert "built on cpu" in message


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(set_slot(0, 1, 0, 2), "own row is 4 by arithmetic and 3", id="id of another row"),
        pytest.param(set_slot(0, 1, 0, CANARY), "own row is 4 by arithmetic and 3", id="canary in the table"),
        pytest.param(set_slot(0, 4, 0, 3), "another row is 1 by arithmetic and 0", id="own id in the next row"),
        pytest.param(set_slot(0, 4, 0, CANARY), "another row is 1 by arithmetic and 0", id="canary in the next row"),
        pytest.param(lambda batch: batch.memory.fill_(CANARY), "own row is 4 by arithmetic and 0", id="no table"),
        pytest.param(lambda batch: replace(batch, memory=batch.memory.roll(1)), "own row", id="table elsewhere"),
    ],
)
def test_damaged_block_table_ends_the_audit_and_names_the_layout(damage: Damage, says: str) -> None:
    with damaged(damage):
        message = disagreement(replace(TWO, shapes=TWO.shapes[:1], rows=TWO.rows[:1]))
    assert "rule last at num_reqs 4, num_tokens 19, " in message
    assert says in message


def test_damaged_guard_ends_the_audit() -> None:
    # Four rows: the last request reads one id of its own and one of the guard.
    case = replace(TWO, shapes=[(4, 19)], rows=[4])
    check(case)
    with damaged(set_slot(0, 4, 0, 4)):
        assert "another row is 0 by arithmetic and 1" in disagreement(case)
    with damaged(set_slot(0, 4, 0, 3)):
        assert "outside the table is 1 by arithmetic and 0" in disagreement(case)


@settings(max_examples=60)
@given(cases(), st.data())
def test_any_wrong_entry_of_any_tensor_ends_the_audit(case: Case, data: st.DataObject) -> None:
    batch = case.build()
    name = data.draw(st.sampled_from(["seq_lens", "query_start_loc", "num_scheduled_tokens", "logits_indices"]))
    entries = getattr(batch, name)
    index = data.draw(st.integers(0, len(entries) - 1))
    value = int(entries[index]) + data.draw(st.sampled_from([-1000, -1, 1, 16, 10**6]))
    sizes = [len(case.requests(i)) for i in range(len(case.rows))]
    if name in ("seq_lens", "query_start_loc"):
        sizes = [rows + (name == "query_start_loc") for rows in case.rows]
    layout = int(np.searchsorted(np.cumsum(sizes), index, side="right"))
    with damaged(set_entry(name, index, value)):
        message = disagreement(case)
    # Some splits make fewer requests than were asked for.
    num_reqs, num_tokens = case.shapes[layout]
    assert f"at num_reqs {num_reqs}, num_tokens {num_tokens}, " in message


@settings(max_examples=60)
@given(cases(), st.data())
def test_any_wrong_id_that_is_read_ends_the_audit(case: Case, data: st.DataObject) -> None:
    layout = data.draw(st.integers(0, len(case.rows) - 1))
    requests = case.requests(layout)
    row = data.draw(st.integers(0, len(requests) - 1))
    slot = data.draw(st.integers(0, case.table.pages(requests[row][1]) - 1))
    batch = case.build()
    entry = MIN_GUARD + (max(case.rows) - case.rows[layout] + row) * case.table.row_slots + slot
    known = [CANARY, -1, *range(max(case.rows) * case.table.row_slots + 1)]
    wrong = data.draw(st.sampled_from([value for value in known if value != batch.memory[entry]]))
    with damaged(set_entry("memory", entry, wrong)):
        assert "reads from " in disagreement(case)


def test_requests_that_changed_places_end_the_audit() -> None:
    def damage(batch: DummyBatch) -> None:
        batch.num_scheduled_tokens[[3, 2]] = batch.num_scheduled_tokens[[2, 3]]

    with damaged(damage):
        message = disagreement(TWO)
    assert "num_tokens 19, " in message
    assert "logits_indices at the end of a request is 4 by arithmetic and 3" in message


@pytest.mark.parametrize("field", ["request", "seq_len", "pages", "longest"])
@pytest.mark.parametrize("layout", [0, 1])
def test_wrong_worst_request_ends_the_audit(field: str, layout: int) -> None:
    worst = find_worst(TWO.runs, TWO.table)
    values = getattr(worst, field).copy()
    values[layout] -= 1
    message = disagreement(TWO, worst=replace(worst, **{field: values}))
    assert f"num_tokens {TWO.shapes[layout][1]}, " in message
    assert f"is {values[layout]} by arithmetic and {values[layout] + 1} " in message


@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_wrong_verdict_ends_the_audit(wrong: int) -> None:
    message = disagreement(TWO, severity=np.array([2, wrong], dtype=np.int8))
    assert "num_tokens 23, " in message
    assert f"severity is {wrong} by arithmetic and 2 " in message


@example(Case("last", [(1, 8), (1, 9), (1, 8), (1, 5)], [1, 1, 2, 1], BlockTable(max_model_len=8, block_size=8)), 1)
@given(cases(), st.sampled_from([1, 500, 4000]))
def test_chunks_agree_as_the_whole_does(case: Case, budget: int) -> None:
    layouts = []
    build = evidence.build_batch

    def counted(*args: Any) -> DummyBatch:
        batch = build(*args)
        layouts.append(len(batch.num_reqs))
        return batch

    with mock.patch.object(evidence, "BUDGET", budget), mock.patch.object(evidence, "build_batch", counted):
        check(case)
    assert sum(layouts) == len(case.shapes)
    if budget == 1:
        assert set(layouts) == {1}


def test_damage_in_a_later_chunk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(batch: DummyBatch) -> None:
        if 23 in batch.query_start_loc:
            batch.seq_lens[0] = 4

    monkeypatch.setattr(evidence, "BUDGET", 1)
    with damaged(damage):
        assert "num_tokens 23, " in disagreement(TWO)


def test_verdicts_of_a_chunk_are_held_against_their_own_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "BUDGET", 1)
    assert "num_tokens 23, " in disagreement(TWO, severity=np.array([2, 0], dtype=np.int8))


def test_grid_in_tiny_chunks_gives_the_same_report(monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, Any] = {"num_reqs": [1, 4, 9], "num_tokens": range(9, 60, 7), "max_model_len": [4, 16]}
    whole = dummyaudit.grid(**space, device="cpu").to_dict()
    monkeypatch.setattr(evidence, "BUDGET", 1)
    assert dummyaudit.grid(**space, device="cpu").to_dict() == whole


def test_grid_ends_at_a_damaged_batch() -> None:
    space: dict[str, Any] = {"num_reqs": [4, 256], "num_tokens": [256, 496], "max_model_len": 16, "device": "cpu"}
    assert dummyaudit.grid(**space).built is not None
    # Rows of 4 and 4 requests come first, then those of 256 and 256.
    with damaged(set_entry("seq_lens", 4 + 4 + 256, 2)), pytest.raises(DisagreementError) as raised:
        dummyaudit.grid(**space)
    assert "rule last at num_reqs 256, num_tokens 496, max_model_len 16, " in raised.value.message


def test_layout_that_memory_cannot_hold_is_refused_with_its_shape() -> None:
    with pytest.raises(DeviceError) as raised:
        dummyaudit.grid(
            num_reqs=[1, 2], num_tokens=[8, 2**31 - 1], max_model_len=2**31 - 1, max_num_seqs=7, device="cpu"
        )
    assert "num_tokens 2147483647 with max_num_seqs 7 and max_model_len 2147483647 needs " in raised.value.message
    assert " GiB to build" in raised.value.message
    assert raised.value.hint == "use --device none"


@pytest.mark.parametrize(
    ("limit", "most", "fits", "says"),
    [
        ("MOST_BYTES", 2**10, 2**20, r"needs 0\.0 GiB to build"),
        ("MOST_READS", 270, 271, r"reads 271 page ids"),  # 255 requests of one page and one of 16
    ],
)
def test_layout_over_a_limit_is_refused_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, fits: int, says: str
) -> None:
    case = Case("last", [(1, 1), (256, 496)], [1, 256], BlockTable(max_model_len=16))
    monkeypatch.setattr(evidence, limit, fits)
    check(case)
    monkeypatch.setattr(evidence, limit, most)
    monkeypatch.setattr(evidence, "build_batch", lambda *args: pytest.fail("was built"))
    with pytest.raises(DeviceError, match=f"^num_tokens 496 with max_num_seqs 256 and max_model_len 16 {says}"):
        check(case)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RuntimeError("out of memory on device 0\nbacktrace"), "cannot build on cpu: out of memory on device 0"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "cannot build on cpu: CUDA out of memory. Tried"),
        (MemoryError(), "cannot build on cpu: out of memory"),
    ],
    ids=["first line", "torch", "without text"],
)
def test_memory_that_runs_out_is_told_in_one_line(error: Exception, says: str) -> None:
    with mock.patch.object(evidence, "build_batch", side_effect=error), pytest.raises(DeviceError) as raised:
        check(TWO)
    assert raised.value.message == says
    assert raised.value.hint == "use --device none"


def test_memory_that_runs_out_during_the_walk_is_told_in_one_line() -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried")
    with mock.patch.object(evidence, "walk", side_effect=error), pytest.raises(DeviceError, match="out of memory"):
        check(TWO)


@pytest.mark.cuda
@given(cases())
def test_cuda_batches_agree(case: Case) -> None:
    runs, rows = case.runs, np.array(case.rows)
    worst = find_worst(runs, case.table)
    severity = find_severity(runs, worst, rows, case.table)
    Evidence("cuda").check(
        find_rule(case.rule), case.table, *case.num_reqs_and_tokens, rows, runs, severity=severity, worst=worst
    )


@pytest.mark.cuda
def test_grid_on_cuda_is_that_of_the_cpu() -> None:
    on_cuda, on_cpu = (dummyaudit.grid(max_model_len=[16, 64], device=device) for device in ("cuda", "cpu"))
    assert on_cuda.built is not None
    assert on_cuda.built.device == "cuda"
    assert on_cuda.to_dict() | {"built": None} == on_cpu.to_dict() | {"built": None}
