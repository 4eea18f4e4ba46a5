"""DummyBatch: the real tensors of a layout, one or many at once, on a torch device."""

from __future__ import annotations

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
    num_reqs = runs.count.sum(axis=0)
    padding = max_num_seqs - num_reqs
    seq_lens = _expand([*runs.seq_len, 0 * padding], [*runs.count, padding], torch.int32, device)
    # The entry before a layout's first request takes back all that was summed before it.
    one = np.ones_like(num_tokens)
    before = -np.concatenate([one[:0], [0], num_tokens[:-1]])
    steps = _expand([before, *runs.query_len, 0 * padding], [one, *runs.count, padding], torch.int32, device)
    query_start_loc = torch.cumsum(steps, 0, dtype=torch.int32)
    # Request j of all has its end behind the j ends before it, the zeros that start layouts, and their padding.
    ends = _expand([np.cumsum(padding) - padding + np.arange(1, len(padding) + 1)], [num_reqs], torch.int64, device)
    ends += torch.arange(len(ends), device=device)
    memory, table_starts = _build_tables(seq_lens, max_num_seqs, table)
    return DummyBatch(
        num_scheduled_tokens=np.repeat(runs.query_len.T.ravel().astype(np.int32), runs.count.T.ravel()),
        seq_lens=seq_lens,
        query_start_loc=query_start_loc,
        positions=torch.zeros(int(num_tokens.sum()), dtype=torch.int64, device=device),
        logits_indices=query_start_loc.index_select(0, ends) - 1,
        memory=memory,
        table_starts=table_starts,
        num_reqs=num_reqs,
        max_num_seqs=max_num_seqs,
        table=table,
    )


def to_device(array: npt.NDArray[np.generic], device: str | torch.device) -> torch.Tensor:
    """A tensor of the same values; on the CPU the array's own memory."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def _expand(values: list[Ints], counts: list[Ints], dtype: torch.dtype, device: str | torch.device) -> torch.Tensor:
    """Every value of [k, n] as often as it counts, layout by layout."""
    repeats = np.stack(counts, axis=1).ravel()
    return torch.repeat_interleave(
        to_device(np.stack(values, axis=1).ravel(), device).to(dtype),
        to_device(repeats, device),
        output_size=int(repeats.sum()),
    )


def _build_tables(seq_lens: torch.Tensor, max_num_seqs: Ints, table: BlockTable) -> tuple[torch.Tensor, Ints]:
    """One table for each run of layouts with equally many rows, between guards that hold every read of theirs.

    The last row starts row_slots before the end of its table, so that no read leaves a guard behind it of
    `pages - row_slots` entries, where pages is the most that any built seq_len needs.
    """
    slots = table.row_slots
    row_starts = np.cumsum(max_num_seqs) - max_num_seqs
    longest = np.maximum.reduceat(seq_lens.cpu().numpy(), row_starts).astype(np.int64)
    first = np.flatnonzero(np.diff(max_num_seqs, prepend=0))  # of the layouts that share a table
    rows = max_num_seqs[first]
    guards = (table.pages(np.maximum.reduceat(longest, first)) - slots).clip(min=MIN_GUARD)
    starts = np.cumsum(guards + np.concatenate([[MIN_GUARD], rows[:-1] * slots + MIN_GUARD])) - guards
    size = int(starts[-1] + rows[-1] * slots + guards[-1])
    memory = torch.full((size,), CANARY, dtype=torch.int32, device=seq_lens.device)
    for start, length in zip(starts.tolist(), (rows * slots).tolist(), strict=True):
        torch.arange(length, dtype=torch.int32, device=seq_lens.device, out=memory[start : start + length])
    shared_by = np.diff(np.concatenate([first, [len(max_num_seqs)]]))
    return memory, np.repeat(starts, shared_by)
