"""What the README shows is what a reader gets. DUMMYAUDIT_REGENERATE=1 writes the outputs anew."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from cli_helpers import start

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
SHOWN = [block for block in BLOCKS if block.startswith("$ ")]
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.startswith("dummyaudit ")]
PYTHON = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", SHOWN)
def test_shown_output_is_what_the_command_prints(block: str) -> None:
    command, _, output = block.partition("\n")
    result = start(*shlex.split(command.removeprefix("$ dummyaudit ")), COLUMNS="118")
    assert result.status in (0, 1), result.err
    if os.environ.get("DUMMYAUDIT_REGENERATE") == "1":
        README.write_text(README.read_text().replace(block, f"{command}\n{result.out}"))
    else:
        assert output == result.out


def test_readme_shows_outputs() -> None:
    assert len(SHOWN) >= 3


@pytest.mark.parametrize("command", sorted(set(re.findall(r"dummyaudit ([a-z]+) --?[a-z]", TEXT))))
def test_every_command_that_is_named_exists(command: str) -> None:
    assert start(command, "--help").status == 0


def test_every_option_in_a_table_exists() -> None:
    text = "".join(start(command, "--help").out for command in ("grid", "compare"))
    named = set(re.findall(r"^\| (`--.*?) \|", TEXT, re.MULTILINE))
    options = {option for row in named for option in re.findall(r"`(--?[a-z-]+)", row)}
    assert len(options) > 10
    assert [option for option in sorted(options) if option not in text] == []


@pytest.mark.parametrize("code", PYTHON)
def test_python_examples_run(code: str) -> None:
    exec(compile(code, "README.md", "exec"), {})
