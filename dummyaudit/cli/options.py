"""The options that commands share, each declared once."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from dummyaudit.render import Format

AlignmentName = Literal["128", "128-floor", "0"]

AXIS = "AXIS"

NumReqs = Annotated[
    str | None,
    typer.Option(metavar=AXIS, help="Requests.  [default: 1:256:x2]", show_default=False),
]
NumTokens = Annotated[
    str | None,
    typer.Option(
        metavar=AXIS,
        help="Their tokens together.  [default: for each num_reqs the capture sizes that vLLM chooses]",
        show_default=False,
    ),
]
ShapesFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Take shapes from a CSV file (header num_reqs,num_tokens) or JSON lines instead; - is stdin.",
    ),
]
MaxModelLen = Annotated[
    str | None,
    typer.Option(metavar=AXIS, help="Longest legal request, in tokens."),
]
BlockSize = Annotated[str, typer.Option(metavar=AXIS, help="Tokens of one KV page: 16, or several such as 16,32.")]
KernelBlockSize = Annotated[
    str | None,
    typer.Option(metavar="N", help="Tokens of the kernel's page, if smaller than block_size; it divides it."),
]
Dcp = Annotated[str, typer.Option(metavar="N", help="Ranks of decode context parallelism.")]
Interleave = Annotated[
    str, typer.Option(metavar="N", help="Consecutive tokens that one such rank holds; divides block_size.")
]
TokenAlignment = Annotated[
    AlignmentName,
    typer.Option(
        help="How rows are widened to whole multiples of 128 tokens: 128 as vLLM does from 0.27, 128-floor as "
        "0.21 to 0.26 do (differs where block_size does not divide 128), 0 not at all (before)."
    ),
]
MaxNumSeqs = Annotated[
    str | None,
    typer.Option(metavar="N", help="Rows of the block table.  [default: the shape's num_reqs]", show_default=False),
]
Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        "-r",
        metavar="RULE",
        help="last (old), even (new), v1, v1-mixed, single, SPLIT+FILL, or module:callable; repeatable.  "
        "[default: last, even]",
        show_default=False,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        help="Where batches are built and walked: auto, none, cpu, cuda or cuda:N; auto is cpu if there is a "
        "torch, with none verdicts are arithmetic alone.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="Format of the result.")]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the result to a file, whole or not at all."),
]
Reports = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="FORMAT=FILE",
        help="Write the result to a file in another format too; repeatable.",
    ),
]
OnlyFlagged = Annotated[
    bool, typer.Option("--only-flagged", help="List only flagged layouts in json, csv, junit and sarif.")
]
Summary = Annotated[
    bool,
    typer.Option(
        "--summary",
        help="Keep only counts and the worst layouts, by closed form where there is one; --device auto is none.",
    ),
]
Jobs = Annotated[str, typer.Option("--jobs", "-j", metavar="N", help="Processes that share the work.")]
ShowAll = Annotated[
    bool, typer.Option("--all", help="Show every flagged layout in the table, not only the 20 worst.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 1 for over-length layouts and latent overflows too.")
]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 even if something overflows.")]
