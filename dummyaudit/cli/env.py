"""`dummyaudit env`: what a bug report needs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

EPILOG = """\b
Examples:
  dummyaudit env
  dummyaudit env --format json
"""


def env(
    form: Annotated[Literal["table", "json"], typer.Option("--format", "-f", help="Format of the result.")] = "table",
) -> int:
    """Show versions, devices, the runner that vLLM would choose and the guard's state: what a bug report needs."""
    from dummyaudit.environment import find_environment

    found = find_environment()
    typer.echo(found.to_json() if form == "json" else found.to_text())
    return 0
