"""Every dummy batch that a release builds for a deployment while it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dummyaudit.engine.graphs import Graph, Runner
from dummyaudit.engine.resolve import Resolved

Run = Literal["capture", "warm-up", "profile"]

WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DummyRun:
    """One dummy batch, and what it is for.

    Attributes:
        run: whether a graph is captured, kernels are warmed up, or memory is profiled.
        graph: the mode of the graph, or NONE.
        kind: whether the batch is mixed or uniform decode.
        runner: the model runner that builds it.
        num_reqs: its requests.
        num_tokens: their tokens together.
        rule: name of the rule that lays it out.
        live: whether attention runs on it.
    """

    run: Run
    graph: str
    kind: str
    runner: Runner
    num_reqs: int
    num_tokens: int
    rule: str
    live: bool


def list_runs(resolved: Resolved, runner: Runner, flashinfer_warm_up: bool = True) -> list[DummyRun]:
    """The dummy runs of one runner: profiling, warm-up, then graphs.

    Raises:
        InputError: the release has no such runner that is modelled, or refuses the capture sizes.
    """
    graphs = resolved.release.graphs(
        runner=runner,
        capture_sizes=resolved.sizes_of(runner),
        cudagraph_mode=resolved.cudagraph_mode,
        max_num_seqs=resolved.number("max_num_seqs"),
        decode_query_len=resolved.decode_query_len,
    )
    runs = [_profile(resolved, runner)]
    if runner == "v1" and flashinfer_warm_up:
        runs.append(_warm_up(resolved))
    return [*runs, *(_capture(resolved, runner, graph) for graph in graphs)]


def _context(resolved: Resolved) -> int:
    """Tokens of context that the first runner gives each request under decode context parallelism."""
    table = resolved.block_table
    return table.dcp * table.interleave if table.dcp > 1 and resolved.release.has_dcp_context else 0


def _profile(resolved: Resolved, runner: Runner) -> DummyRun:
    """Memory profiling: as many tokens as one step may have, attention off.

    Source: GPUModelRunner.profile_run of both runners.
    """
    tokens, seqs = resolved.number("max_num_batched_tokens"), resolved.number("max_num_seqs")
    return DummyRun(
        run="profile",
        graph="NONE",
        kind="mixed",
        runner=runner,
        num_reqs=min(tokens, seqs),
        num_tokens=tokens,
        rule="last" if runner == "v1" else resolved.release.v2_split or "last",
        live=False,
    )


def _warm_up(resolved: Resolved) -> DummyRun:
    """The mixed batch that warms FlashInfer up, decodes and one prefill.

    Source: vllm/model_executor/warmup/kernel_warmup.py, from 0.32 attention_warmup.py.
    """
    tokens = WARM_UP_TOKENS
    if resolved.release.clips_warm_up:
        tokens = min(tokens, resolved.number("max_num_batched_tokens"), resolved.number("max_model_len"))
    context = _context(resolved)
    return DummyRun(
        run="warm-up",
        graph="NONE",
        kind="mixed",
        runner="v1",
        num_reqs=min(tokens, resolved.number("max_num_seqs")),
        num_tokens=tokens,
        rule=f"mixed+context:{context}" if context else "v1-mixed",
        live=True,
    )


def _capture(resolved: Resolved, runner: Runner, graph: Graph) -> DummyRun:
    context = _context(resolved) if runner == "v1" and graph.kind == "uniform-decode" else 0
    return DummyRun(
        run="capture",
        graph=graph.mode,
        kind=graph.kind,
        runner=runner,
        num_reqs=graph.num_reqs,
        num_tokens=graph.num_tokens,
        rule=f"{graph.rule}+context:{context}" if context else graph.rule,
        live=graph.live,
    )
