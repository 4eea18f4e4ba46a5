"""The layouts as test cases in JUnit's XML, those that pass too."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from dummyaudit.layout import Layout
from dummyaudit.render import Style
from dummyaudit.render.cells import merge_cells
from dummyaudit.render.words import (
    count,
    finding_sentences,
    layout_name,
    verdict_line,
    verdict_words,
    visible,
    worst_sentence,
)
from dummyaudit.report import Cell, Report

MOST_CASES = 5000
"""Layouts that are a case each; of more every rule, max_model_len and block_size is one."""


def render(report: Report, style: Style) -> Iterator[str]:
    """One test suite; a case fails where its layout makes the gate fail."""
    summary = report.summary
    flagged = summary.overflow + summary.over_length
    tests, failures = flagged if report.only_flagged else summary.layouts, report.failures
    cases = _layout_cases(report)
    if report.summary_only or (tests > MOST_CASES and report.cells):
        cells = [
            cell for cell in merge_cells(report.cells) if not report.only_flagged or cell.overflow or cell.over_length
        ]
        tests, failures = len(cells), sum(report.is_failure(cell.worst) for cell in cells)
        cases = (_cell_case(report, cell) for cell in cells)
    tests, failures = tests + len(report.problems), failures + len(report.problems)
    counts = f'tests="{tests}" failures="{failures}" errors="0"'
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f'<testsuites name="dummyaudit" {counts} time="0">\n'
    yield f'<testsuite name="dummyaudit {report.command}" {counts} skipped="0" time="0">\n'
    yield from cases
    for problem in report.problems:
        yield (
            f'<testcase classname={_attribute(f"dummyaudit.{report.command}")} name={_attribute(problem)} time="0">'
            f'<failure message={_attribute(problem)} type="problem"/></testcase>\n'
        )
    yield f"<system-out>{_text(verdict_line(report))}</system-out>\n</testsuite>\n</testsuites>\n"


def _layout_cases(report: Report) -> Iterator[str]:
    seen: dict[tuple[str, str], int] = {}
    for layout in report.listed():
        name = layout_name(layout)
        key = layout.rule, name
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 1:
            name = f"{name} #{seen[key]}"
        body = "" if layout.verdict == "fits" else finding_sentences(layout)
        yield _case(report, name, layout, worst_sentence(layout), body)


def _cell_case(report: Report, cell: Cell) -> str:
    worst = cell.worst
    said = f"{cell.overflow} of {count(cell.shapes, 'shape')} overflow, {cell.over_length} over length"
    body = f"Worst: {layout_name(worst)}\n{finding_sentences(worst)}"
    message = f"{said}; worst: {worst_sentence(worst)}"
    name = f"max_model_len={cell.max_model_len} block_size={cell.block_size}"
    return _case(report, name, worst, message, "" if worst.verdict == "fits" else f"{said}\n{body}")


def _case(report: Report, name: str, worst: Layout, message: str, body: str) -> str:
    """A case of a layout, or of several of which it is the worst."""
    where = f"dummyaudit.{report.command}.{worst.rule}"
    start = f'<testcase classname={_attribute(where)} name={_attribute(name)} time="0"'
    if not body:
        return f"{start}/>\n"
    inside = f"<system-out>{_text(body)}</system-out>"
    if report.is_failure(worst):
        kind = verdict_words(worst.verdict, worst.reach)
        inside = f"<failure message={_attribute(message)} type={_attribute(kind)}>{_text(body)}</failure>"
    return f"{start}>{inside}</testcase>\n"


def _attribute(text: str) -> str:
    return _ascii(quoteattr(visible(text)))


def _text(text: str) -> str:
    return _ascii(escape(visible(text), {"\r": "&#13;"}))


def _ascii(xml: str) -> str:
    """The same in ASCII, so that it is well-formed in whatever encoding it is written."""
    return xml.encode("ascii", "xmlcharrefreplace").decode()
