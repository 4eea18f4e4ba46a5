"""Layouts that the tests of built batches share, and what they hold, request by request in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dummyaudit.batch import DummyBatch, build_batch
from dummyaudit.block_table import BlockTable
from dummyaudit.rules import Runs, find_rule

NAMED = {
    "last": "last+query",
    "even": "even+query",
    "v1": "last+total",
    "v1-mixed": "mixed+plus-one",
    "single": "single+query",
}
RULES = [*NAMED, "even-first+query", "uniform:3+query", "last+context:40", "even+constant:70", "mixed+max-model-len"]


@dataclass(frozen=True)
class Case:
    """n layouts of one rule.

    Attributes:
        rule: its name.
        shapes: num_reqs and num_tokens of each.
        rows: max_num_seqs of each.
        table: the geometry of rows and pages.
    """

    rule: str
    shapes: list[tuple[int, int]]
    rows: list[int]
    table: BlockTable

    @property
    def runs(self) -> Runs:
        return find_rule(self.rule).runs(*self.num_reqs_and_tokens, self.table.max_model_len)

    @property
    def num_reqs_and_tokens(self) -> tuple[Any, Any]:
        num_reqs, num_tokens = np.array(self.shapes).T
        return num_reqs, num_tokens

    def build(self, device: str = "cpu") -> DummyBatch:
        return build_batch(self.runs, self.num_reqs_and_tokens[1], np.array(self.rows), self.table, device)

    def requests(self, layout: int) -> list[tuple[int, int]]:
        """query_len and seq_len of each request."""
        return requests_of(self.rule, *self.shapes[layout], self.table.max_model_len)


def requests_of(rule: str, num_reqs: int, num_tokens: int, max_model_len: int) -> list[tuple[int, int]]:
    """query_len and seq_len of each request, of which a split may make fewer than were asked for."""
    split, _, fill = NAMED.get(rule, rule).partition("+")
    name, _, argument = fill.partition(":")
    query_lens = query_lens_of(split, num_reqs, num_tokens)
    seq_lens = {
        "query": query_lens,
        "total": [num_tokens for _ in query_lens],
        "plus-one": [*query_lens[:-1], query_lens[-1] + 1],
        "context": [query_len + int(argument or 0) for query_len in query_lens],
        "constant": [int(argument or 0) for _ in query_lens],
        "max-model-len": [max_model_len for _ in query_lens],
    }[name]
    return list(zip(query_lens, seq_lens, strict=True))


def query_lens_of(split: str, num_reqs: int, num_tokens: int) -> list[int]:
    """Serves one request after the other, until no token is left."""
    name, _, argument = split.partition(":")
    each, rest = divmod(num_tokens, num_reqs)
    decodes = min(num_reqs - 1, num_tokens // 2)
    query_lens: list[int] = []
    for i in range(num_reqs):
        left = num_tokens - sum(query_lens)
        is_last = i == num_reqs - 1
        size = {
            "last": left if is_last else each,
            "even": each + (i >= num_reqs - rest),
            "even-first": each + (i < rest),
            "mixed": 1 if i < decodes else left,
            "single": left,
            "uniform": left if is_last else min(int(argument or 0), left),
        }[name]
        if left:
            query_lens.append(size)
    return query_lens


def pages_of(table: BlockTable, seq_len: int) -> int:
    """Pages of the rank that holds most, token by token."""
    held = [0] * table.dcp
    for token in range(seq_len):
        held[token // table.interleave % table.dcp] += 1
    return len(range(0, max(held), table.kernel_block_size or table.block_size))


@st.composite
def tables(draw: st.DrawFn) -> BlockTable:
    block_size = draw(st.sampled_from([1, 2, 16, 48, 256]))
    divisors = [d for d in (1, 2, 16, block_size) if block_size % d == 0]
    return BlockTable(
        max_model_len=draw(st.integers(1, 60)),
        block_size=block_size,
        dcp=draw(st.sampled_from([1, 1, 1, 2, 3])),
        interleave=draw(st.sampled_from(divisors)),
        token_alignment=draw(st.sampled_from([0, 0, 128, "128-floor"])),
        kernel_block_size=draw(st.sampled_from([None, None, *divisors])),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    reqs = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    shapes = [(num_reqs, num_reqs + draw(st.integers(0, 70))) for num_reqs in reqs]
    more = draw(st.sampled_from([0, 0, 1, 4]))
    same_rows = draw(st.booleans())
    rows = [(max(reqs) if same_rows else num_reqs) + more for num_reqs in reqs]
    return Case(draw(st.sampled_from(RULES)), shapes, rows, draw(tables()))
