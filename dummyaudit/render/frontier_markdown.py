"""A frontier as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from dummyaudit.frontier_report import FrontierReport
from dummyaudit.render import Style
from dummyaudit.render.frontier_table import TITLES, cells, comparisons, heading, smallest_sentences, verdict
from dummyaudit.render.words import rule_title


def render(report: FrontierReport, style: Style) -> Iterator[str]:
    """The verdict, the rules at each block table, how they compare, and the smallest shapes."""
    result, _, how = verdict(report).partition(". ")
    mark = "❌ " if report.failures else "⚠️ " if report.summary.over_length else "✅ "
    yield f"### {mark if style.unicode else ''}dummyaudit frontier: {result}\n\n{how} {heading(report)}.\n\n"
    titles = ("max_model_len", "block_size", "rule", *TITLES)
    yield f"| {' | '.join(titles)} |\n|{'|'.join('---' if title == 'rule' else '---:' for title in titles)}|\n"
    for i, total in enumerate(report.totals):
        keys = [str(total.max_model_len), str(total.block_size), rule_title(total.rule)]
        yield f"| {' | '.join([*keys, *cells(total, i % len(report.audited) == 0)])} |\n"
    sentences = [*comparisons(report), *smallest_sentences(report)]
    if sentences:
        yield "\n" + "".join(f"- {' '.join(sentence.split())}\n" for sentence in sentences)
