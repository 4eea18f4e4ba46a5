"""Axis expressions, and the shapes that they span."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dummyaudit.block_table import INT32_MAX, positive, too_large
from dummyaudit.errors import InputError

Ints = npt.NDArray[np.int64]

MAX_AXIS_VALUES = 2**24
"""Values that an axis may list; one plain range may be longer, since it is kept as a range."""

MAX_NUM_REQS = 2**22
"""Values of num_reqs, for each of which a few numbers are kept."""

_NUMBER = re.compile(r"([0-9]+)([kKmM]?)")
_UNITS = {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}


def parse_number(name: str, text: str) -> int:
    """A whole number from 1 to 2^31 - 1; `k` and `m` are powers of 1000, `K` and `M` of 1024, as in vLLM's flags.

    Raises:
        InputError: it is not one.
    """
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        raise InputError(f"{name}: {text.strip()!r} is not a whole number of 1 or more", "write it as 4096 or 4K")
    digits = match[1].lstrip("0")
    if len(digits) > len(str(INT32_MAX)):
        raise too_large(name, f"of {len(digits)} digits")
    return positive(name, int(digits or 0) * _UNITS[match[2]])


def parse_axis(name: str, text: str) -> Sequence[int]:
    """The values of an axis, ascending, each once: `16`, `1,2,4`, `8:256:8` (both ends), `1:256:x2` (doubling).

    A single `first:last[:step]` stays a range, so that it may have any length.

    Raises:
        InputError: the expression is empty, reversed, or holds a value that is no size.
    """
    terms = [_parse_term(name, term) for term in text.split(",")]
    if len(terms) == 1:
        return terms[0]
    if sum(map(len, terms)) > MAX_AXIS_VALUES:
        raise InputError(
            f"{name}: {text!r} lists more than {MAX_AXIS_VALUES} values",
            "use a single range, or a larger step",
        )
    return tuple(sorted({value for term in terms for value in term}))


def _parse_term(name: str, term: str) -> Sequence[int]:
    if not term.strip():
        raise InputError(f"{name}: an empty value", "write an axis as 16 or 1,2,4 or 8:256:8 or 1:256:x2")
    first, *rest = term.split(":")
    low = parse_number(name, first)
    if not rest:
        return (low,)
    high = parse_number(name, rest[0])
    if high < low:
        raise InputError(f"{name}: {term.strip()!r} is reversed", f"write {rest[0]}:{first}")
    if len(rest) > 2:
        raise InputError(f"{name}: {term.strip()!r} has too many colons", "write first:last:step")
    step = rest[1].strip() if len(rest) == 2 else "1"
    if not step.startswith("x"):
        return range(low, high + 1, parse_number(f"{name} step", step))
    factor = parse_number(f"{name} factor", step[1:])
    if factor < 2:
        raise InputError(f"{name}: {term.strip()!r} never ends", "multiply by x2 or more")
    values = [low]
    while values[-1] * factor <= high:
        values.append(values[-1] * factor)
    return tuple(values)


def as_axis(name: str, values: int | Sequence[int]) -> Sequence[int]:
    """An axis given in Python, checked as one of the command line is: a number, a range or a sequence.

    Raises:
        InputError: it is empty, or holds a value that is no size.
    """
    if isinstance(values, int) or not hasattr(values, "__len__"):
        return (positive(name, values),)
    if not len(values):
        raise InputError(f"{name}: an empty axis")
    if isinstance(values, range):
        ascending = values if values.step > 0 else values[::-1]
        positive(name, ascending[0])
        positive(name, ascending[-1])
        return ascending
    return tuple(sorted({positive(name, value) for value in values}))


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """Shapes `(num_reqs, num_tokens)` with `num_reqs <= num_tokens`, ascending, any slice of which can be had.

    Attributes:
        num_reqs: [k] the distinct values, ascending, of those that have a num_tokens.
        values: the num_tokens that slices take theirs from.
        starts: [k] where in `values` those of each num_reqs begin.
        offsets: [k + 1] number of shapes before each num_reqs; the last is the number of all.
    """

    num_reqs: Ints
    values: Sequence[int] | Ints
    starts: Ints
    offsets: Ints

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def slice(self, first: int, last: int) -> tuple[Ints, Ints]:
        """num_reqs and num_tokens, [last - first] each, of the shapes first to last - 1."""
        low, high = np.searchsorted(self.offsets, (first, last - 1), side="right") - 1
        edges = self.offsets[low : high + 2].clip(first, last)
        counts = np.diff(edges)
        num_reqs = np.repeat(self.num_reqs[low : high + 1], counts)
        shift = self.starts[low : high + 1] - self.offsets[low : high + 1]
        index = np.arange(first, last, dtype=np.int64)
        index += np.repeat(shift, counts)
        return num_reqs, self._take(index)

    def prefix(self, last: int) -> Shapes:
        """The shapes before number `last`, at least one."""
        rows = int(np.searchsorted(self.offsets, last - 1, side="right"))
        offsets = self.offsets[: rows + 1].clip(max=last)
        return Shapes(self.num_reqs[:rows], self.values, self.starts[:rows], offsets)

    def at(self, index: Ints) -> tuple[Ints, Ints]:
        """num_reqs and num_tokens, [m] each, of the shapes at index [m]."""
        row = np.searchsorted(self.offsets, index, side="right") - 1
        return self.num_reqs[row], self._take(index - self.offsets[row] + self.starts[row])

    def _take(self, index: Ints) -> Ints:
        if isinstance(self.values, range):
            return index * self.values.step + self.values.start
        return np.asarray(self.values, dtype=np.int64)[index]


def product(num_reqs: Sequence[int], num_tokens: Sequence[int]) -> Shapes:
    """All pairs of two ascending axes, without those of `num_tokens < num_reqs`, which are no shapes.

    Raises:
        InputError: there are none, or num_reqs has more than MAX_NUM_REQS values.
    """
    if len(num_reqs) > MAX_NUM_REQS:
        raise InputError(f"num_reqs: {len(num_reqs)} values are more than {MAX_NUM_REQS}", "use a larger step")
    rows = np.asarray(num_reqs, dtype=np.int64)
    if isinstance(num_tokens, range):
        starts = -(-(rows - num_tokens.start) // num_tokens.step).clip(max=0)
        values: Sequence[int] | Ints = num_tokens
    else:
        values = np.asarray(num_tokens, dtype=np.int64)
        starts = np.searchsorted(values, rows)
    return _shapes(rows, values, starts.astype(np.int64), (len(num_tokens) - starts).clip(min=0))


def ragged(num_reqs: Sequence[int], num_tokens: Sequence[Sequence[int]]) -> Shapes:
    """For each num_reqs, ascending, its own ascending num_tokens of at least as many."""
    counts = np.array([len(values) for values in num_tokens], dtype=np.int64)
    values = np.concatenate([np.asarray(values, dtype=np.int64) for values in num_tokens])
    return grouped(np.asarray(num_reqs, dtype=np.int64), values, counts)


def grouped(num_reqs: Ints, num_tokens: Ints, counts: Ints) -> Shapes:
    """The same of arrays: the first counts[0] of num_tokens [n] are those of num_reqs[0], and so on."""
    return _shapes(num_reqs, num_tokens, np.cumsum(counts) - counts, counts)


def pairs(shapes: Sequence[tuple[int, int]]) -> Shapes:
    """Shapes as they are given, sorted, each once.

    Raises:
        InputError: there are none, or one is no shape.
    """
    for shape in shapes:
        if not hasattr(shape, "__len__") or len(shape) != 2:
            raise InputError(f"shapes: {shape!r} is not a pair (num_reqs, num_tokens)")
        check_shape(*shape)
    given = np.array(shapes, dtype=np.int64).reshape(-1, 2)
    given = given[np.lexsort((given[:, 1], given[:, 0]))]
    # Not np.unique of rows, which imports numpy.ma: 15 ms.
    unique = given[np.diff(given, axis=0, prepend=0).any(axis=1)]
    rows, starts, counts = np.unique(unique[:, 0], return_index=True, return_counts=True)
    return _shapes(rows, unique[:, 1], starts.astype(np.int64), counts.astype(np.int64))


def _shapes(num_reqs: Ints, values: Sequence[int] | Ints, starts: Ints, counts: Ints) -> Shapes:
    kept = counts > 0
    if not kept.any():
        raise InputError("nothing to audit: no num_tokens is at least num_reqs", "raise num_tokens")
    offsets = np.concatenate([[0], np.cumsum(counts[kept])]).astype(np.int64)
    return Shapes(num_reqs[kept], values, starts[kept], offsets)


def check_shape(num_reqs: int, num_tokens: int) -> None:
    """Refuses a pair of sizes that is no shape.

    Raises:
        InputError: a value is no size, or `num_reqs > num_tokens`.
    """
    positive("num_reqs", num_reqs)
    positive("num_tokens", num_tokens)
    if num_reqs > num_tokens:
        raise InputError(
            f"num_reqs {num_reqs} is more than num_tokens {num_tokens}: every request has at least one token",
            f"use num_tokens {num_reqs} or more",
        )


def in_steps(sizes: Sequence[int]) -> str:
    """Ascending sizes for a person, four or more in equal steps as `8-248 by 8`."""
    parts: list[str] = []
    rest = list(sizes)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 0
        run = 1
        while run < len(rest) and rest[run] - rest[run - 1] == step:
            run += 1
        if run > 3:
            parts.append(f"{rest[0]}-{rest[run - 1]} by {step}")
        else:
            run = 1
            parts.append(str(rest[0]))
        rest = rest[run:]
    return ", ".join(parts) or "none"
