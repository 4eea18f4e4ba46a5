"""vLLM's own config file, which `vllm serve --config` reads: flags without their dashes, as YAML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dummyaudit.engine import flags
from dummyaudit.engine.arguments import Parsed, interpret
from dummyaudit.engine.words import Word
from dummyaudit.engine.yaml_file import NAMES, YamlFile, kind_of, line_of, read_yaml
from dummyaudit.errors import InputError

if TYPE_CHECKING:
    from yaml.nodes import Node


def read_config(path: str) -> Parsed:
    """Reads a config file of `vllm serve`.

    Raises:
        InputError: it cannot be read, is no mapping, or a value of an understood key cannot be read; names file and
            line.
    """
    file = read_yaml(path)
    if not file.documents:
        raise InputError(f"{path}: empty", "give a line such as max-model-len: 4096")
    if len(file.documents) > 1:
        raise file.error(file.documents[1], "a second document, where a config has one")
    return config_of(file, file.documents[0])


def config_of(file: YamlFile, root: Node) -> Parsed:
    """The config that a document is; errors as `read_config`."""
    if not root.value:
        raise file.error(root, "empty", "give a line such as max-model-len: 4096")
    return interpret([word for entry in file.items(root, "a config") for word in _words(file, *entry)])


def _words(file: YamlFile, name: str, key: Node, node: Node) -> Iterator[Word]:
    """The words of the command that vLLM makes of a key and its value."""
    line = line_of(key)
    if name.startswith("-"):
        raise file.error(key, f"the key {name!r} begins with a dash", f"write {name.lstrip('-')}")
    value, flag = file.value(node), f"--{name}"
    _check_kind(file, key, node, flags.canonical(flag))

    def word(text: str, lines: dict[str, int] | None = None) -> Word:
        return Word(text, "config", file.path, line, name, lines)

    if isinstance(value, dict):
        lines = {key.value: line_of(key) for key, _ in node.value if kind_of(key) == "scalar"}
        yield word(f"{flag}={json.dumps(value, default=str)}", lines)
    elif isinstance(value, list):
        if value:
            yield from map(word, (flag, *map(str, value)))
    elif value is False and flags.canonical(flag) in flags.SWITCHES:
        if flags.canonical(flag) in flags.OFF_BY_DEFAULT:  # vLLM leaves all of them out
            yield word(f"--no-{name}")
    elif isinstance(value, bool):
        yield word(flag)
    else:
        yield word(f"{flag}={value}")


def _check_kind(file: YamlFile, key: Node, node: Node, flag: str) -> None:
    """Refuses a list or mapping as the value of an understood flag that takes none."""
    kind, is_config = kind_of(node), flag in flags.CONFIGS
    if flag not in flags.UNDERSTOOD or kind == "scalar":
        return
    if (kind == "mapping" and not is_config) or (kind == "sequence" and flag not in flags.LISTS):
        raise file.error(key, f"{key.value}: {NAMES[kind]} where {'a mapping' if is_config else 'a value'} belongs")
