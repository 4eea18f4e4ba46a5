"""Shapes from a file: CSV with a header, or JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import TextIO

from dummyaudit.axes import check_shape, parse_number
from dummyaudit.errors import InputError

MAX_LINE = 2**16
"""Characters of a line that is read, with its end."""

_KEYS = ("num_reqs", "num_tokens")


def read_shapes(name: str) -> list[tuple[int, int]]:
    """Pairs (num_reqs, num_tokens) of a file, or of stdin for `-`.

    CSV has a header that names the columns num_reqs and num_tokens; of JSON lines each is an object with these
    keys. What else is there is passed over, and so are empty lines.

    Raises:
        InputError: the file cannot be read, or a line (named) is no shape.
    """
    file, title = (0, "stdin") if name == "-" else (name, name)
    try:
        with open(file, encoding="utf-8-sig", newline="", closefd=file != 0) as stream:
            return list(_shapes(title, stream))
    except OSError as error:
        raise InputError(f"cannot read {title!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{title}: not a text file", "give CSV or JSON lines") from error


def _shapes(name: str, stream: TextIO) -> Iterator[tuple[int, int]]:
    header: list[str] | None = None
    found = False
    for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), ""), start=1):
        try:
            if len(line) > MAX_LINE:
                raise InputError(f"the line is longer than {MAX_LINE} characters")
            text = line.strip()
            if not text:
                continue
            if text.startswith("{"):
                shape = _json_shape(text)
            elif header is None:
                header = _header(text)
                continue
            else:
                shape = _csv_shape(header, text)
            check_shape(*shape)
        except InputError as error:
            raise InputError(f"{name}:{number}: {error.message}", error.hint) from None
        found = True
        yield shape
    if not found:
        raise InputError(f"{name}: holds no shape", "give lines of num_reqs,num_tokens")


def _header(text: str) -> list[str]:
    header = _csv_fields(text)
    if any(header.count(key) != 1 for key in _KEYS):
        raise InputError(
            "neither JSON nor a CSV header with one num_reqs and one num_tokens",
            "begin a CSV file with the line num_reqs,num_tokens",
        )
    return header


def _csv_shape(header: list[str], text: str) -> tuple[int, int]:
    fields = _csv_fields(text)
    if len(fields) != len(header):
        raise InputError(f"{len(fields)} fields under a header of {len(header)}")
    num_reqs, num_tokens = (parse_number(key, fields[header.index(key)]) for key in _KEYS)
    return num_reqs, num_tokens


def _csv_fields(text: str) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader([text], strict=True))]
    except csv.Error as error:
        raise InputError(f"not CSV: {error}") from None


def _json_shape(text: str) -> tuple[int, int]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    for key in _KEYS:
        if key not in record:
            raise InputError(f"no {key}")
    return record["num_reqs"], record["num_tokens"]
