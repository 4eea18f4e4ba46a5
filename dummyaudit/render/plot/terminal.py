"""Maps as text: two cells a character by colour, or without colour one cell a character by its shape."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from dummyaudit.render import Style
from dummyaudit.render.plot.ink import half_blocks, legend, symbol, symbols, uses_half_blocks
from dummyaudit.render.plot.maps import NAMES, NO_SHAPE, Map, make_maps
from dummyaudit.render.words import span, visible

if TYPE_CHECKING:
    from dummyaudit.report import Report

_LINES = 20
"""Lines of a map, without its title and axis."""

_SIDE_BY_SIDE = 120
"""Columns from which on two maps stand next to each other."""

_MOST = 4
"""Rows of maps that are shown, unless all are asked for."""

_GAP = 3


def maps_picture(report: Report, style: Style) -> str:
    """The maps of a report, those of one block table side by side, with a legend."""
    abreast = 2 if style.width >= _SIDE_BY_SIDE else 1
    width = (style.width - _GAP * (abreast - 1)) // abreast
    columns, rows = max(width - _margin(report) - 1, 8), _LINES * (1 + uses_half_blocks(style))
    shown, hidden = make_maps(report, columns, rows, None if style.all else _MOST)
    blocks = []
    for maps in shown:
        drawn = [_draw(one, width, style) for one in maps]
        blocks += [_beside(drawn[i : i + abreast], width) for i in range(0, len(drawn), abreast)]
    if hidden:
        blocks.append(f"and {hidden} more block table{'s' * (hidden > 1)} (--all draws them)\n")
    return "\n".join([*blocks, _legend(shown, style)])


def _margin(report: Report) -> int:
    sizes = report.settings.get("max_num_reqs") or max(
        (layout.num_reqs for layout in report.layouts[-1:]), default=9999
    )
    return max(len(f"{sizes}"), len("num_reqs")) + 1


def _beside(maps: list[list[tuple[str, int]]], width: int) -> str:
    """Maps next to each other. Each line comes with the number of columns that it fills."""
    height = max(map(len, maps))
    lines = []
    for i in range(height):
        text, gap = "", 0
        for one in maps:
            line, filled = one[i] if i < len(one) else ("", 0)
            text += " " * gap + line
            gap = width + _GAP - filled
        lines.append(text.rstrip())
    return "\n".join(lines) + "\n"


def _draw(one: Map, width: int, style: Style) -> list[tuple[str, int]]:
    rows = list(range(len(one.num_reqs)))[::-1]
    halves = uses_half_blocks(style)
    # Few rows get a line each: half a line would be too thin to tell apart.
    pairs = (
        [rows[i : i + 2] for i in range(0, len(rows), 2)] if halves and len(rows) > _LINES else [[i] for i in rows]
    )
    labels = _row_labels(one, pairs)
    margin = max(len("num_reqs"), *map(len, labels)) + 1
    wide = max((width - margin - 1) // len(one.num_tokens), 1)
    wide = 1 if one.every else min(wide, 4)
    bar, corner, dash, tick = ("│", "└", "─", "┬") if style.unicode else ("|", "+", "-", "+")
    severity = one.severity.repeat(wide, axis=1).tolist()
    filled = len(severity[0])
    lines = [_line(title, width) for title in _folded(visible(one.title), width)]
    lines.append(_line("num_reqs", width))
    for label, pair in zip(labels, pairs, strict=True):
        upper, lower = severity[pair[0]], severity[pair[-1]]
        if halves and len(pairs) < len(rows) and len(pair) == 1:
            lower = [NO_SHAPE] * filled
        cells = half_blocks(upper, lower) if halves else symbols(upper, style)
        lines.append((f"{label:>{margin}}{bar}{cells}", margin + 1 + filled))
    axis, numbers = [dash] * filled, ""
    for column, text in _ticks(one, wide):
        if column + len(text) <= width - margin - 1 and (not numbers or column > len(numbers)):
            axis[column] = tick
            numbers = f"{numbers:<{column}}{text}"
    lines.append((" " * margin + corner + "".join(axis), margin + 1 + filled))
    lines.append(_line(" " * (margin + 1) + numbers, width))
    lines.append(_line(" " * (margin + 1) + "num_tokens" + _each(one), width))
    return lines


def _line(text: str, width: int) -> tuple[str, int]:
    return text[:width], min(len(text), width)


def _folded(text: str, width: int) -> list[str]:
    """A title, broken at a comma where it does not fit."""
    lines = [""]
    for part in text.split(", "):
        longer = f"{lines[-1]}, {part}" if lines[-1] else part
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def _each(one: Map) -> str:
    """How many shapes a cell stands for, if more than one."""
    reqs, tokens = one.cell
    if reqs == tokens == 1:
        return ""
    return f"; a cell: worst of {reqs} x {tokens} shapes{', sampled' * one.sampled}"


def _row_labels(one: Map, pairs: list[list[int]]) -> list[str]:
    """What stands left of each line: round values of every value's axis, else the first value of the line."""
    if not one.every:
        return [f"{one.num_reqs[pair[-1]][0]}" for pair in pairs]
    if len(pairs) == 1:
        return [span(*one.num_reqs[0])]
    step = _step(one.num_reqs[-1][1], len(pairs) / 2)
    labels = []
    for pair in pairs:
        low, high = one.num_reqs[pair[-1]][0], one.num_reqs[pair[0]][1]
        labels.append(f"{high // step * step}" if high // step * step >= low else "")
    labels[-1] = labels[-1] or f"{one.num_reqs[0][0]}"
    return labels


def _ticks(one: Map, wide: int) -> list[tuple[int, str]]:
    """Column and text of what stands below the map."""
    if not one.every:
        return [(i * wide, f"{first}") for i, (first, _) in enumerate(one.num_tokens)]
    most = one.num_tokens[-1][1]
    step = _step(most, len(one.num_tokens) / (len(f"{most}") + 4))
    firsts = [first for first, _ in one.num_tokens]
    values = [1, *range(step, most + 1, step)]
    return [(bisect.bisect_right(firsts, value) - 1, f"{value}") for value in values]


def _step(most: int, parts: float) -> int:
    """The power of two of which most has no more multiples than parts."""
    step = 1
    while most / step > max(parts, 1):
        step *= 2
    return step


def _legend(groups: list[list[Map]], style: Style) -> str:
    found = {int(value) for maps in groups for one in maps for value in set(one.severity.ravel().tolist())}
    parts = [(symbol(severity, style), name) for severity, name in NAMES.items() if severity in found]
    return legend([*parts, *[("", "blank: no such shape")] * (NO_SHAPE in found)], style.width) + "\n"
