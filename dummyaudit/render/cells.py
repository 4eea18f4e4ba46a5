"""The cells of a report put together, for formats that have no room for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dummyaudit.layout import Layout
from dummyaudit.report import Cell


def merge_cells(cells: Iterable[Cell]) -> list[Cell]:
    """One cell for every max_model_len, block_size and rule, over all num_reqs."""
    merged: dict[tuple[int, int, str], Cell] = {}
    for cell in cells:
        key = cell.max_model_len, cell.block_size, cell.rule
        merged[key] = _join(merged[key], cell) if key in merged else cell
    return list(merged.values())


def _join(one: Cell, other: Cell) -> Cell:
    return replace(
        one,
        num_reqs=(min(one.num_reqs[0], other.num_reqs[0]), max(one.num_reqs[1], other.num_reqs[1])),
        shapes=one.shapes + other.shapes,
        overflow=one.overflow + other.overflow,
        over_length=one.over_length + other.over_length,
        worst=max(one.worst, other.worst, key=_severity),
    )


def _severity(layout: Layout) -> tuple[bool, int, int, int]:
    return *layout.badness, layout.worst.seq_len
