"""A shell script as words. Nothing is run and nothing expanded: `$VAR`, `$(command)` and `*` stay as they are."""

from __future__ import annotations

import re

from dummyaudit.engine.said import Origin
from dummyaudit.engine.words import Word, refusal
from dummyaudit.errors import InputError

_BLANKS_AFTER_BACKSLASH = re.compile(r"\\[ \t]+(?=\n)")
_PLAIN = re.compile(r"[^\s\\'\"$`#;&|()<>]+")
_REDIRECTION = re.compile(r"&?[<>]+[&|]?")
_CLOSING = {"$(": ")", "${": "}"}


class _Script:
    """Reads a script once, from left to right."""

    def __init__(self, text: str, file: str | None, line: int | None) -> None:
        self.text = text.replace("\r\n", "\n")
        self.file = file
        self.line = line
        self.counted = 0  # how far line breaks are counted in self.line
        self.at = 0
        self.commands: list[list[Word]] = [[]]
        self.word: list[str] | None = None
        self.word_at = 0
        self.is_target = False  # of a redirection
        self.here: list[str] = []  # delimiters of here-documents that are still to come

    def read(self) -> list[list[Word]]:
        while self.at < len(self.text):
            self.step(self.text[self.at])
        self.end_word()
        return [command for command in self.commands if command]

    def step(self, char: str) -> None:
        text, at = self.text, self.at
        if match := _PLAIN.match(text, at):
            self.add(match[0], match.end())
        elif char == "\n":
            self.end_command()
            self.at += 1
            self.skip_here_documents()
        elif char.isspace():
            self.end_word()
            self.at += 1
        elif char == "\\":
            self.backslash()
        elif char == "'":
            end = self.find("'", at + 1, "quote")
            self.add(text[at + 1 : end], end + 1)
        elif char == '"':
            self.double_quotes()
        elif char in "$`":
            self.expansion()
        elif char == "#":
            end = text.find("\n", at) if self.word is None else at + 1
            self.add("#", end) if self.word is not None else self.move(end)
        elif match := _REDIRECTION.match(text, at):
            self.redirect(match[0])
        else:
            self.end_command()
            self.at += 1

    def add(self, piece: str, end: int) -> None:
        if self.word is None:
            self.word, self.word_at = [], self.at
        self.word.append(piece)
        self.at = end

    def move(self, end: int) -> None:
        self.at = end if end >= 0 else len(self.text)

    def place(self, at: int) -> int | None:
        if self.line is not None:
            self.line += self.text.count("\n", self.counted, at)
            self.counted = at
        return self.line

    def find(self, closing: str, start: int, what: str) -> int:
        end = self.text.find(closing, start)
        if end < 0:
            raise self.unterminated(what)
        return end

    def unterminated(self, what: str) -> InputError:
        rest = self.text[self.at :].split("\n", 1)[0][:30]
        return refusal(Origin("command", rest, self.file, self.place(self.at)), f"an unterminated {what}", "close it")

    def end_word(self) -> None:
        if self.word is None:
            return
        text, self.word = "".join(self.word), None
        if self.is_target:
            self.is_target = False
            if self.here and not self.here[-1]:
                self.here[-1] = text
        else:
            self.commands[-1].append(Word(text, "command", self.file, self.place(self.word_at)))

    def end_command(self) -> None:
        self.end_word()
        self.is_target = False
        if self.commands[-1]:
            self.commands.append([])

    def backslash(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if _BLANKS_AFTER_BACKSLASH.match(self.text, self.at):
            origin = Origin("command", "\\", self.file, self.place(self.at))
            raise refusal(origin, "blanks after it, so that the command ends there", "remove the blanks")
        if following in ("\n", ""):
            self.at += 2
        else:
            self.add(following, self.at + 2)

    def double_quotes(self) -> None:
        start, pieces = self.at, []
        at = start + 1
        while (char := self.text[at : at + 1]) != '"':
            if not char:
                raise self.unterminated("quote")
            if char == "\\":
                following = self.text[at + 1 : at + 2]
                pieces.append(
                    {"\n": "", "": ""}.get(following, following if following in '$`"\\' else "\\" + following)
                )
                at += 2
            elif self.text[at : at + 2] in _CLOSING or char == "`":
                end = self.end_of_expansion(at)
                pieces.append(self.text[at:end])
                at = end
            else:
                pieces.append(char)
                at += 1
        self.add("".join(pieces), at + 1)

    def expansion(self) -> None:
        end = self.end_of_expansion(self.at)
        self.add(self.text[self.at : end], end)

    def end_of_expansion(self, start: int) -> int:
        """The end of `$VAR`'s dollar, of `${VAR}`, `$(command)` or a command in backquotes."""
        if self.text[start] == "`":
            return self.find("`", start + 1, "backquote") + 1
        opening = self.text[start : start + 2]
        if opening not in _CLOSING:
            return start + 1
        depth = 0
        for at in range(start + 1, len(self.text)):
            if self.text[at] == opening[1]:
                depth += 1
            elif self.text[at] == _CLOSING[opening]:
                depth -= 1
                if depth == 0:
                    return at + 1
        raise self.unterminated(opening)

    def redirect(self, operator: str) -> None:
        if self.word is not None and "".join(self.word).isdigit():
            self.word = None
        self.end_word()
        self.is_target = True
        self.at += len(operator)
        if operator == "<<":
            self.at += self.text[self.at : self.at + 1] == "-"
            self.here.append("")

    def skip_here_documents(self) -> None:
        for delimiter in self.here:
            end = re.compile(rf"^\t*{re.escape(delimiter)}$", re.MULTILINE).search(self.text, self.at)
            self.at = end.end() if end else len(self.text)
        self.here.clear()


def split_commands(text: str, file: str | None = None, line: int | None = None) -> list[list[Word]]:
    """The commands of a script, each as its words, without comments and redirections.

    Args:
        text: the script.
        file: where it stands.
        line: its first line there.

    Raises:
        InputError: a quote is not closed, or a line is continued by a backslash with blanks behind it.
    """
    return _Script(text, file, line).read()
