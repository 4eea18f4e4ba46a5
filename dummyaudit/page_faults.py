"""What is wrong with the page ids that the live requests of a batch use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dummyaudit.axes import Ints

PageFaultKind = Literal["negative-page", "page-out-of-pool", "null-page", "shared-page"]


@dataclass(frozen=True, slots=True)
class PageFault:
    """Page ids of one request that are wrong in one way.

    Attributes:
        kind: negative, not below num_blocks, the null page in the used part of a row, or a page that an earlier
            request (or an earlier column of the same one) uses too.
        request: its index, which is its row of the block table.
        column: the first such column.
        last_column: the last one.
        count: how many columns.
        page: the page id in the first.
        other: of a shared page, request and column of the earlier use of the page in the first.
    """

    kind: PageFaultKind
    request: int
    column: int
    last_column: int
    count: int
    page: int
    other: tuple[int, int] | None = None

    @property
    def row(self) -> int:
        """The row of the block table."""
        return self.request

    def __str__(self) -> str:
        columns = f"column {self.column}"
        if self.count > 1:
            dense = self.last_column - self.column + 1 == self.count
            columns = f"columns {self.column} to {self.last_column}"
            columns = columns if dense else f"{self.count} of {columns}"
        where = f"request {self.request}, row {self.request}, {columns}"
        match self.kind:
            case "negative-page":
                return f"{where}: page id {self.page} is negative"
            case "page-out-of-pool":
                return f"{where}: page id {self.page} is not in the pool"
            case "null-page":
                return f"{where}: the used part of the row holds the null page {self.page}"
            case "shared-page":
                other = self.other or (self.request, self.column)
                whose = "the same request" if other[0] == self.request else f"request {other[0]}"
                return f"{where}: page {self.page} is used by {whose} too, row {other[0]}, column {other[1]}"


def find_page_faults(
    table: npt.NDArray[Any],
    used: Ints,
    *,
    num_blocks: int | None = None,
    null_block: int | None = 0,
    shared_prefixes: bool = False,
) -> list[PageFault]:
    """What is wrong with page ids, by request; an empty list if nothing is.

    Args:
        table: [max_num_seqs, row_slots] page ids.
        used: [num_reqs] page ids that each request reads of its row, at most row_slots; 0 of one that is not live.
        num_blocks: pages of the pool, or None if it is not known.
        null_block: id of the null page, or None if there is none. A table full of it is that of a dummy batch, of
            which nothing is to be said.
        shared_prefixes: whether requests may share the pages that their rows begin with, as with prefix caching.
    """
    if null_block is not None and (table == null_block).all():
        return []
    request = np.repeat(np.arange(len(used)), used)
    column = np.arange(len(request)) - np.repeat(np.cumsum(used) - used, used)
    pages = table[request, column]
    if pages.dtype.kind == "u":
        pages = pages.clip(max=np.iinfo(np.int64).max)
    pages = pages.astype(np.int64)
    is_null = np.zeros(len(pages), bool) if null_block is None else pages == null_block
    faults = [
        *_grouped("negative-page", request, column, pages, (pages < 0) & ~is_null),
        *_grouped("null-page", request, column, pages, is_null),
    ]
    if num_blocks is not None:
        faults += _grouped("page-out-of-pool", request, column, pages, (pages >= num_blocks) & ~is_null)
    faults += _shared(request, column, pages, ~is_null & (pages >= 0), shared_prefixes)
    return sorted(faults, key=lambda fault: (fault.request, fault.column))


def _grouped(
    kind: PageFaultKind, request: Ints, column: Ints, pages: npt.NDArray[Any], wrong: npt.NDArray[np.bool_]
) -> Iterator[PageFault]:
    """One fault for each request that has any."""
    (places,) = np.nonzero(wrong)
    starts = np.flatnonzero(np.diff(request[places], prepend=-1))
    for first, last in pairwise([*starts.tolist(), len(places)]):
        place = places[first]
        yield PageFault(
            kind,
            request=int(request[place]),
            column=int(column[place]),
            last_column=int(column[places[last - 1]]),
            count=last - first,
            page=int(pages[place]),
        )


def _shared(
    request: Ints, column: Ints, pages: npt.NDArray[Any], counts: npt.NDArray[np.bool_], shared_prefixes: bool
) -> Iterator[PageFault]:
    """One fault for each pair of requests that use the same pages; the earlier is the first that uses a page."""
    (places,) = np.nonzero(counts)
    order = places[np.argsort(pages[places], kind="stable")]
    is_first = np.diff(pages[order], prepend=-1) != 0
    first_use = order[np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))]
    again = np.flatnonzero(~is_first)
    later, earlier = order[again], first_use[again]
    if shared_prefixes:
        kept = ~_in_prefix(request, column, later, earlier)
        later, earlier = later[kept], earlier[kept]
    by_pair = np.lexsort((column[later], request[earlier], request[later]))
    later, earlier = later[by_pair], earlier[by_pair]
    changes = (np.diff(request[later], prepend=-1) != 0) | (np.diff(request[earlier], prepend=-1) != 0)
    starts = np.flatnonzero(changes)
    for first, last in pairwise([*starts.tolist(), len(later)]):
        place, other = later[first], earlier[first]
        yield PageFault(
            "shared-page",
            request=int(request[place]),
            column=int(column[place]),
            last_column=int(column[later[last - 1]]),
            count=last - first,
            page=int(pages[place]),
            other=(int(request[other]), int(column[other])),
        )


def _in_prefix(request: Ints, column: Ints, later: Ints, earlier: Ints) -> npt.NDArray[np.bool_]:
    """Whether all of a row up to here is used by earlier requests too, in the same columns."""
    alone = np.ones(len(request), bool)
    alone[later] = (column[later] != column[earlier]) | (request[later] == request[earlier])
    end = np.full(int(request.max(initial=-1)) + 1, len(request))  # of the prefix that each row shares
    np.minimum.at(end, request[alone], column[alone])
    shares: npt.NDArray[np.bool_] = column[later] < end[request[later]]
    return shares
