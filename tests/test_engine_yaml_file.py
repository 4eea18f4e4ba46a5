"""YAML files of strangers: whatever they hold, one line of error, quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from dummyaudit.engine.config_file import read_config
from dummyaudit.engine.yaml_file import MAX_BYTES, kind_of, line_of, parse_yaml, read_yaml
from dummyaudit.errors import InputError

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_nodes_know_their_lines_and_kinds() -> None:
    file = parse_yaml("f", "# first\na: 1\nb:\n  - x\n---\n---\nc: {d: 2}\n")
    assert len(file.documents) == 2
    keys = [(name, kind_of(value), line_of(key)) for name, key, value in file.items(file.documents[0], "it")]
    assert keys == [("a", "scalar", 2), ("b", "sequence", 3)]
    assert file.value(file.documents[1]) == {"c": {"d": 2}}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (BOMB, 2, "an alias, which is not followed"),
        ("a: &a 1\nb: *a", 2, "an alias, which is not followed; write the value in its place"),
        ("a: *b", 1, "an alias"),
        ("a: 1\nb: 2\na: 3", 3, "the key 'a' is there twice; keep one"),
        ("a: {b: 1, b: 2}", 1, "the key 'b' is there twice"),
        ("a:\n\t- b", 2, "not YAML: found character '\\t' that cannot start any token; indent with spaces"),
        ("a: [1, 2", 1, "not YAML:"),
        ("a: 'b", 1, "not YAML:"),
        ("a: b: c", 1, "not YAML: mapping values are not allowed here"),
        ("a: %", 1, "not YAML:"),
        ("x\n\x00y", 2, "not a text file; give YAML in UTF-8"),
        ("a: " + "[" * 70 + "]" * 70, 1, "nested more than 64 deep"),
        ("a: " + "[" * 50_000, 1, "nested more than 64 deep"),
        ("".join(f"{'  ' * i}k:\n" for i in range(100)), 64, "nested more than 64 deep"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_yaml("f.yaml", text)
    assert str(raised.value).startswith(f"f.yaml:{line}: ")
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: !!python/object/apply:os.system ['echo run > ran']", "could not determine a constructor"),
        ("a: !mine x", "could not determine a constructor"),
        ("a: !!int x", "a value that YAML cannot hold"),
        ("a: 2024-99-99", "a value that YAML cannot hold"),
    ],
)
def test_tags_are_never_obeyed(text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.yaml").write_text(text)
    with pytest.raises(InputError) as raised:
        read_config("f.yaml")
    assert str(raised.value).startswith("f.yaml:1: ")
    assert says in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["f.yaml"]


def test_what_is_no_mapping_is_refused() -> None:
    file = parse_yaml("f", "- a\n")
    with pytest.raises(InputError, match="f:1: a list where a mapping belongs: a config"):
        list(file.items(file.documents[0], "a config"))
    file = parse_yaml("f", "a: 1\n? [x]\n: 2\n")
    with pytest.raises(InputError, match=r"f:2: the key \['x'\] is no text; quote it"):
        list(file.items(file.documents[0], "a config"))


def test_file_is_not_read_without_end(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"a: " + b"x" * MAX_BYTES)
    with pytest.raises(InputError, match="larger than 1 MiB, which no settings are"):
        read_yaml(str(path))
    with pytest.raises(InputError, match="larger than 1 MiB"):
        read_yaml("/dev/zero")


@pytest.mark.parametrize(
    ("name", "says"), [("no/such", "No such file"), (".", "Is a directory"), ("a\0b", "null byte")]
)
def test_what_cannot_be_opened_is_named(name: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        read_yaml(name)
    assert str(raised.value).startswith(f"cannot read {name!r}: ")
    assert says in str(raised.value)


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"a: 1\n\xff\xfe\n")
    with pytest.raises(InputError, match=r"f\.yaml:2: not a text file"):
        read_yaml(str(path))
