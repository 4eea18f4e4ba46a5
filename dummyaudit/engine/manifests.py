"""Deployments in files: vLLM's own configs, and Kubernetes manifests whose containers run vLLM."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dummyaudit.engine import flags
from dummyaudit.engine.arguments import VARIABLE, Parsed, interpret
from dummyaudit.engine.command_line import find_commands
from dummyaudit.engine.config_file import config_of
from dummyaudit.engine.words import Word
from dummyaudit.engine.yaml_file import NAMES, YamlFile, kind_of, line_of, parse_yaml, read_text, read_yaml
from dummyaudit.errors import InputError

if TYPE_CHECKING:
    from yaml.nodes import Node

_SETTINGS = sorted(name.removeprefix("--") for name in flags.UNDERSTOOD if name not in ("--model", "--config", "-O"))
_COMMON = ("tensor-parallel-size", "gpu-memory-utilization", "served-model-name")
_MENTION = re.compile(
    "|".join(("vllm", *_COMMON, *(name for name in _SETTINGS if len(name) > 3))).replace("-", "[-_]"), re.IGNORECASE
)
_OURS = re.compile(rf"^[\s-]*(?:containers|{'|'.join(map(re.escape, _SETTINGS))})[\"']?\s*:", re.MULTILINE)
_ROLES = {"leaderTemplate": "leader ", "workerTemplate": "worker "}


@dataclass(frozen=True, slots=True)
class Deployment:
    """One vLLM server that a file describes.

    Attributes:
        name: its object and container, or the file's name for a config of vLLM.
        parsed: what is said of it.
        file: the file.
        line: where it begins there.
    """

    name: str
    parsed: Parsed
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a file or a directory holds.

    Attributes:
        deployments: the deployments, by file and line.
        passed_over: the other YAML files of a directory, each with the reason why nothing was read from it.
    """

    deployments: tuple[Deployment, ...]
    passed_over: tuple[str, ...] = ()


def find_deployments(path: str) -> Found:
    """The deployments of a file, or of all YAML files below a directory but in hidden ones.

    A file of a directory that has nothing to do with vLLM, or is a template and no YAML, is passed over.

    Raises:
        InputError: a file cannot be read, a setting in it cannot, or there is no deployment at all.
    """
    if not os.path.isdir(path):
        deployments = tuple(_in_file(read_yaml(path), is_asked_for=True))
        if not deployments:
            raise InputError(
                f"{path}: no container in it runs vLLM", "give vLLM's own config, or a manifest that does"
            )
        return Found(deployments)
    found: list[Deployment] = []
    passed_over: list[str] = []
    for name in _yaml_files(path):
        before = len(found)
        reason = _read_into(found, name)
        if len(found) == before:
            passed_over.append(f"{name}: {reason}")
    if not found:
        raise InputError(
            f"{path}: no YAML file below it describes a vLLM server ({len(passed_over)} passed over)",
            "give a config of vLLM, or a manifest whose container runs it",
        )
    return Found(tuple(found), tuple(passed_over))


def _yaml_files(path: str) -> Iterator[str]:
    for directory, below, names in os.walk(path):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            if name.endswith((".yaml", ".yml")):
                yield os.path.join(directory, name)


def _read_into(found: list[Deployment], name: str) -> str:
    """Adds the deployments of a file of a directory; returns why there are none."""
    try:
        text = read_text(name)
    except InputError as error:
        return error.message.removeprefix(f"{name}: ")
    if not _MENTION.search(text):
        return "nothing of vLLM"
    is_template = "{{" in text or "{%" in text
    try:
        file = parse_yaml(name, text)
    except InputError:
        if is_template or not _OURS.search(text):
            return "a template, or no YAML that is read here"
        raise
    try:
        found += list(_in_file(file, is_asked_for=False))
    except InputError:
        if is_template:
            return "a template"
        raise
    return "no vLLM server"


def _in_file(file: YamlFile, *, is_asked_for: bool) -> Iterator[Deployment]:
    """The deployments of a file; `is_asked_for` takes it for a config of vLLM unless it is a manifest."""
    roots = file.documents
    if not any(_owner(file, root) for root in roots):
        if len(roots) == 1 and (is_asked_for or _is_config(file, roots[0])):
            yield Deployment(os.path.basename(file.path), config_of(file, roots[0]), file.path, line_of(roots[0]))
        elif is_asked_for and not roots:
            raise InputError(f"{file.path}: empty", "give a config of vLLM, or a manifest")
        return
    for root in roots:
        for owner, role, container in _containers(file, root, "", ""):
            yield from _in_container(file, owner, role, container)


def _is_config(file: YamlFile, root: Node) -> bool:
    if kind_of(root) != "mapping":
        return False
    names = {flags.canonical(f"--{key.value}")[2:].split(".")[0] for key, _ in root.value if kind_of(key) == "scalar"}
    return bool(names & (set(_SETTINGS) - {"block-size"}) or ("model" in names and names & set(_COMMON)))


def _owner(file: YamlFile, node: Node) -> str:
    """Kind and name of a Kubernetes object; empty, if the node is none."""
    if kind_of(node) != "mapping":
        return ""
    keys = {key.value: value for key, value in node.value if kind_of(key) == "scalar"}
    if "kind" not in keys or "apiVersion" not in keys or kind_of(keys["kind"]) != "scalar":
        return ""
    metadata = keys.get("metadata")
    about = file.mapping(metadata, "metadata") if metadata is not None and kind_of(metadata) == "mapping" else {}
    name = about.get("name", about.get("generateName"))
    return f"{keys['kind'].value}/{'?' if name is None else name.value}"


def _containers(file: YamlFile, node: Node, owner: str, role: str) -> Iterator[tuple[str, str, Node]]:
    """All containers below a node, each with its object and what a LeaderWorkerSet has it for."""
    if kind_of(node) == "sequence":
        for item in node.value:
            yield from _containers(file, item, owner, role)
    if kind_of(node) != "mapping":
        return
    owner = _owner(file, node) or owner
    for key, value in node.value:
        if key.value == "containers" and kind_of(value) == "sequence":
            yield from ((owner, role, item) for item in value.value if kind_of(item) == "mapping")
        else:
            yield from _containers(file, value, owner, _ROLES.get(str(key.value), role))


def _in_container(file: YamlFile, owner: str, role: str, node: Node) -> Iterator[Deployment]:
    container = file.mapping(node, "a container")
    command, arguments = (_words(file, container, key) for key in ("command", "args"))
    found = list(find_commands([[*command, *arguments]]))
    image = container.get("image")
    if not found and not command and image is not None and "vllm" in str(image.value):
        found = [arguments[bool(arguments and arguments[0].text == "serve") :]]
        if not any(flags.is_understood(word.text) for word in arguments):
            return
    name = container.get("name")
    label = f"{owner} {role}container {'?' if name is None else name.value}"
    environment = list(_environment(file, container))
    for i, words in enumerate(found):
        suffix = f" command {i + 1}" if len(found) > 1 else ""
        parsed = interpret([*environment, *_placed(file, container, words)])
        yield Deployment(label + suffix, parsed, file.path, line_of(node))


def _words(file: YamlFile, container: dict[str, Node], key: str) -> list[Word]:
    """The words of a container's command or args."""
    if key not in container:
        return []
    if kind_of(container[key]) != "sequence":
        raise file.error(container[key], f"{key} is no list, as Kubernetes wants it", "write it as a list")
    for item in container[key].value:
        if kind_of(item) != "scalar":
            raise file.error(item, f"{NAMES[kind_of(item)]} among the texts of {key}")
    return [
        Word(item.value, "command", file.path, line_of(item) + (item.style == "|")) for item in container[key].value
    ]


def _environment(file: YamlFile, container: dict[str, Node]) -> Iterator[Word]:
    """The environment variable that chooses the runner, if the container sets it."""
    if "env" not in container or kind_of(container["env"]) != "sequence":
        return
    for entry in container["env"].value:
        keys = file.mapping(entry, "a variable")
        if "name" in keys and keys["name"].value == VARIABLE:
            value = keys.get("value")
            if value is None or kind_of(value) != "scalar":
                raise file.error(entry, f"{VARIABLE} cannot be known", "write its value there")
            yield Word(f"{VARIABLE}={value.value}", "environment", file.path, line_of(value))


def _placed(file: YamlFile, container: dict[str, Node], words: Sequence[Word]) -> Iterator[Word]:
    """The words, with the lines of those put right whose line breaks YAML has folded away."""
    lines = file.text.split("\n")
    scalars = (item for key in ("command", "args") if key in container for item in container[key].value)
    folded = [item for item in scalars if item.style != "|" and item.end_mark.line > item.start_mark.line]
    at = 0
    for word in words:
        node = next((item for item in folded if line_of(item) <= (word.line or 0) <= item.end_mark.line + 1), None)
        if node is not None:
            at = max(at, line_of(node) - 1)
            start = word.text.partition("=")[0].partition("\n")[0]
            at = next((i for i in range(at, node.end_mark.line + 1) if i < len(lines) and start in lines[i]), at)
            word = replace(word, line=at + 1)  # noqa: PLW2901
        yield word
