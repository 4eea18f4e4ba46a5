"""GitHub-flavoured Markdown for a comment on a pull request or the summary of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from dummyaudit.layout import Layout
from dummyaudit.render import Style
from dummyaudit.render.cells import merge_cells
from dummyaudit.render.words import (
    count,
    cure_sentence,
    outlook_sentence,
    rule_title,
    slots_words,
    verdict_line,
    verdict_words,
    visible,
)
from dummyaudit.report import Cell, Report

MOST_ROWS = 20
"""Rows of a table, unless all are asked for."""

MOST_BYTES = 1_000_000
"""Somewhat less than the 1 MiB that GitHub takes for the summary of a job."""

_PLAIN_CODE = re.compile(r"[^\s`|]+( [^\s`|]+)*")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_MARKUP = re.compile(r"[\\`*<>|\[\]&~@#$]|(?<!\w)_|_(?!\w)")


def render(report: Report, style: Style) -> Iterator[str]:
    """The verdict, rules side by side, what is flagged, and from which max_model_len on rules are safe."""
    verdict, _, how = verdict_line(report).partition(". ")
    mark = "❌ " if report.fails else "⚠️ " if report.worst else "✅ "
    yield f"### {mark if style.unicode else ''}dummyaudit {report.command}: {verdict}\n\n{how}\n"
    first, last = _comparison(report, style, MOST_BYTES // 4), _closing(report, MOST_BYTES // 4)
    yield first
    if report.worst and report.command != "compare":
        flagged = report.summary.overflow + report.summary.over_length
        room = MOST_BYTES - len(f"{first}{last}".encode())
        yield _layouts("Flagged, the worst first", report, report.worst, flagged, style, room)
    yield last


def _comparison(report: Report, style: Style, room: int) -> str:
    """Rules side by side; nothing of a grid in which nothing is flagged."""
    if report.cases:
        return _cases(report, style, room)
    if report.command == "compare":
        short = style.all or len(report.layouts) <= MOST_ROWS or not report.worst
        layouts = report.layouts if short else report.worst
        title = f"{count(layouts[0].num_reqs, 'request')}, {count(layouts[0].num_tokens, 'token')}"
        return _layouts(
            title if short else f"{title}: flagged, the worst first", report, layouts, len(layouts), style, room
        )
    return _cells(report, style, room) if report.worst and report.cells else ""


def _cells(report: Report, style: Style, room: int) -> str:
    """A row for every max_model_len and block_size, a column for every rule."""
    cells = merge_cells(report.cells)
    rows = [list(same) for _, same in groupby(cells, key=lambda cell: (cell.max_model_len, cell.block_size))]
    sizes = len({cell.block_size for cell in cells}) > 1
    columns = ["max_model_len:"] + ["block_size:"] * sizes + [_rule(cell.rule) for cell in rows[0]]
    texts = (
        [str(row[0].max_model_len), *[str(row[0].block_size)] * sizes, *(_cell(report, cell) for cell in row)]
        for row in rows
    )
    return _table("Overflowing shapes and the worst request", columns, texts, len(rows), style, room)


def _cell(report: Report, cell: Cell) -> str:
    worst = cell.worst
    pages = f"{worst.worst.pages}/{worst.row_slots} pages"
    text = f"{cell.overflow} of {cell.shapes}; seq_len {worst.worst.seq_len}, {pages}"
    return text if worst.verdict == "fits" else f"{text}, {_verdict(report, worst)}"


def _cases(report: Report, style: Style, room: int) -> str:
    """A row for every deployment, release and runner."""
    named = any(case.deployment for case in report.cases)
    columns = ["deployment"] * named + ["vLLM", "runner", "result", "cure"]

    def rows() -> Iterator[list[str]]:
        for case in report.cases:
            bad = sum(map(report.is_failure, case.layouts))
            result = f"**{bad} of {count(len(case.layouts), 'layout')} fail**" if bad else "safe"
            cures = "<br>".join(_text(cure.text) for cure in case.cures)
            yield [*[_code(case.deployment)] * named, _text(case.release), case.runner, result, cures]

    return _table("Releases and runners", columns, rows(), len(report.cases), style, room)


def _layouts(title: str, report: Report, layouts: Sequence[Layout], total: int, style: Style, room: int) -> str:
    """A row for every layout."""
    phases = any(layout.phase for layout in layouts)
    sizes = len({layout.block_size for layout in layouts}) > 1
    columns = ["rule"] + ["phase"] * phases + ["num_reqs:", "num_tokens:", "max_model_len:"] + ["block_size:"] * sizes
    columns += ["request:", "seq_len:", "pages:", "verdict", "cure"]

    def rows() -> Iterator[list[str]]:
        for layout in layouts:
            worst = layout.worst
            numbers = [layout.num_reqs, layout.num_tokens, layout.max_model_len] + [layout.block_size] * sizes
            yield [
                _rule(layout.rule),
                *[_code(" ".join((layout.phase or {}).values()))] * phases,
                *map(str, [*numbers, worst.request, worst.seq_len, f"{worst.pages}/{layout.row_slots}"]),
                _verdict(report, layout),
                _text(cure_sentence(layout.advice)),
            ]

    return _table(title, columns, rows(), total, style, room)


def _verdict(report: Report, layout: Layout) -> str:
    text = verdict_words(layout.verdict, layout.reach)
    if report.is_failure(layout):
        text = f"**{text}**"
    if layout.worst.slots_read_outside:
        text += f", reads {slots_words(*layout.worst.slots_read_outside)}"
    return text + ", latent" * (not layout.live) + ", infeasible" * (not layout.feasible)


def _closing(report: Report, room: int) -> str:
    lines = [
        f"- {_rule(outlook.rule)}{outlook_sentence(report, outlook).removeprefix(outlook.rule)}\n"
        for outlook in report.outlooks
    ]
    lines += [f"- **problem**: {_code(problem)}\n" for problem in report.problems]
    lines += [f"- {_code(note)}\n" for note in report.notes]
    return "".join(["\n", *_fitting(lines, room)]) if lines else ""


def _table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], total: int, style: Style, room: int
) -> str:
    """A table of as many of `total` rows as may be shown; a column whose title ends in a colon is to the right."""
    head = [f"\n#### {title}\n\n", _line([column.rstrip(":") for column in columns])]
    head.append(_line(["---:" if column.endswith(":") else "---" for column in columns]))
    lines = _fitting(map(_line, rows if style.all else islice(rows, MOST_ROWS)), room)
    hidden = total - len(lines)
    if hidden:
        reason = "left out, there is no room for them here" if style.all else "`--all` shows them"
        lines.append(f"\nand {hidden} more ({reason})\n")
    return "".join(head + lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _fitting(lines: Iterable[str], room: int) -> list[str]:
    """The first lines, as many as have room."""
    kept = []
    for line in lines:
        room -= len(line.encode("utf-8", "replace"))
        if room < 0:
            break
        kept.append(line)
    return kept


def _rule(rule: str) -> str:
    return _code(rule) + rule_title(rule).removeprefix(rule)


def _code(text: str) -> str:
    """Text as code, in which GitHub looks for no emoji, mention or link; it shows as it is."""
    text = visible(text)
    if not text:
        return ""
    if _PLAIN_CODE.fullmatch(text):
        return f"`{text}`"
    return f"<code>{_entities(_PUNCTUATION, text)}</code>"


def _text(text: str) -> str:
    """A sentence of ours, in which nothing is taken for markup."""
    return _entities(_MARKUP, visible(text))


def _entities(pattern: re.Pattern[str], text: str) -> str:
    encoded = pattern.sub(lambda match: f"&#{ord(match[0])};", text)
    return re.sub(r"\r\n?|\n", "<br>", encoded)
