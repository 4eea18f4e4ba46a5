"""Deployments as tables: settings, groups of dummy runs with their worst, what is flagged, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.table import Table
from rich.text import Text

from dummyaudit.axes import in_steps
from dummyaudit.layout import Layout
from dummyaudit.render import Style
from dummyaudit.render.terminal import new_table, to_text
from dummyaudit.render.words import STYLES, count, short_cures, verdict_line, verdict_words
from dummyaudit.report import DeploymentCase, Report

_ROOM = 100
_ROOM_FOR_CURES = 130
"""Columns from which on flagged layouts are shown with all their columns, and with their own cures."""


def render(report: Report, style: Style) -> Iterator[str]:
    """The tables of deployments; of several cases first which of them are safe, then those that are not in few lines.

    The runners of one release have the same settings and are shown in full.
    """
    if len(report.cases) > 1:
        yield to_text([_overview(report), Text()], style)
    in_full = len({(case.deployment, case.release) for case in report.cases}) == 1
    for case in report.cases:
        if in_full:
            yield to_text([*_case(case, case is report.cases[0]), Text()], style)
        elif any(map(report.is_failure, case.layouts)):
            yield to_text([_title(case), *_dropped(case), *_cures(case), Text()], style)
    if report.worst:
        yield to_text([*_flagged(report, style), Text()], style)
    colour = STYLES["overflow" if report.failures else "over-length" if report.worst else "fits"]
    yield to_text([Text(verdict_line(report), style=colour)], style)


def _overview(report: Report) -> Table:
    """Releases by runner: which are safe."""
    named = len(report.settings["deployments"]) > 1
    runners: list[str] = report.settings["runners"]
    table = new_table(*[("deployment", False)] * named, ("vLLM", False), *((runner, False) for runner in runners))
    for (deployment, release), same in groupby(report.cases, key=lambda case: (case.deployment, case.release)):
        by_runner = {case.runner: case for case in same}
        cells = [_safe(report, by_runner[runner]) if runner in by_runner else Text("-") for runner in runners]
        table.add_row(*[Text(deployment)] * named, Text(release), *cells)
    return table


def _safe(report: Report, case: DeploymentCase) -> Text:
    bad = [layout for layout in case.layouts if report.is_failure(layout)]
    if not bad:
        return Text("safe", style=STYLES["fits"])
    sizes = sorted({layout.num_tokens for layout in bad})
    return Text(f"{len(bad)} of {len(case.layouts)} fail, from {sizes[0]} tokens", style=STYLES["overflow"])


def _title(case: DeploymentCase) -> Text:
    name = f"{case.deployment}: " if case.deployment else ""
    return Text(f"{name}vLLM {case.release}, runner {case.runner}", style="bold")


def _dropped(case: DeploymentCase) -> Iterator[Text]:
    for size, reason in case.dropped:
        yield Text(f"capture size {size} is not used: {reason}", style=STYLES["over-length"])


def _cures(case: DeploymentCase) -> Iterator[Text]:
    for cure in case.cures:
        # In one line however long, since it is there to be pasted.
        yield Text(f"Cure: {cure.text}", no_wrap=True, overflow="ignore")


def _case(case: DeploymentCase, with_settings: bool) -> Iterator[Table | Text]:
    yield _title(case)
    yield Text()
    if with_settings:
        settings = new_table(("setting", False), ("value", False), ("from", False))
        for setting in case.settings:
            settings.add_row(Text(setting.name), Text(setting.value), Text(setting.origin))
        yield settings
        yield Text()
    yield Text(f"{count(len(case.capture_sizes), 'capture size')}: {in_steps(case.capture_sizes)}")
    yield from _dropped(case)
    if case.lora_split:
        split = next(layout.rule for layout in case.layouts)
        same = "as the batch" if split == case.lora_split else f"but the batch by {split}: two splits of one batch"
        yield Text(f"the hook for LoRA splits by {case.lora_split}, {same}")
    yield Text()
    yield _groups(case)
    if case.cures:
        yield Text()
    yield from _cures(case)


def _groups(case: DeploymentCase) -> Table:
    """A line for each group of dummy runs, with the worst of them."""
    table = new_table(
        ("run", False),
        ("graph", False),
        ("kind", False),
        ("attention", False),
        ("batches", True),
        ("overflow", True),
        ("worst", False),
    )
    for key, same in groupby(case.layouts, key=lambda layout: (layout.phase or {}, layout.live)):
        phase, live = key
        layouts = list(same)
        worst = max(layouts, key=lambda layout: (layout.badness, layout.worst.seq_len))
        overflow = sum(layout.verdict == "overflow" for layout in layouts)
        text = Text(
            f"{count(worst.num_tokens, 'token')} in {worst.num_reqs}: request {worst.worst.request}, "
            f"{worst.worst.seq_len}, {worst.worst.pages}/{worst.row_slots} "
        )
        if worst.verdict != "fits":
            text.append(verdict_words(worst.verdict, worst.reach), style=STYLES[worst.verdict])
        table.add_row(
            *(Text(phase.get(name, "")) for name in ("run", "graph", "kind")),
            Text("live" if live else "latent"),
            Text(str(len(layouts))),
            Text(str(overflow or "-"), style=STYLES["overflow"] if overflow and live else ""),
            text,
        )
    return table


def _flagged(report: Report, style: Style) -> Iterator[Table | Text]:
    several, named = len(report.cases) > 1, len(report.settings["deployments"]) > 1
    wide, cures = style.width >= _ROOM, style.width >= _ROOM_FOR_CURES + 30 * named
    columns = [
        ("deployment", False, named),
        ("vLLM", False, several),
        ("runner", False, several),
        ("graph", False, True),
        ("kind", False, wide),
        ("rule", False, wide),
        ("num_reqs", True, True),
        ("num_tokens", True, True),
        ("request", True, wide),
        ("seq_len", True, True),
        ("pages", True, True),
        ("verdict", False, True),
        ("cure", False, cures),
    ]
    table = new_table(*((title, right) for title, right, shown in columns if shown))
    for layout in report.worst:
        phase = layout.phase or {}
        row: list[str | Text] = [
            phase.get("deployment", ""),
            phase["release"],
            phase["runner"],
            phase["graph"] if phase["run"] == "capture" else phase["run"],
            phase["kind"],
            layout.rule,
            str(layout.num_reqs),
            str(layout.num_tokens),
            str(layout.worst.request),
            str(layout.worst.seq_len),
            f"{layout.worst.pages}/{layout.row_slots}",
            _flag(layout),
            short_cures(layout.advice),
        ]
        shown = (value for value, column in zip(row, columns, strict=True) if column[2])
        table.add_row(*(value if isinstance(value, Text) else Text(value) for value in shown))
    yield table
    hidden = report.summary.overflow + report.summary.over_length - len(report.worst)
    if hidden:
        yield Text(f"and {hidden} more (--all shows them)")


def _flag(layout: Layout) -> Text:
    live, feasible = "" if layout.live else " latent", "" if layout.feasible else " infeasible"
    return Text(
        f"{layout.reach or layout.verdict}{live}{feasible}", style=STYLES[layout.verdict] if layout.live else ""
    )
