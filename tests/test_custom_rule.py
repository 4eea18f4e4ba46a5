from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dummyaudit
from dummyaudit.errors import RuleError
from dummyaudit.rules import find_rule

MODULE = """
import sys
import numpy as np
import torch
asked = []
print("imported")
def as_list(r, n): asked.append((r, n)); print("called"); return [1] * (r - 1) + [n - r + 1]
def as_tuple(r, n): return tuple(as_list(r, n))
def as_array(r, n): return np.array(as_list(r, n), dtype=np.int32)
def as_tensor(r, n): return torch.tensor(as_list(r, n))
def fewer(r, n): return [n]
def more(r, n): return [1] * (r + 1)
def none(r, n): return []
def short(r, n): return [1] * r
def zero(r, n): return [0] + [1] * (r - 2) + [n - r + 2]
def negative(r, n): return [-1] + [1] * (r - 2) + [n - r + 3]
def fraction(r, n): return [n / r] * r
def flags(r, n): return [True] * r
def words(r, n): return ["1"] * r
def nothing(r, n): return None
def number(r, n): return n
def matrix(r, n): return np.ones((2, r), dtype=int)
def raises(r, n): raise ValueError("no\\nsuch  layout")
def exits(r, n): sys.exit(3)
class Engine:
    @staticmethod
    def split(r, n): return as_list(r, n)
value = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rule.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nothing_that_is_there\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_rule", "broken", "leaves"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def longest(name: str) -> int:
    [layout] = dummyaudit.grid(shapes=[(4, 30)], max_model_len=16, rules=[name], device="none").layouts
    return layout.worst.seq_len


@pytest.mark.parametrize("function", ["as_list", "as_tuple", "as_array", "as_tensor", "Engine.split"])
def test_tokens_may_come_in_any_container(function: str) -> None:
    assert longest(f"my_rule:{function}") == 27


def test_fewer_requests_than_asked_for_are_a_layout() -> None:
    assert longest("my_rule:fewer") == 30


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("more", "returned 5 requests"),
        ("none", "returned 0 requests"),
        ("short", "the tokens add up to 4; they must add up to 30"),
        ("zero", "request 0 got 0 tokens"),
        ("negative", "request 0 got -1 tokens"),
        ("fraction", "returned list, not the tokens of each request"),
        ("flags", "returned list, not the tokens"),
        ("words", "returned list, not the tokens"),
        ("nothing", "returned NoneType, not the tokens"),
        ("number", "returned int, not the tokens"),
        ("matrix", "returned ndarray, not the tokens"),
        ("raises", "raised ValueError: no such layout"),
        ("exits", "raised SystemExit: 3"),
    ],
)
def test_wrong_result_names_the_shape(function: str, says: str) -> None:
    with pytest.raises(RuleError) as raised:
        longest(f"my_rule:{function}")
    assert str(raised.value).startswith(f"rule 'my_rule:{function}' at num_reqs 4, num_tokens 30: {says}")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere:split", "cannot import 'nowhere': ModuleNotFoundError"),
        ("broken:split", "cannot import 'broken': ModuleNotFoundError: No module named 'nothing_that_is_there'"),
        ("leaves:split", "cannot import 'leaves': SystemExit: 0"),
        ("my_rule:missing", "module 'my_rule' has no callable 'missing'"),
        ("my_rule:value", "module 'my_rule' has no callable 'value'"),
        ("my_rule:Engine.missing", "module 'my_rule' has no callable 'Engine.missing'"),
        ("my_rule:", "module 'my_rule' has no callable ''"),
    ],
)
def test_rule_that_cannot_be_loaded_says_why(name: str, says: str) -> None:
    with pytest.raises(RuleError) as raised:
        find_rule(name)
    assert says in str(raised.value)


def test_each_shape_is_asked_for_once() -> None:
    dummyaudit.grid(
        num_reqs=[2, 4], num_tokens=[8, 9], max_model_len=[4, 16], rules=["my_rule:as_list"], device="none"
    )
    asked: list[Any] = sys.modules["my_rule"].asked
    assert sorted(asked) == [(2, 8), (2, 9), (4, 8), (4, 9)]


def test_what_a_rule_prints_never_mixes_with_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    longest("my_rule:as_list")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.split() == ["imported", "called"]


def test_split_of_a_user_takes_any_fill() -> None:
    [layout] = dummyaudit.grid(
        shapes=[(4, 30)], max_model_len=16, rules=["my_rule:as_list+context:10"], device="none"
    ).layouts
    assert (layout.rule, layout.worst.seq_len) == ("my_rule:as_list+context:10", 37)


def test_runs_of_several_shapes_are_padded_to_the_longest() -> None:
    runs = find_rule("my_rule:as_list").runs(np.array([1, 4]), np.array([5, 30]), 16)
    assert runs.count.T.tolist() == [[1, 0], [3, 1]]
    assert runs.seq_len.T.tolist() == [[5, 0], [1, 27]]
