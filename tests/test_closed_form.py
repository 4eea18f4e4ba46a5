"""The closed forms against splits that are written out here request by request, over larger sizes too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dummyaudit.closed_form import ClosedForm, closed_form
from dummyaudit.errors import RuleError
from dummyaudit.frontier_counts import count_over
from dummyaudit.rules import find_rule


def split(rule: str, num_reqs: int, num_tokens: int) -> list[int]:
    q, r = divmod(num_tokens, num_reqs)
    match rule.partition("+")[0]:
        case "last":
            return [q] * (num_reqs - 1) + [q + r]
        case "even":
            return [q] * (num_reqs - r) + [q + 1] * r
        case "even-first":
            return [q + 1] * r + [q] * (num_reqs - r)
        case "mixed":
            decodes = min(num_reqs - 1, num_tokens // 2)
            return [1] * decodes + [num_tokens - decodes]
        case "single":
            return [num_tokens]
        case _:
            full = min(num_reqs, -(-num_tokens // 7)) - 1
            return [7] * full + [num_tokens - 7 * full]


def longest(rule: str, num_reqs: int, num_tokens: int) -> int:
    lens = split(rule, num_reqs, num_tokens)
    match rule.partition("+")[2]:
        case "":
            return max(lens)
        case "total":
            return num_tokens
        case "plus-one":
            return max([*lens, lens[-1] + 1])
        case fill:
            return max(lens) + int(fill.partition(":")[2])


SPLITS = ["last", "even", "even-first", "mixed", "single"]
RULES = [f"{name}{fill}" for name in SPLITS for fill in ("", "+total", "+plus-one", "+context:11")]
RULES += ["uniform:7", "uniform:7+context:11"]

sizes = st.one_of(st.integers(1, 40), st.integers(1, 3000))


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=60, deadline=None)
@given(num_reqs=sizes, limit=sizes, data=st.data())
def test_first_is_over_the_limit_and_nothing_before_it_is(
    rule: str, num_reqs: int, limit: int, data: st.DataObject
) -> None:
    first = closed_form(find_rule(rule), limit).first(num_reqs)
    assert first is not None
    assert first >= num_reqs
    assert longest(rule, num_reqs, first) > limit
    if first > num_reqs:
        assert longest(rule, num_reqs, first - 1) <= limit
        before = data.draw(st.integers(num_reqs, first - 1))
        assert longest(rule, num_reqs, before) <= limit


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=60, deadline=None)
@given(num_reqs=sizes, limit=sizes, more=st.integers(0, 10**6))
def test_each_shape_is_counted_if_and_only_if_it_is_over(rule: str, num_reqs: int, limit: int, more: int) -> None:
    form = closed_form(find_rule(rule), limit)
    for most in (num_reqs + more, limit + num_reqs, limit * min(num_reqs, 1000) + num_reqs):
        before = count_over(form, num_reqs, num_reqs, most - 1)
        assert count_over(form, num_reqs, num_reqs, most) - before == (longest(rule, num_reqs, most) > limit)


def test_the_saw_tooth_of_the_incident() -> None:
    """PR #49751: 256 requests in rows of 128 tokens overflow from 384 to 511, from 639 to 767 and so on."""
    form = closed_form(find_rule("last"), 128)
    assert form.first(256) == 384
    assert [count_over(form, 256, 256, most) for most in (383, 384, 496, 511, 512, 638, 639)] == [
        *(0, 1, 113, 128, 128, 128, 129)
    ]


def test_fills_that_depend_on_no_shape_are_over_always_or_never() -> None:
    assert closed_form(find_rule("even+constant:129"), 128).first(5) == 5
    assert closed_form(find_rule("even+constant:128"), 128) == ClosedForm()
    assert closed_form(find_rule("last+max-model-len"), 128).first(5) is None


@pytest.mark.parametrize("rule", ["uniform:4+plus-one", "json:loads", "os.path:join+total"])
def test_a_rule_without_closed_form_is_refused(rule: str) -> None:
    with pytest.raises(RuleError, match="no closed form is known"):
        closed_form(find_rule(rule), 128)
