"""The shapes within limits: how many of them are over a limit, which of those is the smallest, by closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dummyaudit.closed_form import ClosedForm
from dummyaudit.errors import RuleError
from dummyaudit.frontier_counts import count_diagonal, count_only, count_over, count_shapes
from dummyaudit.rules import Rule

Shape = tuple[int, int]
"""num_reqs and num_tokens."""


@dataclass(frozen=True, slots=True)
class Space:
    """The shapes within the limits.

    Attributes:
        max_num_reqs: most requests.
        max_num_tokens: most tokens.
        reachable: whether num_reqs is min(num_tokens, max_num_reqs).
    """

    max_num_reqs: int
    max_num_tokens: int
    reachable: bool

    @property
    def high(self) -> int:
        """The largest num_reqs that has a shape."""
        return min(self.max_num_reqs, self.max_num_tokens)

    def parts(self, num_reqs: int | None) -> tuple[Shape | None, Shape | None]:
        """First and last num_reqs of the shapes with every num_tokens, and of those with num_tokens = num_reqs."""
        low, high = (1, self.high) if num_reqs is None else (num_reqs, num_reqs)
        if not self.reachable:
            return (low, high), None
        if high < self.max_num_reqs:
            return None, (low, high)
        return (high, high), (low, high - 1) if low < high else None

    def most_tokens(self, num_reqs: int | None) -> int:
        """The largest num_tokens of the shapes."""
        return num_reqs if num_reqs and self.reachable and num_reqs < self.max_num_reqs else self.max_num_tokens

    def shapes(self, num_reqs: int | None) -> int:
        """The number of shapes."""
        full, diagonal = self.parts(num_reqs)
        count = count_shapes(*full, self.max_num_tokens) if full else 0
        return count + (diagonal[1] - diagonal[0] + 1 if diagonal else 0)

    def over(self, form: ClosedForm, num_reqs: int | None) -> int:
        """The number of shapes over the limit of a form."""
        full, diagonal = self.parts(num_reqs)
        count = count_over(form, *full, self.max_num_tokens) if full else 0
        return count + (count_diagonal(form.on_diagonal, *diagonal) if diagonal else 0)

    def only(self, first: ClosedForm, second: ClosedForm, num_reqs: int | None) -> int:
        """The number of shapes over the limit of the first form and not of the second."""
        full, diagonal = self.parts(num_reqs)
        count = count_only(first, second, *full, self.max_num_tokens) if full else 0
        if diagonal and first.on_diagonal:
            union = first.on_diagonal + second.on_diagonal
            count += count_diagonal(union, *diagonal) - count_diagonal(second.on_diagonal, *diagonal)
        return count

    def smallest(self, form: ClosedForm, max_model_len: int, feasible: bool, num_reqs: int | None) -> Shape | None:
        """The shape over the limit of a form with the fewest tokens and, among those, the fewest requests."""
        full, diagonal = self.parts(num_reqs)
        found: list[Shape] = []  # num_tokens, num_reqs
        turns = [turn + step for turn in form.turns(max_model_len) for step in (-1, 0, 1)]
        if full:
            for reqs in {*full, *(turn for turn in turns if full[0] < turn < full[1])}:
                tokens = form.first(reqs)
                if tokens is not None and (not feasible or tokens <= reqs * max_model_len):
                    found.append((tokens, reqs))
        if diagonal:
            near = {*diagonal, *(turn for turn in turns if diagonal[0] < turn < diagonal[1])}
            found += [(reqs, reqs) for reqs in near if form.first(reqs) == reqs]
        found = [shape for shape in found if shape[0] <= self.max_num_tokens]
        return min(found)[::-1] if found else None

    def longest(self, rule: Rule, max_model_len: int, num_reqs: int | None) -> int | None:
        """The longest seq_len of all shapes, or None if int32 does not hold it.

        Of one num_reqs the longest request is that of the largest num_tokens or, under `last`, of the largest with
        the remainder num_reqs - 1, one of which has the largest N - q * (R - 1). Of several num_reqs it is that of
        the first, since no split makes a request longer by spreading the same tokens over more; where num_tokens =
        num_reqs, that of the last.
        """
        full, diagonal = self.parts(num_reqs)
        shapes = [diagonal[1:] * 2] if diagonal else []
        if full:
            reqs, most = full[0], self.max_num_tokens
            shapes += [(reqs, most), (reqs, max((most + 1) // reqs * reqs - 1, reqs))]
        columns = np.array(shapes, dtype=np.int64).T
        try:
            return int(rule.runs(columns[0], columns[1], max_model_len).seq_len.max())
        except RuleError:
            return None
