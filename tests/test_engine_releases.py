from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dummyaudit import engine
from dummyaudit.errors import DummyAuditError, InputError

ROWS = json.loads((Path(__file__).parent / "data" / "row_slots.json").read_text())["rows"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['engine']}-{row['max_model_len']}-{row['block_size']}")
def test_row_slots_are_those_that_the_release_recorded(row):
    table = engine.release(row["engine"]).block_table(
        max_model_len=row["max_model_len"], block_size=row["block_size"], dcp=row["context_parallel_size"]
    )
    assert table.row_slots == row["row_slots"]


@pytest.mark.parametrize(
    ("version", "alignment"),
    [
        ("0.11.2", 0),
        ("0.20.2", 0),
        ("0.21.0", "128-floor"),
        ("0.26.0", "128-floor"),
        ("0.27.0", 128),
        ("0.33.0", 128),
    ],
)
def test_rows_are_aligned_as_of_the_release(version, alignment):
    assert engine.release(version).block_table(max_model_len=16).token_alignment == alignment


def test_block_table_passes_every_argument_on():
    table = engine.release("0.33.0").block_table(
        max_model_len=4096, block_size=528, max_num_seqs=7, dcp=2, interleave=16, kernel_block_size=16
    )
    assert table.max_num_seqs == 7
    assert (table.dcp, table.interleave, table.kernel_block_size) == (2, 16, 16)
    assert table.row_slots == 8 * 528 // 16


@pytest.mark.parametrize(
    ("version", "split", "live", "alignment"),
    [
        ("0.11", None, False, 0),
        ("0.11.0", None, False, 0),
        ("v0.16.0", None, False, 0),
        ("0.17.0rc1", "last", False, 0),
        ("0.18", "last", False, 0),
        ("0.26", "last", False, "128-floor"),
        (" v0.26.0 ", "last", False, "128-floor"),
        ("0.26.1rc1", "last", False, "128-floor"),
        ("0.26.1.dev12+g0123abc.d20260101", "last", False, "128-floor"),
        ("0.27", "even", True, 128),
        ("0.27.0.post1", "even", True, 128),
        ("0.27.1+cu129", "even", True, 128),
        ("0.33.0", "even", True, 128),
        ("0.100.0", "even", True, 128),
        ("1.0", "even", True, 128),
    ],
)
def test_a_version_takes_the_facts_of_the_newest_release_not_newer_than_it(version, split, live, alignment):
    found = engine.release(version)
    assert (found.v2_split, found.v2_piecewise_live, found.token_alignment) == (split, live, alignment)
    assert found.version == version.strip().removeprefix("v")


@pytest.mark.parametrize("version", ["0.11.0", "0.26.1", "0.33.0", "0.33.7"])
def test_a_known_release_is_not_called_newer_than_known(version):
    assert not engine.release(version).is_newer_than_known


@pytest.mark.parametrize("version", ["0.34.0", "0.34.0rc1", "0.100", "1.0.0"])
def test_a_release_beyond_the_table_says_so(version):
    assert engine.release(version).is_newer_than_known


@pytest.mark.parametrize(
    "version",
    [
        "",
        "0",
        "v",
        "vv0.26",
        "0.26.",
        ".26",
        "0..26",
        "0.26 0",
        "0.26.x",
        "newest",
        "0.26-",
        "-0.26",
        "0.26+",
        "\u0660.\u0662\u0666",
    ],
)
def test_a_malformed_version_is_refused(version):
    with pytest.raises(InputError, match="is no version of vLLM") as caught:
        engine.release(version)
    assert caught.value.hint == "write it as 0.33.0"


def test_an_endless_version_is_refused_like_any_other():
    with pytest.raises(InputError, match="is no version"):
        engine.release("0." + "9" * 5000)


@pytest.mark.parametrize("version", ["0.10.2", "0.9", "0.0.1", "0.1.dev1+g0123abc"])
def test_a_release_before_the_table_is_refused(version):
    with pytest.raises(DummyAuditError, match="is too old, nothing is known of it") as caught:
        engine.release(version)
    assert caught.value.hint == "use 0.11 or newer"


@given(st.tuples(st.integers(0, 2), st.integers(0, 120), st.integers(0, 20)))
def test_patches_of_a_release_share_its_facts_and_later_ones_never_lose_them(numbers):
    major, minor, patch = numbers
    if (major, minor) < (0, 11):
        with pytest.raises(InputError):
            engine.release(f"{major}.{minor}.{patch}")
        return
    found = engine.release(f"{major}.{minor}.{patch}")
    assert dataclasses.replace(found, version="") == dataclasses.replace(
        engine.release(f"{major}.{minor}"), version=""
    )
    later = engine.release(f"{major}.{minor + 1}")
    for fact in ("sizes_grow_with_decode", "sizes_have_max_num_batched_tokens", "sizes_have_decode_multiples"):
        assert getattr(later, fact) >= getattr(found, fact)
    assert later.max_size_blackwell >= found.max_size_blackwell


def test_the_table_is_in_order_and_its_last_line_is_the_newest_release():
    numbers = [tuple(map(int, row.version.split("."))) for row in engine.KNOWN_RELEASES]
    assert numbers == sorted(set(numbers))
    assert engine.NEWEST_RELEASE is engine.KNOWN_RELEASES[-1]
    assert engine.release(engine.NEWEST_RELEASE.version) == engine.NEWEST_RELEASE


def test_a_release_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        engine.release("0.26.0").version = "0.27.0"


def test_the_package_exports_its_public_names():
    assert sorted(engine.__all__) == ["Graph", "KNOWN_RELEASES", "NEWEST_RELEASE", "Release", "release"]


def test_the_table_loads_without_numpy_and_torch():
    code = "import sys, dummyaudit.engine; print(sorted({'numpy', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
