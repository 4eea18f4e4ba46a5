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

LIMIT = 2**33
"""Bytes of tensors beyond which a single layout is refused."""


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
        runs: Runs,
        num_tokens: Ints,
        max_num_seqs: Ints,
        severity: Severities,
        worst: Worst,
    ) -> None:
        """Builds n layouts, as many at once as memory allows, and compares them with what the closed forms say.

        Raises:
            DeviceError: a layout is too large to be built.
            DisagreementError: one says otherwise.
        """
        size = _bytes(table, runs, num_tokens, max_num_seqs)
        if size.max() > LIMIT:
            i = int(size.argmax())
            raise DeviceError(
                f"num_tokens {num_tokens[i]} with max_num_seqs {max_num_seqs[i]} and max_model_len "
                f"{table.max_model_len} needs {size[i] / 2**30:.1f} GiB to build",
                "use --device none",
            )
        batch_of = np.cumsum(size) // BUDGET
        edges = [0, *(np.flatnonzero(np.diff(batch_of)) + 1).tolist(), len(size)]
        for first, last in pairwise(edges):
            part = slice(first, last)
            some = Runs(runs.count[:, part], runs.query_len[:, part], runs.seq_len[:, part])
            try:
                batch = build_batch(some, num_tokens[part], max_num_seqs[part], table, self.device)
            except (RuntimeError, MemoryError) as error:
                text = str(error).splitlines()[0] if str(error) else "out of memory"
                raise DeviceError(f"cannot build on {self.device}: {text}", "use --device none") from error
            said = _said(some, num_tokens[part], max_num_seqs[part], table)
            said |= {
                "severity": severity[part].astype(np.int64),
                "worst request": worst.request[part],
                "pages": worst.pages[part],
                "longest seq_len": worst.longest[part],
            }
            seen = _seen(batch)
            for name, values in said.items():
                (wrong,) = np.nonzero(values != seen[name])
                if len(wrong):
                    i = int(wrong[0])
                    raise DisagreementError(
                        f"rule {rule.name} at num_reqs {batch.num_reqs[i]}, num_tokens {num_tokens[part][i]}, "
                        f"max_model_len {table.max_model_len}, block_size {table.block_size}: {name} is "
                        f"{values[i]} by arithmetic and {seen[name][i]} in the batch built on {self.device}",
                        "no verdict can be trusted; please report this",
                    )


def _bytes(table: BlockTable, runs: Runs, num_tokens: Ints, max_num_seqs: Ints) -> npt.NDArray[np.float64]:
    """[n] bytes that the tensors and the walk of each layout take, roughly; equal rows share a table."""
    pages = table.pages(runs.seq_len)
    slots = np.where(np.diff(max_num_seqs, prepend=0), max_num_seqs * float(table.row_slots), 0)
    reads = (runs.count * pages).sum(axis=0).clip(max=WINDOW)
    size: npt.NDArray[np.float64] = 8 * num_tokens + 80 * max_num_seqs + 4 * (slots + pages.max(axis=0)) + 40 * reads
    return size


def _said(runs: Runs, num_tokens: Ints, max_num_seqs: Ints, table: BlockTable) -> dict[str, Ints]:
    """What arithmetic says of n layouts, [n] each."""
    over_length, overflow = count_requests(runs, table)
    reads = count_reads(runs, max_num_seqs, table)
    return {
        "number of requests": runs.count.sum(axis=0),
        "sum of num_scheduled_tokens": num_tokens,
        "last query_start_loc": num_tokens,
        "last of logits_indices": num_tokens - 1,
        "requests over length": over_length,
        "requests that overflow": overflow,
        "reads from the own row": reads.own,
        "reads from another row": reads.other_row,
        "reads from outside the table": reads.outside,
    }


def _seen(batch: DummyBatch) -> dict[str, Ints]:
    """The same of built layouts, read back from their tensors."""
    table = batch.table
    reads = walk(batch)
    seq_lens = batch.seq_lens.cpu().numpy().astype(np.int64)
    row_ends = np.cumsum(batch.max_num_seqs)
    rows = row_ends - batch.max_num_seqs
    pages = table.pages(seq_lens)
    num_reqs = np.add.reduceat(seq_lens > 0, rows, dtype=np.int64)
    req_ends = np.cumsum(num_reqs)
    leaves = pages > table.row_slots
    most_pages = np.maximum.reduceat(pages, rows)
    # The last row of as many pages as any of its layout.
    is_worst = pages == np.repeat(most_pages, batch.max_num_seqs)
    worst_row = np.maximum.reduceat(np.where(is_worst, np.arange(len(pages)), -1), rows)
    longest = np.maximum.reduceat(seq_lens, rows)
    return {
        "number of requests": num_reqs,
        "sum of num_scheduled_tokens": np.add.reduceat(
            batch.num_scheduled_tokens, req_ends - num_reqs, dtype=np.int64
        ),
        "last query_start_loc": batch.query_start_loc.cpu().numpy()[row_ends + np.arange(len(rows))],
        "last of logits_indices": batch.logits_indices.cpu().numpy()[req_ends - 1],
        "requests over length": np.add.reduceat((seq_lens > table.max_model_len) & ~leaves, rows, dtype=np.int64),
        "requests that overflow": np.add.reduceat(leaves, rows, dtype=np.int64),
        "reads from the own row": reads.own,
        "reads from another row": reads.other_row,
        "reads from outside the table": reads.outside,
        "severity": np.select(
            [reads.outside > 0, reads.other_row > 0, longest > table.max_model_len],
            [PAST_TABLE, NEXT_ROW, OVER_LENGTH],
            FITS,
        ),
        "worst request": worst_row - rows,
        "pages": most_pages,
        "longest seq_len": longest,
    }
