"""Splits, in closed form over arrays of shapes: how num_tokens becomes one query_len a request."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dummyaudit.axes import Ints

Split = Callable[[Ints, Ints], tuple[Ints, Ints]]
"""From num_reqs [n] and num_tokens [n] to count [k, n] and query_len [k, n] of k runs in the order of the requests.

A count may be 0; the query_len of such a run means nothing.
"""


def _divmod(a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """Quotient and remainder of what is not negative, quicker than np.divmod."""
    q = a // b
    return q, a - q * b


def last(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
    """`q = num_tokens // num_reqs` each, the last request `q` and all of the remainder.

    vLLM's second runner before PR #49751 (0.27) and its first runner to this day. It breaks where the remainder,
    up to num_reqs - 1 tokens, does not fit the row of the last request.
    """
    q, r = _divmod(num_tokens, num_reqs)
    return np.stack([num_reqs - 1, np.ones_like(r)]), np.stack([q, q + r])


def even(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
    """`q` each, the last `r` requests `q + 1`, with `q, r = divmod(num_tokens, num_reqs)`.

    vLLM's second runner since PR #49751 (0.27). Its longest request, cdiv(num_tokens, num_reqs), is the shortest
    possible: it breaks only where every split does.
    """
    q, r = _divmod(num_tokens, num_reqs)
    return np.stack([num_reqs - r, r]), np.stack([q, q + 1])


def even_first(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
    """As `even`, but the first `r` requests have the token more."""
    q, r = _divmod(num_tokens, num_reqs)
    return np.stack([r, num_reqs - r]), np.stack([q + 1, q])


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
