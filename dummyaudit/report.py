"""Report: what every command returns and every renderer reads. Plain values only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dummyaudit import __version__
from dummyaudit.layout import Advice, Layout, Needs

SCHEMA = "dummyaudit.report/1"


@dataclass(frozen=True, slots=True)
class Cell:
    """One rule over the shapes of one num_reqs (or a span of them) under one max_model_len and block_size.

    Attributes:
        rule: name of the rule.
        num_reqs: first and last value.
        max_model_len: tokens.
        block_size: tokens.
        shapes: number of shapes.
        overflow: those that overflow.
        over_length: those that only are over length.
        worst: the layout of the worst verdict and, among those, of the longest request; of equal ones the last.
    """

    rule: str
    num_reqs: tuple[int, int]
    max_model_len: int
    block_size: int
    shapes: int
    overflow: int
    over_length: int
    worst: Layout

    def to_dict(self) -> dict[str, Any]:
        """The cell as JSON holds it."""
        return {
            "rule": self.rule,
            "num_reqs": list(self.num_reqs),
            "max_model_len": self.max_model_len,
            "block_size": self.block_size,
            "shapes": self.shapes,
            "overflow": self.overflow,
            "over_length": self.over_length,
            "worst": self.worst.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Outlook:
    """From which max_model_len on a rule is safe for all shapes of the report.

    Attributes:
        rule: name of the rule.
        block_size: tokens.
        needs_max_model_len: the largest needs of all its layouts.
    """

    rule: str
    block_size: int
    needs_max_model_len: Needs


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a deployment as a release resolves it, and where it comes from."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class DeploymentCase:
    """What one runner of one release makes of a deployment's settings.

    Attributes:
        deployment: name of the deployment, empty if there is but one.
        release: the release.
        runner: v1, the first, or v2, the second.
        settings: as resolved.
        capture_sizes: in tokens, ascending.
        dropped: the user's capture sizes that are not used, each with the reason.
        lora_split: the split that the runner's hook for LoRA makes on its own, or None.
        layouts: of every dummy run.
        cures: changes to the settings, each of which alone leaves nothing that fails.
    """

    deployment: str
    release: str
    runner: str
    settings: tuple[Setting, ...]
    capture_sizes: tuple[int, ...]
    dropped: tuple[tuple[int, str], ...]
    lora_split: str | None
    layouts: tuple[Layout, ...]
    cures: tuple[Advice, ...]

    def to_dict(self) -> dict[str, Any]:
        """The case as JSON holds it, but for its layouts."""
        return {
            "deployment": self.deployment,
            "release": self.release,
            "runner": self.runner,
            "settings": [{"name": s.name, "value": s.value, "origin": s.origin} for s in self.settings],
            "capture_sizes": list(self.capture_sizes),
            "dropped": [{"size": size, "reason": reason} for size, reason in self.dropped],
            "lora_split": self.lora_split,
            "cures": [{"change": a.change, "to": a.to, "text": a.text} for a in self.cures],
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of layouts. `fits`, `over_length` and `overflow` add up to `layouts`.

    Attributes:
        layouts: all of them.
        fits: those without a fault.
        over_length: those whose worst verdict is over-length.
        overflow: those that overflow.
        infeasible: those that no split can help.
        latent: those on which no attention runs.
        live_overflow: those that overflow and are read.
    """

    layouts: int
    fits: int
    over_length: int
    overflow: int
    infeasible: int
    latent: int
    live_overflow: int

    @property
    def ok(self) -> bool:
        """Whether no live layout overflows."""
        return not self.live_overflow

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON holds it."""
        return {
            "ok": self.ok,
            "layouts": self.layouts,
            "fits": self.fits,
            "over_length": self.over_length,
            "overflow": self.overflow,
            "infeasible": self.infeasible,
            "latent": self.latent,
        }


@dataclass(frozen=True, slots=True)
class Built:
    """How many layouts were built and walked, on which device, all in agreement with the arithmetic."""

    device: str
    layouts: int


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an audit.

    Attributes:
        command: `grid`, `compare`, ...
        settings: what was asked for, resolved.
        summary: counts.
        layouts: every layout; of a large grid each is made when it is asked for.
        worst: flagged layouts, the worst first, as many as were asked for.
        cells: of a grid, the layouts by rule, num_reqs, max_model_len and block_size. With `summary_only` of all
            num_reqs together, and `layouts` is the worst of each cell.
        outlooks: for each rule and block_size, from which max_model_len on it is safe.
        cases: of `vllm`, the layouts by deployment, release and runner.
        notes: what a reader has to know that is no verdict.
        problems: what is wrong that is no verdict either, such as a check that a builder fails, or a wrong page id;
            each makes the gate fail.
        built: what was built, or None if the verdicts are arithmetic alone.
        closed_form: whether the counts are sums by closed form, for which no shape was looked at on its own.
        planned: layouts that were to be audited, if the audit was stopped before its end; else None.
        strict: whether over-length and latent layouts count as failures.
        only_flagged: whether renderers that list layouts keep to the flagged ones.
        summary_only: whether only counts and the worst layout of each cell were asked for.
    """

    command: str
    settings: dict[str, Any]
    summary: Summary
    layouts: Sequence[Layout]
    worst: tuple[Layout, ...] = ()
    cells: tuple[Cell, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    cases: tuple[DeploymentCase, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    built: Built | None = None
    closed_form: bool = False
    planned: int | None = None
    strict: bool = False
    only_flagged: bool = False
    summary_only: bool = False

    @property
    def ok(self) -> bool:
        """Whether no live layout overflows."""
        return self.summary.ok

    @property
    def failures(self) -> int:
        """Layouts that make the gate fail: live overflows and, if strict, all that are flagged."""
        summary = self.summary
        return summary.over_length + summary.overflow if self.strict else summary.live_overflow

    @property
    def fails(self) -> bool:
        """Whether the gate fails, for layouts or for other problems."""
        return bool(self.failures or self.problems)

    def is_failure(self, layout: Layout) -> bool:
        """Whether this layout makes the gate fail."""
        return layout.fails(self.strict)

    def listed(self) -> Iterator[Layout]:
        """The layouts that a renderer lists: all, or the flagged ones."""
        return (layout for layout in self.layouts if not self.only_flagged or layout.verdict != "fits")

    def head(self) -> dict[str, Any]:
        """The report as JSON holds it, without `layouts`."""
        return {
            "schema": SCHEMA,
            "tool": {"name": "dummyaudit", "version": __version__},
            "command": self.command,
            "settings": self.settings,
            "built": None if self.built is None else {"device": self.built.device, "layouts": self.built.layouts},
            "closed_form": self.closed_form,
            "planned": self.planned,
            "summary": self.summary.to_dict(),
            "outlooks": [
                {
                    "rule": outlook.rule,
                    "block_size": outlook.block_size,
                    "needs_max_model_len": {
                        "row": outlook.needs_max_model_len.row,
                        "strict": outlook.needs_max_model_len.strict,
                    },
                }
                for outlook in self.outlooks
            ],
            "advice": [
                {
                    "rule": layout.rule,
                    "num_reqs": layout.num_reqs,
                    "num_tokens": layout.num_tokens,
                    "max_model_len": layout.max_model_len,
                    "block_size": layout.block_size,
                    "cures": [{"change": a.change, "to": a.to, "text": a.text} for a in layout.advice],
                }
                for layout in self.worst
            ],
            "cases": [case.to_dict() for case in self.cases],
            "notes": list(self.notes),
            "problems": list(self.problems),
            **({"cells": [cell.to_dict() for cell in self.cells]} if self.summary_only else {}),
        }

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON holds it: dict, list, str, int, bool and None only."""
        return {**self.head(), "layouts": [layout.to_dict() for layout in self.listed()]}

    def to_json(self) -> str:
        """The report as a JSON document."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)
