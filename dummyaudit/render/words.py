"""What all renderers for people have in common: the words for rules, verdicts and cures."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dummyaudit.layout import Advice, Layout, Reach, Verdict
from dummyaudit.report import Outlook, Report

STYLES = {"fits": "green", "over-length": "yellow", "overflow": "bold red"}
"""Colours of verdicts, legible on light and on dark."""

_ALIASES = {"last": "last (old)", "even": "even (new)"}

_INVISIBLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def visible(text: str) -> str:
    """Text whose control characters, which terminals obey and XML forbids, are written as escapes."""
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def rule_title(rule: str) -> str:
    """The name of a rule, with its alias."""
    return _ALIASES.get(rule, rule)


def verdict_words(verdict: Verdict, reach: Reach | None) -> str:
    """A verdict as one term, an overflow in capitals."""
    return f"OVERFLOW {reach}" if verdict == "overflow" else verdict


def count(number: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def span(first: int, last: int) -> str:
    """`first-last`, or one number."""
    return f"{first}" if first == last else f"{first}-{last}"


def slots_words(first: int, last: int) -> str:
    """`slots 8-15`, or `slot 8`."""
    return f"slot{'s' * (first != last)} {span(first, last)}"


def worst_sentence(layout: Layout) -> str:
    """What the worst request of a layout does: `request 255 has 241 tokens: 16 pages, 8 slots, reads slots 8-15`."""
    worst = layout.worst
    text = (
        f"request {worst.request} has seq_len {worst.seq_len}: {count(worst.pages, 'page')} of "
        f"{count(layout.row_slots, 'slot')}"
    )
    if worst.slots_read_outside:
        where = "past the table" if layout.reach == "past-table" else "in the next row"
        text += f", reads {slots_words(*worst.slots_read_outside)} {where}"
    return text


def cure_sentence(advice: Iterable[Advice]) -> str:
    """Alternatives joined: `split evenly (at most 2 tokens a request), or max_model_len 129 or more`."""
    return ", or ".join(cure.text for cure in advice)


def short_cures(advice: Iterable[Advice]) -> str:
    """Alternatives in few words: `split evenly, or max_model_len 129`."""
    return ", or ".join("split evenly" if cure.change == "rule" else f"{cure.change} {cure.to}" for cure in advice)


def verdict_line(report: Report) -> str:
    """The whole result in one line."""
    summary = report.summary
    text = f"{summary.overflow} of {count(summary.layouts, 'layout')} overflow{'s' if summary.overflow == 1 else ''}"
    if not summary.overflow:
        text = f"None of {count(summary.layouts, 'layout')} overflows"
    if summary.over_length:
        text += f", {summary.over_length} over length"
    if summary.infeasible:
        text += f", {summary.infeasible} infeasible"
    if summary.latent:
        text += f", {summary.latent} latent"
    if report.problems:
        text += f", {count(len(report.problems), 'problem')} besides"
    how = "By arithmetic alone, nothing built"
    if report.built:
        how = f"Built and walked on {report.built.device}"
    elif report.closed_form:
        how = "Counted by closed form, nothing built"
    partial = ""
    if report.planned is not None:
        partial = f"Partial, interrupted: the first {summary.layouts} of {report.planned} layouts. "
    return f"{partial}{text}. {how}."


def outlook_sentence(report: Report, outlook: Outlook) -> str:
    """From which max_model_len on a rule is safe: `last: overflows up to max_model_len 128; ...`."""
    needs = outlook.needs_max_model_len
    several = len(report.settings["block_size"]) > 1
    where = f" at block_size {outlook.block_size}" if several else ""
    if needs.row == 1:
        text = "never overflows here"
    else:
        text = f"overflows up to max_model_len {needs.row - 1}, safe from {needs.row}"
    return f"{outlook.rule}{where}: {text}; nothing over length from {needs.strict}."


def layout_name(layout: Layout) -> str:
    """What tells a layout from others of its rule: `num_reqs=256 num_tokens=496 max_model_len=16 ...`."""
    axes = ("num_reqs", "num_tokens", "max_model_len", "block_size", "max_num_seqs")
    values = {axis: getattr(layout, axis) for axis in axes} | (layout.phase or {})
    return " ".join(f"{name}={value}" for name, value in values.items())


def finding_sentences(layout: Layout) -> str:
    """All that is to be said of a flagged layout: what is wrong on the first line, what cures it on the second."""
    text = f"{verdict_words(layout.verdict, layout.reach)}: {worst_sentence(layout)}"
    if layout.verdict == "over-length":
        text += f", longest seq_len {layout.needs_max_model_len.strict} over max_model_len {layout.max_model_len}"
    if not layout.live:
        text += ", latent: no attention runs on it"
    if not layout.feasible:
        text += ", infeasible: no split helps"
    cures = cure_sentence(layout.advice)
    return f"{text}.\nCure: {cures}." if cures else f"{text}."
