"""`inspect`: the audit of a batch that some engine saved."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dummyaudit.axes import Ints
from dummyaudit.block_table import INT32_MAX, positive
from dummyaudit.errors import InputError
from dummyaudit.findings import Finding, check
from dummyaudit.inspection_report import InspectReport, StartLocFault
from dummyaudit.layout import Layout, Needs, RequestCounts, WorstRequest
from dummyaudit.page_faults import PageFault, find_page_faults
from dummyaudit.report import Summary
from dummyaudit.tensors_file import read_tensors

MAX_REQUESTS = 2**20
"""Requests of a batch that is inspected."""

MAX_NOTES = 20
"""Page ids and the like that the notes of a report name; all of them stand in JSON."""

KEYS = ("seq_lens", "block_table", "block_table_shape", "query_start_loc", "block_size", "max_model_len")
"""What a file may hold: the first, and one of the next two, have to be there."""


def inspect(
    path: str,
    *,
    keys: Mapping[str, str] | None = None,
    block_table_shape: tuple[int, int] | None = None,
    block_size: int | None = None,
    max_model_len: int | None = None,
    num_blocks: int | None = None,
    null_block: int | None = 0,
    shared_prefixes: bool = False,
    strict: bool = False,
    only_flagged: bool = False,
) -> InspectReport:
    """Audits a batch that some engine saved.

    Args:
        path: .npz, .json, .safetensors or .pt with seq_lens [num_reqs], in which zeros are padding, and block_table
            [max_num_seqs, row_slots] or block_table_shape [2]; optionally query_start_loc, block_size, max_model_len.
        keys: names in the file, by the name that stands here.
        block_table_shape: rows and slots, if the file has no block table.
        block_size: tokens behind one slot, if not as in the file.
        max_model_len: longest legal request, in tokens, if not as in the file.
        num_blocks: pages of the pool; page ids beyond are faults.
        null_block: id of the page that stands for none, or None if there is none.
        shared_prefixes: whether requests may share the pages that their rows begin with.
        strict: whether a request over max_model_len counts as a failure.
        only_flagged: whether the layout is listed only if it is flagged.

    Raises:
        InputError: the file cannot be used, or what it holds does not fit together.
    """
    names = dict(zip(KEYS, KEYS, strict=True)) | dict(keys or {})
    found, there = read_tensors(path, set(names.values()))
    tensors = {key: found[name] for key, name in names.items() if name in found}
    for key in keys or {}:
        if key not in tensors:
            raise _missing(path, names[key], there)
    if "seq_lens" not in tensors:
        raise _missing(path, names["seq_lens"], there)
    seq_lens = _row(tensors["seq_lens"], names["seq_lens"])
    table = tensors.get("block_table") if block_table_shape is None else None
    shape = _shape(path, tensors, table, block_table_shape, names, there)
    size = block_size if block_size is not None else _number(tensors, "block_size", names)
    if size is None:
        raise InputError(f"{path!r} has no {names['block_size']}", "give --block-size")
    length = max_model_len if max_model_len is not None else _number(tensors, "max_model_len", names)
    findings = check(seq_lens, shape, size, length)
    pages = -(-seq_lens // size)
    if not seq_lens.any():
        raise InputError(f"nothing to audit: {path!r} has no request of one token or more")
    faults: list[PageFault] = []
    if table is not None:
        faults = find_page_faults(
            table,
            pages.clip(max=shape[1]),
            num_blocks=None if num_blocks is None else positive("num_blocks", num_blocks),
            null_block=null_block,
            shared_prefixes=shared_prefixes,
        )
    starts, num_tokens = _read_starts(tensors.get("query_start_loc"), names["query_start_loc"], seq_lens)
    unchecked = tuple(_unchecked(table, null_block, length))
    layout = _layout(os.path.basename(path), seq_lens, pages, findings, shape, size, length, num_tokens)
    return InspectReport(
        command="inspect",
        settings={
            "file": path,
            "keys": names,
            "block_table_shape": list(shape),
            "block_size": [size],
            "max_model_len": [layout.max_model_len],
            "num_blocks": num_blocks,
            "null_block": null_block,
            "shared_prefixes": shared_prefixes,
            "rules": [layout.rule],
            "strict": strict,
        },
        summary=Summary(
            layouts=1,
            fits=int(layout.verdict == "fits"),
            over_length=int(layout.verdict == "over-length"),
            overflow=int(layout.verdict == "overflow"),
            infeasible=int(not layout.feasible),
            latent=0,
            live_overflow=int(layout.verdict == "overflow"),
        ),
        layouts=(layout,),
        worst=() if layout.verdict == "fits" else (layout,),
        notes=unchecked,
        problems=(*_capped(faults), *_capped(starts)),
        unchecked=unchecked,
        strict=strict,
        only_flagged=only_flagged,
        findings=tuple(findings),
        page_faults=tuple(faults),
        start_loc_faults=tuple(starts),
        has_max_model_len=length is not None,
    )


def _missing(path: str, name: str, there: Collection[str]) -> InputError:
    names = ", ".join(sorted(there)[:20]) or "nothing"
    return InputError(
        f"{path!r} has no {name!r}", f"it holds {names[:300]}; map names with --seq-lens KEY and the like"
    )


def _row(tensor: npt.NDArray[Any], name: str) -> Ints:
    """A row of numbers that are not negative and fit int32."""
    if tensor.ndim != 1:
        raise InputError(f"{name!r} has {tensor.ndim} dimensions, not 1")
    if len(tensor) > MAX_REQUESTS + 1:
        raise InputError(f"{name!r} has {len(tensor)} entries, more requests than {MAX_REQUESTS}")
    for i in np.flatnonzero((tensor < 0) | (tensor > INT32_MAX))[:1]:
        wrong = "negative" if tensor[i] < 0 else "more than the engine's int32 tensors hold"
        raise InputError(f"{name!r} holds {tensor[i]} for request {i}, which is {wrong}")
    return tensor.astype(np.int64)


def _number(tensors: Mapping[str, npt.NDArray[Any]], key: str, names: Mapping[str, str]) -> int | None:
    """A number that the file holds, or None."""
    if key not in tensors:
        return None
    if tensors[key].size != 1:
        raise InputError(f"{names[key]!r} holds {tensors[key].size} numbers, not one")
    return positive(names[key], tensors[key].item())


def _shape(
    path: str,
    tensors: Mapping[str, npt.NDArray[Any]],
    table: npt.NDArray[Any] | None,
    given: tuple[int, int] | None,
    names: Mapping[str, str],
    there: Collection[str],
) -> tuple[int, int]:
    """Rows and slots of the block table."""
    if given is not None:
        rows, slots = given
    elif table is not None:
        if table.ndim != 2:
            raise InputError(f"{names['block_table']!r} has {table.ndim} dimensions, not 2")
        rows, slots = table.shape
    elif "block_table_shape" in tensors:
        shape = tensors["block_table_shape"]
        if shape.shape != (2,):
            raise InputError(f"{names['block_table_shape']!r} is not rows and slots")
        rows, slots = shape.tolist()
    else:
        raise _missing(path, names["block_table"], there)
    return positive("block table rows", rows), positive("block table row_slots", slots)


def _read_starts(tensor: npt.NDArray[Any] | None, name: str, seq_lens: Ints) -> tuple[list[StartLocFault], int]:
    """What is wrong with query_start_loc, and the tokens of the batch; the sum of seq_lens if it is not there."""
    if tensor is None:
        return [], int(seq_lens.sum())
    starts = _row(tensor, name)
    (live,) = np.nonzero(seq_lens)
    if len(starts) < live[-1] + 2:
        raise InputError(f"{name!r} has {len(starts)} entries, too few for request {live[-1]}")
    faults = [StartLocFault(0, f"{name}[0] is {starts[0]}, not 0")] if starts[0] else []
    query_lens = np.diff(starts)[live]
    for i in np.flatnonzero((query_lens < 0) | (query_lens > seq_lens[live])).tolist():
        request, query_len = int(live[i]), int(query_lens[i])
        wrong = "is negative" if query_len < 0 else f"is more than its seq_len {seq_lens[request]}"
        faults.append(StartLocFault(request, f"its query_len by {name}, {query_len}, {wrong}"))
    return faults, int(starts[live[-1] + 1])


def _layout(
    rule: str,
    seq_lens: Ints,
    pages: Ints,
    findings: list[Finding],
    shape: tuple[int, int],
    block_size: int,
    max_model_len: int | None,
    num_tokens: int,
) -> Layout:
    rows, slots = shape
    overflows = [finding for finding in findings if finding.verdict == "overflow"]
    most = int(pages.max())
    worst = len(pages) - 1 - int(pages[::-1].argmax())
    past = any(finding.reach == "past-table" for finding in overflows)
    return Layout(
        rule=rule,
        num_reqs=int((seq_lens > 0).sum()),
        num_tokens=max(num_tokens, 1),
        max_model_len=min(slots * block_size, INT32_MAX) if max_model_len is None else max_model_len,
        block_size=block_size,
        max_num_seqs=rows,
        row_slots=slots,
        verdict="overflow" if overflows else "over-length" if findings else "fits",
        reach=("past-table" if past else "next-row") if overflows else None,
        feasible=True,
        live=True,
        requests=RequestCounts(len(findings) - len(overflows), len(overflows)),
        worst=WorstRequest(worst, int(seq_lens[worst]), most, (slots, most - 1) if most > slots else None),
        needs_max_model_len=Needs((most - 1) * block_size + 1, int(seq_lens.max())),
    )


def _unchecked(table: npt.NDArray[Any] | None, null_block: int | None, max_model_len: int | None) -> Iterator[str]:
    """What was not looked at."""
    if max_model_len is None:
        yield "max_model_len is not known: no request is called over-length"
    if table is None:
        yield "no block table: page ids are not checked"
    elif null_block is not None and (table == null_block).all():
        yield f"every page id is the null page {null_block}, as in a dummy batch: page ids are not checked"


def _capped(faults: Sequence[object]) -> Iterator[str]:
    yield from map(str, faults[:MAX_NOTES])
    if len(faults) > MAX_NOTES:
        yield f"and {len(faults) - MAX_NOTES} more"
