"""`grid --shapes`: files of every kind, and what is said of the line that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import assert_refused, call, shell, start

Capture = pytest.CaptureFixture[str]

GRID = ("grid", "--max-model-len", "16", "--rule", "last", "--device", "none", "--format", "json", "--shapes")


def shapes_of(capsys: Capture, file: Path) -> list[tuple[int, int]]:
    result = call(capsys, *GRID, str(file))
    assert result.err == ""
    return [(layout["num_reqs"], layout["num_tokens"]) for layout in json.loads(result.out)["layouts"]]


@pytest.mark.parametrize(
    "content",
    [
        b"num_reqs,num_tokens\n4,9\n256,496\n",
        b"num_reqs,num_tokens\n4,9\n256,496",
        b"num_reqs,num_tokens\r\n4,9\r\n256,496\r\n",
        b"num_reqs,num_tokens\r4,9\r256,496\r",
        b"\xef\xbb\xbfnum_reqs,num_tokens\n4,9\n256,496\n",
        b"\xef\xbb\xbfnum_reqs,num_tokens\r\n4,9\r\n256,496\r\n",
        b"\n \n num_reqs , num_tokens \n\n 4 , 9 \n\t\n256,496\n\n",
        b"num_tokens,note,num_reqs\n9,a,4\n496,,256\n",
        b'"num_reqs","num_tokens"\n"4","9"\n"256","496"\n',
        b'num_reqs,num_tokens,note\n4,9,"a, ""b"""\n256,496,\xc3\xa4\n',
        b"num_reqs,num_tokens\n256,496\n4,9\n256,496\n",
        b"num_reqs,num_tokens\n004,9\n256,496\n",
        b'{"num_reqs": 4, "num_tokens": 9}\n{"num_reqs": 256, "num_tokens": 496}\n',
        b'{"num_reqs": 4, "num_tokens": 9}\r\n\r\n{"num_reqs": 256, "num_tokens": 496}',
        b'\xef\xbb\xbf{"num_reqs":4,"num_tokens":9}\n  {"num_tokens":496,"num_reqs":256,"more":[{}]}\n',
    ],
)
def test_shapes_are_read_from_csv_and_json_lines(capsys: Capture, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "shapes"
    file.write_bytes(content)
    assert shapes_of(capsys, file) == [(4, 9), (256, 496)]


HEAD = b"num_reqs,num_tokens\n"
GOOD = b'{"num_reqs": 4, "num_tokens": 9}\n'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no shape"),
        (b"\n\n \n", "holds no shape"),
        (b"\xef\xbb\xbf", "holds no shape"),
        (HEAD, "holds no shape"),
        (b"4,9\n", ":1: neither JSON nor a CSV header"),
        (b"\n\nnum_reqs;num_tokens\n", ":3: neither JSON nor a CSV header"),
        (b"num_reqs,tokens\n4,9\n", ":1: neither JSON nor a CSV header"),
        (b"num_reqs,num_tokens,num_reqs\n4,9,5\n", ":1: neither JSON nor a CSV header with one num_reqs"),
        (b"NUM_REQS,NUM_TOKENS\n4,9\n", ":1: neither"),
        (b'[{"num_reqs": 4, "num_tokens": 9}]\n', ":1: neither"),
        (b"null\n", ":1: neither"),
        (HEAD + b"4,9\n4\n", ":3: 1 fields under a header of 2"),
        (HEAD + b"4,9,\n", ":2: 3 fields under a header of 2"),
        (HEAD + b'4,"9\n9"\n', ":2: not CSV"),
        (HEAD + b'4,"9"9\n', ":2: not CSV"),
        (HEAD + b"4,\n", ":2: num_tokens: '' is not a whole number"),
        (HEAD + b"4.0,9\n", ":2: num_reqs: '4.0' is not a whole number"),
        (HEAD + b"4,9\n\n-4,9\n", ":4: num_reqs: '-4' is not a whole number"),
        (HEAD + b"0,9\n", ":2: num_reqs must be at least 1"),
        (HEAD + b"4,2147483648\n", ":2: num_tokens 2147483648 does not fit"),
        (HEAD + b"10,9\n", ":2: num_reqs 10 is more than num_tokens 9"),
        (HEAD + b"4,9\n" + b"9" * 5000 + b",9\n", ":3: "),
        (HEAD + b"4,9\x00\n", ":2: "),
        (b"\x00" * 100, ":1: "),
        (b"\x00" * 2**17, ":1: the line is longer"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "not a text file"),
        (HEAD.decode().encode("utf-16"), "not a text file"),
        (HEAD + b"4,9\n5,\xff\n", "not a text file"),
        (HEAD + b"4,9" + b" " * 2**16 + b"\n", ":2: the line is longer than 65536 characters"),
        (HEAD + b" " * 2**17 + b"\n4,9\n", ":2: the line is longer than 65536 characters"),
        (b"num_reqs,num_tokens," + b"x" * 2**20, ":1: the line is longer"),
        (GOOD + b"{\n", ":2: not JSON"),
        (GOOD + b'{"num_reqs": 4, "num_tokens": 9,}\n', ":2: not JSON"),
        (GOOD + b'{"num_reqs": 4, "num_tokens": 9} 1\n', ":2: not JSON"),
        (GOOD + b'{"num_reqs": 4, "num_tokens": 9\x00}\n', ":2: not JSON"),
        (GOOD + b'{"num_reqs": 4, "num_tokens": ' + b"9" * 5000 + b"}\n", ":2: not JSON"),
        (GOOD + b'{"a": ' * 10000 + b"1" + b"}" * 5000 + b"\n", ":2: "),
        (b'{"num_reqs": ' + b"[" * 30000 + b"]" * 30000 + b', "num_tokens": 9}\n', ":1: not JSON"),
        (GOOD + b"{}\n", ":2: no num_reqs"),
        (b'{"num_reqs": 4}\n', ":1: no num_tokens"),
        (b'{"num_reqs": true, "num_tokens": 9}\n', ":1: num_reqs must be"),
        (b'{"num_reqs": 1.5, "num_tokens": 9}\n', ":1: num_reqs must be a whole number, got 1.5"),
        (b'{"num_reqs": 4.0, "num_tokens": 9}\n', ":1: num_reqs must be a whole number, got 4.0"),
        (b'{"num_reqs": null, "num_tokens": 9}\n', ":1: num_reqs must be a whole number, got None"),
        (b'{"num_reqs": "4", "num_tokens": 9}\n', ":1: num_reqs must be a whole number, got '4'"),
        (b'{"num_reqs": [4], "num_tokens": 9}\n', ":1: num_reqs must be a whole number"),
        (b'{"num_reqs": {}, "num_tokens": 9}\n', ":1: num_reqs must be a whole number"),
        (b'{"num_reqs": NaN, "num_tokens": 9}\n', ":1: num_reqs must be a whole number"),
        (b'{"num_reqs": 4, "num_tokens": Infinity}\n', ":1: num_tokens must be a whole number"),
        (b'{"num_reqs": 4, "num_tokens": 1e2}\n', ":1: num_tokens must be a whole number"),
        (b'{"num_reqs": 4, "num_tokens": -9}\n', ":1: num_tokens must be at least 1"),
        (b'{"num_reqs": 4, "num_tokens": 2147483648}\n', ":1: num_tokens 2147483648 does not fit"),
        (b'{"num_reqs": 4, "num_tokens": ' + str(10**400).encode() + b"}\n", ":1: num_tokens of 1329 bits"),
        (b'{"num_reqs": 10, "num_tokens": 9}\n', ":1: num_reqs 10 is more than num_tokens 9"),
    ],
    ids=lambda value: repr(value[:60]) if isinstance(value, bytes) else "",
)
def test_bad_shapes_file_is_refused_with_its_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shapes").write_bytes(content)
    assert_refused(call(capsys, *GRID, "shapes", "-o", "out.json"), f"shapes{says}" if says[0] == ":" else says)
    assert [path.name for path in tmp_path.iterdir()] == ["shapes"]


def test_line_of_just_the_longest_length_is_read(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "shapes"
    file.write_bytes(HEAD + b"4,9".ljust(2**16 - 1) + b"\n")
    assert shapes_of(capsys, file) == [(4, 9)]


@pytest.mark.parametrize("name", ["missing", ".", "", "missing/", "/dev/null/x", "n" * 300, "\x1b[31m"])
def test_shapes_file_that_cannot_be_read_is_refused(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(call(capsys, *GRID, name), f"cannot read {name!r}: ")


def test_unreadable_shapes_file_is_refused(capsys: Capture, tmp_path: Path) -> None:
    # Root may read what it likes, but no process its own memory from address 0 on.
    assert_refused(call(capsys, *GRID, "/proc/self/mem"), "cannot read '/proc/self/mem': Input/output error")


def test_shapes_come_from_stdin() -> None:
    for content in (
        HEAD + b"256,496\n",
        b"\xef\xbb\xbf" + HEAD + b"256,496\r\n",
        b'{"num_reqs":256,"num_tokens":496}',
    ):
        result = start(*GRID, "-", stdin=content, LC_ALL="C", PYTHONIOENCODING="ascii")
        assert (result.status, result.err) == (1, "")
        assert [layout["worst"]["seq_len"] for layout in json.loads(result.out)["layouts"]] == [241]


def test_bad_stdin_is_refused_with_its_line() -> None:
    assert_refused(start(*GRID, "-", stdin=HEAD + b"4,9\n0,9\n"), "stdin:3: num_reqs must be at least 1")
    assert_refused(start(*GRID, "-"), "stdin: holds no shape")
    assert_refused(start(*GRID, "-", stdin=b"\xff\xfe\x00"), "stdin: not a text file")
    assert_refused(shell('"$@" <&-', *GRID, "-"), "cannot read 'stdin': Bad file descriptor")
    assert_refused(shell('"$@" 0>/dev/null', *GRID, "-"), "cannot read 'stdin': ")


def test_output_is_not_read_in_place_of_a_closed_stdin(tmp_path: Path) -> None:
    assert_refused(shell('"$@" <&-', *GRID, "-", "-o", "out.json", cwd=tmp_path), "stdin")
    assert list(tmp_path.iterdir()) == []


def test_file_may_be_its_own_output(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "shapes"
    file.write_bytes(HEAD + b"256,496\n")
    assert call(capsys, *GRID, str(file), "-o", str(file)).status == 1
    assert [layout["num_tokens"] for layout in json.loads(file.read_text())["layouts"]] == [496]
