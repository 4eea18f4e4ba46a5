"""A case: settings, a release and a runner; every dummy batch that they make, each with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from dummyaudit.axes import pairs
from dummyaudit.engine.dummy_runs import DummyRun, list_runs
from dummyaudit.engine.graphs import Runner
from dummyaudit.engine.releases import Release
from dummyaudit.engine.resolve import Gpu, Resolved, resolve
from dummyaudit.engine.said import Origin, Said, Settings, Value
from dummyaudit.layout import Layout
from dummyaudit.rules import find_rule
from dummyaudit.sweep import Sweep
from dummyaudit.tally import Check, tally

# The settings that a faulty shape can be laid at, the nearest first.
_AT_FAULT = ("cudagraph_capture_sizes", "cuda_graph_sizes", "max_cudagraph_capture_size", "cudagraph_mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is audited at once.

    Attributes:
        name: of the deployment, empty if there is but one.
        said: the settings, as they were said.
        release: the release.
        runner: the runner.
        gpu: whose defaults are used.
        flashinfer_warm_up: whether the first runner warms FlashInfer up.
        strict: whether over-length and latent layouts count as failures.
    """

    name: str = ""
    said: Settings
    release: Release
    runner: Runner
    gpu: Gpu = "small"
    flashinfer_warm_up: bool = True
    strict: bool = False

    def resolved(self) -> Resolved:
        """The settings as the release resolves them.

        Raises:
            InputError: the release refuses them.
        """
        return resolve(self.release, self.said, self.gpu)

    def layouts(self, check: Check | None = None) -> list[Layout]:
        """The layouts of every dummy run, in the order of the runs.

        Args:
            check: holds built batches against the arithmetic.

        Raises:
            InputError: the release refuses the settings, or has no such runner that is modelled.
        """
        resolved = self.resolved()
        runs = list_runs(resolved, self.runner, self.flashinfer_warm_up)
        table, location = resolved.block_table, _location(resolved.said)
        layouts: dict[int, Layout] = {}
        for name, group in groupby(sorted(range(len(runs)), key=lambda i: runs[i].rule), lambda i: runs[i].rule):
            places, rule = list(group), find_rule(name)
            shapes = [(runs[i].num_reqs, runs[i].num_tokens) for i in places]
            sweep = Sweep(pairs(shapes), (table,), (rule,), table.max_num_seqs, self.strict)
            if check:
                tally(sweep, 1, check)
            num_reqs, num_tokens = np.array(shapes, dtype=np.int64).T
            layouts.update(zip(places, sweep.layouts(rule, table, num_reqs, num_tokens), strict=True))
        return [
            replace(layouts[i], live=run.live, phase=self._phase(run), location=location)
            for i, run in enumerate(runs)
        ]

    def failing(self) -> list[Layout]:
        """The layouts that make the gate fail; errors as `layouts`."""
        return [layout for layout in self.layouts() if layout.fails(self.strict)]

    def but(self, changes: dict[str, Value], without: Sequence[str] = ()) -> Case:
        """The same case with other settings, and without some."""
        origin = Origin("option", "advice")
        kept = {name: said for name, said in self.said.items() if name not in without}
        return replace(self, said={**kept, **{name: Said(value, origin) for name, value in changes.items()}})

    def _phase(self, run: DummyRun) -> dict[str, str]:
        phase = {
            "run": run.run,
            "graph": run.graph,
            "kind": run.kind,
            "runner": self.runner,
            "release": self.release.version,
        }
        return {**phase, "deployment": self.name} if self.name else phase


def _location(said: Settings) -> tuple[str, int] | None:
    """File and line of the setting at fault, if it, or else max_model_len or any other, comes from a file."""
    for name in (*_AT_FAULT, "max_model_len", *said):
        origin = said[name].origin if name in said else None
        if origin and origin.file is not None and origin.line is not None:
            return origin.file, origin.line
    return None
