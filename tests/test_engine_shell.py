"""Scripts as words, against a real shell where one is."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dummyaudit.engine.shell import split_commands
from dummyaudit.errors import InputError


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command] for command in split_commands(text)]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("", []),
        ("  \n\n ; ", []),
        ("a b\tc", [["a", "b", "c"]]),
        ("a 'b  c' \"d  e\"f", [["a", "b  c", "d  ef"]]),
        ("a ''", [["a", ""]]),
        ("a\\ b \\'c", [["a b", "'c"]]),
        ("a \\\n b\\\nc", [["a", "bc"]]),
        ('a "b\\\nc" "\\$d\\e"', [["a", "bc", "$d\\e"]]),
        ("a # b\nc#d", [["a"], ["c#d"]]),
        ("a;b&&c||d|e&f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("(a b)", [["a", "b"]]),
        ("a > out 2>&1 < in >>more b", [["a", "b"]]),
        ("a &> out 3", [["a", "3"]]),
        ("a $B ${C d} $(e f) `g h` $", [["a", "$B", "${C d}", "$(e f)", "`g h`", "$"]]),
        ('a "$(b "c")" "`d`"', [["a", '$(b "c")', "`d`"]]),
        ("a <<X b\nvllm\nX\nc", [["a", "b"], ["c"]]),
        ("a <<-'X Y'\nvllm\n\tX Y\nc", [["a"], ["c"]]),
        ("a <<X\nnever ends", [["a"]]),
        ("a\r\nb\r\n", [["a"], ["b"]]),
        ("a \\", [["a"]]),
    ],
)
def test_script_is_split_as_a_shell_splits_it(text: str, commands: list[list[str]]) -> None:
    assert words(text) == commands


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a 'b", "'b: an unterminated quote; close it"),
        ('a "b\nc', '"b: an unterminated quote'),
        ("a `b", "`b: an unterminated backquote"),
        ("a $(b", "$(b: an unterminated $("),
        ("a ${b", "${b: an unterminated ${"),
        ('a "$(b"', "an unterminated $("),
        ("a \\ \nb", "blanks after it, so that the command ends there; remove the blanks"),
    ],
)
def test_what_never_ends_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        split_commands(text)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_error_names_the_line_of_its_file() -> None:
    with pytest.raises(InputError, match=r"^run\.sh:12: 'x: an unterminated quote"):
        split_commands("a\nb \\\n 'x", "run.sh", 10)


def test_words_know_their_lines() -> None:
    commands = split_commands("a\n\nb 'c\nd' e\n", "run.sh", 1)
    assert [[(word.text, word.line) for word in command] for command in commands] == [
        [("a", 1)],
        [("b", 3), ("c\nd", 3), ("e", 4)],
    ]
    assert {word.file for command in commands for word in command} == {"run.sh"}


BASH = shutil.which("bash")


@pytest.mark.skipif(BASH is None, reason="no bash")
@settings(max_examples=60)
@given(st.text(alphabet="ab \t\\'\"#-=.,{}[]:", max_size=25))
def test_one_command_is_split_as_bash_splits_it(text: str) -> None:
    script = f"printf '%s\\0' x {text}\n"
    done = subprocess.run([str(BASH), "-f", "+B", "-c", script], capture_output=True, check=False, timeout=20)
    if done.returncode != 0 or done.stderr:
        return
    if re.search(r"\\[ \t]+\n", script):
        return  # legal, and never meant: refused
    assert words(f"x {text}\n") == [done.stdout.decode().split("\0")[:-1]]


def test_long_scripts_are_read_quickly() -> None:
    assert len(words("a 'b' \"c\" \\\n" * 20_000)[0]) == 60_000
