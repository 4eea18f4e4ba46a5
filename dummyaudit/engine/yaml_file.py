"""YAML files as data: bounded in size and depth, without aliases and duplicate keys, every node with its line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dummyaudit.errors import InputError

if TYPE_CHECKING:
    from yaml import SafeLoader
    from yaml.nodes import MappingNode, Node

MAX_BYTES = 2**20
"""Size of a file that is read."""

MAX_DEPTH = 64
"""Depth to which its values may be nested."""

NAMES = {"scalar": "a single value", "sequence": "a list", "mapping": "a mapping"}
"""Kinds of nodes as messages call them."""


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A file and the nodes that its documents are.

    Attributes:
        path: the file.
        text: its text.
        documents: their root nodes; an empty document is none.
    """

    path: str
    text: str
    documents: tuple[Node, ...]

    def error(self, node: Node, what: str, hint: str = "") -> InputError:
        """The error that names the file and the line of a node."""
        return InputError(f"{self.path}:{line_of(node)}: {what}", hint)

    def items(self, node: Node, what: str) -> Iterator[tuple[str, Node, Node]]:
        """The keys of a mapping, with the nodes of the key and of its value.

        Args:
            node: the mapping.
            what: what it is, for the error.

        Raises:
            InputError: it is no mapping, or a key of it is no text.
        """
        if kind_of(node) != "mapping":
            raise self.error(node, f"{NAMES[kind_of(node)]} where a mapping belongs: {what}")
        for key, value in node.value:
            name = self.value(key)
            if not isinstance(name, str) or not name:
                raise self.error(key, f"the key {name!r} is no text", "quote it")
            yield name, key, value

    def mapping(self, node: Node, what: str) -> dict[str, Node]:
        """The values of a mapping by key; errors as `items`."""
        return {name: value for name, _, value in self.items(node, what)}

    def value(self, node: Node) -> Any:
        """What the safe loader makes of a node.

        Raises:
            InputError: it makes nothing of it, as of a tag of one's own.
        """
        import yaml

        constructor = yaml.constructor.SafeConstructor()
        try:
            return constructor.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
            problem = getattr(error, "problem", None) or "a value that YAML cannot hold"
            raise self.error(node, _one_line(problem)) from None


def kind_of(node: Node) -> Literal["scalar", "sequence", "mapping"]:
    """What kind of node it is."""
    return node.id  # type: ignore[attr-defined,no-any-return]


def line_of(node: Node) -> int:
    """The line of a node, from 1."""
    return int(node.start_mark.line) + 1


def read_yaml(path: str) -> YamlFile:
    """Reads a YAML file.

    Raises:
        InputError: it cannot be read, is too large, no text or no YAML, too deeply nested, or has aliases or
            duplicate keys; names the line, where there is one.
    """
    return parse_yaml(path, read_text(path))


def read_text(path: str) -> str:
    """The text of a file.

    Raises:
        InputError: it cannot be read, is too large, or no text.
    """
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot read {path!r}: {reason}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**20} MiB, which no settings are")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _no_text(path, data[: error.start].count(b"\n") + 1) from None


def _no_text(path: str, line: int) -> InputError:
    return InputError(f"{path}:{line}: not a text file", "give YAML in UTF-8")


def parse_yaml(path: str, text: str) -> YamlFile:
    """The documents of a text that stands in `path`; errors as `read_yaml`, if it can be read."""
    import yaml

    try:
        documents = tuple(yaml.compose_all(text, _loader(path)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        hint = "indent with spaces" if "\\t" in str(error.problem) else ""
        raise _at(path, mark, f"not YAML: {_one_line(error.problem or error.context)}", hint) from None
    except yaml.reader.ReaderError as error:
        raise _no_text(path, text[: error.position].count("\n") + 1) from None
    null = "tag:yaml.org,2002:null"
    return YamlFile(path, text, tuple(node for node in documents if node.tag != null))


def _loader(path: str) -> type[SafeLoader]:
    """A safe loader that refuses what a file of settings has no need for."""
    import yaml

    class Loader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Node | None, index: int) -> Node | None:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            if isinstance(event, yaml.AliasEvent):
                raise _at(path, event.start_mark, "an alias, which is not followed", "write the value in its place")
            if self.depth >= MAX_DEPTH:
                raise _at(path, event.start_mark, f"nested more than {MAX_DEPTH} deep")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def compose_mapping_node(self, anchor: Any) -> MappingNode:
            node = super().compose_mapping_node(anchor)
            seen = set()
            for key, _ in node.value:
                if kind_of(key) == "scalar" and key.value in seen:
                    raise _at(path, key.start_mark, f"the key {key.value!r} is there twice", "keep one")
                seen.add(key.value if kind_of(key) == "scalar" else key)
            return node

    return Loader


def _at(path: str, mark: Any, what: str, hint: str = "") -> InputError:
    return InputError(f"{path}:{mark.line + 1}: {what}", hint)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
