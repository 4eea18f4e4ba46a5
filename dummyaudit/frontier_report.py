"""The report of `frontier`: what rules do to every shape within limits. Plain values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dummyaudit.block_table import BlockTable
from dummyaudit.frontier_space import Shape, Space
from dummyaudit.layout import Needs
from dummyaudit.report import Report
from dummyaudit.rules import Rule


@dataclass(frozen=True, slots=True)
class Frontier:
    """What a rule does to all shapes of one num_reqs, or of every num_reqs within the limits.

    Attributes:
        rule: name of the rule.
        max_model_len: longest legal request, in tokens.
        block_size: tokens of one KV page.
        num_reqs: the one, or None for all.
        shapes: number of shapes.
        overflow: those that overflow.
        infeasible: those of them that no split can keep to max_model_len.
        over_length: those that have a request over max_model_len, but overflow not.
        smallest: the shape that overflows with the fewest tokens and, among those, the fewest requests; or None.
        smallest_feasible: the same of feasible shapes, for which the rule itself is to blame.
        safe_num_tokens: largest num_tokens, within the limits, up to which nothing overflows; None if the first does.
        only_first: shapes that overflow under the first rule of the report and not under this one.
        only_this: shapes that overflow under this rule and not under the first.
        needs: the max_model_len at which none of these shapes overflows, or is over length; None if int32 holds none.
    """

    rule: str
    max_model_len: int
    block_size: int
    num_reqs: int | None
    shapes: int
    overflow: int
    infeasible: int
    over_length: int
    smallest: Shape | None
    smallest_feasible: Shape | None
    safe_num_tokens: int | None
    only_first: int
    only_this: int
    needs: Needs | None

    def to_dict(self) -> dict[str, Any]:
        """The frontier as JSON holds it."""
        return {
            "rule": self.rule,
            "max_model_len": self.max_model_len,
            "block_size": self.block_size,
            "num_reqs": self.num_reqs,
            "shapes": self.shapes,
            "overflow": self.overflow,
            "infeasible": self.infeasible,
            "over_length": self.over_length,
            "smallest": _shape_dict(self.smallest),
            "smallest_feasible": _shape_dict(self.smallest_feasible),
            "safe_num_tokens": self.safe_num_tokens,
            "only_first": self.only_first,
            "only_this": self.only_this,
            "needs_max_model_len": self.needs and {"row": self.needs.row, "strict": self.needs.strict},
        }


def _shape_dict(shape: Shape | None) -> dict[str, int] | None:
    return shape and {"num_reqs": shape[0], "num_tokens": shape[1]}


@dataclass(frozen=True, slots=True)
class FrontierReport(Report):
    """A report on every shape within limits. Its summary counts shapes, its layouts are the smallest that overflow.

    Attributes:
        totals: over all num_reqs: by block table, then by rule.
        rows: by block table, then by num_reqs, then by rule.
        space: the limits.
        tables: the block tables.
        audited: the rules.
    """

    totals: tuple[Frontier, ...] = ()
    rows: tuple[Frontier, ...] = ()
    space: Space | None = None
    tables: tuple[BlockTable, ...] = ()
    audited: tuple[Rule, ...] = ()

    def head(self) -> dict[str, Any]:
        """The report as JSON holds it, without `layouts`."""
        # The name is that of the class before slots made a new one of it, so that super() alone does not find it.
        head = Report.head(self)
        head["frontiers"] = [frontier.to_dict() for frontier in self.totals]
        head["rows"] = [frontier.to_dict() for frontier in self.rows]
        return head
