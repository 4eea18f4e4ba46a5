"""`dummyaudit frontier`: every shape within limits, by closed form."""

from __future__ import annotations

from typing import Annotated

import typer

from dummyaudit.cli import options
from dummyaudit.cli.plot import Plot, run_with_plot
from dummyaudit.errors import InputError

EPILOG = """\b
Examples:
  dummyaudit frontier --max-model-len 16 --max-num-reqs 256 --max-num-tokens 2048 --plot
  dummyaudit frontier --rule v1 --rule even --max-model-len 4096 --max-num-tokens 8192 --reachable
"""

FORMATS = ("table", "json", "csv", "markdown")


def frontier(
    max_num_reqs: Annotated[str, typer.Option(metavar="N", help="Most requests.")] = "256",
    max_num_tokens: Annotated[str, typer.Option(metavar="N", help="Most tokens together.")] = "2048",
    max_model_len: options.MaxModelLen = "16,64,256,1024,4096",
    block_size: options.BlockSize = "16",
    num_reqs: Annotated[
        str | None,
        typer.Option(
            metavar=options.AXIS,
            help="Show these num_reqs one by one.  [default: powers of two, and where a smallest shape is]",
            show_default=False,
        ),
    ] = None,
    reachable: Annotated[
        bool,
        typer.Option("--reachable", help="Keep to what an engine builds: num_reqs = min(num_tokens, max_num_reqs)."),
    ] = False,
    rule: options.Rules = None,
    token_alignment: options.TokenAlignment = "128",
    kernel_block_size: options.KernelBlockSize = None,
    dcp: options.Dcp = "1",
    interleave: options.Interleave = "1",
    form: options.FormatOption = "table",
    output: options.Output = None,
    report: options.Reports = None,
    plot: Plot = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show num_reqs one by one for every block table, and draw every map.")
    ] = False,
    strict: options.Strict = False,
    exit_zero: options.ExitZero = False,
) -> int:
    """Say of every shape within limits whether it overflows, exactly and without trying.

    Of each rule: how many shapes overflow, which is the smallest, up to which num_tokens nothing does, and from
    which max_model_len on nothing does. Further rules are held against the first.
    """
    from dummyaudit.axes import parse_axis, parse_number
    from dummyaudit.cli.run import table_options
    from dummyaudit.frontier_audit import frontier
    from dummyaudit.space import DEFAULT_RULES

    for name in (form, *(text.partition("=")[0] for text in report or ())):
        if name in ("junit", "github", "sarif"):
            raise InputError(f"frontier has no {name} format", f"use {', '.join(FORMATS)}")
    settings = table_options(
        max_model_len=max_model_len,
        block_size=block_size,
        max_num_seqs=None,
        token_alignment=token_alignment,
        kernel_block_size=kernel_block_size,
        dcp=dcp,
        interleave=interleave,
    )
    del settings["max_num_seqs"]
    return run_with_plot(
        lambda _: frontier(
            max_num_reqs=parse_number("max_num_reqs", max_num_reqs),
            max_num_tokens=parse_number("max_num_tokens", max_num_tokens),
            num_reqs=None if num_reqs is None else parse_axis("num_reqs", num_reqs),
            rules=rule or DEFAULT_RULES,
            reachable=reachable,
            strict=strict,
            **settings,
        ),
        plot,
        form=form,
        output=output,
        report=report,
        show_all=show_all or num_reqs is not None,
        exit_zero=exit_zero,
    )
