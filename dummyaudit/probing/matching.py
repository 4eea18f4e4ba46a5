"""Which of our rules a builder follows, and where it leaves the one that is closest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dummyaudit.axes import Ints
from dummyaudit.probing.checks import Answer
from dummyaudit.probing.rule import Answers, Shape
from dummyaudit.rules import Rule, find_rule

_SPLITS = ("even", "last", "even-first", "mixed", "single")
_FILLS = ("query", "total", "plus-one")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first shape, by num_tokens and then num_reqs, at which a builder leaves a rule.

    Attributes:
        rule: name of the rule.
        shape: num_reqs and num_tokens.
        text: how it differs.
    """

    rule: str
    shape: Shape
    text: str


def match_rules(answers: Answers, shapes: Sequence[Shape]) -> tuple[tuple[Rule, ...], Difference | None]:
    """The rules that make the same of all shapes; if there is none, where the builder leaves the closest.

    The closest is the rule that it follows longest.

    Args:
        answers: what the builder makes of them.
        shapes: by num_tokens and then num_reqs.
    """
    equal: list[Rule] = []
    closest: tuple[int, Difference] | None = None
    for rule in _candidates(answers, shapes):
        for place, shape in enumerate(shapes):
            text = _difference(rule, shape, answers[shape])
            if text:
                if closest is None or place > closest[0]:
                    closest = place, Difference(rule.name, shape, text)
                break
        else:
            equal.append(rule)
    return tuple(equal), None if equal or closest is None else closest[1]


def _candidates(answers: Answers, shapes: Sequence[Shape]) -> Iterator[Rule]:
    """Rules to compare with; numbers that some have in their names are read off the first shape of most requests."""
    telling = answers[max(shapes, key=lambda shape: min(shape[0], 2))]
    query_len, seq_len = int(telling.query_lens[0]), int(telling.seq_lens[0])
    splits = [*_SPLITS, *[f"uniform:{query_len}"] * (query_len > 0)]
    fills = [*_FILLS, *[f"constant:{seq_len}"] * (seq_len > 0)]
    fills += [f"context:{seq_len - query_len}"] * (seq_len > query_len)
    for fill in fills:
        for split in splits:
            yield find_rule(f"{split}+{fill}")


def _difference(rule: Rule, shape: Shape, answer: Answer) -> str:
    """How an answer differs from what a rule makes of the shape; empty if it does not."""
    runs = rule.runs(np.array([shape[0]]), np.array([shape[1]]), 1)
    count = runs.count[:, 0]
    query_lens, seq_lens = (np.repeat(values[:, 0], count) for values in (runs.query_len, runs.seq_len))
    if len(query_lens) != len(answer.query_lens):
        return f"{len(answer.query_lens)} requests, {rule.name} has {len(query_lens)}"
    (wrong,) = np.nonzero((query_lens != answer.query_lens) | (seq_lens != answer.seq_lens))
    if not len(wrong):
        return ""
    i = int(wrong[0])
    return (
        f"request {i} has {_said(answer.query_lens, answer.seq_lens, i)}, "
        f"by {rule.name} {_said(query_lens, seq_lens, i)}"
    )


def _said(query_lens: Ints, seq_lens: Ints, i: int) -> str:
    return f"query_len {query_lens[i]} and seq_len {seq_lens[i]}"
