"""The longest request of a local model, from its config.json."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from dummyaudit.block_table import positive
from dummyaudit.engine.said import Origin, Said
from dummyaudit.engine.words import refusal, shown
from dummyaudit.errors import InputError

MAX_BYTES = 2**24
"""Size of a config.json that is read."""

# Source: vllm/transformers_utils/model_arch_config_convertor.py, derive_max_model_len_and_key.
_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# Where multimodal models keep the config of their language model.
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
# Types of rope scaling that max_position_embeddings counts already. Source: vllm/config/model.py,
# _get_and_verify_max_len.
_COUNTED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")


def max_model_len_of(path: str, *, scales_yarn: bool = False) -> Said | None:
    """The max_model_len that vLLM takes from a model's config.json if none is given.

    Args:
        path: what the command calls the model.
        scales_yarn: whether YaRN multiplies the length that the model was trained with, as before 0.30.

    Returns:
        None, if it is no directory with a config.json, or if that says no length: there its class decides.

    Raises:
        InputError: the file cannot be read or is no such JSON, or a length in it is none.
    """
    file = os.path.join(path, "config.json")
    if not os.path.isfile(file):
        return None
    text = _read(file)
    config = _text_config(file, text, _parse(file, text))
    lengths = {key: _Length(file, text, key, config[key]) for key in _KEYS if config.get(key) is not None}
    if not lengths:
        return None
    found = lengths.get("model_max_length") or min(lengths.values(), key=lambda length: length.value)
    factor = 1.0
    for rope in _ropes(config):
        kind, original = rope.get("rope_type", rope.get("type")), "original_max_position_embeddings"
        if kind in ("longrope", "su") and config.get(original) is not None:
            return _Length(file, text, original, config[original]).said(1.0)
        if kind == "yarn" and scales_yarn and rope.get(original) is not None:
            found = _Length(file, text, original, rope[original])
        if kind not in _COUNTED or (kind == "yarn" and scales_yarn):
            factor = _factor(file, text, rope.get("factor", factor))
    return found.said(factor)


class _Length:
    """A length that the file gives."""

    def __init__(self, file: str, text: str, key: str, value: object) -> None:
        self.origin = _origin(file, text, key)
        if not isinstance(value, int):
            raise refusal(self.origin, f"{shown(value)} is not a length", "give --max-model-len")
        self.value = positive(str(self.origin), value)

    def said(self, factor: float) -> Said:
        return Said(positive(str(self.origin), int(self.value * factor)), self.origin)


def _factor(file: str, text: str, value: object) -> float:
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 2**31:
        raise refusal(_origin(file, text, "factor"), f"{shown(value)} is not a factor", "give --max-model-len")
    return value


def _read(file: str) -> str:
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {file!r}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{file}: larger than {MAX_BYTES // 2**20} MiB, which no config.json is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{file}:{line}: not a text file", "give JSON in UTF-8") from None


def _parse(file: str, text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{file}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{file}:1: not JSON that can be read: a number too long, or nested too deeply") from None
    if not isinstance(config, dict):
        raise InputError(f"{file}:1: {shown(config)} where a JSON object belongs")
    return config


def _text_config(file: str, text: str, config: dict[str, Any]) -> dict[str, Any]:
    """The config of the language model: itself, or what is nested in a multimodal model's."""
    for name in _NESTED:
        nested = config.get(name)
        if isinstance(nested, dict):
            return _text_config(file, text, nested)
        if nested is not None:
            raise refusal(_origin(file, text, name), f"{shown(nested)} where a JSON object belongs")
    return config


def _ropes(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The rope parameters, several where layers differ; none for Gemma 3, whose lengths count them already."""
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(rope, dict) or "gemma3" in str(config.get("model_type")):
        return []
    return [nested for nested in rope.values() if isinstance(nested, dict)] or [rope]


def _origin(file: str, text: str, key: str) -> Origin:
    found = [match.start() for match in re.finditer(rf'"{key}"\s*:', text)]
    return Origin("model", key, file, text.count("\n", 0, found[-1]) + 1 if found else None)
