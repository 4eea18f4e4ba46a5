"""ProbeReport: the report on a builder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dummyaudit.probing.matching import Difference
from dummyaudit.report import Report

OVERFLOW = "overflow"
"""Name of the failure that is no check: a feasible shape that overflows."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which a builder fails, and the smallest shape that does.

    Attributes:
        name: of the check, or `overflow`.
        shapes: how many shapes of the grid fail so.
        num_reqs: requests of the smallest.
        num_tokens: its tokens.
        exact: whether all smaller shapes were tried; if not, it is the smallest that was found.
        text: what is wrong with it.
    """

    name: str
    shapes: int
    num_reqs: int
    num_tokens: int
    exact: bool
    text: str

    def __str__(self) -> str:
        what = "overflow" if self.name == OVERFLOW else f"check {self.name} fails"
        shape = f"num_reqs {self.num_reqs}, num_tokens {self.num_tokens}"
        found = "" if self.exact else " found"
        return f"{what} ({self.shapes} shape{'s' * (self.shapes > 1)}); smallest{found}: {shape}: {self.text}"

    def to_dict(self) -> dict[str, Any]:
        """The failure as JSON holds it."""
        return {
            "name": self.name,
            "shapes": self.shapes,
            "smallest": {"num_reqs": self.num_reqs, "num_tokens": self.num_tokens, "exact": self.exact},
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class ProbeReport(Report):
    """The report on a builder: that of a grid with one rule, and what else is known of it.

    Attributes:
        builder: what was called, for a person.
        checks: names of the checks that could be made: of a split alone there are no tensors to check.
        failed: those that fail, and `overflow` if a feasible shape overflows.
        equals: names of our rules that make the same of every shape.
        differs: if there is none, where it leaves the closest.
    """

    builder: str = ""
    checks: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    equals: tuple[str, ...] = ()
    differs: Difference | None = None

    def head(self) -> dict[str, Any]:
        """The report as JSON holds it, without `layouts`; what a grid does not have stands under `probe`."""
        differs = self.differs
        probe = {
            "builder": self.builder,
            "equals": list(self.equals),
            "differs": None
            if differs is None
            else {
                "rule": differs.rule,
                "num_reqs": differs.shape[0],
                "num_tokens": differs.shape[1],
                "text": differs.text,
            },
            "checks": list(self.checks),
            "failed": [failure.to_dict() for failure in self.failed],
        }
        return Report.head(self) | {"probe": probe}


def equality(equals: tuple[str, ...], differs: Difference | None) -> str:
    """Which rule a builder equals, in one line."""
    if len(equals) == 1:
        return f"equals rule {equals[0]}"
    if equals:
        return f"equals rules {', '.join(equals)}, which these shapes do not tell apart"
    if differs is None:
        return "equals no known rule"
    num_reqs, num_tokens = differs.shape
    return (
        f"equals no known rule; differs from {differs.rule}, the closest, first at num_reqs {num_reqs}, "
        f"num_tokens {num_tokens}: {differs.text}"
    )
