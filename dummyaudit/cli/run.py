"""From options to an exit status, for every command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from dummyaudit.axes import parse_axis, parse_number
from dummyaudit.cli.options import AlignmentName
from dummyaudit.cli.output import open_files, parse_reports, write_all
from dummyaudit.cli.progress import Progress
from dummyaudit.render import Format
from dummyaudit.report import Report

INTERRUPTED = 130


def table_options(
    *,
    max_model_len: str | None,
    block_size: str,
    max_num_seqs: str | None,
    token_alignment: AlignmentName,
    kernel_block_size: str | None,
    dcp: str,
    interleave: str,
) -> dict[str, Any]:
    """The options that describe block tables, as `dummyaudit.grid` and its relatives take them.

    Raises:
        InputError: a value is malformed.
    """
    return {
        "max_model_len": None if max_model_len is None else parse_axis("max_model_len", max_model_len),
        "block_size": parse_axis("block_size", block_size),
        "max_num_seqs": _number("max_num_seqs", max_num_seqs),
        "token_alignment": token_alignment if token_alignment == "128-floor" else int(token_alignment),
        "kernel_block_size": _number("kernel_block_size", kernel_block_size),
        "dcp": parse_number("dcp", dcp),
        "interleave": parse_number("interleave", interleave),
    }


def _number(name: str, text: str | None) -> int | None:
    return None if text is None else parse_number(name, text)


def run(
    audit: Callable[[Progress], Report],
    *,
    form: Format,
    output: str | None,
    report: Sequence[str] | None,
    show_all: bool,
    exit_zero: bool,
) -> int:
    """Runs an audit, writes its report to where the options say, and returns the exit status.

    Raises:
        DummyAuditError: there is no verdict.
    """
    if output == "-":
        output = None
    files = parse_reports(report or ())
    if output is not None:
        files.insert(0, (form, output))
    with open_files([path for _, path in files]) as opened:
        with Progress() as progress:
            result = audit(progress)
        write_all(result, files, opened, form if output is None else None, show_all)
    # Of a builder or a saved batch they are in every format.
    for note in result.notes if result.command == "vllm" else ():
        sys.stderr.write(f"dummyaudit: {' '.join(note.split())}\n")
    if result.planned is not None:
        sys.stderr.write(
            f"dummyaudit: interrupted after {result.summary.layouts} of {result.planned} layouts; "
            "the result is of the first ones only\n"
        )
        return INTERRUPTED
    return int(result.fails and not exit_zero)
