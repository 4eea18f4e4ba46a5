"""Reads a block table as an unmasked paged-attention kernel would, between guards."""

from __future__ import annotations

import numpy as np
import torch

from dummyaudit.audit import Reads
from dummyaudit.axes import Ints
from dummyaudit.batch import CANARY, DummyBatch, to_device

WINDOW = 2**22
"""Reads that are worked off at once, which bounds the memory of a walk."""


def walk(batch: DummyBatch) -> Reads:
    """Reads cdiv(seq_len, block_size) page ids of every request, from the request's row on.

    What comes back is told apart by what is read and not by where: a page id of the row, another page id,
    or the canary. Runs on the batch's device and never leaves `batch.memory`.
    """
    device, slots = batch.seq_lens.device, batch.table.row_slots
    rows = batch.max_num_seqs
    row_ends = np.cumsum(rows)
    first_ids = np.arange(0, int(row_ends[-1]) * slots, slots) - np.repeat((row_ends - rows) * slots, rows)
    pages = batch.table.pages(batch.seq_lens.long())
    read_end = torch.cumsum(pages, 0)
    read_start = read_end - pages
    # Read number j of all, if it is of this row, is of address + j.
    address = to_device(first_ids + np.repeat(batch.table_starts, rows), device) - read_start
    # int32 holds the differences too: a canary less the largest id wraps to what is far from any row.
    first_id = to_device(first_ids.astype(np.int32), device)

    own = np.zeros(len(rows), dtype=np.int64)
    outside = np.zeros_like(own)
    ends = read_end.index_select(0, to_device(row_ends - 1, device)).cpu().numpy()
    for low in range(0, int(ends[-1]), WINDOW):
        high = min(low + WINDOW, int(ends[-1]))
        if high - low < ends[-1]:
            pages = (read_end.clip(max=high) - read_start.clip(min=low)).clip(min=0)
        row = torch.repeat_interleave(pages, output_size=high - low)
        read = address.index_select(0, row)
        read += torch.arange(low, high, device=device)
        page_id = batch.memory.index_select(0, read)
        from_row_start = page_id - first_id.index_select(0, row)
        edges = ends.clip(low, high) - low
        own += _count((from_row_start >= 0).logical_and_(from_row_start < slots), edges)
        outside += _count(page_id == CANARY, edges)
    return Reads(own, _between(ends) - own - outside, outside)


def _count(flags: torch.Tensor, ends: Ints) -> Ints:
    """How many flags are set before each of the ascending ends, and behind the end before it."""
    total = int(flags.count_nonzero())
    if not total:
        return np.zeros_like(ends)
    if total == len(flags):
        return _between(ends)
    sums = np.concatenate([[0], torch.cumsum(flags, 0).cpu().numpy()])
    return _between(sums[ends])


def _between(ends: Ints) -> Ints:
    """Each less the one before it, the first less 0."""
    result: Ints = ends.copy()
    result[1:] -= ends[:-1]
    return result
