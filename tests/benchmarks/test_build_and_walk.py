"""Building and walking many layouts at once, against one after another as an engine builds its batches."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

MAX_MODEL_LEN = 4096
MAX_NUM_SEQS = 256

NUM_REQS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CAPTURE_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Those of vLLM for 256 sequences."""

SHAPES = [(reqs, size) for reqs in NUM_REQS for size in CAPTURE_SIZES if size >= reqs]

AT_ONCE = "build and walk of all shapes at once"
TENSORS = "the same tensors, shape by shape"
ENGINE = "all that the engine's batch holds, shape by shape"


@pytest.fixture
def buffers() -> dict[str, Any]:
    """Tensors that persist from batch to batch, as an engine's do."""
    import torch

    torch.set_num_threads(1)
    tokens = max(CAPTURE_SIZES)
    return {
        "seq_lens": torch.zeros(MAX_NUM_SEQS, dtype=torch.int32),
        "query_start_loc": torch.zeros(MAX_NUM_SEQS + 1, dtype=torch.int32),
        "positions": torch.zeros(tokens, dtype=torch.int64),
        "input_ids": torch.zeros(tokens, dtype=torch.int32),
        "is_padding": torch.zeros(tokens, dtype=torch.bool),
    }


def build_tensors(num_reqs: int, num_tokens: int, buffers: dict[str, Any]) -> dict[str, Any]:
    """The tensors of one dummy batch that a DummyBatch has too, but for the block table."""
    import torch

    num_scheduled_tokens = np.full(num_reqs, num_tokens // num_reqs, dtype=np.int32)
    if rest := num_tokens % num_reqs:
        num_scheduled_tokens[-rest:] += 1

    seq_lens, query_start_loc = buffers["seq_lens"], buffers["query_start_loc"]
    seq_lens[:num_reqs].copy_(torch.from_numpy(num_scheduled_tokens))
    seq_lens[num_reqs:] = 0
    query_start_loc[0] = 0
    torch.cumsum(seq_lens[:num_reqs], 0, out=query_start_loc[1 : num_reqs + 1])
    query_start_loc[num_reqs + 1 :] = num_tokens
    return {
        "num_scheduled_tokens": num_scheduled_tokens,
        "positions": buffers["positions"][:num_tokens].zero_(),
        "logits_indices": query_start_loc[1 : num_reqs + 1] - 1,
    }


def build_like_engine(num_reqs: int, num_tokens: int, buffers: dict[str, Any]) -> dict[str, Any]:
    """Also what else it holds: a unique name for each request, and what sampling and prefill look at."""
    import torch

    return build_tensors(num_reqs, num_tokens, buffers) | {
        "req_ids": [f"{i}-{uuid.uuid4().hex}" for i in range(num_reqs)],
        "idx_mapping": torch.arange(num_reqs),
        "idx_mapping_np": np.arange(num_reqs),
        "local_pos": torch.zeros(num_reqs, dtype=torch.int32),
        "input_ids": buffers["input_ids"][:num_tokens].zero_(),
        "is_padding": buffers["is_padding"][:num_tokens].fill_(True),
        "cu_num_logits": torch.arange(num_reqs + 1, dtype=torch.int32),
        "cu_num_logits_np": np.arange(num_reqs + 1, dtype=np.int32),
        "num_computed_tokens": np.zeros(num_reqs, dtype=np.int32),
        "prefill_len": np.zeros(num_reqs, dtype=np.int32),
        "is_prefilling": np.zeros(num_reqs, dtype=np.bool_),
    }


@pytest.mark.parametrize(("name", "build"), [(TENSORS, build_tensors), (ENGINE, build_like_engine)])
def test_shape_by_shape(
    timed: Callable[..., Any], buffers: dict[str, Any], name: str, build: Callable[..., dict[str, Any]]
) -> None:
    ends = timed(name, lambda: [build(*shape, buffers)["logits_indices"][-1] for shape in SHAPES], rounds=20)

    assert len(ends) == 381
    assert [int(end) + 1 for end in ends] == [num_tokens for _, num_tokens in SHAPES]


def test_all_at_once(timed: Callable[..., Any], times: dict[str, float], add_row: Callable[..., None]) -> None:
    import torch

    from dummyaudit import BlockTable
    from dummyaudit.batch import build_batch
    from dummyaudit.rules import find_rule
    from dummyaudit.walk import walk

    torch.set_num_threads(1)
    num_reqs, num_tokens = np.array(SHAPES).T
    table = BlockTable(max_model_len=MAX_MODEL_LEN)
    rule = find_rule("even")

    def build_and_walk() -> Any:
        batch = build_batch(rule.runs(num_reqs, num_tokens, MAX_MODEL_LEN), num_tokens, num_reqs, table, "cpu")
        return batch, walk(batch)

    batch, reads = timed(AT_ONCE, build_and_walk, rounds=50)

    assert (batch.num_reqs == num_reqs).all()
    assert (reads.own >= num_reqs).all()
    for name, limit in ((ENGINE, "at least 50"), (TENSORS, "")):
        plain, mine = len(SHAPES) / times[name], len(SHAPES) / times[AT_ONCE]
        add_row(
            f"{AT_ONCE} ({len(SHAPES)})",
            f"{mine:.0f} layouts/s",
            f"{name}: {plain:.0f} layouts/s",
            f"{mine / plain:.1f} times",
            limit,
        )
    tensors = (batch.seq_lens, batch.query_start_loc, batch.positions, batch.logits_indices, batch.memory)
    times["bytes"] = sum(tensor.nbytes for tensor in tensors) + 4 * int(reads.own.sum())


def test_triad_on_the_same_bytes(
    timed: Callable[..., Any], times: dict[str, float], add_row: Callable[..., None]
) -> None:
    a, b, c = np.ones((3, int(times["bytes"]) // 24))

    def triad() -> None:
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)

    timed("triad", triad, rounds=50)
    triad_rate, rate = (times["bytes"] / times[name] / 1e9 for name in ("triad", AT_ONCE))
    add_row(
        f"{AT_ONCE}: bytes built, and read by the walk",
        f"{times['bytes'] / 1e6:.1f} MB, {rate:.1f} GB/s",
        f"NumPy triad `a = b + 3 * c` on as many: {triad_rate:.1f} GB/s",
        f"{rate / triad_rate:.0%}",
        "",
    )
