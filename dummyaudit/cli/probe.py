"""`dummyaudit probe`: a builder of dummy batches, the installed vLLM's or one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dummyaudit.cli import options

if TYPE_CHECKING:
    pass

EPILOG = """\b
Examples:
  dummyaudit probe --max-model-len 16
  dummyaudit probe mymodule:make_batch --num-reqs 1:256:x2 --num-tokens 256:512:16 --ignore order
"""


def probe(
    builder: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:CALLABLE",
            help="Called with num_reqs and num_tokens; returns the tokens of each request, or an object or mapping "
            "with num_scheduled_tokens and seq_lens.  [default: InputBatch.make_dummy of the installed vLLM]",
            show_default=False,
        ),
    ] = None,
    buffers: Annotated[
        bool,
        typer.Option(
            "--buffers",
            help="Call it with an object of buffers too, which has max_num_reqs, max_num_tokens, device, and the "
            "tensors of vLLM's InputBuffers.",
        ),
    ] = False,
    num_reqs: options.NumReqs = None,
    num_tokens: options.NumTokens = None,
    max_model_len: options.MaxModelLen = "16,64,256,1024,4096",
    block_size: options.BlockSize = "16",
    shapes: options.ShapesFile = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECK",
            help="Leave a check out: requests, sum, no-empty, seq-len, query-start-loc, dtype, padding, order or "
            "copies; repeatable.",
        ),
    ] = None,
    max_num_seqs: options.MaxNumSeqs = None,
    token_alignment: options.TokenAlignment = "128",
    kernel_block_size: options.KernelBlockSize = None,
    dcp: options.Dcp = "1",
    interleave: options.Interleave = "1",
    device: Annotated[
        str,
        typer.Option(metavar="DEVICE", help="Where batches are built: auto (cpu), cpu, cuda or cuda:N, or none."),
    ] = "auto",
    form: options.FormatOption = "table",
    output: options.Output = None,
    report: options.Reports = None,
    only_flagged: options.OnlyFlagged = False,
    show_all: options.ShowAll = False,
    strict: options.Strict = False,
    exit_zero: options.ExitZero = False,
) -> int:
    """Audit the dummy batches that the installed vLLM, or a builder of one's own, really makes.

    Says which rule the builder equals and, of every check that fails, the smallest shape that does. The exit status
    is 1 if a batch overflows or a check fails.
    """
    from dummyaudit import api, probing
    from dummyaudit.axes import parse_axis
    from dummyaudit.cli.run import run, table_options
    from dummyaudit.shapes_file import read_shapes

    settings = table_options(
        max_model_len=max_model_len,
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        token_alignment=token_alignment,
        kernel_block_size=kernel_block_size,
        dcp=dcp,
        interleave=interleave,
    )
    return run(
        lambda progress: probing.probe(
            builder,
            buffers=buffers,
            num_reqs=None if num_reqs is None else parse_axis("num_reqs", num_reqs),
            num_tokens=None if num_tokens is None else parse_axis("num_tokens", num_tokens),
            shapes=None if shapes is None else read_shapes(shapes),
            ignore=ignore or (),
            device=device,
            strict=strict,
            only_flagged=only_flagged,
            worst=None if show_all else api.WORST,
            progress=progress,
            **settings,
        ),
        form=form,
        output=output,
        report=report,
        show_all=show_all,
        exit_zero=exit_zero,
    )
