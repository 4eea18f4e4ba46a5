"""DummyBatch: the real tensors of a layout, one or many at once, on a torch device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from dummyaudit.axes import Ints
from dummyaudit.block_table import BlockTable
from dummyaudit.errors import DummyAuditError
from dummyaudit.rules import Runs

CANARY = -0x21524111
"""What every entry of a guard region holds (0xDEADBEEF as int32): no page id, since those are not negative."""

MIN_GUARD = 32
"""Least entries of a guard region."""


@dataclass(frozen=True, slots=True, eq=False)
class DummyBatch:
    """What an engine's dummy batch holds. Of several layouts, each tensor holds one after the other.

    Attributes:
        num_scheduled_tokens: [num_reqs] NumPy int32, tokens of each request.
        seq_lens: [max_num_seqs] int32, padded with 0 behind the last request.
        query_start_loc: [max_num_seqs + 1] int32, cumulative tokens, padded with num_tokens.
        positions: [num_tokens] int64, zeros.
        logits_indices: [num_reqs] int32, index of each request's last token.
        memory: int32, the block tables of the layouts, each between two guard regions full of CANARY. Every slot of
            a table holds a page id of its own, `row * row_slots + slot`. Layouts of equally many rows share one.
        table_starts: [n] where in memory the table of each layout begins.
        num_reqs: [n] requests of each layout.
        max_num_seqs: [n] rows of each layout's table.
        table: the geometry of rows and pages; its own max_num_seqs is not used.

    Source of dtypes and padding: InputBatch.make_dummy in vllm/v1/worker/gpu/input_batch.py.
    """

    num_scheduled_tokens: npt.NDArray[np.int32]
    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor
    positions: torch.Tensor
    logits_indices: torch.Tensor
    memory: torch.Tensor
    table_starts: Ints
    num_reqs: Ints
    max_num_seqs: Ints
    table: BlockTable

    @property
    def block_table(self) -> torch.Tensor:
        """[max_num_seqs, row_slots] int32 page ids of a batch of one layout, a view of `memory`.

        Raises:
            DummyAuditError: the batch holds several layouts.
        """
        if len(self.num_reqs) != 1:
            raise DummyAuditError("a batch of several layouts has several block tables", "build one layout")
        start, rows, slots = int(self.table_starts[0]), int(self.max_num_seqs[0]), self.table.row_slots
        return self.memory[start : start + rows * slots].view(rows, slots)


def build_batch(
    runs: Runs, num_tokens: Ints, max_num_seqs: Ints, table: BlockTable, device: str | torch.device
) -> DummyBatch:
    """Builds the batches of n layouts at once, by whole-tensor operations.

    Args:
        runs: the layouts, [k, n].
        num_tokens: [n] their tokens.
        max_num_seqs: [n] rows of the table of each.
        table: the geometry of rows and pages.
        device: where the tensors are made.
    """
    # What differs from request to request is laid out by NumPy, as the engine does it, and sent to the device.
    num_reqs = runs.count.sum(axis=0)
    padding = max_num_seqs - num_reqs
    # Of each layout the first entry takes back all that was summed before it, and the last ones add nothing.
    before = np.concatenate([[0], -num_tokens[:-1]])
    steps = _expand([before, *runs.query_len, 0 * padding], [np.ones_like(before), *runs.count, padding])
    query_start_loc = torch.cumsum(to_device(steps, device), 0, dtype=torch.int32)
    # Request j of all has its end behind the j ends before it, and behind the zeros and the padding of the layouts.
    skipped = np.cumsum(padding + 1) - padding
    ends = np.arange(int(num_reqs.sum())) + np.repeat(skipped, num_reqs)
    memory, table_starts = _build_tables(runs.seq_len.max(axis=0), max_num_seqs, table, device)
    return DummyBatch(
        num_scheduled_tokens=_expand([*runs.query_len], [*runs.count]),
        seq_lens=to_device(_expand([*runs.seq_len, 0 * padding], [*runs.count, padding]), device),
        query_start_loc=query_start_loc,
        positions=torch.zeros(int(num_tokens.sum()), dtype=torch.int64, device=device),
        logits_indices=query_start_loc.index_select(0, to_device(ends, device)) - 1,
        memory=memory,
        table_starts=table_starts,
        num_reqs=num_reqs,
        max_num_seqs=max_num_seqs,
        table=table,
    )


def to_device(array: npt.NDArray[np.generic], device: str | torch.device) -> torch.Tensor:
    """A tensor of the same values; on the CPU the array's own memory."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def _expand(values: Sequence[Ints], counts: Sequence[Ints]) -> npt.NDArray[np.int32]:
    """Every value of [k, n] as often as it counts, layout by layout."""
    return np.repeat(np.array(values, dtype=np.int32).T.ravel(), np.array(counts).T.ravel())


def _build_tables(
    longest: Ints, max_num_seqs: Ints, table: BlockTable, device: str | torch.device
) -> tuple[torch.Tensor, Ints]:
    """One table for each run of layouts with equally many rows, between guards that hold every read of theirs.

    The last row starts row_slots before the end of its table, so that no read leaves a guard behind it of
    `pages - row_slots` entries, where pages is what the longest seq_len of a layout, [n], needs.
    """
    slots = table.row_slots
    is_first = np.ones(len(longest), dtype=np.bool_)
    np.not_equal(max_num_seqs[1:], max_num_seqs[:-1], out=is_first[1:])
    (first,) = np.nonzero(is_first)  # of the layouts that share a table
    rows = max_num_seqs[first]
    guards = (table.pages(np.maximum.reduceat(longest, first)) - slots).clip(min=MIN_GUARD)
    starts = np.cumsum(guards + np.concatenate([[MIN_GUARD], rows[:-1] * slots + MIN_GUARD])) - guards
    size = int(starts[-1] + rows[-1] * slots + guards[-1])
    memory = torch.full((size,), CANARY, dtype=torch.int32, device=device)
    for start, length in zip(starts.tolist(), (rows * slots).tolist(), strict=True):
        torch.arange(length, dtype=torch.int32, device=device, out=memory[start : start + length])
    return memory, starts[np.cumsum(is_first) - 1]
