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
    row_starts = np.cumsum(rows) - rows
    layout_of_row = torch.repeat_interleave(to_device(rows, device), output_size=len(batch.seq_lens))
    first_slot = torch.arange(0, len(batch.seq_lens) * slots, slots, device=device)
    own_id = first_slot - to_device(row_starts * slots, device).index_select(0, layout_of_row)
    address = own_id + to_device(batch.table_starts, device).index_select(0, layout_of_row)
    read_end = torch.cumsum(batch.table.pages(batch.seq_lens.long()), 0)
    read_start = torch.cat([read_end.new_zeros(1), read_end[:-1]])

    own = np.zeros(len(rows), dtype=np.int64)
    outside = np.zeros_like(own)
    ends = read_end[to_device(row_starts + rows - 1, device)].cpu().numpy()
    for low in range(0, int(ends[-1]), WINDOW):
        high = min(low + WINDOW, int(ends[-1]))
        reads_of_row = read_end.clip(max=high) - read_start.clip(min=low)
        row = torch.repeat_interleave(reads_of_row.clip(min=0), output_size=high - low)
        slot = torch.arange(low, high, device=device) - read_start.index_select(0, row)
        page_id = batch.memory.index_select(0, address.index_select(0, row) + slot)
        from_row_start = page_id - own_id.index_select(0, row)
        is_own = (from_row_start >= 0) & (from_row_start < slots)
        edges = ends.clip(low, high) - low
        own += _count(is_own, edges)
        outside += _count(page_id == CANARY, edges)
    return Reads(own, np.diff(ends, prepend=0) - own - outside, outside)


def _count(flags: torch.Tensor, ends: Ints) -> Ints:
    """How many flags are set before each of the ascending ends, and behind the end before it."""
    sums = np.concatenate([[0], torch.cumsum(flags, 0).cpu().numpy()])
    return np.diff(sums[ends], prepend=0)
