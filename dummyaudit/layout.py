"""Layout: what a rule makes of one shape, and the verdict on it. Plain values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["fits", "over-length", "overflow"]
Reach = Literal["next-row", "past-table"]
Change = Literal[
    "rule",
    "max_model_len",
    "num_tokens",
    "num_reqs",
    "max_num_seqs",
    "cudagraph_capture_sizes",
    "cudagraph_mode",
    "runner",
    "release",
]


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests of a layout that are not in order.

    Attributes:
        over_length: requests over max_model_len that stay in their row.
        overflow: requests that leave it.
    """

    over_length: int
    overflow: int


@dataclass(frozen=True, slots=True)
class WorstRequest:
    """The request with the most pages, the last such one if several.

    Attributes:
        request: its index.
        seq_len: tokens.
        pages: page ids that attention reads.
        slots_read_outside: first and last slot index past its row that are read, or None.
    """

    request: int
    seq_len: int
    pages: int
    slots_read_outside: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Needs:
    """What max_model_len a layout needs, in tokens.

    Attributes:
        row: the smallest whose row holds every request.
        strict: the smallest that no request is longer than: the largest seq_len.
    """

    row: int
    strict: int


@dataclass(frozen=True, slots=True)
class Group:
    """A run of equal requests: `count` of them from index `first` on, each reading `pages` page ids."""

    first: int
    count: int
    query_len: int
    seq_len: int
    pages: int


@dataclass(frozen=True, slots=True)
class Advice:
    """One change that cures a flagged layout, or a case, on its own.

    Attributes:
        change: what to change. `num_tokens` is to be at most `to`, the numbers else at least `to`.
        to: the new value.
        text: the same for a person; of a case, as it would be pasted.
    """

    change: Change
    to: str | int | list[int]
    text: str


@dataclass(frozen=True, slots=True)
class Layout:
    """What a rule makes of one shape, and the verdict on it.

    Attributes:
        rule: name of the rule.
        num_reqs: requests asked for; a split may use fewer.
        num_tokens: their tokens together.
        max_model_len: longest legal request, in tokens.
        block_size: tokens of one KV page.
        max_num_seqs: rows of the block table.
        row_slots: page ids that one row holds.
        verdict: the worst of its requests.
        reach: of an overflow, whether a read leaves the whole table.
        feasible: whether some split of num_tokens among num_reqs keeps to max_model_len.
        live: whether attention runs on it; if not, it is built and never read.
        requests: how many requests are not in order.
        worst: the request with the most pages.
        needs_max_model_len: what max_model_len it needs.
        phase: which dummy run of an engine it belongs to, or None.
        groups: its requests as runs of equal ones, if they were asked for.
        advice: the smallest changes that cure it; empty if it fits.
        location: file and line of the setting that it comes from, or None.
    """

    rule: str
    num_reqs: int
    num_tokens: int
    max_model_len: int
    block_size: int
    max_num_seqs: int
    row_slots: int
    verdict: Verdict
    reach: Reach | None
    feasible: bool
    live: bool
    requests: RequestCounts
    worst: WorstRequest
    needs_max_model_len: Needs
    phase: dict[str, str] | None = None
    groups: tuple[Group, ...] | None = None
    advice: tuple[Advice, ...] = ()
    location: tuple[str, int] | None = None

    def fails(self, strict: bool) -> bool:
        """Whether it makes the gate fail: a live overflow or, if strict, whatever is flagged."""
        return self.verdict != "fits" if strict else self.live and self.verdict == "overflow"

    @property
    def badness(self) -> tuple[bool, int, int]:
        """Sorts layouts: live before latent, then by reach, then by pages or tokens too many."""
        too_many = self.worst.pages - self.row_slots
        excess = too_many if too_many > 0 else max(self.needs_max_model_len.strict - self.max_model_len, 0)
        rank = {None: int(self.verdict != "fits"), "next-row": 2, "past-table": 3}[self.reach]
        return self.live, rank, excess

    def to_dict(self) -> dict[str, Any]:
        """The layout as JSON holds it: dict, list, str, int, bool and None only."""
        outside = self.worst.slots_read_outside
        result: dict[str, Any] = {
            "rule": self.rule,
            "num_reqs": self.num_reqs,
            "num_tokens": self.num_tokens,
            "max_model_len": self.max_model_len,
            "block_size": self.block_size,
            "max_num_seqs": self.max_num_seqs,
            "row_slots": self.row_slots,
            "verdict": self.verdict,
            "reach": self.reach,
            "feasible": self.feasible,
            "live": self.live,
            "requests": {"over_length": self.requests.over_length, "overflow": self.requests.overflow},
            "worst": {
                "request": self.worst.request,
                "seq_len": self.worst.seq_len,
                "pages": self.worst.pages,
                "slots_read_outside": None if outside is None else list(outside),
            },
            "needs_max_model_len": {
                "row": self.needs_max_model_len.row,
                "strict": self.needs_max_model_len.strict,
            },
            "phase": self.phase,
        }
        if self.location is not None:
            result["location"] = {"file": self.location[0], "line": self.location[1]}
        if self.groups is not None:
            result["groups"] = [
                {"first": g.first, "count": g.count, "query_len": g.query_len, "seq_len": g.seq_len}
                for g in self.groups
            ]
        return result
