"""Verdicts over arrays: what the closed forms say of layouts that share one row width.

Everything here is arithmetic on runs, [k, n] for n layouts; no request is ever listed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dummyaudit.axes import Ints
from dummyaudit.block_table import BlockTable
from dummyaudit.rules import Runs

Severities = npt.NDArray[np.int8]

FITS, OVER_LENGTH, NEXT_ROW, PAST_TABLE = range(4)
"""Severity of a layout, worst last; the last two are the reaches of an overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class Peaks:
    """What a layout's verdict hangs on; [n] each.

    Attributes:
        longest: the largest seq_len of the layout.
        pages: the most pages, which are those of the longest.
    """

    longest: Ints
    pages: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Worst(Peaks):
    """The request with the most pages of each layout, the last such one if several; [n] each.

    Attributes:
        request: its index.
        seq_len: its length; another request of as many pages may be longer.
    """

    request: Ints
    seq_len: Ints


def find_peaks(runs: Runs, table: BlockTable) -> Peaks:
    """The peaks of each layout. Of the table only its pages matter, not how many a row holds."""
    longest = runs.seq_len[0]
    for seq_len in runs.seq_len[1:]:  # quicker than a maximum along an axis of two or three
        longest = np.maximum(longest, seq_len)
    return Peaks(longest, table.pages(longest))


def find_worst(runs: Runs, table: BlockTable) -> Worst:
    """The worst request of each layout. Of the table only its pages matter, as for `find_peaks`."""
    peaks = find_peaks(runs, table)
    request, seq_len = np.zeros((2, len(peaks.pages)), dtype=np.int64)
    for count, end, run_seq_len in zip(runs.count, runs.ends, runs.seq_len, strict=True):
        later = (count > 0) & (table.pages(run_seq_len) == peaks.pages)
        request = np.where(later, end - 1, request)
        seq_len = np.where(later, run_seq_len, seq_len)
    return Worst(peaks.longest, peaks.pages, request, seq_len)


def find_severity(runs: Runs, peaks: Peaks, max_num_seqs: Ints, table: BlockTable) -> Severities:
    """Severity [n] of each layout, in tables of max_num_seqs [n] rows."""
    slots = table.row_slots
    over_length = peaks.longest > table.max_model_len
    overflow = peaks.pages > slots
    past_table = overflow
    if overflow.any():
        # No request reaches further than the last one would with the most pages.
        past_table = overflow & (peaks.pages > (max_num_seqs - runs.num_reqs + 1) * slots)
        unsure = past_table & (table.pages(runs.seq_len[-1]) < peaks.pages)
        if unsure.any():
            (rest,) = np.nonzero(unsure)
            some = Runs(runs.count[:, rest], runs.query_len[:, rest], runs.seq_len[:, rest])
            past_table[rest] = (slots_past_table(some, max_num_seqs[rest], table) > 0).any(axis=0)
    # A row holds at least max_model_len, so that each of these implies the one before.
    return over_length.view(np.int8) + overflow.view(np.int8) + past_table.view(np.int8)


def slots_past_table(runs: Runs, max_num_seqs: Ints, table: BlockTable) -> Ints:
    """[k, n] page ids that the last request of each run reads behind the end of the table, or 0.

    Request i of p pages reads up to `i * row_slots + p` of the `max_num_seqs * row_slots` slots, so that of equal
    requests the last one reaches furthest.
    """
    pages = table.pages(runs.seq_len)
    beyond = pages - (max_num_seqs - runs.ends + 1) * table.row_slots
    return np.where(runs.count > 0, beyond, 0).clip(min=0)


def first_past_table(runs: Runs, max_num_seqs: Ints, table: BlockTable) -> Ints:
    """[n] index of the first request whose read leaves the table, or -1.

    Of p pages these are the requests from `max_num_seqs - cdiv(p, row_slots) + 1` on.
    """
    pages = table.pages(runs.seq_len)
    first = np.maximum(runs.ends - runs.count, max_num_seqs + 1 + (-pages // table.row_slots))
    none = max_num_seqs + 1
    first = np.where(first < runs.ends, first, none).min(axis=0)
    return np.where(first < none, first, -1)


def count_requests(runs: Runs, table: BlockTable) -> tuple[Ints, Ints]:
    """Requests [n] over max_model_len that stay in their row, and requests [n] that leave it."""
    leaves = table.pages(runs.seq_len) > table.row_slots
    overflow = (runs.count * leaves).sum(axis=0)
    over_length = (runs.count * ((runs.seq_len > table.max_model_len) & ~leaves)).sum(axis=0)
    return over_length, overflow


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """Page ids that attention reads of each layout, by where they come from; [n] each.

    Attributes:
        own: from the request's row.
        other_row: from another request's row.
        outside: from memory that is not the table.
    """

    own: Ints
    other_row: Ints
    outside: Ints


def count_reads(runs: Runs, max_num_seqs: Ints, table: BlockTable) -> Reads:
    """The reads of a walk, by closed form.

    The last request of a run reads `x = slots_past_table` page ids outside, the one before `x - row_slots`, and so on
    down to 0. That are `m = cdiv(x, row_slots)` requests, or as many as the run has, and together
    `m * x - row_slots * m * (m - 1) / 2` page ids.
    """
    slots = table.row_slots
    pages = table.pages(runs.seq_len)
    beyond = slots_past_table(runs, max_num_seqs, table)
    leaving = np.minimum(-(-beyond // slots), runs.count)
    outside = (leaving * beyond - slots * (leaving * (leaving - 1) // 2)).sum(axis=0)
    own = (runs.count * pages.clip(max=slots)).sum(axis=0)
    return Reads(own, (runs.count * pages).sum(axis=0) - own - outside, outside)
