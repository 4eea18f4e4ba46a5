"""A builder as a rule: asked shape by shape, its answers kept."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dummyaudit.axes import Ints
from dummyaudit.errors import RuleError
from dummyaudit.probing.builders import Builder
from dummyaudit.probing.checks import Answer, read_answer
from dummyaudit.rules import Rule, Runs

Shape = tuple[int, int]
"""num_reqs and num_tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What a builder makes of shapes; it is asked once for each.

    Attributes:
        builder: what is asked.
        known: the answers so far, or why there is none.
    """

    builder: Builder
    known: dict[Shape, Answer | RuleError] = field(default_factory=dict)

    def get(self, shape: Shape) -> Answer | RuleError:
        """The answer, or the error in its place."""
        if shape not in self.known:
            try:
                self.known[shape] = read_answer(self.builder(*shape), *shape, self.builder.buffers)
            except RuleError as error:
                self.known[shape] = error
        return self.known[shape]

    def __getitem__(self, shape: Shape) -> Answer:
        answer = self.get(shape)
        if isinstance(answer, RuleError):
            raise answer
        return answer


@dataclass(frozen=True, slots=True, eq=False)
class ProbedRule(Rule):
    """The rule that a builder follows.

    Attributes:
        answers: where its layouts come from; split and fill are those of the rule that it equals, if there is one.
    """

    answers: Answers

    @property
    def is_built_in(self) -> bool:
        """No: it may make a run of every request."""
        return False

    @property
    def needs_max_model_len(self) -> bool:
        """No: builders are not told."""
        return False

    def runs(self, num_reqs: Ints, num_tokens: Ints, max_model_len: int) -> Runs:
        """What the builder makes of the shapes num_reqs [n], num_tokens [n].

        Raises:
            RuleError: it raised, or returned what is no batch.
        """
        found = [find_runs(self.answers[shape]) for shape in zip(num_reqs.tolist(), num_tokens.tolist(), strict=True)]
        padded = np.zeros((3, max(runs.shape[1] for runs in found), len(found)), dtype=np.int64)
        for i, runs in enumerate(found):
            padded[:, : runs.shape[1], i] = runs
        return Runs(*padded)


def find_runs(answer: Answer) -> Ints:
    """The requests as runs of equal ones: [3, k] count, query_len and seq_len."""
    pairs = np.stack([answer.query_lens, answer.seq_lens])
    starts = np.flatnonzero(np.concatenate([[True], (pairs[:, 1:] != pairs[:, :-1]).any(axis=0)]))
    counts = np.diff(starts, append=pairs.shape[1])
    return np.concatenate([counts[None], pairs[:, starts]])
