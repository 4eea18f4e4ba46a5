"""Words of a command, each with the place where it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dummyaudit.engine.said import Origin, Source
from dummyaudit.errors import InputError

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, or what a key of a config file becomes.

    Attributes:
        text: the word, unquoted.
        source: what kind of place it comes from.
        file: the file, if there is one.
        line: its first line there, from 1.
        name: what it is called in messages, if not by its text.
        lines: lines of the keys of a nested mapping that is written out in the text as JSON.
    """

    text: str
    source: Source = "command"
    file: str | None = None
    line: int | None = None
    name: str | None = None
    lines: Mapping[str, int] | None = None

    def origin(self, name: str | None = None, line: int | None = None) -> Origin:
        """The origin of a setting that stands here."""
        return Origin(self.source, name or self.name or self.text, self.file, line or self.line)

    def line_of(self, key: str) -> int | None:
        """The line of a key of the JSON object that this word is."""
        if self.lines is not None:
            return self.lines.get(key, self.line)
        if self.line is None:
            return None
        return self.line + self.text[: max(self.text.find(f'"{key}"'), 0)].count("\n")


def is_flag(text: str) -> bool:
    """Whether a word is a flag and no value, as argparse decides it."""
    if not text.startswith("-") or text == "-" or _NEGATIVE.fullmatch(text):
        return False
    return not re.search(r"\s", text.partition("=")[0])


def refusal(origin: Origin, what: str, hint: str = "") -> InputError:
    """The error that names the file, line and flag of what was said at `origin`."""
    return InputError(f"{origin}: {what}", hint)


def shown(value: object) -> str:
    """A value as a message quotes it: in one line, and not too much of it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...'"


def is_unknowable(text: str) -> bool:
    """Whether a shell, a cluster or a template would put something else there."""
    return "$" in text or "`" in text or "{{" in text


def unknowable(origin: Origin, text: str) -> InputError:
    """The error that refuses such a text."""
    return refusal(origin, f"{shown(text)} cannot be known, nothing is expanded here", "write what it stands for")
