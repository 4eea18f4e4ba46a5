from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dummyaudit import engine
from dummyaudit.errors import InputError

ROWS = json.loads((Path(__file__).parent / "data" / "capture_sizes.json").read_text())["rows"]
VERSIONS = ["0.11.2", "0.12.0", "0.13.0", "0.19.1", "0.20.2", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.33.0"]
DEFAULT_512 = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
SETTINGS = {
    "max_num_seqs": st.integers(1, 1500),
    "max_num_batched_tokens": st.none() | st.integers(1, 3000),
    "decode_query_len": st.integers(1, 17),
    "blackwell": st.booleans(),
}


def sizes_of(version, **settings):
    return engine.release(version).capture_sizes(**settings)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['engine']}-{row['max_num_seqs']}")
def test_sizes_are_those_that_the_release_settled_on(row):
    settings = {key: value for key, value in row.items() if key not in ("engine", "capture_sizes", "error")}
    if "error" in row:
        with pytest.raises(InputError):
            sizes_of(row["engine"], **settings)
    else:
        assert sizes_of(row["engine"], **settings) == row["capture_sizes"]


@pytest.mark.parametrize("version", VERSIONS)
def test_default_sizes_of_a_usual_server_are_the_same_in_every_release(version):
    assert sizes_of(version, max_num_seqs=256, max_num_batched_tokens=2048) == DEFAULT_512


def test_no_bound_on_the_tokens_cuts_nothing_and_adds_nothing():
    assert sizes_of("0.33.0", max_num_seqs=256, max_num_batched_tokens=None) == DEFAULT_512
    assert sizes_of("0.33.0", max_num_seqs=8, sizes=[2**31 - 1]) == [2**31 - 1]


@pytest.mark.parametrize(("version", "last"), [("0.27.1", 512), ("0.28.0", 1024), ("0.33.0", 1024)])
def test_blackwell_doubles_the_ceiling_from_0_28(version, last):
    sizes = sizes_of(version, max_num_seqs=1024, max_num_batched_tokens=8192, blackwell=True)
    assert sizes == [1, 2, 4, *range(8, 256, 8), *range(256, last + 1, 16)]


def test_blackwell_lets_decode_multiples_reach_further():
    settings = {"max_num_seqs": 600, "max_num_batched_tokens": 8192, "decode_query_len": 3}
    assert 1023 not in sizes_of("0.29.0", **settings, blackwell=True)
    assert 1008 in sizes_of("0.29.0", **settings, blackwell=True)
    assert max(sizes_of("0.29.0", **settings)) == 512


@pytest.mark.parametrize(("version", "last"), [("0.12.0", 32), ("0.13.0", 96)])
def test_the_largest_size_counts_decode_query_len_from_0_13(version, last):
    assert sizes_of(version, max_num_seqs=16, max_num_batched_tokens=700, decode_query_len=3)[-1] == last


@pytest.mark.parametrize(("version", "last"), [("0.19.1", 96), ("0.20.2", 100)])
def test_an_off_stride_max_num_batched_tokens_is_a_size_from_0_20(version, last):
    assert sizes_of(version, max_num_seqs=64, max_num_batched_tokens=100)[-1] == last


def test_max_num_batched_tokens_above_the_largest_size_is_none():
    assert sizes_of("0.20.2", max_num_seqs=6, max_num_batched_tokens=13) == [1, 2, 4, 8]
    assert sizes_of("0.20.2", max_num_seqs=6, max_num_batched_tokens=12) == [1, 2, 4, 8, 12]


@pytest.mark.parametrize(("version", "sizes"), [("0.30.0", [1, 2, 4, 8]), ("0.31.0", [1, 2, 4, 5, 8])])
def test_max_num_seqs_is_a_size_from_0_31(version, sizes):
    assert sizes_of(version, max_num_seqs=5, max_num_batched_tokens=64) == sizes


def test_max_num_seqs_is_no_size_beyond_max_num_batched_tokens_or_the_largest():
    assert sizes_of("0.31.0", max_num_seqs=50, max_num_batched_tokens=30) == [1, 2, 4, 8, 16, 24, 30]
    assert 777 not in sizes_of("0.31.0", max_num_seqs=777, max_num_batched_tokens=None)


@pytest.mark.parametrize(
    ("version", "sizes"),
    [("0.28.0", [1, 2, 4, 8, 16, 24]), ("0.29.0", [1, 2, 3, 4, 6, 8, 12, 15, 16, 24])],
)
def test_decode_multiples_are_sizes_from_0_29(version, sizes):
    assert sizes_of(version, max_num_seqs=5, max_num_batched_tokens=64, decode_query_len=3) == sizes


@pytest.mark.parametrize("settings", [{"max_size": 20}, {"sizes": [1, 2, 4, 8, 16]}])
@pytest.mark.parametrize("decode_query_len", [1, 3])
def test_a_range_that_the_user_gave_gets_no_extra_sizes(settings, decode_query_len):
    given_range = {**settings, "decode_query_len": decode_query_len}
    assert sizes_of("0.33.0", max_num_seqs=5, max_num_batched_tokens=64, **given_range) == [1, 2, 4, 8, 16]


def test_max_size_is_not_cut_by_the_default_ceiling():
    assert sizes_of("0.33.0", max_num_seqs=1, max_size=600) == [*DEFAULT_512, *range(528, 601, 16)]


def test_given_sizes_are_sorted_and_deduplicated():
    assert sizes_of("0.26.0", max_num_seqs=8, max_num_batched_tokens=64, sizes=[9, 3, 9, 65]) == [3, 9]


def test_given_sizes_may_all_be_too_large_so_that_nothing_is_captured():
    assert sizes_of("0.26.0", max_num_seqs=8, max_num_batched_tokens=64, sizes=[65]) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_sizes_beside_the_max_size_that_they_end_with_are_taken(version):
    settings = {"max_num_seqs": 8, "max_num_batched_tokens": 64}
    assert sizes_of(version, **settings, sizes=[8, 64, 128], max_size=64) == [8, 64]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("sizes", "max_size", "problem"),
    [
        ([], None, "sizes is empty, which vLLM refuses"),
        ([8, 32], 64, "max_size is 64, but the largest of sizes up to max_num_batched_tokens is 32"),
        ([8, 32], 16, "max_size is 16, but the largest of sizes up to max_num_batched_tokens is 32"),
        ([8, 128], 128, "max_size is 128, but the largest of sizes up to max_num_batched_tokens is 8"),
        ([128], 128, "max_size is 128, but none of sizes is left"),
    ],
)
def test_a_configuration_that_the_release_refuses_is_an_error(version, sizes, max_size, problem):
    with pytest.raises(InputError, match=problem) as caught:
        sizes_of(version, max_num_seqs=8, max_num_batched_tokens=64, sizes=sizes, max_size=max_size)
    assert caught.value.hint


@pytest.mark.parametrize("value", [0, -1, 2**31, 1.5, True, "8"])
@pytest.mark.parametrize("name", ["max_num_seqs", "max_num_batched_tokens", "decode_query_len", "max_size", "sizes"])
def test_a_setting_that_is_no_size_is_refused(name, value):
    with pytest.raises(InputError, match="capture size" if name == "sizes" else name):
        sizes_of("0.33.0", **{"max_num_seqs": 8, name: [8, value] if name == "sizes" else value})


@given(version=st.sampled_from(VERSIONS), max_size=st.none() | st.integers(1, 3000), **SETTINGS)
def test_sizes_are_ascending_unique_and_within_every_bound(version, max_size, **settings):
    sizes = sizes_of(version, max_size=max_size, **settings)
    ceiling = 1024 if settings["blackwell"] else 512
    bounds = [settings["max_num_batched_tokens"], max_size or ceiling]
    assert sizes[0] == 1
    assert sizes == sorted(set(sizes))
    assert sizes[-1] <= min(bound for bound in bounds if bound is not None)


@given(version=st.sampled_from(VERSIONS), **SETTINGS)
def test_a_given_max_size_equal_to_the_default_loses_only_the_extra_sizes(version, **settings):
    default = sizes_of(version, **settings)
    ceiling = 1024 if settings["blackwell"] and engine.release(version).max_size_blackwell == 1024 else 512
    grown = settings["decode_query_len"] if version >= "0.13" else 1
    plain = sizes_of(version, **settings, max_size=min(2 * settings["max_num_seqs"] * grown, ceiling))
    extra = set(default) - set(plain)
    assert set(plain) <= set(default)
    if settings["decode_query_len"] > 1:
        assert not any(size % settings["decode_query_len"] for size in extra)
        assert version >= "0.29" or not extra
    else:
        assert extra <= {settings["max_num_seqs"]}
        assert version >= "0.31" or not extra


@given(
    version=st.sampled_from(VERSIONS),
    sizes=st.lists(st.integers(1, 4000), min_size=1),
    bound=st.none() | st.integers(1, 4000),
)
def test_given_sizes_are_never_added_to(version, sizes, bound):
    settled = sizes_of(version, max_num_seqs=7, max_num_batched_tokens=bound, sizes=sizes)
    assert settled == sorted({size for size in sizes if bound is None or size <= bound})
