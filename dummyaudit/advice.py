"""The smallest changes that cure a flagged layout, by closed form."""

from __future__ import annotations

from dummyaudit.block_table import INT32_MAX, BlockTable, cdiv
from dummyaudit.layout import Advice, Needs, Verdict
from dummyaudit.rules import NAMED_RULES, Rule
from dummyaudit.splits import mixed, single


def advise(
    rule: Rule,
    num_reqs: int,
    num_tokens: int,
    table: BlockTable,
    verdict: Verdict,
    needs: Needs,
    strict: bool,
    max_num_seqs: int | None,
) -> tuple[Advice, ...]:
    """What cures a layout, each change on its own. Nothing if it fits.

    An even split fits every feasible shape: its longest request has cdiv(num_tokens, num_reqs) tokens, which is at
    most max_model_len.

    Args:
        rule: the rule that made the layout.
        num_reqs: its requests.
        num_tokens: their tokens together.
        table: its block table, but for max_num_seqs.
        verdict: the verdict on it.
        needs: what max_model_len it needs.
        strict: whether an over-length layout is to be cured too.
        max_num_seqs: rows of the block table, or None if there are as many as requests.
    """
    if verdict == "fits":
        return ()
    limit = table.max_model_len
    evenly = rule is not NAMED_RULES["even"]
    how = ", split evenly" if evenly else ""
    if num_tokens > num_reqs * limit:
        tokens, reqs = num_reqs * limit, cdiv(num_tokens, limit)
        rows = f", and max_num_seqs {reqs}" if max_num_seqs is not None and reqs > max_num_seqs else ""
        return (
            Advice("num_tokens", tokens, f"at most {tokens} tokens with {_requests(num_reqs)}{how}"),
            Advice("num_reqs", reqs, f"at least {_requests(reqs)} for {num_tokens} tokens{how}{rows}"),
        )
    cures = []
    if evenly:
        longest = cdiv(num_tokens, num_reqs)
        filled = "" if rule.fill.name == "query" else ", with seq_len = query_len"
        text = f"split evenly{filled} (at most {longest} token{'s' * (longest > 1)} a request)"
        cures.append(Advice("rule", "even", text))
    to_length = strict or verdict == "over-length"
    if (most := _most_tokens(rule, num_reqs, limit if to_length else table.row_tokens)) is not None:
        cures.append(Advice("num_tokens", most, f"at most {most} tokens with {_requests(num_reqs)}"))
    if (length := needs.strict if to_length else needs.row) <= INT32_MAX:
        cures.append(Advice("max_model_len", length, f"max_model_len {length} or more"))
    return tuple(cures)


def _requests(count: int) -> str:
    return f"{count} request{'s' * (count > 1)}"


def _most_tokens(rule: Rule, num_reqs: int, limit: int) -> int | None:
    """The num_tokens up to which no request is longer than limit, for rules whose longest request grows with it."""
    if rule.fill.name == "total" or (rule.split is single and rule.fill.name == "query"):
        most = limit
    elif rule.split is mixed and rule.fill.name == "plus-one":
        # The prefill has num_tokens - min(num_reqs - 1, num_tokens // 2) tokens, and one more.
        most = min(limit - 1 + num_reqs - 1, 2 * (limit - 1))
    else:
        return None
    return most if most >= num_reqs else None
