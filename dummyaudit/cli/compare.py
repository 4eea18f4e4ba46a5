"""`dummyaudit compare`: one shape, rules side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from dummyaudit.cli import options
from dummyaudit.cli.plot import Plot, run_with_plot

EPILOG = """\b
Examples:
  dummyaudit compare --num-reqs 256 --num-tokens 496
  dummyaudit compare --num-reqs 256 --num-tokens 4128 --max-model-len 4096 --rule v1 --rule even
"""


def compare(
    num_reqs: Annotated[str, typer.Option(metavar="N", help="Requests.")],
    num_tokens: Annotated[str, typer.Option(metavar="N", help="Their tokens together.")],
    max_model_len: Annotated[
        str | None,
        typer.Option(
            metavar=options.AXIS,
            help="Longest legal request, in tokens.  [default: powers of two around the answer]",
            show_default=False,
        ),
    ] = None,
    block_size: options.BlockSize = "16",
    max_num_seqs: options.MaxNumSeqs = None,
    rule: options.Rules = None,
    token_alignment: options.TokenAlignment = "128",
    kernel_block_size: options.KernelBlockSize = None,
    dcp: options.Dcp = "1",
    interleave: options.Interleave = "1",
    device: options.Device = "auto",
    form: options.FormatOption = "table",
    output: options.Output = None,
    report: options.Reports = None,
    plot: Plot = None,
    only_flagged: options.OnlyFlagged = False,
    all_requests: Annotated[
        bool, typer.Option("--all-requests", help="Show each request, not runs of equal ones.")
    ] = False,
    strict: options.Strict = False,
    exit_zero: options.ExitZero = False,
) -> int:
    """Compare what rules make of one shape, request by request."""
    from dummyaudit import api
    from dummyaudit.axes import parse_number
    from dummyaudit.cli.run import table_options
    from dummyaudit.space import DEFAULT_RULES

    settings = table_options(
        max_model_len=max_model_len,
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        token_alignment=token_alignment,
        kernel_block_size=kernel_block_size,
        dcp=dcp,
        interleave=interleave,
    )
    return run_with_plot(
        lambda _: api.compare(
            num_reqs=parse_number("num_reqs", num_reqs),
            num_tokens=parse_number("num_tokens", num_tokens),
            rules=rule or DEFAULT_RULES,
            device=device,
            strict=strict,
            only_flagged=only_flagged,
            **settings,
        ),
        plot,
        form=form,
        output=output,
        report=report,
        show_all=all_requests,
        exit_zero=exit_zero,
    )
