"""Reports that the tests of the renderers share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

from dummyaudit import api
from dummyaudit.deployments import Deployment, audit_deployments, parse_releases
from dummyaudit.engine.said import Origin, Said
from dummyaudit.layout import Advice, Layout
from dummyaudit.render import Format, Style, render
from dummyaudit.report import Built, DeploymentCase, Report, Setting, Summary

WILD_NAMES = [
    "[num_reqs]",
    "[bold red]x[/]",
    ":x:",
    "a|b",
    "::error::",
    "##[error]m:f",
    "%0A%25",
    "<b>&amp;",
    "`code` ``",
    "*a* _b_ @user #1 \\",
    "quote\"'quote",
    "überprüfung:😀",
]
"""Text that some format takes for its own markup."""

BROKEN_NAMES = ["two\nlines", "return\rend", "esc\x1b[31m", "nul\0", "bell\x07\x85", "not\ufffea\uffffcharacter"]
"""Text that some format cannot hold at all."""


def text_of(report: Report, form: Format, style: Style | None = None) -> str:
    return "".join(render(report, form, style or Style()))


def small_grid(**options: object) -> Report:
    """30 layouts: feasible ones and others, each of them over length, past the table, or good."""
    axes = {"num_reqs": [4, 256], "num_tokens": [16, 280, 496], "max_model_len": [16, 4096]}
    return api.grid(**axes, rules=["last", "even", "v1"], device="none", **options)  # type: ignore[arg-type]


def incident(**options: object) -> Report:
    """The batch of PR #49751: past the table by the old rule, in the next row by `single`, good by the new one."""
    report = api.compare(
        num_reqs=256,
        num_tokens=496,
        max_model_len=16,
        rules=["last", "even", "single"],
        device="none",
        **options,  # type: ignore[arg-type]
    )
    return replace(report, built=Built("cpu", 3))


def good_grid() -> Report:
    return api.grid(num_reqs=[4], num_tokens=[16], max_model_len=[4096], device="none")


def report_of(layouts: Sequence[Layout], **changes: object) -> Report:
    """A report of these layouts, counted here."""
    verdicts = [layout.verdict for layout in layouts]
    flagged = [layout for layout in layouts if layout.verdict != "fits"]
    report = Report(
        command="vllm",
        settings={"strict": False},
        summary=Summary(
            layouts=len(layouts),
            fits=verdicts.count("fits"),
            over_length=verdicts.count("over-length"),
            overflow=verdicts.count("overflow"),
            infeasible=sum(not layout.feasible for layout in layouts),
            latent=sum(not layout.live for layout in layouts),
            live_overflow=sum(layout.live and layout.verdict == "overflow" for layout in layouts),
        ),
        layouts=layouts,
        worst=tuple(sorted(flagged, key=lambda layout: layout.badness, reverse=True)),
    )
    return replace(report, **changes)  # type: ignore[arg-type]


def engine(**changes: object) -> Report:
    """Layouts of dummy runs, every second one latent, from two lines of a file."""
    layouts = [
        replace(
            layout,
            live=i % 2 == 0,
            phase={"run": "capture", "graph": "FULL", "kind": "mixed", "runner": "v2", "release": "0.26.0"},
            location=("deploy/serve me.yaml", 3 + i % 2),
        )
        for i, layout in enumerate(small_grid().layouts)
    ]
    case = DeploymentCase(
        deployment="",
        release="0.26.0",
        runner="v2",
        settings=(Setting("max_model_len", "16", "deploy/serve me.yaml:3"),),
        capture_sizes=(16, 496),
        dropped=((512, "over max_num_batched_tokens 500"),),
        lora_split="last",
        layouts=tuple(layouts),
        cures=(Advice("cudagraph_capture_sizes", [16], "leave out 496: -cc.cudagraph_capture_sizes=[16]"),),
    )
    return report_of(layouts, cases=(case,), notes=("v1 left out: [num_reqs] of :x:",), **changes)


def releases() -> Report:
    """The settings of the incident on a release that fails and on one that does not, with a size that is dropped."""
    said = {
        "max_model_len": Said(16, Origin("config", "max-model-len", "serve.yaml", 3)),
        "max_num_seqs": Said(256, Origin("option", "--max-num-seqs")),
        "cudagraph_mode": Said("FULL", Origin("command", "-cc.cudagraph_mode")),
        "cudagraph_capture_sizes": Said((8, 256, 496, 4096), Origin("command", "-cc.cudagraph_capture_sizes")),
    }
    known = parse_releases("0.26.0..0.27.0")
    return audit_deployments([Deployment("llama", said)], known, runners=("v2",), device="none")


def renamed(report: Report, old: str, new: str) -> Report:
    """The same report with another name for a rule."""

    def layout(one: Layout) -> Layout:
        return replace(one, rule=new) if one.rule == old else one

    return replace(
        report,
        settings=report.settings | {"rules": [new if rule == old else rule for rule in report.settings["rules"]]},
        layouts=[layout(one) for one in report.layouts],
        worst=tuple(layout(one) for one in report.worst),
        cells=tuple(replace(cell, rule=layout(cell.worst).rule, worst=layout(cell.worst)) for cell in report.cells),
        outlooks=tuple(replace(one, rule=new) if one.rule == old else one for one in report.outlooks),
    )


REPORTS = {
    "grid": small_grid,
    "strict": lambda: small_grid(strict=True),
    "only flagged": lambda: small_grid(only_flagged=True),
    "compare": incident,
    "ladder": lambda: api.compare(num_reqs=256, num_tokens=496, device="none"),
    "good": good_grid,
    "engine": engine,
    "strict engine": lambda: engine(strict=True),
    "flagged engine": lambda: engine(only_flagged=True),
}


class Watched(Sequence[Layout]):
    """Layouts that count how many of them were asked for."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self.layouts = layouts
        self.made = 0

    def __len__(self) -> int:
        return len(self.layouts)

    @overload
    def __getitem__(self, index: int) -> Layout: ...
    @overload
    def __getitem__(self, index: slice) -> list[Layout]: ...
    def __getitem__(self, index: int | slice) -> Layout | list[Layout]:
        raise AssertionError("renderers go over layouts in their order")

    def __iter__(self) -> Iterator[Layout]:
        for layout in self.layouts:
            self.made += 1
            yield layout
