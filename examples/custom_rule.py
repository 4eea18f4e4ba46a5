"""A rule of one's own: how an engine might split the tokens of a dummy batch.

    dummyaudit grid --rule custom_rule:split_tokens --max-model-len 16,4096

A rule is any function of (num_reqs, num_tokens) that returns the tokens of each request: a list, a tuple, a NumPy
array or a tensor. There may be fewer than num_reqs of them; each is at least 1, and together they are num_tokens.
Name your engine's own function if you can, so that what is audited is what runs.
"""


def split_tokens(num_reqs: int, num_tokens: int) -> list[int]:
    """Full requests of `cdiv(num_tokens, num_reqs)` tokens, and one with what is left: no split is shorter."""
    query_len = -(-num_tokens // num_reqs)
    full, rest = divmod(num_tokens, query_len)
    return [query_len] * full + [rest] * (rest > 0)
