"""What is wrong with a batch that some engine built: `check`, and the assertion that goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dummyaudit.axes import Ints
from dummyaudit.block_table import positive
from dummyaudit.errors import InputError
from dummyaudit.layout import Reach, Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """One request that does not fit.

    Attributes:
        verdict: over-length or overflow.
        request: its index, which is its row of the block table.
        seq_len: its length, in tokens.
        pages: page ids that attention reads for it.
        row_slots: page ids that its row holds.
        reach: of an overflow, whether a read leaves the whole table.
        max_num_seqs: rows of the block table.
        max_model_len: longest legal request, in tokens, if it was given.
    """

    verdict: Verdict
    request: int
    seq_len: int
    pages: int
    row_slots: int
    reach: Reach | None
    max_num_seqs: int
    max_model_len: int | None

    def __str__(self) -> str:
        where = f"request {self.request} has seq_len {self.seq_len}"
        if self.verdict == "over-length":
            return f"{where}, over max_model_len {self.max_model_len}: {self.pages} pages of {self.row_slots} slots"
        lies = "past the end of the table" if self.reach == "past-table" else "in the next row"
        read = f"reads slots {self.row_slots} to {self.pages - 1}"
        return f"{where}: {self.pages} pages of {self.row_slots} slots, {read} {lies} ({self.reach})"


def check(seq_lens: Any, block_table: Any, block_size: int, max_model_len: int | None = None) -> list[Finding]:
    """What is wrong with a batch of any engine, request by request; an empty list if nothing is.

    Args:
        seq_lens: [num_reqs] lengths in tokens: a list, a NumPy array or a torch tensor on any device. Zeros are
            padding.
        block_table: [max_num_seqs, row_slots] page ids, or that shape alone; the ids are not read.
        block_size: tokens behind one slot.
        max_model_len: longest legal request, in tokens; if not given, only overflows are found.

    Raises:
        InputError: the arguments do not fit together.
    """
    lengths = _lengths(seq_lens)
    rows, slots = _shape(block_table)
    size = positive("block_size", block_size)
    if max_model_len is not None:
        positive("max_model_len", max_model_len)
    if len(lengths) > rows:
        raise InputError(f"{len(lengths)} seq_lens for a block table of {rows} rows", "give one row a request")
    pages = -(-lengths // size)
    limit = slots * size if max_model_len is None else max_model_len
    found = []
    for i in np.flatnonzero((pages > slots) | (lengths > limit)).tolist():
        overflow = int(pages[i]) > slots
        past = i * slots + int(pages[i]) > rows * slots
        found.append(
            Finding(
                verdict="overflow" if overflow else "over-length",
                request=i,
                seq_len=int(lengths[i]),
                pages=int(pages[i]),
                row_slots=slots,
                reach=None if not overflow else "past-table" if past else "next-row",
                max_num_seqs=rows,
                max_model_len=max_model_len,
            )
        )
    return found


def assert_fits(seq_lens: Any, block_table: Any, block_size: int, max_model_len: int | None = None) -> None:
    """Fails a test if `check` finds anything; the arguments are the same.

    Raises:
        AssertionError: names every request that does not fit.
        InputError: the arguments do not fit together.
    """
    found = check(seq_lens, block_table, block_size, max_model_len)
    if found:
        raise AssertionError("\n".join(["dummy batch does not fit its block table:", *map(str, found)]))


def _lengths(seq_lens: Any) -> Ints:
    """The lengths on the host."""
    values = np.asarray(seq_lens.cpu() if hasattr(seq_lens, "cpu") else seq_lens)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise InputError(f"seq_lens must be one row of whole numbers, got {values.ndim}-D {values.dtype}")
    if values.size and values.min() < 0:
        raise InputError(f"seq_lens holds {values.min()}, a negative length")
    return values.astype(np.int64)


def _shape(block_table: Any) -> tuple[int, int]:
    shape = tuple(getattr(block_table, "shape", block_table))
    if len(shape) != 2:
        raise InputError(f"a block table has 2 dimensions [max_num_seqs, row_slots], got {len(shape)}")
    return positive("max_num_seqs", shape[0]), positive("row_slots", shape[1])
