"""`dummyaudit inspect`: tensors that an engine saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dummyaudit.cli import options

if TYPE_CHECKING:
    pass

EPILOG = """\b
Examples:
  dummyaudit inspect batch.npz --block-size 16 --max-model-len 4096
  dummyaudit inspect dump.pt --seq-lens lens --block-table tables --block-size 16 --num-blocks 8192
"""

KEY = "KEY"


def inspect(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help=".npz, .json, .safetensors or .pt with seq_lens and block_table (or block_table_shape), and perhaps "
            "query_start_loc, block_size and max_model_len.",
        ),
    ],
    seq_lens: Annotated[
        str | None, typer.Option(metavar=KEY, help="Name of seq_lens in the file, if it is another.")
    ] = None,
    block_table: Annotated[str | None, typer.Option(metavar=KEY, help="The same of block_table.")] = None,
    query_start_loc: Annotated[str | None, typer.Option(metavar=KEY, help="The same of query_start_loc.")] = None,
    block_table_shape: Annotated[
        str | None,
        typer.Option(metavar="ROWS,SLOTS", help="Shape of the block table, if the file has none."),
    ] = None,
    block_size: Annotated[
        str | None, typer.Option(metavar="N", help="Tokens of one KV page, if not as in the file.")
    ] = None,
    max_model_len: Annotated[
        str | None, typer.Option(metavar="N", help="Longest legal request, in tokens, if not as in the file.")
    ] = None,
    num_blocks: Annotated[
        str | None, typer.Option(metavar="N", help="Pages of the pool: a page id of N or more is a fault.")
    ] = None,
    null_block: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Id of the page that stands for none. In the used part of a row it is a fault, unless the whole "
            "table is full of it as in a dummy batch; none turns this off, for sliding windows.",
        ),
    ] = "0",
    prefix_caching: Annotated[
        bool, typer.Option("--prefix-caching", help="Let requests share the pages that their rows begin with.")
    ] = False,
    form: options.FormatOption = "table",
    output: options.Output = None,
    report: options.Reports = None,
    only_flagged: options.OnlyFlagged = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show every finding in the table, not only 20.")] = False,
    strict: options.Strict = False,
    exit_zero: options.ExitZero = False,
) -> int:
    """Audit a batch that some engine saved: lengths, block table and page ids.

    The exit status is 1 if a request overflows, or if page ids or query_start_loc are wrong.
    """
    from dummyaudit import inspection
    from dummyaudit.axes import parse_number
    from dummyaudit.cli.run import run
    from dummyaudit.errors import InputError

    def number(name: str, text: str | None) -> int | None:
        return None if text is None else parse_number(name, text)

    def shape() -> tuple[int, int] | None:
        if block_table_shape is None:
            return None
        values = block_table_shape.split(",")
        if len(values) != 2:
            raise InputError(f"block_table_shape: {block_table_shape!r} is not ROWS,SLOTS", "write it as 256,8")
        return parse_number("block_table_shape", values[0]), parse_number("block_table_shape", values[1])

    def null_page() -> int | None:
        if null_block == "none":
            return None
        if not null_block.isascii() or not null_block.removeprefix("-").isdecimal():
            raise InputError(f"null_block: {null_block!r} is no page id", "write a number, or none")
        return int(null_block)

    given = {"seq_lens": seq_lens, "block_table": block_table, "query_start_loc": query_start_loc}
    return run(
        lambda _: inspection.inspect(
            file,
            keys={name: key for name, key in given.items() if key is not None},
            block_table_shape=shape(),
            block_size=number("block_size", block_size),
            max_model_len=number("max_model_len", max_model_len),
            num_blocks=number("num_blocks", num_blocks),
            null_block=null_page(),
            shared_prefixes=prefix_caching,
            strict=strict,
            only_flagged=only_flagged,
        ),
        form=form,
        output=output,
        report=report,
        show_all=show_all,
        exit_zero=exit_zero,
    )
