"""Command lines as operators paste them, against what vLLM's own parser made of them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from dummyaudit.engine import flags
from dummyaudit.engine.arguments import VARIABLE, Parsed, combine
from dummyaudit.engine.command_line import parse_command
from dummyaudit.engine.config_file import read_config
from dummyaudit.errors import InputError

RECORDED = json.loads((Path(__file__).parent / "data" / "vllm_command_lines.json").read_text())
DEFAULTS = RECORDED["defaults"]
LINES = RECORDED["lines"]


def values_of(parsed: Parsed) -> dict[str, Any]:
    return {
        name: list(said.value) if isinstance(said.value, tuple) else said.value
        for name, said in parsed.settings.items()
    }


def parse(row: dict[str, Any], directory: Path, words: list[str] | str) -> dict[str, Any]:
    """What a recorded line says, with its config file."""
    parsed = parse_command(words)
    if parsed.config is not None:
        parsed = combine(read_config(str(directory / str(parsed.config.value))), parsed)
    return {**DEFAULTS, **values_of(parsed)}


def name_of(row: dict[str, Any]) -> str:
    return " ".join(row["argv"])[:80]


@pytest.mark.parametrize("row", LINES, ids=name_of)
def test_line_means_what_vllm_makes_of_it(row: dict[str, Any], tmp_path: Path) -> None:
    if "config" in row:
        (tmp_path / "config.yaml").write_text(row["config"])
    words = ["vllm", "serve", *row["argv"]]
    for given in (words, shlex.join(words)):
        if row.get("refused"):
            with pytest.raises(InputError) as raised:
                parse(row, tmp_path, given)
            assert "\n" not in str(raised.value)
        else:
            assert parse(row, tmp_path, given) == {**DEFAULTS, **row["says"]}


@pytest.mark.parametrize("arity", RECORDED["options"])
def test_every_flag_of_vllm_takes_as_many_words_as_there(arity: str) -> None:
    for flag in RECORDED["options"][arity]:
        if flag not in flags.UNDERSTOOD:
            assert flags.takes(flag) == arity, flag


MODEL_AND_LENGTH = {"model": "m", "max_model_len": 4096}


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --max-model-len 4096",
        "$ vllm serve m --max-model-len 4096",
        "/usr/bin/vllm serve m --max-model-len=4096",
        "exec vllm serve m --max_model_len 4096 > log 2>&1 &",
        "vllm serve \\\n  m \\\n  --max-model-len 4096  # the longest",
        "python -m vllm.entrypoints.openai.api_server --model m --max-model-len 4K",
        "python3.12 -u -m vllm.entrypoints.api_server --model=m --max-model-len=4K",
        "CUDA_VISIBLE_DEVICES=0 nohup vllm serve m --max-model-len 4096 --port 8000 &",
        "cd /models && source venv/bin/activate; vllm serve m --max-model-len 4096 | tee log",
        "bash -c 'exec vllm serve m --max-model-len 4096'",
        '/bin/sh -ec "vllm serve m --max-model-len 4096"',
        "docker run --gpus all -it --rm -p 8000:8000 vllm/vllm-openai:v0.33.0 --model m --max-model-len 4096",
        "# start it\nvllm serve m --max-model-len 4096\n",
        "cat <<EOF\nvllm serve other\nEOF\nvllm serve m --max-model-len 4096",
        "echo vllm serve other; vllm serve m --max-model-len 4096",
        "--model m --max-model-len 4096",
    ],
)
def test_command_is_found_in_what_stands_around_it(text: str) -> None:
    assert values_of(parse_command(text)) == MODEL_AND_LENGTH


@pytest.mark.parametrize(
    ("text", "is_on"),
    [
        (f"{VARIABLE}=1 vllm serve m", True),
        (f"env {VARIABLE}=0 vllm serve m", False),
        (f"export {VARIABLE}=1\nvllm serve m", True),
        (f"docker run -e {VARIABLE}=0 vllm/vllm-openai:latest m", False),
        (f"docker run --env={VARIABLE}=1 vllm/vllm-openai:latest m", True),
        (f"{VARIABLE}=1 bash -c 'vllm serve m'", True),
    ],
)
def test_variable_in_front_chooses_the_runner(text: str, is_on: bool) -> None:
    said = parse_command(text).settings[VARIABLE]
    assert (said.value, said.origin.source, str(said.origin)) == (is_on, "environment", VARIABLE)


def test_words_that_a_shell_has_split_are_taken_as_they_are() -> None:
    words = ["vllm", "serve", "m", "-cc", '{"cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 2]}']
    assert values_of(parse_command(words)) == {
        "model": "m",
        "cudagraph_mode": "FULL",
        "cudagraph_capture_sizes": [1, 2],
    }


def test_what_is_not_understood_is_passed_over_by_name() -> None:
    parsed = parse_command("vllm serve m --port 80 --tensor-parallel-size=2 --trust-remote-code -cc.backend=x -dcp 2")
    assert parsed.passed_over == ("--port", "--tensor-parallel-size", "--trust-remote-code", "-cc.backend")
    assert values_of(parsed) == {"model": "m", "decode_context_parallel_size": 2}


def test_origin_names_flag_file_and_line() -> None:
    text = "\n".join(["set -e", "vllm serve m \\", "  --max-model-len 4k \\", "  -cc.cudagraph_mode=FULL"])
    settings = parse_command(text, "start.sh", 10).settings
    assert str(settings["max_model_len"].origin) == "start.sh:12: --max-model-len"
    assert str(settings["cudagraph_mode"].origin) == "start.sh:13: -cc.cudagraph_mode"
    assert settings["model"].origin.line == 11


def test_line_of_a_key_in_json_is_that_of_the_key() -> None:
    text = 'vllm serve m -cc \'{\n "cudagraph_capture_sizes": [8],\n "cudagraph_mode": "FULL"}\''
    settings = parse_command(text, "start.sh", 1).settings
    assert settings["cudagraph_mode"].origin.line == 3
    assert settings["cudagraph_capture_sizes"].origin.line == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "command: empty; paste `vllm serve MODEL"),
        ("   # nothing", "command: empty"),
        ("ls -la", "command: 'ls -la' does not run vLLM"),
        ("vllm bench serve m", "does not run vLLM"),
        ("vllm serve a; vllm serve b", "it runs vLLM 2 times; give one command at a time"),
        ("vllm serve m --max-model-len", "--max-model-len: needs a value"),
        ("vllm serve m --max-model-len --port 1", "--max-model-len: needs a value"),
        ("vllm serve m -cc.cudagraph_mode", "-cc.cudagraph_mode: needs a value"),
        (
            "vllm serve m --max-model-len 4x",
            "--max-model-len: '4x' is not a whole number; write it as 4096, 4k or 4K",
        ),
        ("vllm serve m --max-model-len 1.5K", "--max-model-len: '1.5K' is not"),
        ("vllm serve m --max-model-len 0", "--max-model-len must be at least 1, got 0"),
        ("vllm serve m --max-model-len 4t", "--max-model-len 4000000000000 does not fit"),
        ("vllm serve m --max-num-seqs 1k", "--max-num-seqs: '1k' is not a whole number; vLLM takes a plain number"),
        ("vllm serve m --max-num-seqs " + "9" * 500, "--max-num-seqs: '9999"),
        ("vllm serve m --enforce-eager=1", "--enforce-eager: takes no value, got '1'"),
        ("vllm serve m --max-model-len $LEN", "--max-model-len: '$LEN' cannot be known"),
        ("vllm serve m -cc {x}", "-cc: '{x}' is not JSON; quote it whole"),
        ("vllm serve m -cc '[1]'", "-cc: '[1]' is not a JSON object"),
        ('vllm serve m -cc "$CONFIG"', "-cc: '$CONFIG' cannot be known"),
        ("vllm serve m -cc " + "[" * 9000, "is not JSON"),
        ("vllm serve m -cc.cudagraph_mode=FULLY", "-cc.cudagraph_mode: 'FULLY' is not a cudagraph_mode"),
        ("vllm serve m -cc.cudagraph_mode=7", "-cc.cudagraph_mode: 7 is not a cudagraph_mode"),
        ("vllm serve m -cc.mode=9", "-cc.mode: 9 is not a compilation mode; use 0, 1, 2 or 3"),
        ("vllm serve m -cc.cudagraph-mode=FULL", "vLLM knows no such key; write cudagraph_mode"),
        ("vllm serve m -cc.cudagraph_capture_sizes=8", "8 is not a list of sizes"),
        ("vllm serve m -cc.cudagraph_capture_sizes+=8,x", "is not a whole number"),
        ("vllm serve m -O9", "'9' is not an optimization level; use 0, 1, 2 or 3"),
        ("vllm serve m --performance-mode fast", "'fast' is not a performance mode"),
        ("vllm serve m --cudagraph-capture-sizes 8 -cc.cudagraph_capture_sizes=[8]", "which vLLM refuses"),
        ("vllm serve m --model n", "which vLLM refuses"),
        ("vllm serve m n", "'n': left over, no flag takes it"),
        ("vllm serve m '--port 80 x'", "left over"),
        ("vllm serve m $MORE", "'$MORE' cannot be known"),
        ("vllm serve m --max", "short for any of --max-cudagraph-capture-size"),
        ("vllm serve m -dcp2", "write a blank behind -dcp"),
        ("vllm serve m --max-model-len.x 4", "--max-model-len has no keys"),
        ("vllm serve m --config=a.yaml", "in two words; write --config a.yaml"),
        ("vllm serve m --config a --config b", "there is more than one"),
        ("vllm serve m --config $FILE", "'$FILE' cannot be known"),
        ("vllm serve m --served-model-name a $B", "'$B' cannot be known"),
        (f"{VARIABLE}=yes vllm serve m", f"{VARIABLE}: 'yes' is not a number; use 0 or 1"),
        ("vllm serve m -sc '{\"num_speculative_tokens\": 0}'", "must be at least 1"),
        ("vllm serve m -sc '{\"num_speculative_tokens\": 1.5}'", "1.5 is not a whole number"),
        ("vllm serve m --spec-tokens 2 -sc '{\"num_speculative_tokens\": 3}'", "which vLLM refuses"),
    ],
)
def test_what_cannot_be_read_names_the_flag(text: str, says: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_command(text)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("text", "drafted"),
    [
        ('-sc \'{"method": "ngram", "num_speculative_tokens": 3}\'', 3),
        ("--speculative-config.method=eagle --speculative-config.num_speculative_tokens=2", 2),
        ('--speculative-config \'{"model": "d"}\'', "auto"),
        ("--spec-method mtp", "auto"),
        ("-sc None", None),
        ("-sc null", None),
    ],
)
def test_speculative_tokens_are_given_or_the_draft_models(text: str, drafted: object) -> None:
    assert values_of(parse_command(f"vllm serve m {text}")).get("num_speculative_tokens") == drafted


def test_words_behind_two_dashes_are_the_model() -> None:
    assert values_of(parse_command("vllm serve --max-model-len 16 -- m")) == {"max_model_len": 16, "model": "m"}
