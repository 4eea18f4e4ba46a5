"""DummyBatch: the real tensors of a layout, one or many at once, on a torch device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from dummyaudit.axes import Ints
from dummyaudit.block_table import BlockTable
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
        memory: int32, a block table between two guard regions full of CANARY. Every slot holds a page id of its own,
            `row * row_slots + slot`. Layouts share it: one with fewer rows than another has the last of them.
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
    num_reqs: Ints
    max_num_seqs: Ints
    table: BlockTable

    @property
    def block_table(self) -> torch.Tensor:
        """[max_num_seqs, row_slots] int32 page ids, a view of `memory`; of several layouts, the most rows."""
        rows, slots = int(self.max_num_seqs.max()), self.table.row_slots
        return self.memory[MIN_GUARD : MIN_GUARD + rows * slots].view(rows, slots)


def build_batch(
    runs: Runs, num_tokens: Ints, max_num_seqs: Ints, table: BlockTable, device: str | torch.device
) -> DummyBatch:
    """Builds the batches of n layouts at once, by whole-tensor operations.

    Args:
        runs: the layouts, [k, n].
        num_tokens: [n] their tokens.
        max_num_seqs: [n] rows of the table of each.
        table: the geometry of rows and pages.
        device: where the tensors shall be.
    """
    # All that is not zeros is laid out by NumPy and sent to the device, as the engine does it.
    k, n = runs.count.shape
    num_reqs = runs.num_reqs
    # Of each layout what query_start_loc begins with, the runs, and the padding behind the last request.
    count = np.empty((k + 2, n), dtype=np.int64)
    count[0], count[1:-1], count[-1] = 1, runs.count, max_num_seqs - num_reqs
    step, seq_len = np.zeros((2, k + 2, n), dtype=np.int32)
    step[1:-1], seq_len[1:-1] = runs.query_len, runs.seq_len
    step[0, 1:] = -num_tokens[:-1]  # takes back all that is summed before it
    num_scheduled_tokens = _expand(step[1:-1], count[1:-1])
    # Sums over all layouts may wrap, their differences do not.
    logits_indices = np.cumsum(num_scheduled_tokens, dtype=np.int32)
    logits_indices -= np.repeat((np.cumsum(num_tokens) - num_tokens + 1).astype(np.int32), num_reqs)
    row_slots, most_pages = table.row_slots, table.pages(int(runs.seq_len.max()))
    # The last row's reads have to stay in the guard.
    memory = _build_memory(int(max_num_seqs.max()) * row_slots, most_pages - row_slots)
    return DummyBatch(
        num_scheduled_tokens=num_scheduled_tokens,
        seq_lens=to_device(_expand(seq_len[1:], count[1:]), device),
        query_start_loc=to_device(np.cumsum(_expand(step, count), dtype=np.int32), device),
        positions=torch.zeros(int(num_tokens.sum()), dtype=torch.int64, device=device),
        logits_indices=to_device(logits_indices, device),
        memory=to_device(memory, device),
        num_reqs=num_reqs,
        max_num_seqs=max_num_seqs,
        table=table,
    )


def to_device(array: npt.NDArray[np.generic], device: str | torch.device) -> torch.Tensor:
    """A tensor of the same values; on the CPU the array's own memory."""
    return torch.from_numpy(array).to(device)


def _expand(values: npt.NDArray[np.int32], counts: Ints) -> npt.NDArray[np.int32]:
    """Every value of [m, n] as often as it counts, layout by layout."""
    return np.repeat(values.T.ravel(), counts.T.ravel())


def _build_memory(slots: int, beyond: int) -> npt.NDArray[np.int32]:
    """A table of so many slots between guards, of which the one behind it holds `beyond` reads."""
    end = MIN_GUARD + slots
    memory = np.arange(-MIN_GUARD, slots + max(beyond, MIN_GUARD), dtype=np.int32)
    memory[:MIN_GUARD] = memory[end:] = CANARY
    return memory
