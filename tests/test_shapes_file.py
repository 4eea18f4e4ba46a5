from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dummyaudit import shapes_file
from dummyaudit.errors import InputError
from dummyaudit.shapes_file import MAX_LINE, read_shapes

HEADER = "num_reqs,num_tokens\n"
SHAPES = [(4, 9), (256, 496), (4, 9)]


def read(content: str | bytes, tmp_path: Path) -> list[tuple[int, int]]:
    file = tmp_path / "shapes"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_shapes(str(file))


def refused(content: str | bytes, tmp_path: Path) -> tuple[str, str]:
    """Message, without the path, and hint."""
    with pytest.raises(InputError) as raised:
        read(content, tmp_path)
    assert "\n" not in raised.value.message
    return raised.value.message.replace(str(tmp_path / "shapes"), "FILE"), raised.value.hint


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("num_reqs,num_tokens\n4,9\n256,496\n4,9\n", id="plain"),
        pytest.param("num_tokens,num_reqs\n9,4\n496,256\n9,4\n", id="other order"),
        pytest.param("a,num_reqs,num_tokens,\nx,4,9,\n,256,496,\n,4,9,z\n", id="more columns"),
        pytest.param('num_reqs,x,num_tokens\n4,"a,b",9\n256,"""",496\n4,,9\n', id="quoted"),
        pytest.param("\ufeffnum_reqs,num_tokens\r\n4,9\r\n256,496\r\n4,9", id="byte order mark and CRLF"),
        pytest.param("num_reqs,num_tokens\r4,9\r256,496\r4,9", id="CR"),
        pytest.param("\n\n num_reqs\t, num_tokens \n\n\t4, 9\n \n 256 ,496\n4,9\n\n", id="blanks"),
        pytest.param(
            '{"num_reqs": 4, "num_tokens": 9}\n{"num_tokens":496,"num_reqs":256}\n{"num_reqs":4,"num_tokens":9}',
            id="JSON lines",
        ),
        pytest.param('{"num_reqs":4,"num_tokens":9}\n' + HEADER + "256,496\n4,9\n", id="JSON before CSV"),
        pytest.param('\ufeff\n {"num_reqs":4,"num_tokens":9,"x":[1]} \r\n' + HEADER + "256,496\n4,9", id="more keys"),
    ],
)
def test_shapes_are_read_in_their_order(content: str, tmp_path: Path) -> None:
    assert read(content, tmp_path) == SHAPES


def test_sizes_may_have_units_as_axes_have(tmp_path: Path) -> None:
    assert read(HEADER + "1k,1K\n2K,2m\n", tmp_path) == [(1000, 1024), (2048, 2_000_000)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("4", "1 fields under a header of 2"),
        ("4,9,1", "3 fields under a header of 2"),
        ("4,", "num_tokens: '' is not a whole number"),
        ("x,9", "num_reqs: 'x' is not a whole number"),
        ("4,9.0", "num_tokens: '9.0' is not a whole number"),
        ("-4,9", "num_reqs: '-4' is not a whole number"),
        ("0,9", "num_reqs must be at least 1"),
        ("4,2147483648", "num_tokens 2147483648 does not fit the engine's int32 tensors"),
        ("10,9", "num_reqs 10 is more than num_tokens 9"),
        ('4,"9', "not CSV: "),
        ('{"num_reqs": 4', "not JSON: "),
        ('{"num_reqs": 4}', "no num_tokens"),
        ('{"num_tokens": 4}', "no num_reqs"),
        ('{"num_reqs": "4", "num_tokens": 9}', "num_reqs must be a whole number, got '4'"),
        ('{"num_reqs": 4.0, "num_tokens": 9}', "num_reqs must be a whole number, got 4.0"),
        ('{"num_reqs": true, "num_tokens": 9}', "num_reqs must be at least 1"),
        ('{"num_reqs": null, "num_tokens": 9}', "num_reqs must be a whole number, got None"),
        ('{"num_reqs": 0, "num_tokens": 9}', "num_reqs must be at least 1, got 0"),
        ('{"num_reqs": 4, "num_tokens": NaN}', "num_tokens must be a whole number, got nan"),
        ('{"num_reqs": 10, "num_tokens": 9}', "num_reqs 10 is more than num_tokens 9"),
        ('{"num_reqs": ' + "9" * 5000 + ', "num_tokens": 9}', "not JSON: "),
        ('{"x":' + "[" * 20000 + "]" * 20000 + "}", "not JSON: "),
    ],
    ids=lambda value: value[:30],
)
def test_line_that_is_no_shape_is_named(line: str, says: str, tmp_path: Path) -> None:
    message, _ = refused(HEADER + "4,9\n\n" + line + "\n4,9\n", tmp_path)
    assert message.startswith("FILE:4: ")
    assert says in message


@pytest.mark.parametrize(
    "header", ["4,9", "num_reqs", "num_reqs,tokens", "num_reqs,num_reqs,num_tokens", "NUM_REQS,NUM_TOKENS", "[4, 9]"]
)
def test_file_without_header_is_refused(header: str, tmp_path: Path) -> None:
    message, hint = refused(header + "\n4,9\n", tmp_path)
    assert message == "FILE:1: neither JSON nor a CSV header with one num_reqs and one num_tokens"
    assert hint == "begin a CSV file with the line num_reqs,num_tokens"


@pytest.mark.parametrize("content", ["", "\n \n", HEADER, HEADER + "\n"])
def test_file_without_a_shape_is_refused(content: str, tmp_path: Path) -> None:
    assert refused(content, tmp_path) == ("FILE: holds no shape", "give lines of num_reqs,num_tokens")


def test_line_without_end_is_not_read_into_memory(tmp_path: Path) -> None:
    fits = "4," + " " * (MAX_LINE - 4) + "9\n"
    assert len(fits) == MAX_LINE
    assert read(HEADER + fits, tmp_path) == [(4, 9)]
    message, _ = refused(HEADER + "4,9\n4, " + fits[2:], tmp_path)
    assert message == f"FILE:3: the line is longer than {MAX_LINE} characters"


@pytest.mark.parametrize("content", [b"num_reqs,num_tokens\n4,\xff\n", b"\xff\xfe4\x009\x00", b"\x80"])
def test_file_that_is_no_text_is_refused(content: bytes, tmp_path: Path) -> None:
    assert refused(content, tmp_path) == ("FILE: not a text file", "give CSV or JSON lines")


def test_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InputError) as raised:
            read_shapes(str(path))
        assert raised.value.message.startswith(f"cannot read {str(path)!r}: ")


def test_dash_reads_stdin_and_leaves_it_open(tmp_path: Path) -> None:
    (tmp_path / "shapes").write_text(HEADER + "4,9\n")
    (tmp_path / "wrong").write_text(HEADER + "9,4\n")
    stdin = os.dup(0)
    try:
        for name in ("shapes", "wrong"):
            with open(tmp_path / name) as stream:
                os.dup2(stream.fileno(), 0)
            if name == "shapes":
                assert read_shapes("-") == [(4, 9)]
            else:
                with pytest.raises(InputError, match=r"^stdin:2: num_reqs 9 is more than num_tokens 4"):
                    read_shapes("-")
            os.fstat(0)
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)


@given(st.lists(st.tuples(st.integers(1, 2**31 - 1), st.integers(0, 1000)), min_size=1))
def test_what_is_written_is_read_again(pairs: list[tuple[int, int]]) -> None:
    shapes = [(reqs, min(reqs + more, 2**31 - 1)) for reqs, more in pairs]
    as_csv = HEADER + "".join(f"{reqs},{tokens}\n" for reqs, tokens in shapes)
    as_json = "".join(json.dumps({"num_reqs": reqs, "num_tokens": tokens}) + "\n" for reqs, tokens in shapes)
    for text in (as_csv, as_json):
        assert list(shapes_file._shapes("f", io.StringIO(text))) == shapes
