"""From the arguments of an audit to what it goes over: shapes, block tables and rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dummyaudit.axes import Shapes, as_axis, pairs, product, ragged
from dummyaudit.block_table import BlockTable, TokenAlignment, positive
from dummyaudit.engine import NEWEST_RELEASE
from dummyaudit.errors import InputError
from dummyaudit.rules import Rule, find_rule
from dummyaudit.sweep import Sweep

Axis = int | Sequence[int]

DEFAULT_NUM_REQS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEFAULT_MAX_MODEL_LEN = (16, 64, 256, 1024, 4096)
DEFAULT_RULES = ("last", "even")

MAX_TABLES = 2**16
"""Block tables of one grid, for each of which counts are kept."""

LISTED_VALUES = 4096
"""Values of a range that the settings list one by one; a longer one is written as first:last:step."""


def make_shapes(
    num_reqs: Axis | None,
    num_tokens: Axis | None,
    shapes: Iterable[tuple[int, int]] | None,
    max_num_seqs: int | None,
) -> Shapes:
    """The given shapes or those of two axes, whose requests all have a row.

    Raises:
        InputError: an axis is malformed, there are no shapes, both kinds are given, or max_num_seqs is too small.
    """
    if shapes is None:
        space = _of_axes(num_reqs, num_tokens, max_num_seqs)
    elif num_reqs is None and num_tokens is None:
        space = pairs(list(shapes))
    else:
        raise InputError("shapes were given along with num_reqs or num_tokens", "give one or the other")
    check_rows(max_num_seqs, int(space.num_reqs[-1]))
    return space


def _of_axes(num_reqs: Axis | None, num_tokens: Axis | None, max_num_seqs: int | None) -> Shapes:
    """The pairs of two axes; without num_tokens, of each num_reqs the capture sizes that vLLM chooses for so many."""
    if num_reqs is None:
        reqs: Sequence[int] = [n for n in DEFAULT_NUM_REQS if n <= (max_num_seqs or n)]
    else:
        reqs = as_axis("num_reqs", num_reqs)
    if num_tokens is not None:
        return product(reqs, as_axis("num_tokens", num_tokens))
    sizes = [NEWEST_RELEASE.capture_sizes(max_num_seqs=n, max_num_batched_tokens=None) for n in reqs]
    return ragged(reqs, [[size for size in some if size >= n] for n, some in zip(reqs, sizes, strict=True)])


def make_tables(
    max_model_len: Axis,
    block_size: Axis,
    dcp: int,
    interleave: int,
    token_alignment: TokenAlignment,
    kernel_block_size: int | None,
) -> tuple[BlockTable, ...]:
    """The block tables of every max_model_len and block_size, but for their rows.

    Raises:
        InputError: a value cannot be used, or there are more than MAX_TABLES.
    """
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


def check_rows(max_num_seqs: int | None, num_reqs: int) -> None:
    """Refuses more requests than a block table has rows.

    Raises:
        InputError: `num_reqs > max_num_seqs`.
    """
    if max_num_seqs is not None and num_reqs > positive("max_num_seqs", max_num_seqs):
        raise InputError(
            f"num_reqs {num_reqs} is more than max_num_seqs {max_num_seqs}, the rows of the block table",
            f"use max_num_seqs {num_reqs} or more",
        )


def find_rules(names: Sequence[str]) -> tuple[Rule, ...]:
    """The rules of these names, each once.

    Raises:
        DummyAuditError: there are none, or one cannot be found.
    """
    if isinstance(names, str):
        raise InputError(f"rules must be a list of names, got {names!r}", f"use [{names!r}]")
    found = {rule.name: rule for rule in map(find_rule, names)}
    if not found:
        raise InputError("nothing to audit: no rule was given", "use last, even")
    return tuple(found.values())


def describe(sweep: Sweep) -> dict[str, Any]:
    """The settings of a report: what was asked for, resolved."""
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
