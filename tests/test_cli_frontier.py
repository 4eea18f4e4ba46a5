"""`dummyaudit frontier` as a command: statuses, formats and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from cli_helpers import assert_refused, call, start

Capture = pytest.CaptureFixture[str]

FRONTIER = ("frontier", "--max-model-len", "16")
FITS = ("frontier", "--max-num-reqs", "8", "--max-num-tokens", "16", "--max-model-len", "16")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (FRONTIER, 1),
        ((*FRONTIER, "--exit-zero"), 0),
        (FITS, 0),
        ((*FITS, "--strict"), 0),
        (("frontier", "--max-num-reqs", "2", "--max-num-tokens", "100", "--max-model-len", "16"), 0),
        (("frontier", "--max-num-reqs", "2", "--max-num-tokens", "100", "--max-model-len", "16", "--strict"), 1),
        ((*FRONTIER, "--rule", "even", "--reachable"), 0),
        ((*FRONTIER, "--rule", "last", "--reachable"), 1),
    ],
)
def test_status_says_whether_a_shape_overflows(capsys: Capture, arguments: tuple[str, ...], status: int) -> None:
    result = call(capsys, *arguments)
    assert (result.status, result.err) == (status, "")
    assert result.out.endswith("By closed form, nothing tried.\n")


def test_largest_limits_are_taken_and_written_in_units(capsys: Capture) -> None:
    result = call(capsys, *FRONTIER, "--max-num-reqs", "1M", "--max-num-tokens", "2147483647", "-f", "json")
    settings = json.loads(result.out)["settings"]
    assert (settings["max_num_reqs"], settings["max_num_tokens"]) == (2**20, 2**31 - 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--max-num-reqs", "0"), ("max_num_reqs must be at least 1",)),
        (("--max-num-tokens", "2147483648"), ("max_num_tokens 2147483648 does not fit",)),
        (("--max-num-tokens", "many"), ("max_num_tokens: 'many'",)),
        (("--num-reqs", "1:2147483647"), ("2147483647 rows are asked for", "at most 4096")),
        (("--num-reqs", "257"), ("num_reqs 257 has no shape within the limits", "use at most 256")),
        (("--rule", "json:loads"), ("no closed form is known for rule json:loads", "dummyaudit grid")),
        (("--rule", "uniform:4+plus-one"), ("no closed form is known",)),
        (("--format", "github"), ("frontier has no github format", "use table, json, csv, markdown")),
        (("--report", "junit=x.xml"), ("frontier has no junit format",)),
        (("--report", "sarif=x.sarif"), ("frontier has no sarif format",)),
    ],
)
def test_what_cannot_be_answered_is_refused(
    capsys: Capture,
    arguments: tuple[str, ...],
    says: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(call(capsys, *FRONTIER, *arguments), *says)
    assert list(tmp_path.iterdir()) == []


def test_formats_go_where_they_are_sent(capsys: Capture, tmp_path: Path) -> None:
    files = {form: tmp_path / f"frontier.{form}" for form in ("json", "csv", "markdown")}
    result = call(capsys, *FRONTIER, *(f"--report={form}={path}" for form, path in files.items()))
    assert "max_model_len" in result.out
    totals = json.loads(files["json"].read_text())["frontiers"]
    assert [total["overflow"] for total in totals] == [92666, 15360]
    assert [row["overflow"] for row in csv.DictReader(files["csv"].read_text().splitlines())][:2] == [
        "92666",
        "15360",
    ]
    assert "77306" in files["markdown"].read_text()


def test_num_reqs_that_are_asked_for_are_shown_under_every_block_table(capsys: Capture) -> None:
    several = ("frontier", "--max-model-len", "16,256")
    assert "num_reqs  shapes" not in call(capsys, *several).out
    assert call(capsys, *several, "--num-reqs", "129").out.count("num_reqs  shapes") == 2
    assert call(capsys, *several, "--all").out.count("num_reqs  shapes") == 2


def test_reachable_shapes_are_one_for_each_num_tokens(capsys: Capture) -> None:
    out = call(capsys, *FRONTIER, "--reachable").out
    assert "num_reqs = min(num_tokens, max_num_reqs): 2048 shapes" in out
    assert "even is strictly better than last: cures 917 shapes, adds none" in out


def test_nothing_is_built_so_that_torch_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch is loaded')\n")
    assert start(*FRONTIER, PYTHONPATH=f"{Path(__file__).parents[1]}:{tmp_path}").status == 1
