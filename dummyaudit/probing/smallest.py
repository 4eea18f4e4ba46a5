"""Finds the smallest shape that fails: by num_tokens, then by num_reqs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set

from dummyaudit.probing.rule import Shape

SCANNED = 2000
"""Shapes that are tried one after the other, from the smallest on."""

TRIED = 4000
"""Shapes that are tried, for each name, on the way down from a larger one."""


def find_smallest(
    fails: Callable[[Shape], Set[str]], found: Mapping[str, Shape], max_num_reqs: int
) -> dict[str, tuple[Shape, bool]]:
    """For every name the smallest shape that fails by it, and whether none can be smaller.

    All of the smallest shapes are tried in turn; what fails by none of them is brought down from the shape that is
    known, in steps of num_tokens, of num_reqs and of both, until no step fails.

    Args:
        fails: by which names a shape fails.
        found: for each name a shape that does.
        max_num_reqs: most requests of a shape.
    """
    smallest: dict[str, tuple[Shape, bool]] = {}
    limit = max(map(_size, found.values()), default=(0, 0))
    for tried, shape in enumerate(_ascending(max_num_reqs)):
        if tried == SCANNED or _size(shape) > limit or len(smallest) == len(found):
            break
        for name in fails(shape) & (found.keys() - smallest.keys()):
            smallest[name] = shape, True
    for name in found.keys() - smallest.keys():
        smallest[name] = _descend(lambda shape, name=name: name in fails(shape), found[name]), False  # type: ignore[misc]
    return {name: smallest[name] for name in found}


def _size(shape: Shape) -> Shape:
    return shape[1], shape[0]


def _ascending(max_num_reqs: int) -> Iterator[Shape]:
    num_tokens = 1
    while True:
        yield from ((num_reqs, num_tokens) for num_reqs in range(1, min(num_tokens, max_num_reqs) + 1))
        num_tokens += 1


def _descend(fails: Callable[[Shape], bool], shape: Shape) -> Shape:
    tried = 0
    moved = True
    while moved:
        moved = False
        for smaller in _smaller(shape):
            tried += 1
            if tried > TRIED:
                return shape
            if fails(smaller):
                shape, moved = smaller, True
                break
    return shape


def _smaller(shape: Shape) -> Iterator[Shape]:
    """Smaller shapes, the ones furthest off first."""
    num_reqs, num_tokens = shape
    step = 1 << num_tokens.bit_length()
    while step:
        for reqs, tokens in ((0, 1), (1, 1), (1, 2), (1, 0)):
            smaller = num_reqs - reqs * step, num_tokens - tokens * step
            if 1 <= smaller[0] <= smaller[1]:
                yield smaller
        step //= 2
