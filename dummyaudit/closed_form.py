"""Where a rule overflows, as inequalities in num_reqs and num_tokens instead of one layout after the other.

Write R for num_reqs, N for num_tokens, and T for `BlockTable.row_tokens`. A request overflows exactly if its seq_len
exceeds T: the pages of a seq_len never fall as it grows, T tokens fill every slot of a row (T is a whole number of
blocks on each rank), and one token more needs one page more. So a layout overflows exactly if its longest request
has more than T tokens, and it is over length exactly if that one has more than max_model_len. Below, `t` is whatever
limit the query_len has to keep to: T less what the fill adds.

A rule then has one of two forms.

*Lines*: the layout of (R, N) is over the limit exactly if N exceeds the least of some lines `slope * R + offset`.

- `even`, `even-first`: the longest request has cdiv(N, R) tokens, more than t exactly if N > R * t. No split does
  better: R requests of at most t tokens hold at most R * t (pigeonhole).
- `single`, and the fill `total` after any split: the longest has N. The line is t.
- `mixed`: the longest has N - min(R - 1, N // 2) = max(N - R + 1, cdiv(N, 2)), more than t exactly if
  N > t + R - 1 or N > 2 * t.
- `uniform` of u tokens: up to N = R * u no request has more than min(N, u); beyond it the last has
  N - (R - 1) * u. With u <= t the first case never exceeds t, and the second does if N > t + (R - 1) * u, which is
  at least R * u. With u > t every N > t is over: as the only request, as u, or as more than u.

*Remainder*, that is `last`: with N = q * R + r the longest has q + r, so that for each q from 1 to t the remainders
from t - q + 1 on are over, and for a larger q all are. The answer is not monotone in N: the saw-tooth.

Fills: `query` leaves t = T, `context:C` T - C, `plus-one` T - 1, since for each of these splits the last request,
which gets the token more, is one of the longest. Two are not so: of `even-first` the last request has q = N // R, and
q + 1 exceeds T exactly if N >= R * T (cdiv(N, R) <= q + 1 adds nothing); `uniform` is refused. `constant:C` depends
on no shape, and `max-model-len` never exceeds a row, which holds at least max_model_len.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dummyaudit.axes import parse_number
from dummyaudit.errors import RuleError
from dummyaudit.rules import Rule
from dummyaudit.splits import even, even_first, last, mixed, single

Line = tuple[int, int]
"""slope and offset: the num_tokens `slope * num_reqs + offset`."""

_NEVER: tuple[Line, ...] = ()
_ALWAYS: tuple[Line, ...] = ((0, 0),)


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """The shapes whose longest request is over a limit.

    Attributes:
        lines: over it is every shape whose num_tokens exceeds one of these.
        remainder: the limit t of `last`, for which there are no lines; None for other rules.
    """

    lines: tuple[Line, ...] = _NEVER
    remainder: int | None = None

    @property
    def on_diagonal(self) -> tuple[Line, ...]:
        """The lines that decide the shapes with num_tokens = num_reqs, of one token a request under `last`."""
        if self.remainder is None:
            return self.lines
        return _NEVER if self.remainder else _ALWAYS

    def first(self, num_reqs: int) -> int | None:
        """The smallest num_tokens, at least num_reqs, that is over the limit; None if none is.

        Of `last`, those with the quotient q begin at `q * R + max(t - q + 1, 0)`, if that remainder is at most R - 1,
        as it is from q = max(1, t - R + 2) on. The value grows with q, by R - 1 or more.
        """
        if self.remainder is not None:
            q = max(1, self.remainder - num_reqs + 2)
            return q * num_reqs + max(self.remainder - q + 1, 0)
        return max(least(self.lines, num_reqs) + 1, num_reqs) if self.lines else None

    def turns(self, max_model_len: int) -> Iterator[int]:
        """The num_reqs among which, with their neighbours, `first` is smallest, over all and over feasible shapes.

        Of lines, `first` is linear between the crossings of these lines, of R, and of the line R * max_model_len up
        to which shapes are feasible: it is smallest at the end of such a stretch. Of `last` it is
        `(t - R + 3) * R - 1` up to R = t + 1, which is concave in R, and R + t from there on. The first is feasible
        from R = t + 3 - max_model_len on (and maybe at R = 1), the second from R * (max_model_len - 1) >= t on: again
        the smallest is at an end.
        """
        t = self.remainder
        if t is None:
            yield from crossings([(a, b + 1) for a, b in self.lines] + [(1, 0), (max_model_len, 0)])
        else:
            yield from (t + 1, t + 3 - max_model_len)
            if max_model_len > 1:
                yield t // (max_model_len - 1)


def least(lines: tuple[Line, ...], num_reqs: int) -> int:
    """The least of the lines at num_reqs."""
    return min(slope * num_reqs + offset for slope, offset in lines)


def crossings(lines: list[Line]) -> Iterator[int]:
    """For each two lines that cross, the last whole num_reqs not behind that point."""
    for i, (slope, offset) in enumerate(lines):
        for other_slope, other_offset in lines[:i]:
            if slope != other_slope:
                yield (other_offset - offset) // (slope - other_slope)


def closed_form(rule: Rule, limit: int) -> ClosedForm:
    """The shapes of which a rule makes a layout whose longest request has more than `limit` tokens, at least 1.

    Where the fill is max-model-len, limit must be at least the table's max_model_len.

    Raises:
        RuleError: no closed form is known.
    """
    if not rule.is_built_in:
        raise _unknown(rule)
    match rule.fill.name:
        case "max-model-len":
            return ClosedForm(_NEVER)
        case "constant":
            return ClosedForm(_ALWAYS if rule.fill.tokens > limit else _NEVER)
        case "total":
            return ClosedForm(((0, limit),))
        case "plus-one" if rule.split is even_first:
            return ClosedForm(((limit, -1),))
        case "plus-one":
            limit -= 1
        case "context":
            limit = max(limit - rule.fill.tokens, 0)
    if rule.split is last:
        return ClosedForm(remainder=limit)
    return ClosedForm(_lines(rule, limit))


def _lines(rule: Rule, limit: int) -> tuple[Line, ...]:
    if rule.split in (even, even_first):
        return ((limit, 0),)
    if rule.split is single:
        return ((0, limit),)
    if rule.split is mixed:
        return ((1, limit - 1), (0, 2 * limit)) if limit else _ALWAYS
    if rule.fill.name == "plus-one":
        raise _unknown(rule)
    query_len = parse_number("uniform", rule.name.partition("+")[0].partition(":")[2])
    return ((query_len, limit - query_len),) if query_len <= limit else ((0, limit),)


def _unknown(rule: Rule) -> RuleError:
    return RuleError(f"no closed form is known for rule {rule.name}", "sample its shapes with dummyaudit grid")
