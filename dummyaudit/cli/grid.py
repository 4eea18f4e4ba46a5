"""`dummyaudit grid`: a whole grid of shapes."""

from __future__ import annotations

from dummyaudit.cli import options
from dummyaudit.cli.plot import Plot, run_with_plot
from dummyaudit.errors import InputError

EPILOG = """\b
Examples:
  dummyaudit grid --max-model-len 4096
  dummyaudit grid --num-reqs 1:256:x2 --num-tokens 256:512:16 --max-model-len 16,64 --format github
"""


def grid(
    num_reqs: options.NumReqs = None,
    num_tokens: options.NumTokens = None,
    max_model_len: options.MaxModelLen = "16,64,256,1024,4096",
    block_size: options.BlockSize = "16",
    shapes: options.ShapesFile = None,
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
    show_all: options.ShowAll = False,
    summary: options.Summary = False,
    jobs: options.Jobs = "1",
    strict: options.Strict = False,
    exit_zero: options.ExitZero = False,
) -> int:
    """Audit every shape of a grid, rules side by side.

    An AXIS is 16, or 1,2,4, or 8:256:8 (both ends), or 1:256:x2 (doubling), or several joined by commas; k and m
    are powers of 1000, K and M of 1024.
    """
    from dummyaudit import api
    from dummyaudit.axes import parse_axis, parse_number
    from dummyaudit.cli.run import table_options
    from dummyaudit.shapes_file import read_shapes
    from dummyaudit.space import DEFAULT_RULES

    if summary and plot is not None:
        raise InputError("--plot draws shapes, which --summary does not keep", "leave one of them out")
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
        lambda progress: api.grid(
            num_reqs=None if num_reqs is None else parse_axis("num_reqs", num_reqs),
            num_tokens=None if num_tokens is None else parse_axis("num_tokens", num_tokens),
            shapes=None if shapes is None else read_shapes(shapes),
            rules=rule or DEFAULT_RULES,
            device=device,
            strict=strict,
            only_flagged=only_flagged,
            worst=None if show_all else api.WORST,
            summary=summary,
            jobs=parse_number("jobs", jobs),
            progress=progress,
            stop=progress.until_interrupted(),
            **settings,
        ),
        plot,
        form=form,
        output=output,
        report=report,
        show_all=show_all,
        exit_zero=exit_zero,
    )
