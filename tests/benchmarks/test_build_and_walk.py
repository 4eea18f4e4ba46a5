"""Building and walking many layouts at once, against one after another as an engine builds its batches."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rules import RULES
from triad import triad_seconds

MAX_MODEL_LEN = 4096
MAX_NUM_SEQS = 256

NUM_REQS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CAPTURE_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16))
"""Those of vLLM for 256 sequences."""

SHAPES = [(reqs, size) for reqs in NUM_REQS for size in CAPTURE_SIZES if size >= reqs]

TENSORS = "the same tensors, shape by shape"
LIKE_ENGINE = "all that the engine's batch holds, shape by shape"
ENGINE = "InputBatch.make_dummy of vLLM, shape by shape"


@pytest.fixture
def buffers() -> dict[str, Any]:
    """Tensors that persist from batch to batch, as an engine's do."""
    import torch

    tokens = max(CAPTURE_SIZES)
    return {
        "seq_lens": torch.zeros(MAX_NUM_SEQS, dtype=torch.int32),
        "query_start_loc": torch.zeros(MAX_NUM_SEQS + 1, dtype=torch.int32),
        "positions": torch.zeros(tokens, dtype=torch.int64),
        "input_ids": torch.zeros(tokens, dtype=torch.int32),
        "is_padding": torch.zeros(tokens, dtype=torch.bool),
    }


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def build_tensors(num_reqs: int, num_tokens: int, buffers: dict[str, Any]) -> dict[str, Any]:
    """The tensors of one dummy batch that a DummyBatch has too, but for the block table."""
    import torch

    least, rest = divmod(num_tokens, num_reqs)
    num_scheduled_tokens = np.full(num_reqs, least, dtype=np.int32)
    if rest:
        num_scheduled_tokens[-rest:] += 1

    seq_lens, query_start_loc = buffers["seq_lens"], buffers["query_start_loc"]
    seq_lens[: num_reqs - rest] = least
    seq_lens[num_reqs - rest : num_reqs] = least + 1
    seq_lens[num_reqs:] = 0
    query_start_loc[0] = 0
    torch.cumsum(seq_lens[:num_reqs], 0, out=query_start_loc[1 : num_reqs + 1])
    query_start_loc[num_reqs + 1 :] = num_tokens
    return {
        "num_scheduled_tokens": num_scheduled_tokens,
        "positions": buffers["positions"][:num_tokens].zero_(),
        "logits_indices": query_start_loc[1 : num_reqs + 1] - 1,
    }


def new_id() -> str:
    return f"{uuid.uuid4().int % 2**64:016x}"


def build_like_engine(num_reqs: int, num_tokens: int, buffers: dict[str, Any]) -> dict[str, Any]:
    """Also what else InputBatch.make_dummy of vLLM 0.32 makes, such as a unique name of each request."""
    import torch

    batch = build_tensors(num_reqs, num_tokens, buffers)
    num_scheduled_tokens = batch["num_scheduled_tokens"]
    assert num_scheduled_tokens.sum() == num_tokens
    query_start_loc_np = np.zeros(num_reqs + 1, dtype=np.int32)
    np.cumsum(num_scheduled_tokens, out=query_start_loc_np[1:])
    return batch | {
        "req_ids": [f"request-{i}-{new_id()}" for i in range(num_reqs)],
        "idx_mapping": torch.arange(num_reqs),
        "idx_mapping_np": np.arange(num_reqs),
        "expanded_local_pos": torch.zeros(num_reqs, dtype=torch.int32),
        "query_start_loc_np": query_start_loc_np,
        "seq_lens_cpu_upper_bound": torch.from_numpy(num_scheduled_tokens.copy()),
        "input_ids": buffers["input_ids"][:num_tokens].zero_(),
        "is_padding": buffers["is_padding"][:num_tokens].fill_(True),
        "cu_num_logits": torch.arange(num_reqs + 1, dtype=torch.int32),
        "cu_num_logits_np": np.arange(num_reqs + 1, dtype=np.int32),
        "num_computed_tokens_np": np.zeros(num_reqs, dtype=np.int32),
        "num_computed_prefill_tokens_np": np.zeros(num_reqs, dtype=np.int32),
        "prefill_len_np": np.zeros(num_reqs, dtype=np.int32),
        "is_prefilling_np": np.zeros(num_reqs, dtype=np.bool_),
    }


def assert_last_tokens(logits_indices: list[Any]) -> None:
    assert len(logits_indices) == 381
    assert [int(indices[-1]) + 1 for indices in logits_indices] == [num_tokens for _, num_tokens in SHAPES]


@pytest.mark.parametrize(("name", "build"), [(TENSORS, build_tensors), (LIKE_ENGINE, build_like_engine)])
def test_shape_by_shape(
    timed: Callable[..., Any], buffers: dict[str, Any], name: str, build: Callable[..., dict[str, Any]]
) -> None:
    assert_last_tokens(timed(name, lambda: [build(*shape, buffers)["logits_indices"] for shape in SHAPES], rounds=40))


def test_engine_itself_shape_by_shape(timed: Callable[..., Any]) -> None:
    import torch

    engine = pytest.importorskip("vllm.v1.worker.gpu.input_batch")
    buffers = engine.InputBuffers(MAX_NUM_SEQS, max(CAPTURE_SIZES), torch.device("cpu"))
    build = engine.InputBatch.make_dummy
    assert_last_tokens(timed(ENGINE, lambda: [build(*shape, buffers).logits_indices for shape in SHAPES], rounds=40))


@pytest.mark.parametrize("rule", RULES)
def test_all_at_once(
    timed: Callable[..., Any], times: dict[str, float], add_row: Callable[..., None], rule: str
) -> None:
    from dummyaudit import BlockTable
    from dummyaudit.batch import build_batch
    from dummyaudit.rules import find_rule
    from dummyaudit.walk import walk

    num_reqs, num_tokens = np.array(SHAPES).T
    table = BlockTable(max_model_len=MAX_MODEL_LEN)
    make = find_rule(rule).runs

    def build_and_walk() -> Any:
        batch = build_batch(make(num_reqs, num_tokens, MAX_MODEL_LEN), num_tokens, num_reqs, table, "cpu")
        return batch, walk(batch)

    name = f"build and walk of all {len(SHAPES)} shapes at once, `{rule}`"
    batch, reads = timed(name, build_and_walk, rounds=3000)

    assert (reads.own >= batch.num_reqs).all()
    rate = len(SHAPES) / times[name]
    for other in (ENGINE, LIKE_ENGINE, TENSORS):
        if other not in times:
            continue
        other_rate = len(SHAPES) / times[other]
        add_row(
            name,
            f"{rate:.0f} layouts/s",
            f"{other}: {other_rate:.0f} layouts/s",
            f"{rate / other_rate:.0f} times",
            "at least 200" if rule in ("last", "even") and other != TENSORS else "",
        )
    tensors = (batch.seq_lens, batch.query_start_loc, batch.positions, batch.logits_indices, batch.memory)
    size = sum(tensor.nbytes for tensor in tensors) + 4 * int(reads.own.sum())
    bandwidth, triad = (size / seconds / 1e9 for seconds in (times[name], triad_seconds(size // 24)))
    add_row(
        name,
        f"{size / 1e6:.1f} MB built and read, {bandwidth:.1f} GB/s",
        f"NumPy triad on as many bytes: {triad:.1f} GB/s",
        f"{bandwidth / triad:.0%}",
        "",
    )
