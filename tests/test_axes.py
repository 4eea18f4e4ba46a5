from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dummyaudit.axes import Shapes, as_axis, in_steps, pairs, parse_axis, parse_number, product, ragged
from dummyaudit.errors import InputError


def listed(shapes: Shapes) -> list[tuple[int, int]]:
    return list(zip(*(values.tolist() for values in shapes.slice(0, len(shapes))), strict=True))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("16", [16]),
        ("4,1,2,4", [1, 2, 4]),
        ("8:24:8", [8, 16, 24]),
        ("8:30:8", [8, 16, 24]),
        ("3:6", [3, 4, 5, 6]),
        ("1:256:x2", [1, 2, 4, 8, 16, 32, 64, 128, 256]),
        ("1:100:x10,5", [1, 5, 10, 100]),
        ("1k,1K,1m,1M", [1000, 1024, 1000**2, 1024**2]),
        (" 1 , 2 ", [1, 2]),
    ],
)
def test_expression_means_its_values_in_order(text: str, values: list[int]) -> None:
    assert list(parse_axis("n", text)) == values


def test_long_range_is_never_listed() -> None:
    assert parse_axis("n", "1:2147483647:3") == range(1, 2**31, 3)


@given(st.integers(1, 2**31 - 1))
def test_every_size_is_read_back(size: int) -> None:
    assert parse_number("n", str(size)) == size
    assert list(parse_axis("n", str(size))) == [size]


@pytest.mark.parametrize("values", [range(5, 0, -1), range(1, 6), [3, 1, 2, 5, 4, 4], (np.int64(1), 2, 3, 4, 5)])
def test_axis_of_python_is_ascending_and_each_value_once(values: object) -> None:
    assert list(as_axis("n", values)) == [1, 2, 3, 4, 5]  # type: ignore[arg-type]


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=6, unique=True).map(sorted),
    st.one_of(
        st.lists(st.integers(1, 60), min_size=1, max_size=8, unique=True).map(sorted),
        st.builds(range, st.integers(1, 40), st.integers(41, 60), st.integers(1, 7)),
    ),
    st.data(),
)
def test_product_is_all_pairs_that_are_shapes(
    reqs: list[int], tokens: list[int] | range, data: st.DataObject
) -> None:
    expected = [(r, n) for r in reqs for n in tokens if n >= r]
    if not expected:
        with pytest.raises(InputError, match="nothing to audit"):
            product(reqs, tokens)
        return
    shapes = product(reqs, tokens)
    assert listed(shapes) == expected
    first = data.draw(st.integers(0, len(expected) - 1))
    last = data.draw(st.integers(first + 1, len(expected)))
    assert list(zip(*(v.tolist() for v in shapes.slice(first, last)), strict=True)) == expected[first:last]
    places = np.array(data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=5)), dtype=np.int64)
    assert list(zip(*(v.tolist() for v in shapes.at(places)), strict=True)) == [expected[i] for i in places]
    assert listed(shapes.prefix(last)) == expected[:last]


def test_ragged_keeps_the_tokens_of_each_num_reqs() -> None:
    assert listed(ragged([1, 4, 9], [[1, 2], [], [9, 30]])) == [(1, 1), (1, 2), (9, 9), (9, 30)]


def test_pairs_are_sorted_and_each_once() -> None:
    assert listed(pairs([(4, 9), (1, 3), (4, 5), (4, 9)])) == [(1, 3), (4, 5), (4, 9)]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([], "none"),
        ([7], "7"),
        ([1, 2, 4, 8, 16, 24, 32], "1, 2, 4, 8-32 by 8"),
        ([1, 2, 3], "1, 2, 3"),
        ([1, 2, 3, 4], "1-4 by 1"),
        ([8, 16, 24, 32, 48, 64, 80, 96], "8-32 by 8, 48-96 by 16"),
    ],
)
def test_sizes_in_equal_steps_are_shortened(sizes: list[int], words: str) -> None:
    assert in_steps(sizes) == words
