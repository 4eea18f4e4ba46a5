"""Nested configs: JSON objects as the value of a flag, and flags that give their keys one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dummyaudit.engine import flags, values
from dummyaudit.engine.said import Origin
from dummyaudit.engine.words import Word, is_flag, is_unknowable, refusal, shown, unknowable

Keys = dict[str, tuple[Any, Origin]]
"""Values of a nested config by key, each with its origin."""


def pull_dotted(words: Sequence[Word]) -> tuple[list[Word], dict[str, Keys]]:
    """Takes flags such as `-cc.cudagraph_mode=FULL` out of the words, merged by flag as vLLM merges them.

    Returns:
        The other words, and the keys by flag in the order in which the flags come first.

    Raises:
        InputError: one is the last word and has no value.
    """
    others: list[Word] = []
    nested: dict[str, Keys] = {}
    following = iter(words)
    for word in following:
        name, has_value, text = word.text.partition("=")
        if "." not in name or not is_flag(word.text):
            others.append(word)
            continue
        origin = word.origin(word.name or name)
        if not has_value:
            value_word = next(following, None)
            if value_word is None:
                raise refusal(origin, "needs a value", f"write {name}=VALUE")
            text = value_word.text
        flag, key = flags.canonical(name.removesuffix("+")).split(".", 1)
        flag = "-cc" if flag == "-O" else flag  # so in 0.12; 0.11 has no -cc
        value: Any = text.split(",") if name.endswith("+") else _loose_json(text)
        keys = nested.setdefault(flag, {})
        if isinstance(value, list) and key in keys and isinstance(keys[key][0], list):
            value = keys[key][0] + value
        keys[key] = (value, origin)
    return others, nested


def _loose_json(text: str) -> Any:
    """What vLLM takes the value of such a flag for: JSON, a number with a unit, or else text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return values.human_int(text)
    except ValueError:
        return text


def read_object(word: Word, origin: Origin, *, is_optional: bool) -> Keys:
    """The keys of a JSON object.

    Args:
        word: its text.
        origin: the flag.
        is_optional: whether it may be None, which is no key at all, and its numbers have no units.

    Raises:
        InputError: it is no JSON object.
    """
    text = word.text
    if is_optional and text in ("", "None"):
        return {}
    try:
        value = json.loads(text if is_optional else values.expand_human_ints(text))
    except (ValueError, RecursionError):
        if is_unknowable(text):
            raise unknowable(origin, text) from None
        hint = """quote it whole, as in '{"cudagraph_mode": "FULL"}'"""
        raise refusal(origin, f"{shown(text)} is not JSON", hint) from None
    if value is None and is_optional:
        return {}
    if not isinstance(value, dict):
        raise refusal(origin, f"{shown(text)} is not a JSON object")
    return {key: (item, word.origin(f"{origin.name}.{key}", word.line_of(key))) for key, item in value.items()}
