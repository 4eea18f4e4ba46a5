"""BlockTable: the geometry of rows and pages."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, get_args, overload

from dummyaudit.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

INT32_MAX = 2**31 - 1
"""Largest size that the engine's int32 tensors can hold."""

TokenAlignment = Literal[128, "128-floor", 0]
"""How a row is widened: see `BlockTable.token_alignment`."""

_T = TypeVar("_T", int, "npt.NDArray[np.int64]", "torch.Tensor")


def cdiv(a: int, b: int) -> int:
    """Ceiling of a / b."""
    return -(-a // b)


def positive(name: str, value: object) -> int:
    """`value` as an int of 1 to 2^31 - 1, or an InputError that names it."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # the TypeError is the check
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {value!r}") from None
    if isinstance(value, bool) or number < 1:
        raise InputError(f"{name} must be at least 1, got {_shown(number)}")
    if number > INT32_MAX:
        raise too_large(name, _shown(number))
    return number


def _shown(number: int) -> str:
    """Without the digits of a number so large that Python refuses to write them."""
    return str(number) if number.bit_length() <= 256 else f"of {number.bit_length()} bits"


def too_large(name: str, size: str) -> InputError:
    """The error that says so of a value, whose size is given in words."""
    return InputError(f"{name} {size} does not fit the engine's int32 tensors", f"use at most {INT32_MAX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTable:
    """The block table of one KV-cache group: `max_num_seqs` rows of `row_slots` page ids (int32).

    Attributes:
        max_model_len: longest legal request, in tokens.
        block_size: tokens of one KV page.
        max_num_seqs: rows.
        dcp: ranks of decode context parallelism, which share the tokens of a request.
        interleave: consecutive tokens that one such rank holds; divides block_size, as vLLM demands.
        token_alignment: 128 rounds a row up to whole multiples of 128 tokens, `128 // gcd(128, block_size)`
            slots (vLLM from 0.27); "128-floor" by `128 // block_size` slots, which is the same unless
            block_size does not divide 128 (0.21 to 0.26); 0 not at all (before).
        kernel_block_size: tokens of the kernel's page where that is smaller than block_size (hybrid models);
            slots and pages then count kernel pages.

    Raises:
        InputError: a value is not a whole number from 1 to 2^31 - 1, or does not divide as it must.

    Source: vllm/v1/worker/block_table.py and vllm/v1/worker/gpu/block_table.py.
    """

    max_model_len: int
    block_size: int = 16
    max_num_seqs: int = 256
    dcp: int = 1
    interleave: int = 1
    token_alignment: TokenAlignment = 128
    kernel_block_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_model_len", "block_size", "max_num_seqs", "dcp", "interleave"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        if isinstance(self.token_alignment, bool) or self.token_alignment not in get_args(TokenAlignment):
            raise InputError(
                f"token_alignment must be 128, 128-floor or 0, got {self.token_alignment!r}",
                "128 is what vLLM does from 0.27 on",
            )
        if self.block_size % self.interleave:
            raise InputError(f"interleave {self.interleave} must divide block_size {self.block_size}")
        if self.kernel_block_size is not None:
            kernel = positive("kernel_block_size", self.kernel_block_size)
            object.__setattr__(self, "kernel_block_size", kernel)
            if self.block_size % kernel:
                raise InputError(f"kernel_block_size {kernel} must divide block_size {self.block_size}")

    @property
    def align(self) -> int:
        """Slots, of block_size tokens each, to whose multiples a row is rounded up."""
        match self.token_alignment:
            case 128:
                return 128 // math.gcd(128, self.block_size)
            case "128-floor":
                return max(128 // self.block_size, 1)
            case 0:
                return 1

    @property
    def page_size(self) -> int:
        """Tokens behind one slot, on one rank: kernel_block_size if given, else block_size."""
        return self.kernel_block_size or self.block_size

    @property
    def row_slots(self) -> int:
        """Page ids that one row holds, in kernel pages where the kernel's page is smaller."""
        blocks = cdiv(self.max_model_len, self.block_size * self.dcp)
        return cdiv(blocks, self.align) * self.align * (self.block_size // self.page_size)

    @property
    def row_tokens(self) -> int:
        """Longest seq_len whose pages one row holds; at least max_model_len."""
        return self.row_slots * self.page_size * self.dcp

    @overload
    def pages(self, seq_len: int) -> int: ...
    @overload
    def pages(self, seq_len: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...
    @overload
    def pages(self, seq_len: torch.Tensor) -> torch.Tensor: ...
    def pages(self, seq_len: _T) -> _T:
        """Page ids that attention reads for seq_len tokens: an int, or an int64 array or tensor of any shape.

        With dcp, those of the fullest rank.
        """
        tokens = seq_len
        if self.dcp > 1:
            span = self.dcp * self.interleave
            rest = tokens % span
            rest = min(rest, self.interleave) if isinstance(rest, int) else rest.clip(max=self.interleave)
            tokens = tokens // span * self.interleave + rest
        # A shift is much quicker than a division, most of all for tensors.
        shift = self.page_size.bit_length() - 1
        if self.page_size == 1 << shift:
            return (tokens + (self.page_size - 1)) >> shift
        return (tokens + (self.page_size - 1)) // self.page_size

    @overload
    def max_model_len_for(self, pages: int) -> int: ...
    @overload
    def max_model_len_for(self, pages: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...
    def max_model_len_for(self, pages: int | npt.NDArray[np.int64]) -> int | npt.NDArray[np.int64]:
        """Smallest max_model_len whose row holds so many pages; all else as in this table.

        A row has `a * cdiv(cdiv(max_model_len, span), a)` blocks, with `span = block_size * dcp` and `a = align`.
        It holds b blocks from the first max_model_len on that needs more than `(cdiv(b, a) - 1) * a` of them.
        """
        blocks = -(-pages // (self.block_size // self.page_size))
        held = (-(-blocks // self.align) - 1) * self.align
        return held * self.block_size * self.dcp + 1
