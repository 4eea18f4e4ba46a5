from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dummyaudit.engine.model_config import max_model_len_of
from dummyaudit.errors import InputError

MODELS = json.loads((Path(__file__).parent / "data" / "vllm_model_lengths.json").read_text())["models"]


def write(directory: Path, config: Any) -> str:
    (directory / "config.json").write_text(config if isinstance(config, str) else json.dumps(config, indent=1))
    return str(directory)


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row["config"].get("model_type", "?"))
def test_length_is_what_vllm_takes(row: dict[str, Any], tmp_path: Path) -> None:
    said = max_model_len_of(write(tmp_path, row["config"]))
    if row.get("from_class"):
        assert said is None
    else:
        assert said is not None
        assert said.value == row["max_model_len"]


def test_origin_is_the_line_of_the_key(tmp_path: Path) -> None:
    said = max_model_len_of(write(tmp_path, {"model_type": "x", "text_config": {"max_position_embeddings": 512}}))
    assert said is not None
    assert str(said.origin) == f"{tmp_path}/config.json:4: max_position_embeddings"
    assert said.origin.source == "model"


def test_yarn_multiplies_where_the_release_does_so(tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}
    path = write(tmp_path, {"max_position_embeddings": 3000, "rope_scaling": rope})
    older, newer = max_model_len_of(path, scales_yarn=True), max_model_len_of(path)
    assert older is not None
    assert newer is not None
    assert (older.value, newer.value) == (4000, 3000)
    without = write(tmp_path, {"max_position_embeddings": 3000, "rope_scaling": {"type": "yarn", "factor": None}})
    unscaled = max_model_len_of(without, scales_yarn=True)
    assert unscaled is not None
    assert unscaled.value == 3000


@pytest.mark.parametrize("config", [{}, {"model_type": "mamba"}, {"rope_scaling": {"factor": 2}}])
def test_file_that_says_no_length_leaves_it_open(config: Any, tmp_path: Path) -> None:
    assert max_model_len_of(write(tmp_path, config)) is None


def test_what_is_no_local_model_leaves_it_open(tmp_path: Path) -> None:
    assert max_model_len_of("some/model") is None
    assert max_model_len_of(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("", ":1: not JSON: Expecting value"),
        ("{\n'a': 1}", ":2: not JSON"),
        ("[1]", ":1: [1] where a JSON object belongs"),
        ("[" * 100_000, ":1: not JSON that can be read"),
        ('{"max_position_embeddings": ' + "9" * 5000 + "}", ":1: not JSON that can be read"),
        ('{\n"max_position_embeddings": "4k"}', ":2: max_position_embeddings: '4k' is not a length"),
        ('{"max_position_embeddings": 4.5}', "4.5 is not a length"),
        ('{"max_position_embeddings": 0}', "max_position_embeddings must be at least 1, got 0"),
        ('{"max_position_embeddings": 4294967296}', "does not fit"),
        ('{"text_config": [1]}', "text_config: [1] where a JSON object belongs"),
        ('{"seq_length": 9, "rope_scaling": {"type": "linear", "factor": "x"}}', "factor: 'x' is not a factor"),
        ('{"seq_length": 9, "rope_scaling": {"type": "linear", "factor": -1}}', "factor: -1 is not a factor"),
        ('{"seq_length": 9, "rope_scaling": {"type": "linear", "factor": true}}', "factor: True is not a factor"),
    ],
)
def test_config_that_cannot_be_read_is_refused(config: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        max_model_len_of(write(tmp_path, config))
    assert f"{tmp_path}/config.json" in raised.value.message
    assert says in raised.value.message
    assert "\n" not in raised.value.message


def test_file_that_is_no_text_too_large_or_closed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"{\n\xff\xfe}")
    with pytest.raises(InputError, match=r"config\.json:2: not a text file"):
        max_model_len_of(str(tmp_path))
    path.write_text("{}" + " " * 100)
    monkeypatch.setattr("dummyaudit.engine.model_config.MAX_BYTES", 100)
    with pytest.raises(InputError, match=r"config\.json: larger than"):
        max_model_len_of(str(tmp_path))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match=r"cannot read .*: Permission denied"):
        max_model_len_of(str(tmp_path))
