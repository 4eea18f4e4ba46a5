"""The facts about vLLM's releases, in one table, and the release that a version string names."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dummyaudit.block_table import BlockTable, TokenAlignment
from dummyaudit.engine.capture_sizes import settle_sizes
from dummyaudit.engine.graphs import CudagraphMode, Graph, Runner, list_graphs
from dummyaudit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One vLLM release, and what it does where releases differ.

    Attributes:
        version: the release, as it was asked for but without a leading v.
        token_alignment: how a block-table row is widened, see BlockTable.
        sizes_grow_with_decode: whether the default largest capture size counts decode_query_len.
        sizes_have_max_num_batched_tokens: whether max_num_batched_tokens is a capture size where it is in range.
        sizes_have_decode_multiples: whether multiples of a decode_query_len above 1 are default capture sizes.
        sizes_have_max_num_seqs: whether max_num_seqs is a default capture size where decode_query_len is 1.
        max_size: default ceiling of the capture sizes, in tokens.
        max_size_blackwell: the same on GPUs of compute capability 10.x.
        v2_split: rule of the second runner's dummy batches, or None where it is not modelled.
        v2_rounds_decode: whether the second runner rounds uniform decode up to a multiple of decode_query_len.
        v2_rounds_sizes: whether it rounds every capture size up to a multiple of decode_query_len beforehand.
        v2_piecewise_live: whether attention runs while the second runner captures PIECEWISE graphs.
        runners: what it may choose if VLLM_USE_V2_MODEL_RUNNER does not; several where the model decides.
        lora_split: rule of the split that the second runner's hook for LoRA makes on its own, or None.
        has_dcp_context: whether decode context parallelism adds context to the first runner's warm-up and to
            its uniform decode graphs.
        clips_warm_up: whether the first runner's mixed warm-up of 16 tokens is cut at max_model_len and at
            max_num_batched_tokens.
        max_num_batched_tokens_160gb: default of the API server on GPUs of 160 GiB or more.
        scales_yarn: whether YaRN multiplies the length that a model was trained with, if max_model_len is not given.
    """

    version: str
    token_alignment: TokenAlignment
    sizes_grow_with_decode: bool
    sizes_have_max_num_batched_tokens: bool
    sizes_have_decode_multiples: bool
    sizes_have_max_num_seqs: bool
    max_size: int
    max_size_blackwell: int
    v2_split: Literal["last", "even"] | None
    v2_rounds_decode: bool
    v2_rounds_sizes: bool
    v2_piecewise_live: bool
    runners: tuple[Runner, ...]
    lora_split: Literal["last", "even"] | None
    has_dcp_context: bool
    clips_warm_up: bool
    max_num_batched_tokens_160gb: int
    scales_yarn: bool

    @property
    def is_newer_than_known(self) -> bool:
        """Whether the newest known release's facts stand in for this one's."""
        return _numbers(self.version)[:2] > _numbers(NEWEST_RELEASE.version)

    def block_table(
        self,
        *,
        max_model_len: int,
        block_size: int = 16,
        max_num_seqs: int = 256,
        dcp: int = 1,
        interleave: int = 1,
        kernel_block_size: int | None = None,
    ) -> BlockTable:
        """The block table of an attention KV-cache group; for the arguments and errors see BlockTable."""
        return BlockTable(
            max_model_len=max_model_len,
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            dcp=dcp,
            interleave=interleave,
            token_alignment=self.token_alignment,
            kernel_block_size=kernel_block_size,
        )

    def capture_sizes(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int | None = None,
        decode_query_len: int = 1,
        sizes: Iterable[int] | None = None,
        max_size: int | None = None,
        blackwell: bool = False,
    ) -> list[int]:
        """The sizes, in tokens and ascending, for which this release captures graphs.

        Args:
            max_num_seqs: requests that may run together.
            max_num_batched_tokens: tokens of one step, or None for no bound.
            decode_query_len: tokens of one request in uniform decode, 1 + num_speculative_tokens.
            sizes: the user's own sizes (vLLM's cudagraph_capture_sizes).
            max_size: the user's own largest size (vLLM's max_cudagraph_capture_size).
            blackwell: whether the GPU has compute capability 10.x.

        Raises:
            InputError: a value is not a whole number from 1 to 2^31 - 1, or the release refuses the configuration:
                an empty `sizes`, or a `max_size` beside `sizes` that is not the largest of them left.
        """
        return settle_sizes(
            self,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            decode_query_len=decode_query_len,
            sizes=sizes,
            max_size=max_size,
            blackwell=blackwell,
        )

    def graphs(
        self,
        *,
        runner: Runner,
        capture_sizes: Iterable[int],
        cudagraph_mode: CudagraphMode,
        max_num_seqs: int,
        decode_query_len: int = 1,
    ) -> list[Graph]:
        """The graphs that a runner captures: FULL before PIECEWISE, each from the most tokens to the fewest.

        Args:
            runner: "v1", vllm/v1/worker/gpu_model_runner.py, or "v2", vllm/v1/worker/gpu/.
            capture_sizes: in tokens, in any order.
            cudagraph_mode: vLLM's name of the mode.
            max_num_seqs: requests that may run together.
            decode_query_len: tokens of one request in uniform decode, 1 + num_speculative_tokens.

        Raises:
            InputError: a value is not a whole number from 1 to 2^31 - 1, there is no such runner or mode, or
                this release's second runner is not modelled.
        """
        return list_graphs(
            self,
            runner=runner,
            capture_sizes=capture_sizes,
            cudagraph_mode=cudagraph_mode,
            max_num_seqs=max_num_seqs,
            decode_query_len=decode_query_len,
        )


# The table: what 0.11 does, then what each later release changed. For the next release add a line at the end if it
# changes something, and keep the last line at the newest release whose sources were read.
#
# Its grain is the minor release, as of its latest patch. What it does not tell apart: 0.11.0 steps by 8 above 256
# too, 0.20.0 does not add max_num_batched_tokens yet, and the second runner of 0.17 rounds the num_reqs of uniform
# decode up.
_0_11 = Release(
    version="0.11",
    # vllm/v1/worker/block_table.py, BlockTable.
    token_alignment=0,
    # vllm/config/vllm.py, VllmConfig._set_cudagraph_sizes, like all that begins with sizes_ or max_size.
    sizes_grow_with_decode=False,
    sizes_have_max_num_batched_tokens=False,
    sizes_have_decode_multiples=False,
    sizes_have_max_num_seqs=False,
    max_size=512,
    max_size_blackwell=512,
    # vllm/v1/worker/gpu/ is experimental.
    v2_split=None,
    v2_rounds_decode=False,
    v2_rounds_sizes=False,
    v2_piecewise_live=False,
    # vllm/envs.py, VLLM_USE_V2_MODEL_RUNNER, and vllm/config/vllm.py, VllmConfig.use_v2_model_runner.
    runners=("v1",),
    # vllm/v1/worker/gpu/lora_utils.py, create_lora_capture_hook.
    lora_split=None,
    # vllm/v1/worker/cp_utils.py, get_dcp_dummy_context_len.
    has_dcp_context=False,
    # vllm/model_executor/warmup/kernel_warmup.py, from 0.32 attention_warmup.py.
    clips_warm_up=False,
    # vllm/engine/arg_utils.py, EngineArgs.get_batch_defaults.
    max_num_batched_tokens_160gb=8192,
    # vllm/config/model.py, _get_and_verify_max_len.
    scales_yarn=True,
)
_0_13 = replace(_0_11, version="0.13", sizes_grow_with_decode=True)
# vllm/v1/worker/gpu/input_batch.py, InputBatch.make_dummy.
_0_17 = replace(_0_13, version="0.17", v2_split="last", lora_split="last")
_0_20 = replace(_0_17, version="0.20", sizes_have_max_num_batched_tokens=True)
# vllm/v1/worker/block_table.py, MultiGroupBlockTable.
_0_21 = replace(_0_20, version="0.21", token_alignment="128-floor", v2_rounds_sizes=True)
# vllm/config/vllm.py: the second runner for some architectures, which differ from release to release.
_0_22 = replace(_0_21, version="0.22", runners=("v1", "v2"))
# PR #45953, vllm/v1/worker/gpu/cudagraph_utils.py, CudaGraphManager._init_candidates.
_0_25 = replace(_0_22, version="0.25", v2_rounds_decode=True, v2_rounds_sizes=False)
_0_26 = replace(_0_25, version="0.26", has_dcp_context=True)
_0_27 = replace(
    _0_26,
    version="0.27",
    # vllm/v1/worker/block_table.py, where token_alignment is an argument now.
    token_alignment=128,
    # PR #49751, vllm/v1/worker/gpu/input_batch.py, InputBatch.make_dummy.
    v2_split="even",
    lora_split="even",
    # vllm/v1/worker/gpu/cudagraph_utils.py, prepare_inputs_to_capture: skip_attn is gone.
    v2_piecewise_live=True,
)
_0_28 = replace(_0_27, version="0.28", max_size_blackwell=1024, max_num_batched_tokens_160gb=16384)
# The second runner for all that it has the features of.
_0_29 = replace(_0_28, version="0.29", sizes_have_decode_multiples=True, runners=("v2",))
_0_30 = replace(_0_29, version="0.30", scales_yarn=False)
_0_31 = replace(_0_30, version="0.31", sizes_have_max_num_seqs=True)
_0_32 = replace(_0_31, version="0.32", clips_warm_up=True)
_0_33 = replace(_0_32, version="0.33")

KNOWN_RELEASES = (
    _0_11,
    _0_13,
    _0_17,
    _0_20,
    _0_21,
    _0_22,
    _0_25,
    _0_26,
    _0_27,
    _0_28,
    _0_29,
    _0_30,
    _0_31,
    _0_32,
    _0_33,
)
"""The first release of each set of facts, oldest first, and the newest whose sources were read."""

NEWEST_RELEASE = KNOWN_RELEASES[-1]

_VERSION = re.compile(
    r"([0-9]{1,9}(?:\.[0-9]{1,9})+)(?:[._-]?(?:a|b|rc|post|dev)[0-9]*)*(?:\+[a-z0-9._-]+)?", re.IGNORECASE
)


def release(version: str) -> Release:
    """The facts of a vLLM release: of the newest known one that is not newer than `version`.

    Args:
        version: as in "0.26", "v0.26.0", "0.26.1rc1", "0.27.0.post1" or "0.27.1+cu129". A release candidate counts
            as its release.

    Raises:
        InputError: it is no version, or older than all known ones.
    """
    text = version.strip().removeprefix("v")
    numbers = _numbers(text)
    known = [candidate for candidate in KNOWN_RELEASES if _numbers(candidate.version) <= numbers]
    if not known:
        raise InputError(
            f"vLLM {text} is too old, nothing is known of it", f"use {KNOWN_RELEASES[0].version} or newer"
        )
    return replace(known[-1], version=text)


def version_key(known: Release) -> tuple[int, ...]:
    """The numbers of a release's version, by which releases are ordered."""
    return _numbers(known.version)


def _numbers(version: str) -> tuple[int, ...]:
    match = _VERSION.fullmatch(version)
    if match is None:
        raise InputError(f"{version!r} is no version of vLLM", f"write it as {NEWEST_RELEASE.version}.0")
    return tuple(map(int, match[1].split(".")))
