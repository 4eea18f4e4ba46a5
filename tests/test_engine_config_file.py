from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dummyaudit.engine.config_file import read_config
from dummyaudit.errors import InputError


def read(directory: Path, text: str) -> Any:
    path = directory / "serve.yaml"
    path.write_text(text)
    return read_config(str(path))


def test_keys_are_flags_without_dashes_and_know_their_lines(tmp_path: Path) -> None:
    parsed = read(
        tmp_path,
        """\
# comment
model: some/model
max_model_len: 4k
max-num-seqs: 64
enforce-eager: true
enable-lora: false
port: 8000
cudagraph-capture-sizes: [1, 2, 4]
compilation-config:
  cudagraph_mode: full
  level: 3
speculative_config: {method: ngram, num_speculative_tokens: 3}
""",
    )
    said = {name: (one.value, one.origin.line) for name, one in parsed.settings.items()}
    assert said == {
        "model": ("some/model", 2),
        "max_model_len": (4000, 3),
        "max_num_seqs": (64, 4),
        "enforce_eager": (True, 5),
        "enable_lora": (False, 6),
        "cudagraph_capture_sizes": ((1, 2, 4), 8),
        "cudagraph_mode": ("FULL", 10),
        "compilation_mode": (3, 11),
        "num_speculative_tokens": (3, 12),
    }
    assert parsed.passed_over == ("port", "speculative_config.method")
    assert str(parsed.settings["cudagraph_mode"].origin).endswith("serve.yaml:10: compilation-config.cudagraph_mode")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", None, "empty; give a line such as max-model-len: 4096"),
        ("# nothing\n", None, "empty"),
        ("{}", 1, "empty"),
        ("a: 1\n---\nb: 2\n", 3, "a second document, where a config has one"),
        ("- max-model-len: 1", 1, "a list where a mapping belongs: a config"),
        ("4096", 1, "a single value where a mapping belongs"),
        ("\nmax-model-len: [16]", 2, "max-model-len: a list where a value belongs"),
        ("max-model-len: {a: 1}", 1, "max-model-len: a mapping where a value belongs"),
        ("compilation-config: [1]", 1, "compilation-config: a list where a mapping belongs"),
        ("--max-model-len: 16", 1, "the key '--max-model-len' begins with a dash; write max-model-len"),
        ("max-model-len: x", 1, "max-model-len: 'x' is not a whole number"),
        ("max-model-len: 4.5", 1, "max-model-len: '4.5' is not a whole number"),
        ("max-num-seqs:", 1, "max-num-seqs: 'None' is not a whole number"),
        ("max-num-seqs: true", 1, "max-num-seqs: needs a value"),
        ("compilation-config: FULL", 1, "compilation-config: 'FULL' is not JSON"),
        ("compilation-config:\n  cudagraph_mode: FULLY", 2, "'FULLY' is not a cudagraph_mode"),
        ("cudagraph-capture-sizes: [1, x]", 1, "'x' is not a whole number"),
        ("1: 2", 1, "the key 1 is no text; quote it"),
    ],
)
def test_what_cannot_be_read_names_file_and_line(tmp_path: Path, text: str, line: int | None, says: str) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, text)
    place = f"{tmp_path}/serve.yaml" + (f":{line}" if line else "")
    assert str(raised.value).startswith(f"{place}: ")
    assert says in str(raised.value)


def test_empty_lists_and_switches_that_are_off_say_nothing(tmp_path: Path) -> None:
    parsed = read(
        tmp_path, "max-model-len: 16\ncudagraph-capture-sizes: []\nenable-chunked-prefill: false\nx: false\n"
    )
    assert set(parsed.settings) == {"max_model_len"}
