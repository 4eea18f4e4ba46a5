"""Splits, in closed form over arrays of shapes: how num_tokens becomes one query_len a request."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dummyaudit.axes import Ints

Split = Callable[[Ints, Ints], tuple[Ints, Ints]]
"""From num_reqs [n] and num_tokens [n] to count [k, n] and query_len [k, n] of k runs in the order of the requests.

A count may be 0; the query_len of such a run means nothing.
"""


def _two_runs(num_tokens: Ints) -> tuple[Ints, Ints]:
    """Count and query_len, [2, n] each, to be written: quicker than to stack what is made apart."""
    shape = 2, len(num_tokens)
    return np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)


def last(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
    """`q = num_tokens // num_reqs` each, the last request `q` and all of the remainder.

    vLLM's second runner before PR #49751 (0.27) and its first runner to this day. It breaks where the remainder,
    up to num_reqs - 1 tokens, does not fit the row of the last request.
    """
    count, query_len = _two_runs(num_tokens)
    q = np.floor_divide(num_tokens, num_reqs, out=query_len[0])
    count[1] = 1
    others = np.subtract(num_reqs, 1, out=count[0])
    np.subtract(num_tokens, q * others, out=query_len[1])
    return count, query_len


def even(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
    """`q` each, the last `r` requests `q + 1`, with `q, r = divmod(num_tokens, num_reqs)`.

    vLLM's second runner since PR #49751 (0.27). Its longest request, cdiv(num_tokens, num_reqs), is the shortest
    possible: it breaks only where every split does.
    """
    count, query_len = _two_runs(num_tokens)
    q = np.floor_divide(num_tokens, num_reqs, out=query_len[0])
    np.add(q, 1, out=query_len[1])
    r = np.subtract(num_tokens, q * num_reqs, out=count[1])
    np.subtract(num_reqs, r, out=count[0])
    return count, query_len


def even_first(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
    """As `even`, but the first `r` requests have the token more."""
    count, query_len = even(num_reqs, num_tokens)
    return count[::-1], query_len[::-1]


def mixed(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
    """`min(num_reqs - 1, num_tokens // 2)` decodes of 1 token, then one prefill with all the rest.

    The mixed batch of vLLM's first runner, which warms FlashInfer up with 16 tokens. It breaks where the
    rest does not fit the row of the prefill. Source: vllm/v1/worker/gpu_model_runner.py.
    """
    decodes = np.minimum(num_reqs - 1, num_tokens // 2)
    ones = np.ones_like(decodes)
    return np.stack([decodes, ones]), np.stack([ones, num_tokens - decodes])


def single(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
    """One request takes all tokens, however many were asked for.

    SGLang's piecewise capture (sglang #21112). It breaks where num_tokens does not fit one row.
    """
    return np.ones_like(num_reqs)[None], num_tokens[None]


def uniform(query_len: int) -> Split:
    """`query_len` tokens each for as many requests as that needs, at most num_reqs; the last one has what is left.

    Uniform decode of vLLM's first runner. It breaks where num_reqs are too few, since the last one gets the rest.
    """

    def split(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
        full = np.minimum(num_reqs, -(-num_tokens // query_len)) - 1
        lengths = np.full_like(full, query_len)
        return np.stack([full, np.ones_like(full)]), np.stack([lengths, num_tokens - full * query_len])

    return split


SPLITS: dict[str, Split] = {
    "last": last,
    "even": even,
    "even-first": even_first,
    "mixed": mixed,
    "single": single,
}
