"""The graphs that vLLM's two model runners capture, and the dummy batch behind each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from dummyaudit.block_table import cdiv, positive
from dummyaudit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dummyaudit.engine.releases import Release

Runner = Literal["v1", "v2"]
"""The first runner, vllm/v1/worker/gpu_model_runner.py, or the second, vllm/v1/worker/gpu/."""

CudagraphMode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
GraphMode = Literal["FULL", "PIECEWISE"]
Kind = Literal["mixed", "uniform-decode"]

# By cudagraph_mode: whether uniform decode has FULL graphs of its own, and the graphs of all other batches.
# Source: vllm/config/compilation.py, CUDAGraphMode.
_MODES: dict[str, tuple[bool, GraphMode | None]] = {
    "NONE": (False, None),
    "PIECEWISE": (False, "PIECEWISE"),
    "FULL": (False, "FULL"),
    "FULL_DECODE_ONLY": (True, None),
    "FULL_AND_PIECEWISE": (True, "PIECEWISE"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One graph, and the dummy batch that it is captured with.

    Attributes:
        mode: FULL, or PIECEWISE, which leaves attention out of the graph.
        kind: whether it is for any batch or for uniform decode.
        num_tokens: tokens of the dummy batch together.
        num_reqs: requests of the dummy batch, also where the graph itself fixes no number of them.
        uniform_query_len: tokens of each request that the graph is for, or None for any.
        rule: name of the rule that lays the dummy batch out.
        live: whether attention runs on the dummy batch.
    """

    mode: GraphMode
    kind: Kind
    num_tokens: int
    num_reqs: int
    uniform_query_len: int | None
    rule: str
    live: bool


def list_graphs(
    release: Release,
    *,
    runner: Runner,
    capture_sizes: Iterable[int],
    cudagraph_mode: CudagraphMode,
    max_num_seqs: int,
    decode_query_len: int,
) -> list[Graph]:
    """The graphs, as `Release.graphs` describes them.

    The sizes are taken as they are. For a decode_query_len above 1 an engine may round them to its multiples first:
    the first runner does in modes with FULL decode, and from 0.21 to 0.24 so does the second.

    Source: vllm/v1/worker/gpu/cudagraph_utils.py, CudaGraphManager; vllm/v1/cudagraph_dispatcher.py and
    vllm/v1/worker/gpu_model_runner.py, GPUModelRunner._dummy_run.
    """
    sizes = sorted({positive("a capture size", size) for size in capture_sizes}, reverse=True)
    max_num_seqs = positive("max_num_seqs", max_num_seqs)
    decode_query_len = positive("decode_query_len", decode_query_len)
    if cudagraph_mode not in _MODES:
        raise InputError(f"unknown cudagraph_mode {cudagraph_mode!r}", f"known are {', '.join(_MODES)}")
    has_decode, mixed_mode = _MODES[cudagraph_mode]
    mixed_rule = _mixed_rule(release, runner)

    graphs: list[Graph] = []
    if has_decode:
        rule = f"uniform:{decode_query_len}" if runner == "v1" else mixed_rule
        graphs += [
            Graph(
                mode="FULL",
                kind="uniform-decode",
                num_tokens=num_tokens,
                num_reqs=num_reqs,
                uniform_query_len=decode_query_len,
                rule=rule,
                live=True,
            )
            for num_tokens, num_reqs in _decode_shapes(release, runner, sizes, max_num_seqs, decode_query_len)
        ]
    if mixed_mode is not None:
        live = mixed_mode == "FULL" or (runner == "v2" and release.v2_piecewise_live)
        graphs += [
            Graph(
                mode=mixed_mode,
                kind="mixed",
                num_tokens=size,
                num_reqs=min(size, max_num_seqs),
                uniform_query_len=None,
                rule=mixed_rule,
                live=live,
            )
            for size in sizes
        ]
    return graphs


def _mixed_rule(release: Release, runner: Runner) -> str:
    if runner not in get_args(Runner):
        raise InputError(f"unknown runner {runner!r}", f"known are {', '.join(get_args(Runner))}")
    if runner == "v1":
        return "v1"
    if release.v2_split is None:
        raise InputError(
            f"the second runner of vLLM {release.version} is not modelled (experimental)",
            "use runner v1, or 0.17 or newer",
        )
    return release.v2_split


def _decode_shapes(
    release: Release, runner: Runner, sizes: list[int], max_num_seqs: int, decode_query_len: int
) -> list[tuple[int, int]]:
    """num_tokens and num_reqs of each uniform decode graph, for descending sizes."""
    most_tokens = max_num_seqs * decode_query_len
    if runner == "v2" and release.v2_rounds_decode:
        most_tokens = min(most_tokens, max(sizes, default=0))
        counts = dict.fromkeys(cdiv(size, decode_query_len) for size in sizes)
        return [(n * decode_query_len, n) for n in counts if n * decode_query_len <= most_tokens]
    fitting = [size for size in sizes if decode_query_len <= size <= most_tokens]
    if runner == "v2":
        # The division loses a remainder, which the split then hands to the last request.
        return [(size, size // decode_query_len) for size in fitting]
    return [(size, cdiv(size, decode_query_len)) for size in fitting]
