"""The sizes for which a vLLM release captures graphs.

Source: vllm/config/vllm.py, VllmConfig._set_cudagraph_sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dummyaudit.block_table import INT32_MAX, positive
from dummyaudit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dummyaudit.engine.releases import Release


def settle_sizes(
    release: Release,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int | None,
    decode_query_len: int,
    sizes: Iterable[int] | None,
    max_size: int | None,
    blackwell: bool,
) -> list[int]:
    """The capture sizes, as `Release.capture_sizes` describes them."""
    max_num_seqs = positive("max_num_seqs", max_num_seqs)
    decode_query_len = positive("decode_query_len", decode_query_len)
    if max_size is not None:
        max_size = positive("max_size", max_size)
    bound = INT32_MAX
    if max_num_batched_tokens is not None:
        bound = positive("max_num_batched_tokens", max_num_batched_tokens)
    if sizes is not None:
        return _given(sizes, max_size, bound)
    if max_size is not None:
        return _up_to(release, max_size, bound)

    ceiling = release.max_size_blackwell if blackwell else release.max_size
    grown = decode_query_len if release.sizes_grow_with_decode else 1
    largest = min(max_num_seqs * grown * 2, ceiling)
    extra: list[int] = []
    if decode_query_len == 1 and release.sizes_have_max_num_seqs:
        extra = [max_num_seqs]
    elif decode_query_len > 1 and release.sizes_have_decode_multiples:
        most = min(max_num_seqs, ceiling)
        extra = [num_reqs * decode_query_len for num_reqs in (*_steps(most), most)]
    fitting = (size for size in extra if size <= min(largest, bound))
    return sorted({*_up_to(release, largest, bound), *fitting})


def _given(sizes: Iterable[int], max_size: int | None, bound: int) -> list[int]:
    """The user's own sizes, those up to max_num_batched_tokens; none may be left."""
    given = {positive("a capture size", size) for size in sizes}
    if not given:
        raise InputError(
            "sizes is empty, which vLLM refuses", "leave it out for the default sizes, or use cudagraph_mode NONE"
        )
    kept = sorted(size for size in given if size <= bound)
    largest = kept[-1] if kept else 0
    # vLLM corrects a max_size of its own accord only where the sizes are its own too.
    if max_size not in (None, largest):
        left = f"the largest of sizes up to max_num_batched_tokens is {largest}" if kept else "none of sizes is left"
        raise InputError(
            f"max_size is {max_size}, but {left}: vLLM refuses to have both", "give sizes without max_size"
        )
    return kept


def _up_to(release: Release, largest: int, bound: int) -> list[int]:
    """The steps up to `largest` and max_num_batched_tokens, and from 0.20 the latter where it is in range."""
    sizes = _steps(min(largest, bound))
    if release.sizes_have_max_num_batched_tokens and bound <= largest and bound not in sizes:
        sizes.append(bound)
    return sizes


def _steps(last: int) -> list[int]:
    """1, 2, 4, the multiples of 8 below 256 and those of 16 from there, up to `last`."""
    ones = [size for size in (1, 2, 4) if size <= last]
    return [*ones, *range(8, min(last + 1, 256), 8), *range(256, last + 1, 16)]
