"""A user's own rule: `module:callable`, called shape by shape, its answers checked."""

from __future__ import annotations

import contextlib
import importlib
import operator
import os
import sys
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import numpy as np

from dummyaudit.axes import Ints
from dummyaudit.errors import RuleError
from dummyaudit.splits import Split

CallableSplit = Callable[[int, int], Iterable[Any]]
"""The user's function: from (num_reqs, num_tokens) to the tokens of each request."""


def load_split(name: str) -> Split:
    """The split of `module:callable`; modules of the current directory are found too, as with `python -m`.

    Raises:
        RuleError: the module cannot be imported, or has no such callable.
    """
    module_name, _, path = name.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            function: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise RuleError(f"rule {name!r}: cannot import {module_name!r}: {_one_line(error)}") from error
    for part in path.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise RuleError(f"rule {name!r}: module {module_name!r} has no callable {path!r}", "write module:callable")
    return _split_of(name, function)


def _split_of(name: str, function: CallableSplit) -> Split:
    """The user's function over arrays of shapes; each shape is asked for once and its runs are kept."""
    answers: dict[tuple[int, int], Ints] = {}

    def split(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
        shapes = list(zip(num_reqs.tolist(), num_tokens.tolist(), strict=True))
        for shape in shapes:
            if shape not in answers:
                answers[shape] = _ask(name, function, *shape)
        runs = [answers[shape] for shape in shapes]  # [2, k_i] each
        padded = np.zeros((2, max(run.shape[1] for run in runs), len(runs)), dtype=np.int64)
        for i, run in enumerate(runs):
            padded[:, : run.shape[1], i] = run
        return padded[0], padded[1]

    return split


def _ask(name: str, function: CallableSplit, num_reqs: int, num_tokens: int) -> Ints:
    """The runs [2, k], count and query_len, that the user's function makes of one shape."""
    where = f"rule {name!r} at num_reqs {num_reqs}, num_tokens {num_tokens}"
    try:
        with contextlib.redirect_stdout(sys.stderr):
            answer = function(num_reqs, num_tokens)
    except (Exception, SystemExit) as error:
        raise RuleError(f"{where}: raised {_one_line(error)}") from error
    query_lens = _whole_numbers(where, answer)
    if not 1 <= len(query_lens) <= num_reqs:
        raise RuleError(f"{where}: returned {len(query_lens)} requests", f"return at most {num_reqs}, and at least 1")
    low = min(query_lens)
    if low < 1:
        raise RuleError(
            f"{where}: request {query_lens.index(low)} got {low} tokens", "every request needs at least 1"
        )
    if (total := sum(query_lens)) != num_tokens:
        raise RuleError(f"{where}: the tokens add up to {total}", f"they must add up to {num_tokens}")
    runs = [(sum(1 for _ in same), query_len) for query_len, same in groupby(query_lens)]
    return np.array(list(zip(*runs, strict=True)), dtype=np.int64)


def _whole_numbers(where: str, answer: object) -> list[int]:
    """A list, tuple, NumPy array or tensor of whole numbers as a list of int."""
    try:
        values = answer if isinstance(answer, (list, tuple)) else answer.tolist()  # type: ignore[attr-defined]
        if not isinstance(values, (list, tuple)) or any(isinstance(value, bool) for value in values):
            raise TypeError
        return [operator.index(value) for value in values]
    except Exception:
        raise RuleError(
            f"{where}: returned {type(answer).__name__}, not the tokens of each request",
            "return a list, tuple, NumPy array or tensor of whole numbers",
        ) from None


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
