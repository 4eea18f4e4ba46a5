"""A vLLM command as an operator pastes it: a line of shell, flags alone, or words that a shell has split."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dummyaudit.engine.arguments import VARIABLE, Parsed, interpret
from dummyaudit.engine.said import Origin
from dummyaudit.engine.shell import split_commands
from dummyaudit.engine.words import Word, refusal, shown

__all__ = ["Parsed", "find_commands", "parse_command"]

_MODULE = re.compile(r"vllm\.entrypoints\.(?:\w+\.)*api_server(?:\.entry)?")
_ASSIGNMENT = re.compile(rf"(?:-e|--env=)?({VARIABLE}=.*)", re.DOTALL)
_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z|k)?sh")
_SHELL_OPTION = re.compile(r"-[a-z]*c")
_RUNTIME = re.compile(r"(?:.*/)?(?:docker|podman|nerdctl)")
_IMAGE = re.compile(r"[\w.:/-]*vllm[\w./-]*(?::[\w.-]+)?(?:@sha256:\w+)?")
_RUNTIME_SWITCH = re.compile(r"-[dit]+|--(?:rm|detach|interactive|tty|privileged|init|read-only)")
_PRINTERS = ("echo", "printf")

_HINT = "paste `vllm serve MODEL ...`, `python -m vllm.entrypoints.openai.api_server ...` or flags alone"


def parse_command(
    text: str | Sequence[str], origin_file: str | None = None, origin_line: int | None = None
) -> Parsed:
    """Reads `vllm serve [MODEL] flags`, `python -m vllm.entrypoints.openai.api_server flags`, or flags alone.

    What stands around the command is looked through: environment assignments, `exec` and the like, a prompt, other
    commands, `sh -c "..."`, `docker run ... IMAGE flags`. Nothing is run or expanded.

    Args:
        text: a fragment of a shell script, or the words of the command.
        origin_file: the file that it stands in.
        origin_line: its first line there.

    Raises:
        InputError: it is not one vLLM command, or vLLM could not read it; in one line, naming the flag.
    """
    if not isinstance(text, str) and len(text) == 1 and not text[0].startswith("-"):
        text = text[0]
    if isinstance(text, str):
        commands = split_commands(text, origin_file, origin_line)
    else:
        commands = [[Word(word, "command", origin_file, origin_line) for word in text]]
    words = [word for command in commands for word in command]
    where = Origin("command", "command", origin_file, origin_line)
    if not words:
        raise refusal(where, "empty", _HINT)
    if words[0].text.startswith("-"):
        return interpret(words)
    found = list(find_commands(commands))
    if not found:
        raise refusal(where, f"{shown(' '.join(word.text for word in words))} does not run vLLM", _HINT)
    if len(found) > 1:
        raise refusal(where, f"it runs vLLM {len(found)} times", "give one command at a time")
    return interpret(found[0])


def find_commands(commands: Sequence[Sequence[Word]]) -> Iterator[list[Word]]:
    """The words of each vLLM command: environment assignments first, then what stands behind `vllm serve`.

    Raises:
        InputError: a script inside, as in `sh -c`, cannot be split.
    """
    exported: list[Word] = []
    for words in commands:
        for found in _find_in(words):
            yield [*exported, *found]
        if words and words[0].text == "export":
            exported += _assignments(words)


def _find_in(words: Sequence[Word]) -> Iterator[list[Word]]:
    if words and words[0].text in _PRINTERS:
        return
    runtime = any(_RUNTIME.fullmatch(word.text) for word in words)
    for i, word in enumerate(words[:-1]):
        following = words[i + 1]
        if script := _script_of(words, i):
            for found in find_commands(split_commands(script.text, script.file, script.line)):
                yield [*_assignments(words[:i]), *found]
            return
        is_vllm = word.text.rpartition("/")[2] == "vllm" and following.text == "serve"
        if is_vllm or (word.text == "-m" and _MODULE.fullmatch(following.text)):
            yield [*_assignments(words[:i]), *words[i + 2 :]]
            return
    for i in range(1, len(words) if runtime else 0):
        before = words[i - 1].text
        is_value = before.startswith("-") and "=" not in before and not _RUNTIME_SWITCH.fullmatch(before)
        if _IMAGE.fullmatch(words[i].text) and not is_value:
            yield [*_assignments(words[:i]), *words[i + 1 :]]
            return


def _script_of(words: Sequence[Word], i: int) -> Word | None:
    """The script of `sh -c script`, if it stands at `i`; other options may come before the -c."""
    if _SHELL.fullmatch(words[i].text):
        for j in range(i + 1, min(i + 6, len(words) - 1)):
            if _SHELL_OPTION.fullmatch(words[j].text):
                return words[j + 1]
    return None


def _assignments(words: Sequence[Word]) -> list[Word]:
    found = ((word, _ASSIGNMENT.fullmatch(word.text)) for word in words)
    return [Word(match[1], "environment", word.file, word.line) for word, match in found if match]
