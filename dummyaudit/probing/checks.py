"""Reads what a builder returned of one shape, and holds it against what attention takes for granted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dummyaudit.axes import Ints
from dummyaudit.block_table import INT32_MAX
from dummyaudit.errors import RuleError

CheckName = Literal[
    "requests", "sum", "no-empty", "seq-len", "query-start-loc", "dtype", "padding", "order", "copies"
]
CHECKS: tuple[CheckName, ...] = get_args(CheckName)
"""Names of the checks: at least one request and no more than asked; their tokens add up to num_tokens; each has at
least one token; `seq_len >= query_len`; query_start_loc is the cumulative sum of the tokens; dtypes are the engine's;
what is behind the last request is padding; more tokens come last; copies on the CPU agree."""

DTYPES = {"num_scheduled_tokens": "int32", "seq_lens": "int32", "query_start_loc": "int32", "positions": "int64"}
"""The engine's dtypes. Source: InputBatch in vllm/v1/worker/gpu/input_batch.py."""

COPIED = ("query_start_loc", "seq_lens", "idx_mapping", "cu_num_logits")
"""Tensors that a batch may hold a second time on the CPU, under the same name with _np or _cpu behind it."""

POISON = -0x21524111
"""What buffers hold before a builder is called; no length is negative."""

_LENGTHS = ("num_scheduled_tokens", "seq_lens")


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a builder made of one shape.

    Attributes:
        query_lens: [num_reqs] tokens of each request.
        seq_lens: [num_reqs] length that attention believes each has; never negative.
        made: names of the checks that could be made: of a split alone there are no tensors to check.
        faults: by name of the check that fails, what is wrong.
    """

    query_lens: Ints
    seq_lens: Ints
    made: frozenset[CheckName]
    faults: dict[CheckName, str]

    @property
    def is_split(self) -> bool:
        """Whether it splits num_tokens, so that the same batch can be built again."""
        return not self.faults.keys() & {"requests", "sum", "no-empty"}


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """A batch as it was returned.

    Attributes:
        num_reqs: requests asked for.
        num_tokens: tokens asked for.
        returned: what the builder returned.
        buffers: what it wrote to, or None.
        query_lens: [r] tokens of each request.
        seq_lens: [r] or longer; what is behind the r-th is padding.
    """

    num_reqs: int
    num_tokens: int
    returned: Any
    buffers: Any
    query_lens: Ints
    seq_lens: Ints

    def find(self, name: str) -> npt.NDArray[Any] | None:
        """A tensor of the batch on the host, or None if it has none of that name."""
        value = _get(self.returned, name)
        return None if value is None else _array(value)

    def written(self, name: str) -> Ints | None:
        """A buffer on the host, or None if the builder did not write to it."""
        buffer = _get(self.buffers, name)
        if not hasattr(buffer, "fill_"):
            return None
        values = _array(buffer).astype(np.int64)
        return None if values[0] == POISON else values


def read_answer(returned: Any, num_reqs: int, num_tokens: int, buffers: Any = None) -> Answer:
    """Reads what a builder returned for a shape, and checks it.

    Args:
        returned: the tokens of each request, or an object or mapping with num_scheduled_tokens and seq_lens; each a
            list, a NumPy array or a torch tensor.
        num_reqs: requests asked for.
        num_tokens: tokens asked for.
        buffers: what the builder wrote to, POISON before, if there is such an object.

    Raises:
        RuleError: it is nothing of that kind, or a length does not fit int32.
    """
    if all(_get(returned, name) is None for name in _LENGTHS):
        query_lens = seq_lens = _whole(returned, "the tokens of each request", returned)
    else:
        query_lens, seq_lens = (_whole(_get(returned, name), name, returned) for name in _LENGTHS)
    r = len(query_lens)
    if len(seq_lens) < r:
        raise RuleError(f"returned {len(seq_lens)} seq_lens for {r} requests", "return one for each")
    made: set[CheckName] = {"requests", "sum", "no-empty", "seq-len", "order"}
    faults: dict[CheckName, str] = {}
    for name, fault in _faults(_Batch(num_reqs, num_tokens, returned, buffers, query_lens, seq_lens)):
        made.add(name)
        if fault:
            faults.setdefault(name, fault)
    if not r:
        query_lens = seq_lens = np.zeros(1, dtype=np.int64)
    return Answer(query_lens, seq_lens[: len(query_lens)].clip(min=0), frozenset(made), faults)


def _faults(batch: _Batch) -> Iterator[tuple[CheckName, str]]:
    """Checks that fail, with what is wrong, and those with an empty text that were made at all."""
    query_lens, r = batch.query_lens, len(batch.query_lens)
    seq_lens = batch.seq_lens[:r]
    if not 1 <= r <= batch.num_reqs:
        yield "requests", f"{r} requests, of {batch.num_reqs} asked for"
    if (total := int(query_lens.sum())) != batch.num_tokens:
        yield "sum", f"the tokens add up to {total}, not to {batch.num_tokens}"
    for i in np.flatnonzero(query_lens < 1)[:1]:
        yield "no-empty", f"request {i} has query_len {query_lens[i]}"
    for i in np.flatnonzero(seq_lens < query_lens)[:1]:
        yield "seq-len", f"request {i} has seq_len {seq_lens[i]}, less than its query_len {query_lens[i]}"
    for i in np.flatnonzero(np.diff(query_lens) < 0)[:1]:
        yield "order", f"request {i} has query_len {query_lens[i]}, request {i + 1} only {query_lens[i + 1]}"
    yield from _tensor_faults(batch)
    yield from _copy_faults(batch)


def _tensor_faults(batch: _Batch) -> Iterator[tuple[CheckName, str]]:
    """What is wrong with dtypes, query_start_loc and padding."""
    for name, wanted in DTYPES.items():
        dtype = str(getattr(_get(batch.returned, name), "dtype", "")).removeprefix("torch.")
        if dtype:
            yield "dtype", "" if dtype == wanted else f"{name} is {dtype}, not {wanted}"
    r = len(batch.query_lens)
    start_loc = np.concatenate([[0], np.cumsum(batch.query_lens)])
    lengths, starts = batch.written("seq_lens"), batch.written("query_start_loc")
    for where, values in (("query_start_loc", batch.find("query_start_loc")), ("buffers.query_start_loc", starts)):
        if values is None:
            continue
        yield "query-start-loc", ""
        wrong = np.flatnonzero(values[: r + 1] != start_loc[: len(values)]).tolist()
        if len(values) <= r:
            yield "query-start-loc", f"{where} has {len(values)} entries, fewer than {r + 1}"
        for i in wrong[:1]:
            yield "query-start-loc", f"{where}[{i}] is {values[i]}, not {start_loc[i]}"
        yield from _padding_faults(where, values, r + 1, batch.num_tokens)
    for where, values in (("seq_lens", batch.seq_lens), ("buffers.seq_lens", lengths)):
        if values is not None:
            yield from _padding_faults(where, values, r, 0)


def _padding_faults(
    where: str, values: npt.NDArray[Any], first: int, padding: int
) -> Iterator[tuple[CheckName, str]]:
    if len(values) > first:
        yield "padding", ""
    for i in np.flatnonzero(values[first:] != padding)[:1]:
        value = values[first + i]
        said = "not written" if value == POISON else str(value)
        yield "padding", f"{where}[{first + i}], behind the last request, is {said}, not {padding}"


def _copy_faults(batch: _Batch) -> Iterator[tuple[CheckName, str]]:
    """Where a copy on the CPU says otherwise."""
    for name in COPIED:
        original = batch.find(name)
        for suffix in ("_np", "_cpu"):
            copy = batch.find(name + suffix)
            if original is None or copy is None:
                continue
            yield "copies", ""
            if original.shape != copy.shape:
                yield "copies", f"{name}{suffix} has shape {list(copy.shape)}, {name} {list(original.shape)}"
            else:
                for i in np.flatnonzero(original != copy)[:1]:
                    yield "copies", f"{name}{suffix}[{i}] is {copy.flat[i]}, {name}[{i}] is {original.flat[i]}"
    bound = batch.find("seq_lens_cpu_upper_bound")
    r = len(batch.query_lens)
    if bound is not None and len(bound) >= r:
        yield "copies", ""
        for i in np.flatnonzero(bound[:r] < batch.seq_lens[:r])[:1]:
            yield "copies", f"seq_lens_cpu_upper_bound[{i}] is {bound[i]}, less than seq_lens[{i}]"


def _get(holder: Any, name: str) -> Any:
    """A value of a mapping or an object by name, or None."""
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _array(value: Any) -> npt.NDArray[Any]:
    """A list, array or tensor on the host; a copy, since builders use buffers again.

    Raises:
        RuleError: it is none.
    """
    try:
        return np.array(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    except Exception as error:
        raise RuleError(f"returned {type(value).__name__} where a list, array or tensor is wanted") from error


def _whole(value: Any, name: str, returned: Any) -> Ints:
    """A row of whole numbers that fit int32."""
    array = _array(value) if value is not None else np.array(None)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise RuleError(
            f"returned {type(returned).__name__}, in which {name} is no row of whole numbers",
            "return the tokens of each request, or num_scheduled_tokens and seq_lens",
        )
    if array.size and not (np.abs(array) <= INT32_MAX).all():
        raise RuleError(f"{name} holds a number that does not fit the engine's int32 tensors")
    whole: Ints = array.astype(np.int64)
    if (whole != array).any():
        raise RuleError(f"{name} holds {array[whole != array][0]}, which is no whole number")
    return whole
