"""Which dummy run a call is, and which block tables attention reads in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Describe = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], "Run"]
"""From a function, its positional and its keyword arguments to the run."""


@dataclass(frozen=True, slots=True)
class Table:
    """The block table of one KV-cache group.

    Attributes:
        rows: max_num_seqs.
        slots: row_slots.
        block_size: tokens behind one slot, on one rank.
        dcp: ranks of decode context parallelism.
        interleave: consecutive tokens on one of them.
    """

    rows: int
    slots: int
    block_size: int
    dcp: int = 1
    interleave: int = 1


@dataclass(frozen=True, slots=True)
class Run:
    """A dummy run.

    Attributes:
        runner: v1 or v2.
        name: `profile`, `warm-up`, or `capture` with the mode of the graph.
        num_tokens: tokens of the batch, or None if it is not yet known.
        tables: the block tables of the groups that attention reads; empty if only an outer run knows them.
        graph: mode of the graph that is captured, or None.
    """

    runner: Literal["v1", "v2"]
    name: str
    num_tokens: int | None
    tables: tuple[Table, ...]
    graph: str | None = None

    def __str__(self) -> str:
        graph = f" {self.graph}" if self.graph else ""
        tokens = f" of {self.num_tokens} tokens" if self.num_tokens is not None else ""
        return f"{self.name}{graph}{tokens}"


def _bind(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    return {**arguments, **arguments.get("kwargs", {})}


def describe_v1(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
    """GPUModelRunner._dummy_run in vllm/v1/worker/gpu_model_runner.py."""
    given = _bind(function, args, kwargs)
    mode = getattr(given.get("cudagraph_runtime_mode"), "name", None)
    graph = mode if mode not in (None, "NONE") else None
    name = "profile" if given.get("is_profile") else "capture" if graph else "warm-up"
    return Run("v1", name, int(given["num_tokens"]), tuple(_v1_tables(given["self"])), graph)


def describe_v2(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
    """GPUModelRunner._dummy_run in vllm/v1/worker/gpu/model_runner.py."""
    given = _bind(function, args, kwargs)
    name = "profile" if given.get("is_profile") else "warm-up"
    return Run("v2", name, int(given["num_tokens"]), tuple(_v2_tables_of(given["self"])))


def describe_capture_model(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
    """GPUModelRunner.capture_model there: whatever is built in it, also for a draft model."""
    return Run("v2", "capture", None, tuple(_v2_tables_of(args[0])))


def describe_capture(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
    """prepare_inputs_to_capture in vllm/v1/worker/gpu/cudagraph_utils.py."""
    given = _bind(function, args, kwargs)
    graph = None  # Before 0.21 nothing says it, and both kinds are warmed up with attention.
    if "full_cudagraph" in given:
        graph = "FULL" if given["full_cudagraph"] else "PIECEWISE"
    elif "skip_attn" in given:
        # From 0.21 to 0.26, PIECEWISE graphs get no metadata.
        graph = "PIECEWISE" if given["skip_attn"] else "FULL"
    tables = tuple(_v2_tables(given["block_tables"], given["kv_cache_config"]))
    return Run("v2", "capture", int(given["num_tokens"]), tables, graph)


def _v1_tables(runner: Any) -> Iterator[Table]:
    """Those of vllm/v1/worker/block_table.py; before profiling has measured the memory there may be none."""
    config = getattr(runner, "kv_cache_config", None)
    if config is None:
        return
    # Encoder-only layers have a group here, and no block table.
    groups = [group for group in config.kv_cache_groups if "EncoderOnlyAttentionSpec" not in _kinds(group)]
    for group, table in zip(groups, runner.input_batch.block_table.block_tables, strict=True):
        if _is_paged(group):
            yield Table(
                int(table.max_num_reqs),
                int(table.max_num_blocks_per_req),
                int(table.block_size),
                _ranks(group, getattr(table, "dcp_world_size", 1)),
                int(getattr(table, "cp_kv_cache_interleave_size", 1)),
            )


def _v2_tables_of(runner: Any) -> Iterator[Table]:
    tables, config = getattr(runner, "block_tables", None), getattr(runner, "kv_cache_config", None)
    if tables is not None and config is not None:
        yield from _v2_tables(tables, config)


def _v2_tables(tables: Any, config: Any) -> Iterator[Table]:
    """Those of vllm/v1/worker/gpu/block_table.py."""
    # Where the kernel's page is smaller, the slots of 0.22 and others hold those.
    block_sizes = getattr(tables, "kernel_block_sizes", tables.block_sizes)
    for group, table, block_size in zip(config.kv_cache_groups, tables.input_block_tables, block_sizes, strict=True):
        if _is_paged(group):
            rows, slots = table.shape
            ranks = _ranks(group, getattr(tables, "cp_size", 1))
            yield Table(int(rows), int(slots), int(block_size), ranks, int(getattr(tables, "cp_interleave", 1)))


def _ranks(group: Any, dcp: int) -> int:
    """The ranks that share the tokens of a request: a draft model's pages need not be shared."""
    return int(dcp) if getattr(group.kv_cache_spec, "dcp_sharded", True) else 1


def _is_paged(group: Any) -> bool:
    """Whether a request reads one page for each block_size tokens of its seq_len.

    Not so: the state of a Mamba layer and a ring of tokens, one page however long the request is, and
    cross-attention, which puts the length of the encoder's input in the place of seq_len.
    """
    kinds = _kinds(group)
    return "AttentionSpec" in kinds and not kinds & {"CircularBufferSpec", "CrossAttentionSpec"}


def _kinds(group: Any) -> set[str]:
    """The names of the classes in vllm/v1/kv_cache_interface.py that a group is of."""
    spec = group.kv_cache_spec
    # UniformTypeKVCacheSpecs has one a layer, all of a kind.
    spec = next(iter(getattr(spec, "kv_cache_specs", {}).values()), spec)
    return {kind.__name__ for kind in type(spec).__mro__}
