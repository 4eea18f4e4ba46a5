"""Annotations of a GitHub Actions job: workflow commands, a line each."""

from __future__ import annotations

from collections.abc import Iterator

from dummyaudit.layout import Layout
from dummyaudit.render import Style
from dummyaudit.render.words import count, finding_sentences, rule_title, verdict_line, visible
from dummyaudit.report import Report

MOST = 10
"""Annotations of one level that GitHub shows for a step."""


def render(report: Report, style: Style) -> Iterator[str]:
    """Annotations, problems first, then layouts, the worst before others; at last the verdict as plain text."""
    problems = report.problems[: MOST // 2]
    for problem in problems:
        yield _annotation(True, {"title": f"dummyaudit {report.command}"}, problem)
    if hidden := len(report.problems) - len(problems):
        yield _annotation(True, {"title": f"dummyaudit {report.command}"}, count(hidden, "more problem"))
    most = MOST - len(problems) - bool(hidden)
    flagged = report.summary.overflow + report.summary.over_length
    shown = sorted(report.worst, key=report.is_failure, reverse=True)[: most - (flagged > most)]
    for layout in shown:
        yield _annotation(report.is_failure(layout), _properties(layout), finding_sentences(layout))
    if rest := flagged - len(shown):
        failures = report.failures - sum(map(report.is_failure, shown))
        text = f"{count(rest, 'more flagged layout')}, {failures or 'none'} of which fail"
        yield _annotation(failures > 0, {"title": "dummyaudit"}, text)
    yield f"{verdict_line(report)}\n"


def _properties(layout: Layout) -> dict[str, str]:
    title = (
        f"{rule_title(layout.rule)}: {count(layout.num_reqs, 'request')}, {count(layout.num_tokens, 'token')}, "
        f"max_model_len {layout.max_model_len}, block_size {layout.block_size}"
    )
    if layout.phase:
        title = f"{' '.join(layout.phase.values())}: {title}"
    if layout.location is None:
        return {"title": title}
    return {"title": title, "file": layout.location[0], "line": str(layout.location[1])}


def _annotation(error: bool, properties: dict[str, str], message: str) -> str:
    named = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{'error' if error else 'warning'} {named}::{_data(message)}\n"


def _data(text: str) -> str:
    """Text as the runner decodes it; what it splits lines and commands at is encoded."""
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
