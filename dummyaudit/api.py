"""The calls that are public: `grid`, `compare` and `build`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dummyaudit.axes import Shapes, as_axis, check_shape, pairs, product, ragged
from dummyaudit.block_table import INT32_MAX, BlockTable, TokenAlignment, cdiv, positive
from dummyaudit.engine import NEWEST_RELEASE
from dummyaudit.errors import DeviceError, InputError
from dummyaudit.report import Built, Report
from dummyaudit.rules import Rule, find_rule
from dummyaudit.sweep import Layouts, Sweep
from dummyaudit.tally import Check, tally

if TYPE_CHECKING:
    from dummyaudit.batch import DummyBatch

Axis = int | Sequence[int]
Progress = Callable[[int, int], None]
"""Called with the number of layouts done, and of all."""

DEFAULT_NUM_REQS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEFAULT_MAX_MODEL_LEN = (16, 64, 256, 1024, 4096)
DEFAULT_RULES = ("last", "even")
WORST = 20
"""Flagged layouts that a report keeps as its worst, if not told otherwise."""

MAX_TABLES = 2**16
"""Block tables of one grid, for each of which counts are kept."""

LISTED_VALUES = 4096
"""Values of a range that the settings list one by one; a longer one is written as first:last:step."""


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
    progress: Progress | None = None,
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
        progress: called now and then with the layouts done and to do.

    Raises:
        DummyAuditError: a setting cannot be used, a rule does not work, or a built batch disagrees.
    """
    if shapes is None:
        space = _space(num_reqs, num_tokens, max_num_seqs)
    elif num_reqs is None and num_tokens is None:
        space = pairs(list(shapes))
    else:
        raise InputError("shapes were given along with num_reqs or num_tokens", "give one or the other")
    tables = _tables(max_model_len, block_size, dcp, interleave, token_alignment, kernel_block_size)
    _check_rows(max_num_seqs, int(space.num_reqs[-1]))
    sweep = Sweep(space, tables, _find_rules(rules), max_num_seqs, strict)
    return _audit("grid", sweep, device, only_flagged, worst, progress)


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
    _check_rows(max_num_seqs, num_reqs)
    found = _find_rules(rules)
    lengths = max_model_len if max_model_len is not None else _ladder(num_reqs, num_tokens, found)
    tables = _tables(lengths, block_size, dcp, interleave, token_alignment, kernel_block_size)
    sweep = Sweep(pairs([(num_reqs, num_tokens)]), tables, found, max_num_seqs, strict, groups=True)
    return _audit("compare", sweep, device, only_flagged, None, None)


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
    _check_rows(block_table.max_num_seqs, num_reqs)
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


def _space(num_reqs: Axis | None, num_tokens: Axis | None, max_num_seqs: int | None) -> Shapes:
    if num_reqs is None:
        reqs: Sequence[int] = [n for n in DEFAULT_NUM_REQS if n <= (max_num_seqs or n)]
    else:
        reqs = as_axis("num_reqs", num_reqs)
    if num_tokens is not None:
        return product(reqs, as_axis("num_tokens", num_tokens))
    sizes = [NEWEST_RELEASE.capture_sizes(max_num_seqs=n, max_num_batched_tokens=None) for n in reqs]
    return ragged(reqs, [[size for size in some if size >= n] for n, some in zip(reqs, sizes, strict=True)])


def _tables(
    max_model_len: Axis,
    block_size: Axis,
    dcp: int,
    interleave: int,
    token_alignment: TokenAlignment,
    kernel_block_size: int | None,
) -> tuple[BlockTable, ...]:
    lengths, sizes = as_axis("max_model_len", max_model_len), as_axis("block_size", block_size)
    if len(lengths) * len(sizes) > MAX_TABLES:
        raise InputError(
            f"max_model_len and block_size: {len(lengths)} x {len(sizes)} block tables are more than {MAX_TABLES}",
            "use larger steps",
        )
    return tuple(
        BlockTable(
            max_model_len=length,
            block_size=size,
            dcp=dcp,
            interleave=interleave,
            token_alignment=token_alignment,
            kernel_block_size=kernel_block_size,
        )
        for length in lengths
        for size in sizes
    )


def _check_rows(max_num_seqs: int | None, num_reqs: int) -> None:
    if max_num_seqs is not None and num_reqs > positive("max_num_seqs", max_num_seqs):
        raise InputError(
            f"num_reqs {num_reqs} is more than max_num_seqs {max_num_seqs}, the rows of the block table",
            f"use max_num_seqs {num_reqs} or more",
        )


def _find_rules(names: Sequence[str]) -> tuple[Rule, ...]:
    if isinstance(names, str):
        raise InputError(f"rules must be a list of names, got {names!r}", f"use [{names!r}]")
    found = {rule.name: rule for rule in map(find_rule, names)}
    if not found:
        raise InputError("nothing to audit: no rule was given", "use last, even")
    return tuple(found.values())


def _ladder(num_reqs: int, num_tokens: int, rules: tuple[Rule, ...]) -> list[int]:
    """Powers of two from the shortest feasible length up to the first at which every rule fits."""
    length = 1 << (cdiv(num_tokens, num_reqs) - 1).bit_length()
    ladder = [min(length, INT32_MAX)]
    shape = np.array([num_reqs]), np.array([num_tokens])
    while any(rule.runs(*shape, ladder[-1]).seq_len.max() > ladder[-1] for rule in rules):
        ladder.append(min(2 * ladder[-1], INT32_MAX))
    return ladder


def _audit(
    command: str,
    sweep: Sweep,
    device: str,
    only_flagged: bool,
    worst: int | None,
    progress: Progress | None,
) -> Report:
    torch_device, check = find_check(device)
    found = tally(sweep, worst, check, progress)
    return Report(
        command=command,
        settings=_settings(sweep),
        summary=found.summary,
        layouts=Layouts(sweep),
        worst=found.worst,
        cells=found.cells,
        outlooks=found.outlooks,
        built=None if torch_device is None else Built(torch_device, len(sweep)),
        strict=sweep.strict,
        only_flagged=only_flagged,
    )


def _settings(sweep: Sweep) -> dict[str, Any]:
    table = sweep.tables[0]
    return {
        "num_reqs": _listed(sweep.shapes.num_reqs.tolist()),
        "num_tokens": _listed(sweep.shapes.values),
        "max_model_len": sorted({t.max_model_len for t in sweep.tables}),
        "block_size": sorted({t.block_size for t in sweep.tables}),
        "max_num_seqs": sweep.max_num_seqs,
        "rules": [rule.name for rule in sweep.rules],
        "dcp": table.dcp,
        "interleave": table.interleave,
        "token_alignment": table.token_alignment,
        "kernel_block_size": table.kernel_block_size,
        "strict": sweep.strict,
    }


def _listed(values: Sequence[int] | Any) -> list[int] | str:
    """The values of an axis, each once, ascending; a long range as first:last:step."""
    if isinstance(values, range):
        return f"{values[0]}:{values[-1]}:{values.step}" if len(values) > LISTED_VALUES else list(values)
    return [int(value) for value in np.unique(values)]
