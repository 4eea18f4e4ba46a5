"""Settings as somebody said them: the value, and where it was said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["option", "command", "environment", "config", "model", "default"]

Value = int | bool | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a setting comes from.

    Attributes:
        source: an option of ours, a pasted command, an environment variable in front of it, a config file,
            the model's config.json, or a default.
        name: the flag, key or variable as it stands there; of a default, whose it is.
        file: the file, if there is one.
        line: the line in it, from 1.
    """

    source: Source
    name: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
        return f"{place}: {self.name}" if place else self.name


@dataclass(frozen=True, slots=True)
class Said:
    """A setting and where it comes from."""

    value: Value
    origin: Origin


Settings = dict[str, Said]
"""By vLLM's own name of the setting, such as max_model_len, cudagraph_mode, cudagraph_capture_sizes."""
