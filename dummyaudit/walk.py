"""Reads a block table as an unmasked paged-attention kernel would, between guards."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dummyaudit.audit import Reads
from dummyaudit.axes import Ints
from dummyaudit.batch import CANARY, MIN_GUARD, DummyBatch, to_device

WINDOW = 2**18
"""Reads that are worked off at once behind the first pages, which bounds the memory of a walk and stays in caches."""

Int32s = npt.NDArray[np.int32]


def walk(batch: DummyBatch) -> Reads:
    """Reads cdiv(seq_len, block_size) page ids of every request, from the request's row on.

    What comes back is told apart by what is read: the page id that belongs to the slot, or the canary. Anything else
    is counted nowhere, so that the sums show it. Reads on the batch's device and never leaves `batch.memory`.
    """
    device, slots, rows = batch.seq_lens.device, batch.table.row_slots, batch.max_num_seqs
    row_ends = np.cumsum(rows)
    row = np.arange(row_ends[-1], dtype=np.int32)
    # The rows of each layout are the last ones of the table.
    first_id = (row - np.repeat((row_ends - rows.max()).astype(np.int32), rows)) * np.int32(slots)
    pages = batch.table.pages(batch.seq_lens.cpu().numpy().astype(np.int64))
    overflows = bool(pages.max() > slots)

    memory = batch.memory[MIN_GUARD:]
    own: Ints = np.add.reduceat(pages, row_ends - rows)
    other_row, outside = np.zeros((2, len(rows)), dtype=np.int64)
    for row_of, slot in _reads(row, first_id, pages):
        page_id = memory.index_select(0, to_device(slot, device)).cpu().numpy()
        is_own = page_id == slot
        if overflows:
            is_own &= slot - first_id[row_of] < slots
        if is_own.all():
            continue
        (rest,) = np.nonzero(~is_own)
        layout = np.searchsorted(row_ends, row_of[rest], side="right")
        own -= np.bincount(layout, minlength=len(rows))
        other_row += np.bincount(layout[page_id[rest] == slot[rest]], minlength=len(rows))
        outside += np.bincount(layout[page_id[rest] == CANARY], minlength=len(rows))
    return Reads(own, other_row, outside)


def _reads(row: Int32s, first_id: Int32s, pages: Ints) -> Iterator[tuple[Int32s, Int32s]]:
    """Row and slot of every read: first those of the first pages, then those of all others, by windows."""
    some = slice(None) if pages.min() else pages > 0
    yield row[some], first_id[some]
    (longer,) = np.nonzero(pages > 1)
    row, left = row[longer], pages[longer] - 1
    end = np.cumsum(left)
    # Read number j of those that are left is, if it is of this row, of slot start + j.
    start = first_id[longer] + 1 - (end - left)
    total = int(end[-1]) if len(end) else 0
    for low in range(0, total, WINDOW):
        high = min(low + WINDOW, total)
        first, last = np.searchsorted(end, [low, high - 1], side="right").tolist()
        some = slice(first, last + 1)
        counts = left[some].copy()
        counts[0] = end[first] - low
        counts[-1] -= end[last] - high
        slot = np.repeat((start[some] + low).astype(np.int32), counts)
        slot += np.arange(high - low, dtype=np.int32)
        yield np.repeat(row[some], counts), slot
