"""The calls that are public: `grid`, `compare` and `build`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dummyaudit.axes import check_shape, pairs
from dummyaudit.block_table import INT32_MAX, BlockTable, TokenAlignment, cdiv, positive
from dummyaudit.errors import DeviceError, InputError
from dummyaudit.layout import Layout
from dummyaudit.report import Built, Report
from dummyaudit.rules import Rule, find_rule
from dummyaudit.space import (
    DEFAULT_MAX_MODEL_LEN,
    DEFAULT_RULES,
    Axis,
    check_rows,
    describe,
    find_rules,
    make_shapes,
    make_tables,
)
from dummyaudit.sweep import Layouts, Sweep
from dummyaudit.tally import Check, Progress, Tally, finish, plan, tally_part

if TYPE_CHECKING:
    from dummyaudit.batch import DummyBatch

WORST = 20
"""Flagged layouts that a report keeps as its worst, if not told otherwise."""


def grid(
    *,
    num_reqs: Axis | None = None,
    num_tokens: Axis | None = None,
    max_model_len: Axis = DEFAULT_MAX_MODEL_LEN,
    block_size: Axis = 16,
    max_num_seqs: int | None = None,
    rules: Sequence[str] = DEFAULT_RULES,
    shapes: Iterable[tuple[int, int]] | None = None,
    dcp: int = 1,
    interleave: int = 1,
    token_alignment: TokenAlignment = 128,
    kernel_block_size: int | None = None,
    device: str = "auto",
    strict: bool = False,
    only_flagged: bool = False,
    worst: int | None = WORST,
    summary: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Report:
    """Audits every shape `num_reqs` by `num_tokens`, under every max_model_len and block_size, by every rule.

    Args:
        num_reqs: requests; 1, 2, 4 ... 256 if not given, up to max_num_seqs.
        num_tokens: tokens; for each num_reqs the capture sizes of the newest known vLLM for so many sequences.
        max_model_len: longest legal request, in tokens.
        block_size: tokens of one KV page.
        max_num_seqs: rows of the block table; as many as requests if not given.
        rules: names, as in `dummyaudit.rules.find_rule`.
        shapes: pairs (num_reqs, num_tokens) to audit instead of the two axes.
        dcp: ranks of decode context parallelism.
        interleave: consecutive tokens that one such rank holds.
        token_alignment: how rows are widened, see BlockTable.
        kernel_block_size: tokens of the kernel's page, where it is smaller than block_size.
        device: where batches are built to check the arithmetic: auto, none, cpu, cuda or cuda:N.
        strict: whether over-length layouts count as failures.
        only_flagged: whether the report lists flagged layouts only.
        worst: how many flagged layouts `Report.worst` keeps, or None for all.
        summary: whether only counts and the worst layout of each rule and block table are kept. They come from
            closed forms where there are some and nothing is to be built; device auto then is none.
        jobs: processes that share the work. A script that uses several has to guard its main module, as with
            `multiprocessing`.
        progress: called now and then with the layouts done and to do.
        stop: asked now and then whether to end; the report then is of the shapes up to there.

    Raises:
        DummyAuditError: a setting cannot be used, a rule does not work, or a built batch disagrees.
    """
    space = make_shapes(num_reqs, num_tokens, shapes, max_num_seqs)
    tables = make_tables(max_model_len, block_size, dcp, interleave, token_alignment, kernel_block_size)
    sweep = Sweep(space, tables, find_rules(rules), max_num_seqs, strict)
    if worst is not None and worst < 0:
        raise InputError(f"worst must not be negative, got {worst}")
    run = _Run(worst, summary, positive("jobs", jobs), progress, stop)
    return _audit("grid", sweep, "none" if summary and device == "auto" else device, only_flagged, run)


def compare(
    *,
    num_reqs: int,
    num_tokens: int,
    max_model_len: Axis | None = None,
    block_size: Axis = 16,
    max_num_seqs: int | None = None,
    rules: Sequence[str] = DEFAULT_RULES,
    dcp: int = 1,
    interleave: int = 1,
    token_alignment: TokenAlignment = 128,
    kernel_block_size: int | None = None,
    device: str = "auto",
    strict: bool = False,
    only_flagged: bool = False,
) -> Report:
    """Audits one shape by every rule; each layout lists its requests as runs of equal ones.

    Args:
        num_reqs: requests.
        num_tokens: their tokens together.
        max_model_len: longest legal request, in tokens; if not given a ladder of powers of two, from the shortest
            that is feasible up to the first at which every rule fits.
        block_size: tokens of one KV page.
        max_num_seqs: rows of the block table; as many as requests if not given.
        rules: names, as in `dummyaudit.rules.find_rule`.
        dcp: ranks of decode context parallelism.
        interleave: consecutive tokens that one such rank holds.
        token_alignment: how rows are widened, see BlockTable.
        kernel_block_size: tokens of the kernel's page, where it is smaller than block_size.
        device: where batches are built to check the arithmetic: auto, none, cpu, cuda or cuda:N.
        strict: whether over-length layouts count as failures.
        only_flagged: whether the report lists flagged layouts only.

    Raises:
        DummyAuditError: as in `grid`; also `num_reqs > num_tokens`.
    """
    check_shape(num_reqs, num_tokens)
    check_rows(max_num_seqs, num_reqs)
    found = find_rules(rules)
    lengths = max_model_len if max_model_len is not None else _ladder(num_reqs, num_tokens, found)
    tables = make_tables(lengths, block_size, dcp, interleave, token_alignment, kernel_block_size)
    sweep = Sweep(pairs([(num_reqs, num_tokens)]), tables, found, max_num_seqs, strict, groups=True)
    return _audit("compare", sweep, device, only_flagged, _Run(worst=None))


def build(
    rule: str | Rule, num_reqs: int, num_tokens: int, block_table: BlockTable, device: str = "cpu"
) -> DummyBatch:
    """Builds the dummy batch that a rule makes of one shape.

    Returns:
        torch tensors with the engine's dtypes and its padding to max_num_seqs rows.

    Raises:
        DummyAuditError: this is no shape, it has more requests than rows, or the device is not there.
    """
    check_shape(num_reqs, num_tokens)
    check_rows(block_table.max_num_seqs, num_reqs)
    found = find_rule(rule) if isinstance(rule, str) else rule
    resolved = resolve_device(device)
    if resolved is None:
        raise DeviceError(f"cannot build a batch on device {device!r}", "use cpu or cuda")
    from dummyaudit.batch import build_batch

    shape = np.array([num_reqs]), np.array([num_tokens])
    runs = found.runs(*shape, block_table.max_model_len)
    return build_batch(runs, shape[1], np.array([block_table.max_num_seqs]), block_table, resolved)


def resolve_device(name: str) -> str | None:
    """The torch device that a name stands for, or None for arithmetic alone; `auto` is cpu if there is a torch.

    Raises:
        DeviceError: it is not there.
    """
    if name == "none":
        return None
    if importlib.util.find_spec("torch") is None:
        if name == "auto":
            return None
        raise DeviceError(f"device {name}: torch is not installed", "install torch, or use --device none")
    from dummyaudit.evidence import find_device

    return find_device("cpu" if name == "auto" else name)


def find_check(device: str) -> tuple[str | None, Check | None]:
    """The torch device that a name stands for, and what holds batches built there against the arithmetic.

    Raises:
        DeviceError: it is not there.
    """
    torch_device = resolve_device(device)
    if torch_device is None:
        return None, None
    from dummyaudit.evidence import Evidence

    return torch_device, Evidence(torch_device).check


def _ladder(num_reqs: int, num_tokens: int, rules: tuple[Rule, ...]) -> list[int]:
    """Powers of two from the shortest feasible length up to the first at which every rule fits."""
    length = 1 << (cdiv(num_tokens, num_reqs) - 1).bit_length()
    ladder = [min(length, INT32_MAX)]
    shape = np.array([num_reqs]), np.array([num_tokens])
    while any(rule.runs(*shape, ladder[-1]).seq_len.max() > ladder[-1] for rule in rules):
        ladder.append(min(2 * ladder[-1], INT32_MAX))
    return ladder


@dataclass(frozen=True, slots=True)
class _Run:
    """How a sweep is worked off, and what is kept of it; see `grid`."""

    worst: int | None
    summary: bool = False
    jobs: int = 1
    progress: Progress | None = None
    stop: Callable[[], bool] | None = None


def _audit(command: str, sweep: Sweep, device: str, only_flagged: bool, run: _Run) -> Report:
    torch_device, check = find_check(device)
    closed = None
    if run.summary and check is None:
        from dummyaudit.closed_tally import tally_closed

        closed = tally_closed(sweep)
    found = closed or _tally(sweep, torch_device, check, run)
    worst = found.worst
    layouts: Sequence[Layout] = Layouts(found.sweep)
    if run.summary:
        layouts = [cell.worst for cell in found.cells]
        flagged = [layout for layout in layouts if layout.verdict != "fits"]
        worst = tuple(sorted(flagged, key=lambda layout: layout.badness, reverse=True))
    return Report(
        command=command,
        settings=describe(sweep),
        summary=found.summary,
        layouts=layouts,
        worst=worst,
        cells=found.cells,
        outlooks=found.outlooks,
        built=None if torch_device is None else Built(torch_device, found.summary.layouts),
        closed_form=closed is not None,
        planned=len(sweep) if found.summary.layouts < len(sweep) else None,
        strict=sweep.strict,
        only_flagged=only_flagged,
        summary_only=run.summary,
    )


def _tally(sweep: Sweep, device: str | None, check: Check | None, run: _Run) -> Tally:
    planned = plan(sweep, 0 if run.summary else run.worst, cells=1 if run.summary else None)
    if run.jobs > 1:
        from dummyaudit.jobs import tally_with_jobs

        return finish(planned, tally_with_jobs(planned, run.jobs, device, run.progress, run.stop))
    return finish(planned, tally_part(planned, 0, len(sweep.shapes), check, run.progress, run.stop))
