"""The command `dummyaudit`: wires the commands, and turns every way to end into an exit status."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from dummyaudit import __version__
from dummyaudit.cli import compare, env, frontier, grid, inspect, plot, probe, streams, vllm
from dummyaudit.errors import DummyAuditError

NO_VERDICT = 2
INTERRUPTED = 130

HELP = ("-h", "--help")

# The class that Typer's own usage errors have in common, which it does not export by name.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

EPILOG = """\b
Exit status: 0 nothing overflows, 1 something does, 2 there is no verdict, 130 interrupted.
Examples:
  dummyaudit grid --max-model-len 4096
  dummyaudit compare --num-reqs 256 --num-tokens 496
"""

app = typer.Typer(
    name="dummyaudit",
    epilog=EPILOG,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": HELP, "max_content_width": 100},
)
app.command(epilog=grid.EPILOG)(grid.grid)
app.command(epilog=compare.EPILOG)(compare.compare)
app.command(epilog=vllm.EPILOG)(vllm.vllm)
app.command(epilog=frontier.EPILOG)(frontier.frontier)
app.command(epilog=probe.EPILOG)(probe.probe)
app.command(epilog=inspect.EPILOG)(inspect.inspect)
app.command(epilog=env.EPILOG)(env.env)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dummyaudit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Audit the dummy batches of LLM serving engines.

    Finds requests whose seq_len needs more KV pages than their row of the block table has, before a server
    crashes on them while it profiles, warms up or captures CUDA graphs.
    """


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and returns its exit status; what is wrong is said in one line on stderr."""
    try:
        return int(app(plot.name_plots(arguments), prog_name="dummyaudit", standalone_mode=False) or 0)
    except DummyAuditError as error:
        return _fail(str(error))
    except _UsageError as error:
        return _fail(getattr(error, "format_message", error.__str__)())
    except BaseException as error:
        # Typer hides what it ends on: Abort has it as its cause, SystemExit as its context.
        hides = isinstance(error, (typer.Abort, SystemExit))
        cause = (error.__cause__ or error.__context__ or error) if hides else error
        if isinstance(cause, BrokenPipeError) and {*HELP, "--version"} & set(arguments):
            return 0
        return _crash(cause)


def _crash(error: BaseException) -> int:
    """The exit status of an end that nobody planned: a crash is no verdict."""
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case ModuleNotFoundError(name="yaml"):
            return _fail("config files need PyYAML, which is not installed; pip install PyYAML")
        case OSError(errno=errno.ENOSPC):
            return _fail(f"cannot write: {error.strerror}")
    import traceback

    place = traceback.extract_tb(error.__traceback__)[-1]
    what = "".join(traceback.format_exception_only(error))
    where = f"{os.path.basename(place.filename)}:{place.lineno}"
    return _fail(f"internal error, please report it: {what} ({where})")


def _fail(text: str) -> int:
    # Where stderr is closed, full or gone, the exit status says it alone.
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(f"dummyaudit: error: {' '.join(text.split())}\n")
    return NO_VERDICT


def main() -> NoReturn:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    status = run(sys.argv[1:])
    streams.flush(sys.stdout)
    streams.flush(sys.stderr)
    sys.exit(status)
