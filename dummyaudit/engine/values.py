"""Values as vLLM's flags read them: from text, or from the JSON of a nested config."""

from __future__ import annotations

import re

from dummyaudit.block_table import positive
from dummyaudit.engine.said import Origin
from dummyaudit.engine.words import is_unknowable, refusal, shown, unknowable
from dummyaudit.errors import InputError

MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
"""Names of cudagraph_mode; the first three are also known by their place here."""

_COMPILATION_MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")
_PERFORMANCE_MODES = ("balanced", "interactivity", "throughput")

_LONGEST = 40  # characters of a number
_HUMAN = re.compile(r"(\d{1,20})(\.\d{1,20})?([kKmMgGtT])")
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def human_int(text: str) -> int:
    """A whole number, or one with a unit: powers of 1000 in lower case, and of 1024 in upper case.

    Raises:
        ValueError: it is neither; a fraction of an upper-case unit is not.
    """
    match = _HUMAN.fullmatch(text.strip())
    if not match:
        return _int(text)
    whole, fraction, unit = match.groups()
    if fraction is None:
        return int(whole) * _UNITS[unit]
    if unit.isupper():
        raise ValueError
    return int(float(whole + fraction) * _UNITS[unit])


def _int(text: str) -> int:
    if len(text) > _LONGEST:
        raise ValueError
    return int(text)


def expand_human_ints(json: str) -> str:
    """JSON in which numbers outside strings may have units, without them.

    Raises:
        ValueError: a unit cannot be read.
    """
    parts = re.split(r'("(?:[^"\\]|\\.)*")', json)
    parts[::2] = [
        re.sub(rf"\b{_HUMAN.pattern}\b", lambda match: str(human_int(match[0])), part) for part in parts[::2]
    ]
    return "".join(parts)


def count(origin: Origin, value: object) -> int:
    """A plain whole number of 1 or more; `1k` is none, and vLLM says so too."""
    hint = "vLLM takes a plain number here" if isinstance(value, str) and _HUMAN.fullmatch(value.strip()) else ""
    try:
        if isinstance(value, float) and not value.is_integer():
            raise ValueError
        number = _int(value) if isinstance(value, str) else int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise _unreadable(origin, value, "a whole number", hint) from None
    return positive(str(origin), number)


def size(origin: Origin, text: str) -> int:
    """A whole number of 1 or more, `4k` and `1K` included."""
    try:
        number = human_int(text)
    except ValueError:
        raise _unreadable(origin, text, "a whole number", "write it as 4096, 4k or 4K") from None
    return positive(str(origin), number)


def length(origin: Origin, text: str) -> int | str:
    """As `size`, or "auto", which vLLM also knows as -1."""
    return "auto" if text.strip().lower() in ("auto", "-1") else size(origin, text)


def level(origin: Origin, text: str) -> int:
    """An optimization level."""
    if text not in ("0", "1", "2", "3"):
        raise _unreadable(origin, text, "an optimization level", "use 0, 1, 2 or 3") from None
    return int(text)


def performance_mode(origin: Origin, text: str) -> str:
    """A performance mode."""
    if text not in _PERFORMANCE_MODES:
        raise _unreadable(origin, text, "a performance mode", f"use one of {', '.join(_PERFORMANCE_MODES)}") from None
    return text


def cudagraph_mode(origin: Origin, value: object) -> str:
    """A cudagraph_mode by its name, in any case, or by its number."""
    if isinstance(value, str) and value.upper() in MODES:
        return value.upper()
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2:
        return MODES[value]
    raise _unreadable(origin, value, "a cudagraph_mode", f"use one of {', '.join(MODES)}")


def compilation_mode(origin: Origin, value: object) -> int:
    """A compilation mode by its number, or by its name in any case."""
    if isinstance(value, str) and value.upper() in _COMPILATION_MODES:
        return _COMPILATION_MODES.index(value.upper())
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3:
        return value
    raise _unreadable(origin, value, "a compilation mode", "use 0, 1, 2 or 3")


def sizes(origin: Origin, value: object) -> tuple[int, ...]:
    """A list of sizes."""
    if not isinstance(value, list):
        raise _unreadable(origin, value, "a list of sizes", "write it as [1,2,4], or with + as 1,2,4") from None
    return tuple(count(origin, item) for item in value)


def switch_variable(origin: Origin, text: str) -> bool:
    """An environment variable that vLLM reads as a number, of which any but 0 means yes."""
    try:
        return bool(int(text))
    except ValueError:
        raise _unreadable(origin, text, "a number", "use 0 or 1") from None


def _unreadable(origin: Origin, value: object, what: str, hint: str = "") -> InputError:
    if isinstance(value, str) and is_unknowable(value):
        return unknowable(origin, value)
    return refusal(origin, f"{shown(value)} is not {what}", hint)
