"""Holds built batches against the arithmetic: their tensors read back, their block tables walked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from dummyaudit.audit import (
    FITS,
    NEXT_ROW,
    OVER_LENGTH,
    PAST_TABLE,
    Severities,
    Worst,
    count_reads,
    count_requests,
)
from dummyaudit.axes import Ints
from dummyaudit.batch import DummyBatch, build_batch
from dummyaudit.block_table import BlockTable
from dummyaudit.errors import DeviceError, DisagreementError
from dummyaudit.rules import Rule, Runs
from dummyaudit.walk import WINDOW, walk

BUDGET = 2**26
"""Bytes of tensors that are built at once, if they hold more than one layout."""

MOST_BYTES = 2**31
"""Of tensors; a single layout that needs more is refused."""

MOST_READS = 2**31
"""Page ids; a single layout that reads more is refused, since that takes half a minute."""

_DEVICE = re.compile(r"cpu|cuda(?::([0-9]{1,4}))?")


def find_device(name: str) -> str:
    """The same name, if torch has that device: cpu, cuda or cuda:N.

    Raises:
        DeviceError: it has not.
    """
    match = _DEVICE.fullmatch(name)
    if not match:
        raise DeviceError(f"unknown device {name!r}", "use auto, none, cpu, cuda or cuda:N")
    if name != "cpu":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(match[1] or 0) >= count:
            raise DeviceError(f"device {name}: torch {torch.__version__} sees {count} CUDA devices", "use cpu")
    return name


@dataclass(frozen=True, slots=True)
class Evidence:
    """Builds and walks layouts on a device.

    Attributes:
        device: the torch device.
    """

    device: str

    def check(
        self,
        rule: Rule,
        table: BlockTable,
        num_reqs: Ints,
        num_tokens: Ints,
        max_num_seqs: Ints,
        runs: Runs,
        severity: Severities,
        worst: Worst,
    ) -> None:
        """Builds n layouts, as many at once as memory allows, and compares them with what the closed forms say.

        Raises:
            DeviceError: a layout is too large to be built, or reads too much.
            DisagreementError: one says otherwise.
        """
        size = _bytes(table, runs, num_tokens, max_num_seqs)
        reads = (runs.count * table.pages(runs.seq_len)).sum(axis=0)
        for needed, most, what in (
            (size / 2**30, MOST_BYTES / 2**30, "needs {:.1f} GiB to build"),
            (reads, MOST_READS, "reads {} page ids"),
        ):
            if needed.max() > most:
                i = int(needed.argmax())
                raise DeviceError(
                    f"num_tokens {num_tokens[i]} with max_num_seqs {max_num_seqs[i]} and max_model_len "
                    f"{table.max_model_len} {what.format(needed[i])}",
                    "use --device none",
                )
        batch_of = np.cumsum(size) // BUDGET
        edges = [0, *(np.flatnonzero(np.diff(batch_of)) + 1).tolist(), len(size)]
        for first, last in pairwise(edges):
            part = slice(first, last)
            some = Runs(runs.count[:, part], runs.query_len[:, part], runs.seq_len[:, part])
            some_worst = Worst(worst.longest[part], worst.pages[part], worst.request[part], worst.seq_len[part])
            try:
                self._check_batch(
                    rule,
                    table,
                    num_reqs[part],
                    num_tokens[part],
                    max_num_seqs[part],
                    some,
                    severity[part],
                    some_worst,
                )
            except (RuntimeError, MemoryError) as error:
                text = str(error).splitlines()[0] if str(error) else "out of memory"
                raise DeviceError(f"cannot build on {self.device}: {text}", "use --device none") from error

    def _check_batch(
        self,
        rule: Rule,
        table: BlockTable,
        num_reqs: Ints,
        num_tokens: Ints,
        max_num_seqs: Ints,
        runs: Runs,
        severity: Severities,
        worst: Worst,
    ) -> None:
        shapes = num_reqs, num_tokens
        batch = build_batch(runs, num_tokens, max_num_seqs, table, self.device)
        said = _said_of_tensors(runs, num_tokens, max_num_seqs, table) | {
            "worst request": worst.request,
            "seq_len of the worst request": worst.seq_len,
            "pages": worst.pages,
            "longest seq_len": worst.longest,
        }
        self._compare(rule, batch, shapes, said, _seen_in_tensors(batch))
        # Not before: of a seq_len that is too long a walk might leave its allocation.
        said = _said_of_reads(runs, max_num_seqs, table) | {"severity": severity.astype(np.int64)}
        self._compare(rule, batch, shapes, said, _seen_by_walk(batch, worst.longest))

    def _compare(
        self,
        rule: Rule,
        batch: DummyBatch,
        shapes: tuple[Ints, Ints],
        said: dict[str, Ints],
        seen: dict[str, Ints],
    ) -> None:
        for name, values in said.items():
            (wrong,) = np.nonzero(values != seen[name])
            if len(wrong):
                i = int(wrong[0])
                num_reqs, num_tokens = (int(axis[i]) for axis in shapes)
                raise DisagreementError(
                    f"rule {rule.name} at num_reqs {num_reqs}, num_tokens {num_tokens}, "
                    f"max_model_len {batch.table.max_model_len}, block_size {batch.table.block_size}: {name} is "
                    f"{values[i]} by arithmetic and {seen[name][i]} in the batch built on {self.device}",
                    "no verdict can be trusted; please report this",
                )


def _bytes(table: BlockTable, runs: Runs, num_tokens: Ints, max_num_seqs: Ints) -> npt.NDArray[np.float64]:
    """[n] bytes that the tensors and the walk of each layout take, roughly; a table serves those of no more rows."""
    pages = table.pages(runs.seq_len)
    is_taller = np.diff(np.maximum.accumulate(max_num_seqs), prepend=0) > 0
    slots = np.where(is_taller, max_num_seqs * float(table.row_slots), 0)
    reads = (runs.count * pages).sum(axis=0).clip(max=WINDOW)
    size: npt.NDArray[np.float64] = 8 * num_tokens + 80 * max_num_seqs + 4 * (slots + pages.max(axis=0)) + 40 * reads
    return size


def _said_of_tensors(runs: Runs, num_tokens: Ints, max_num_seqs: Ints, table: BlockTable) -> dict[str, Ints]:
    """What arithmetic says of the tensors of n layouts, [n] each."""
    num_reqs = runs.num_reqs
    over_length, overflow = count_requests(runs, table)
    # Of a run that begins behind b tokens, request j ends at b + (j + 1) * query_len.
    tokens = runs.count * runs.query_len
    before = np.cumsum(tokens, axis=0) - tokens
    ends = (runs.count * before + runs.query_len * (runs.count * (runs.count + 1) // 2)).sum(axis=0)
    return {
        "number of requests": num_reqs,
        "sum of seq_lens": (runs.count * runs.seq_len).sum(axis=0),
        "sum of num_scheduled_tokens": num_tokens,
        "last query_start_loc": num_tokens,
        "sum of query_start_loc": ends + (max_num_seqs - num_reqs) * num_tokens,
        "sum of logits_indices": ends - num_reqs,
        "number of logits_indices at the end of a request": num_reqs,
        "requests over length": over_length,
        "requests that overflow": overflow,
    }


def _said_of_reads(runs: Runs, max_num_seqs: Ints, table: BlockTable) -> dict[str, Ints]:
    """What arithmetic says of the reads of n layouts, [n] each."""
    reads = count_reads(runs, max_num_seqs, table)
    return {
        "reads from the own row": reads.own,
        "reads from another row": reads.other_row,
        "reads from outside the table": reads.outside,
    }


def _seen_in_tensors(batch: DummyBatch) -> dict[str, Ints]:
    """What `_said_of_tensors` says, and the worst request, of built layouts, read back from their tensors."""
    table = batch.table
    seq_lens = batch.seq_lens.cpu().numpy().astype(np.int64)
    query_start_loc = batch.query_start_loc.cpu().numpy()
    logits_indices = batch.logits_indices.cpu().numpy()
    row_ends = np.cumsum(batch.max_num_seqs)
    rows = row_ends - batch.max_num_seqs
    loc_ends = row_ends + np.arange(len(rows))
    req_ends = np.cumsum(batch.num_reqs)
    reqs = req_ends - batch.num_reqs
    scheduled = np.cumsum(batch.num_scheduled_tokens, dtype=np.int64)
    before = scheduled[reqs] - batch.num_scheduled_tokens[reqs]
    at_end = logits_indices + 1 == scheduled - np.repeat(before, batch.num_reqs)
    pages = table.pages(seq_lens)
    leaves = pages > table.row_slots
    most_pages = np.maximum.reduceat(pages, rows)
    # The last row of as many pages as any of its layout.
    is_worst = pages == np.repeat(most_pages, batch.max_num_seqs)
    worst_row = np.maximum.reduceat(np.where(is_worst, np.arange(len(pages)), -1), rows)
    return {
        "number of requests": np.add.reduceat(seq_lens > 0, rows, dtype=np.int64),
        "sum of seq_lens": np.add.reduceat(seq_lens, rows),
        "sum of num_scheduled_tokens": np.add.reduceat(batch.num_scheduled_tokens, reqs, dtype=np.int64),
        "last query_start_loc": query_start_loc[loc_ends],
        "sum of query_start_loc": np.add.reduceat(query_start_loc, loc_ends - batch.max_num_seqs, dtype=np.int64),
        "sum of logits_indices": np.add.reduceat(logits_indices, reqs, dtype=np.int64),
        "number of logits_indices at the end of a request": np.add.reduceat(at_end, reqs, dtype=np.int64),
        "requests over length": np.add.reduceat((seq_lens > table.max_model_len) & ~leaves, rows, dtype=np.int64),
        "requests that overflow": np.add.reduceat(leaves, rows, dtype=np.int64),
        "worst request": worst_row - rows,
        "seq_len of the worst request": seq_lens[worst_row],
        "pages": most_pages,
        "longest seq_len": np.maximum.reduceat(seq_lens, rows),
    }


def _seen_by_walk(batch: DummyBatch, longest: Ints) -> dict[str, Ints]:
    """What `_said_of_reads` says, and the severity, of built layouts whose longest seq_len [n] are known."""
    reads = walk(batch)
    return {
        "reads from the own row": reads.own,
        "reads from another row": reads.other_row,
        "reads from outside the table": reads.outside,
        "severity": np.select(
            [reads.outside > 0, reads.other_row > 0, longest > batch.table.max_model_len],
            [PAST_TABLE, NEXT_ROW, OVER_LENGTH],
            FITS,
        ),
    }
