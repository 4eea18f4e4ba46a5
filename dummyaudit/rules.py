"""Fills and rules, in closed form over arrays of shapes, and the registry of their names.

A layout is kept as *runs* of equal requests, never request by request: no built-in split makes more than three.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dummyaudit import splits
from dummyaudit.axes import Ints, parse_number
from dummyaudit.block_table import INT32_MAX
from dummyaudit.errors import InputError, RuleError
from dummyaudit.splits import SPLITS, Split, even, last, mixed, single, uniform

FillName = Literal["query", "total", "plus-one", "context", "constant", "max-model-len"]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Layouts of one rule: runs of equal requests.

    Attributes:
        count: [k, n] requests of a run, or 0.
        query_len: [k, n] tokens of each of them in this step.
        seq_len: [k, n] length that attention believes each of them has; 0 where count is 0.
    """

    count: Ints
    query_len: Ints
    seq_len: Ints

    @property
    def num_reqs(self) -> Ints:
        """[n] requests of each layout."""
        num_reqs: Ints = self.count[0]
        for count in self.count[1:]:  # quicker than a sum along an axis of two or three
            num_reqs = num_reqs + count
        return num_reqs

    @property
    def ends(self) -> Ints:
        """[k, n] index of the request after a run."""
        ends: Ints = self.count.copy()
        for k in range(1, len(ends)):  # quicker than a sum along an axis of two or three
            ends[k] += ends[k - 1]
        return ends


@dataclass(frozen=True, slots=True)
class Fill:
    """How seq_len is set from the split.

    Attributes:
        name: `query` (seq_len = query_len), `total` (num_tokens), `plus-one` (the last request, the prefill, has
            query_len + 1), `context` (query_len + tokens), `constant` (tokens), `max-model-len`.
        tokens: what `context` adds and `constant` sets; 0 for the others.
    """

    name: FillName
    tokens: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.tokens}" if self.name in ("context", "constant") else self.name

    def runs(self, count: Ints, query_len: Ints, num_tokens: Ints, max_model_len: int) -> Runs:
        """The runs of a split, with their seq_len.

        Raises:
            RuleError: a seq_len does not fit the engine's int32 tensors.
        """
        match self.name:
            case "query":
                seq_len = query_len
            case "total":
                seq_len = np.broadcast_to(num_tokens, count.shape)
            case "plus-one":
                count, query_len = _part_last(count, query_len)
                seq_len = query_len.copy()
                seq_len[-1] += 1
            case "context":
                seq_len = query_len + self.tokens
            case "constant":
                seq_len = np.full_like(count, self.tokens)
            case "max-model-len":
                seq_len = np.full_like(count, max_model_len)
        if (is_empty := count == 0).any():
            seq_len = np.where(is_empty, 0, seq_len)
        if self.name in ("plus-one", "context") and seq_len.size and seq_len.max() > INT32_MAX:
            raise RuleError(f"fill {self}: a seq_len does not fit the engine's int32 tensors", "use fewer tokens")
        return Runs(count, query_len, seq_len)


def _part_last(count: Ints, query_len: Ints) -> tuple[Ints, Ints]:
    """The same runs with the last request of all as a run of its own, at the end."""
    k = len(count)
    last_run = k - 1 - np.argmax(count[::-1] > 0, axis=0)
    shorter = count - (np.arange(k)[:, None] == last_run)
    ones = np.ones_like(count[:1])
    return np.concatenate([shorter, ones]), np.concatenate(
        [query_len, np.take_along_axis(query_len, last_run[None], 0)]
    )


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A named pair of a split and a fill.

    Attributes:
        name: the name in reports, by which `find_rule` finds it again.
        split: how num_tokens becomes one query_len a request.
        fill: how seq_len is set from the split.
    """

    name: str
    split: Split
    fill: Fill

    def __reduce__(self) -> tuple[Callable[[str], Rule], tuple[str]]:
        """Another process finds the rule again by its name: a split may be a function that no pickle holds."""
        return find_rule, (self.name,)

    def runs(self, num_reqs: Ints, num_tokens: Ints, max_model_len: int) -> Runs:
        """What this rule makes of the shapes num_reqs [n], num_tokens [n] under one max_model_len.

        Raises:
            RuleError: a seq_len does not fit int32, or a user's rule returns what is no split.
        """
        return self.fill.runs(*self.split(num_reqs, num_tokens), num_tokens, max_model_len)

    @property
    def is_built_in(self) -> bool:
        """Whether the split is one of ours, which makes at most three runs of a shape."""
        return self.split.__module__ == splits.__name__

    @property
    def needs_max_model_len(self) -> bool:
        """Whether its layouts change with max_model_len."""
        return self.fill.name == "max-model-len"


_QUERY = Fill("query")
NAMED_RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("last", last, _QUERY),
        Rule("even", even, _QUERY),
        Rule("v1", last, Fill("total")),
        Rule("v1-mixed", mixed, Fill("plus-one")),
        Rule("single", single, _QUERY),
    )
}
ALIASES = {"old": "last", "new": "even"}


def find_rule(name: str) -> Rule:
    """The rule of a name: a named one or its alias, `SPLIT` or `SPLIT+FILL`, where a split may be `module:callable`.

    Raises:
        RuleError: there is none, or it cannot be loaded.
    """
    if not isinstance(name, str):
        raise RuleError(f"a rule is given by its name, got {name!r}", "use 'last' or 'even'")
    name = ALIASES.get(name, name)
    if name in NAMED_RULES:
        return NAMED_RULES[name]
    split_name, plus, fill_name = name.rpartition("+")
    if not plus:
        split_name, fill_name = name, "query"
    split_name = ALIASES.get(split_name, split_name)
    fill = _find_fill(fill_name)
    head, colon, argument = split_name.partition(":")
    if split_name in SPLITS:
        split = SPLITS[split_name]
    elif head == "uniform":
        split = uniform(_argument("uniform", argument))
    elif colon:
        from dummyaudit.custom_rule import load_split

        split = load_split(split_name)
    else:
        raise _unknown("rule", name, [*NAMED_RULES, *ALIASES, *SPLITS, "uniform:N"])
    canonical = split_name if fill == _QUERY else f"{split_name}+{fill}"
    same = (rule for rule in NAMED_RULES.values() if rule.split is split and rule.fill == fill)
    return next(same, Rule(canonical, split, fill))


def _find_fill(name: str) -> Fill:
    head, _, argument = name.partition(":")
    match head:
        case "query" | "total" | "plus-one" | "max-model-len" if head == name:
            return Fill(head)
        case "context" | "constant":
            return Fill(head, _argument(head, argument))
        case _:
            raise _unknown("fill", name, ["query", "total", "plus-one", "context:N", "constant:N", "max-model-len"])


def _argument(name: str, text: str) -> int:
    try:
        return parse_number(name, text)
    except InputError as error:
        raise RuleError(error.message, f"write {name}:N") from None


def _unknown(kind: str, name: str, known: list[str]) -> RuleError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(dict.fromkeys(known))} and module:callable"
    return RuleError(f"unknown {kind} {name!r}", hint)
