"""How many shapes are over a limit, by closed form: no loop over num_reqs or num_tokens.

All functions count the shapes `low <= num_reqs <= high`, `num_reqs <= num_tokens <= most`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from dummyaudit.axes import Ints
from dummyaudit.closed_form import ClosedForm, Line, crossings, least


def count_shapes(low: int, high: int, most: int) -> int:
    """All of them."""
    high = min(high, most)
    return (high - low + 1) * (2 * most - low - high + 2) // 2 if low <= high else 0


def count_over(form: ClosedForm, low: int, high: int, most: int) -> int:
    """Those over the limit of a form."""
    if form.remainder is not None:
        return _count_remainder(form.remainder, (), low, high, most)
    return _count_lines(form.lines, low, high, most)


def count_only(first: ClosedForm, second: ClosedForm, low: int, high: int, most: int) -> int:
    """Those over the limit of the first form and not of the second.

    What two forms of lines have over their limits together is what their lines together have. Of two limits for
    `last` one contains the other. Else the second, or the first, is `last` up to the lines of the other.
    """
    if first.remainder is None and second.remainder is None:
        union = _count_lines(first.lines + second.lines, low, high, most)
        return union - _count_lines(second.lines, low, high, most)
    if second.remainder is None:
        return _count_remainder(first.remainder or 0, second.lines, low, high, most)
    over = count_over(first, low, high, most) - count_over(second, low, high, most)
    if first.remainder is not None:
        return max(over, 0)
    return over + _count_remainder(second.remainder, first.lines, low, high, most)


def count_diagonal(lines: tuple[Line, ...], low: int, high: int) -> int:
    """Those with num_tokens = num_reqs that exceed one of the lines."""
    if not lines:
        return 0

    def over(num_reqs: int) -> int:
        return min(max(num_reqs - least(lines, num_reqs), 0), 1)

    return _sum_linear(over, [*lines, (1, 0), (1, -1)], low, high)


def _count_lines(lines: tuple[Line, ...], low: int, high: int, most: int) -> int:
    """Of each num_reqs, those from the least of the lines, or from num_reqs, up to most."""
    if not lines:
        return 0

    def over(num_reqs: int) -> int:
        return max(most - max(least(lines, num_reqs), num_reqs - 1), 0)

    return _sum_linear(over, [*lines, (1, -1), (0, most)], low, high)


def _stretches(lines: list[Line], low: int, high: int) -> Iterator[tuple[int, int]]:
    """The stretches of num_reqs on which lines keep their order."""
    if low > high:
        return
    ends = sorted({end for end in crossings(lines) if low <= end < high} | {high})
    for end in ends:
        yield low, end
        low = end + 1


def _sum_linear(value: Callable[[int], int], lines: list[Line], low: int, high: int) -> int:
    """The sum of a function that is linear wherever the lines keep their order."""
    return sum((value(a) + value(b)) * (b - a + 1) // 2 for a, b in _stretches(lines, low, high))


def _count_remainder(limit: int, lines: tuple[Line, ...], low: int, high: int, most: int) -> int:
    """Those over a limit of `last` that exceed none of the lines."""
    bounds = (*lines, (0, most))
    total = 0
    for a, b in _stretches(list(bounds), low, min(high, most)):
        # At b and not at a, where lines that cross in between two whole numbers may still be in their old order.
        line = min(bounds, key=lambda line: (line[0] * b + line[1], line[0] * a + line[1]))
        total += _sum_remainder(limit, line, a, b)
    return total


@lru_cache  # what is asked of each rule and of two has sums in common
def _sum_remainder(limit: int, line: Line, low: int, high: int) -> int:
    """The sum of `_remainder` over num_reqs, up to num_tokens = slope * num_reqs + offset for each.

    While k = offset // num_reqs stays the same, the value is a polynomial in num_reqs of degree 2, but for three
    places where a maximum in it changes sides. There are at most 2 * sqrt(offset) such k. A polynomial of degree 2
    over n values has the sum n * f(0) + C(n, 2) * D(0) + C(n, 3) * DD(0), with its differences D and DD (Newton).
    The sums are taken modulo 2^64, and the result, which is less than 2^62, is exact.
    """
    slope, offset = line
    if low == high:  # as for a row of the report: no need of sums
        return int(_remainder(limit, np.array([low]), np.array([slope * low + offset]))[0])
    starts, ends = _blocks(offset, low, high)
    k = offset // starts
    q = slope + k
    m = np.minimum(q - 1, limit)
    missing = (limit - q + 1).clip(min=0)
    turn = np.where(k == 0, ends, (offset + 1 - missing) // np.where(k == 0, 1, k))
    turns = np.sort(np.stack([np.full_like(q, limit + 1), limit + 1 - m, turn]).clip(starts - 1, ends), axis=0)
    starts, ends = np.concatenate([starts[None], turns + 1]), np.concatenate([turns, ends[None]])
    kept = starts <= ends
    first, n = starts[kept], (ends - starts + 1)[kept]
    x, y, z = (
        _remainder(limit, num_reqs, slope * num_reqs + offset)
        for num_reqs in (first, first + (n > 1), first + 2 * (n > 2))
    )
    two = n * (n - 1) // 2
    three = np.where(n % 3 == 2, two * ((n - 2) // 3), two // 3 * (n - 2))
    total = (n * x + two * (y - x) * (n > 1) + three * (z - 2 * y + x) * (n > 2)).sum()
    return int(total) % 2**64


def _blocks(offset: int, low: int, high: int) -> tuple[Ints, Ints]:
    """First and last num_reqs, [m] each, of the stretches of low to high on which offset // num_reqs is the same."""
    if offset <= 0:  # 0, or -1 of which it is always -1
        return np.array([low], dtype=np.int64), np.array([high], dtype=np.int64)
    root = math.isqrt(offset)
    each = np.arange(low, min(high, root) + 1, dtype=np.int64)
    low = max(low, root + 1)
    if low > high:
        return each, each
    k = np.arange(offset // low, offset // high - 1, -1, dtype=np.int64)
    ends = np.where(k > 0, offset // k.clip(min=1), high).clip(max=high)
    starts = (offset // (k + 1) + 1).clip(min=low)
    return np.concatenate([each, starts]), np.concatenate([each, ends])


def count_each(form: ClosedForm, num_reqs: Ints, most: Ints) -> Ints:
    """[n] num_tokens from num_reqs [n] up to most [n], at least num_reqs - 1, that are over the limit of a form."""
    if form.remainder is not None:
        return _remainder(form.remainder, num_reqs, most)
    if not form.lines:
        return np.zeros_like(num_reqs)
    line = np.minimum.reduce([slope * num_reqs + offset for slope, offset in form.lines])
    return (most - np.maximum(line, num_reqs - 1)).clip(min=0)


def _remainder(limit: int, num_reqs: Ints, most: Ints) -> Ints:
    """[n] num_tokens from num_reqs [n] up to most [n] that are over a limit of `last`.

    With N = q * R + r, over it are R - 1 - (limit - q) remainders of each q from 1 to limit for which that is
    positive, and all R of each larger q; of the last q only those up to the last r.
    """
    q, r = np.divmod(most, num_reqs)
    low = (limit - num_reqs + 2).clip(min=1)
    high = np.minimum(q - 1, limit)
    terms = (high - low + 1).clip(min=0)
    some = terms * (2 * (num_reqs - 1 - limit) + low + high) // 2
    every = (q - 1 - limit).clip(min=0) * num_reqs
    rest = (r + 1 - (limit - q + 1).clip(min=0)).clip(min=0)
    return np.where(q > 0, some + every + rest, 0)
