"""From what an operator said to what a release makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from dummyaudit.block_table import BlockTable, cdiv
from dummyaudit.engine.graphs import CudagraphMode, Runner
from dummyaudit.engine.releases import Release
from dummyaudit.engine.said import Origin, Said, Settings
from dummyaudit.errors import InputError

Gpu = Literal["small", "80gb", "160gb", "blackwell"]

# Defaults of the API server, max_num_seqs and max_num_batched_tokens: on GPUs of less than 70 GiB and the A100, and
# on those of 70 GiB or more. Source: vllm/engine/arg_utils.py, EngineArgs.get_batch_defaults.
_SMALL = (256, 2048)
_LARGE = (1024, 8192)

# By optimization level. Source: vllm/config/vllm.py, OPTIMIZATION_LEVEL_00 and the others.
_MODE_OF_LEVEL: dict[int, CudagraphMode] = {
    0: "NONE",
    1: "PIECEWISE",
    2: "FULL_AND_PIECEWISE",
    3: "FULL_AND_PIECEWISE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The settings of a deployment as one release resolves them, for all its runners.

    Attributes:
        release: the release.
        said: every setting that matters, with where it comes from.
        blackwell: whether the GPU has compute capability 10.x.
        given_sizes: the user's own capture sizes, or None.
        sizes: the capture sizes that are left, before a runner rounds them.
    """

    release: Release
    said: Settings
    blackwell: bool
    given_sizes: tuple[int, ...] | None
    sizes: tuple[int, ...]

    def number(self, name: str) -> int:
        """The value of a setting that is a number."""
        return cast("int", self.said[name].value)

    @property
    def cudagraph_mode(self) -> CudagraphMode:
        """Which graphs are captured."""
        return cast("CudagraphMode", self.said["cudagraph_mode"].value)

    @property
    def decode_query_len(self) -> int:
        """Tokens of one request in uniform decode."""
        return 1 + self.number("num_speculative_tokens")

    @property
    def block_table(self) -> BlockTable:
        """The block table."""
        kernel = self.said.get("kernel_block_size")
        return self.release.block_table(
            max_model_len=self.number("max_model_len"),
            block_size=self.number("block_size"),
            max_num_seqs=self.number("max_num_seqs"),
            dcp=self.number("decode_context_parallel_size"),
            interleave=self.number("dcp_kv_cache_interleave_size"),
            kernel_block_size=None if kernel is None else cast("int", kernel.value),
        )

    def sizes_of(self, runner: Runner) -> tuple[int, ...]:
        """The capture sizes of a runner: those that round uniform decode up beforehand do it to every size.

        Raises:
            InputError: none is left, which the release refuses.

        Source: vllm/config/compilation.py, CompilationConfig.adjust_cudagraph_sizes_for_spec_decode.
        """
        query_len = self.decode_query_len
        rounds = (
            self.cudagraph_mode in ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
            if runner == "v1"
            else self.release.v2_rounds_sizes
        )
        if query_len == 1 or not rounds or not self.sizes or self.cudagraph_mode == "NONE":
            return self.sizes
        largest = self.sizes[-1]
        rounded = {cdiv(size, query_len) * query_len for size in self.sizes}
        fitting = sorted(size for size in rounded if size <= largest) or [query_len] * (query_len <= largest)
        if not fitting:
            raise InputError(
                f"no capture size is left: none up to {largest} is a multiple of {query_len} tokens, "
                "1 + num_speculative_tokens",
                "give larger cudagraph_capture_sizes",
            )
        return tuple(fitting)


def resolve(release: Release, said: Settings, gpu: Gpu = "small") -> Resolved:
    """Resolves settings as a release does.

    Args:
        release: the release.
        said: what was said; max_model_len must be there, as a number.
        gpu: whose defaults are used for max_num_seqs and max_num_batched_tokens.

    Raises:
        InputError: max_model_len is missing, or the release refuses the settings.
    """
    out = dict(said)
    length = out.get("max_model_len")
    if length is None or isinstance(length.value, str):
        raise InputError("max_model_len is not known", "give --max-model-len, or --model with a local directory")
    _default(out, "block_size", 16, "vLLM's default")
    _default(out, "num_speculative_tokens", 0, "vLLM's default")
    _default(out, "decode_context_parallel_size", 1, "vLLM's default")
    _default(out, "dcp_kv_cache_interleave_size", 1, "vLLM's default")
    _default(out, "enable_lora", False, "vLLM's default")
    _settle_batch(release, out, gpu)
    _settle_mode(out)
    given = _given_sizes(out)
    max_size = out.get("max_cudagraph_capture_size")
    sizes: list[int] = []
    if out["cudagraph_mode"].value != "NONE":
        sizes = release.capture_sizes(
            max_num_seqs=cast("int", out["max_num_seqs"].value),
            max_num_batched_tokens=cast("int", out["max_num_batched_tokens"].value),
            decode_query_len=1 + cast("int", out["num_speculative_tokens"].value),
            sizes=given,
            max_size=None if max_size is None else cast("int", max_size.value),
            blackwell=gpu == "blackwell",
        )
    return Resolved(
        release=release,
        said=out,
        blackwell=gpu == "blackwell",
        given_sizes=given,
        sizes=tuple(sizes),
    )


def _default(out: Settings, name: str, value: int | bool | str, whose: str) -> None:
    out.setdefault(name, Said(value, Origin("default", whose)))


def _settle_batch(release: Release, out: Settings, gpu: Gpu) -> None:
    """max_num_seqs and max_num_batched_tokens; where one is not given, it gives way to the other."""
    seqs, tokens = _SMALL if gpu == "small" else _LARGE
    if gpu in ("160gb", "blackwell"):
        tokens = release.max_num_batched_tokens_160gb
    given_seqs, given_tokens = (name in out for name in ("max_num_seqs", "max_num_batched_tokens"))
    whose = f"default for GPU {gpu}"
    _default(out, "max_num_seqs", seqs, whose)
    _default(out, "max_num_batched_tokens", tokens, whose)
    seqs, tokens, length = (
        cast("int", out[name].value) for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
    )
    if not given_tokens and seqs * length < tokens:
        tokens = seqs * length
        out["max_num_batched_tokens"] = Said(tokens, Origin("default", "max_num_seqs * max_model_len"))
    if not given_seqs and tokens < seqs:
        seqs = tokens
        out["max_num_seqs"] = Said(seqs, Origin("default", "max_num_batched_tokens"))
    if tokens < seqs:
        raise InputError(
            f"max_num_batched_tokens {tokens} is less than max_num_seqs {seqs}, which vLLM refuses",
            f"use max_num_batched_tokens {seqs} or more",
        )


def _settle_mode(out: Settings) -> None:
    """cudagraph_mode: none if eager, else as given, else by the optimization level."""
    eager, level = out.get("enforce_eager"), out.get("optimization_level")
    if eager is not None and eager.value:
        out["cudagraph_mode"] = Said("NONE", eager.origin)
    elif level is not None:
        out.setdefault("cudagraph_mode", Said(_MODE_OF_LEVEL[cast("int", level.value)], level.origin))
    _default(out, "cudagraph_mode", "FULL_AND_PIECEWISE", "vLLM's default")


def _given_sizes(out: Settings) -> tuple[int, ...] | None:
    sizes, older = out.get("cudagraph_capture_sizes"), out.get("cuda_graph_sizes")
    if sizes is not None and older is not None:
        raise InputError("cuda_graph_sizes and cudagraph_capture_sizes are both given", "give the latter alone")
    found = sizes or older
    return None if found is None else cast("tuple[int, ...]", found.value)


def runners_of(release: Release, said: Settings) -> tuple[Runner, ...]:
    """The runners that may run a deployment: several where the release lets the model decide."""
    wanted = said.get("VLLM_USE_V2_MODEL_RUNNER")
    if wanted is None:
        return release.runners
    return ("v2",) if wanted.value else ("v1",)
