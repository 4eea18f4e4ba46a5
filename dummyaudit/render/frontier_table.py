"""A frontier as tables: rules at each block table, then by num_reqs, then the smallest shapes and what cures them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from dummyaudit.block_table import BlockTable
from dummyaudit.frontier_report import Frontier, FrontierReport
from dummyaudit.render import Style
from dummyaudit.render.terminal import new_table, to_text
from dummyaudit.render.words import STYLES, count, finding_sentences, rule_title


def render(report: FrontierReport, style: Style) -> Iterator[str]:
    """The tables of a frontier."""
    yield to_text([Text(heading(report)), Text(), _totals(report, style), Text()], style)
    if len(report.tables) == 1 or style.all:
        for table in report.tables:
            yield to_text([*_rows(report, table, style), Text()], style)
    yield to_text(list(_closing(report)), style)


def heading(report: FrontierReport) -> str:
    """The shapes in one line."""
    settings = report.settings
    kept = ", num_reqs = min(num_tokens, max_num_reqs)" if settings["reachable"] else ""
    return (
        f"Every shape up to {settings['max_num_reqs']} requests and {settings['max_num_tokens']} tokens{kept}: "
        f"{count(report.totals[0].shapes, 'shape')}"
    )


TITLES = ("overflow", "infeasible", "over_length", "smallest", "smallest feasible", "safe from", "cured")
"""What is said of all shapes of a block table and a rule. `cured` are shapes that overflow under the first rule and
not under this one, `new` those of which the reverse is true; safe is a rule from this max_model_len on."""


def cells(total: Frontier, is_first: bool) -> list[str]:
    """What is said, in the order of TITLES."""
    return [
        f"{total.overflow or '-'}",
        f"{total.infeasible or '-'}",
        f"{total.over_length or '-'}",
        shape(total.smallest),
        shape(total.smallest_feasible),
        f"{total.needs.row}" if total.needs else "none",
        "" if is_first else cured(total),
    ]


def cured(frontier: Frontier) -> str:
    """How a rule does against the first one: `77306`, or `77306, 12 new`."""
    return f"{frontier.only_first or '-'}" + (f", {frontier.only_this} new" if frontier.only_this else "")


def shape(found: tuple[int, int] | None) -> str:
    """A shape in short: `256 x 384`, num_reqs first."""
    return f"{found[0]} x {found[1]}" if found else "-"


def _totals(report: FrontierReport, style: Style) -> Table:
    several = len(report.settings["block_size"]) > 1
    titles = ["max_model_len"] + ["block_size"] * several + ["rule", *TITLES]
    rows = []
    for i, total in enumerate(report.totals):
        first = i % len(report.audited) == 0
        keys = [str(total.max_model_len) if first else ""] + [str(total.block_size) if first else ""] * several
        rows.append([*keys, rule_title(total.rule), *cells(total, first)])
    return _table(titles, rows, ["over_length", "smallest", "infeasible", "cured"], style, report)


def _rows(report: FrontierReport, table: BlockTable, style: Style) -> Iterator[Table | Text]:
    yield Text(
        f"max_model_len {table.max_model_len}, block_size {table.block_size}: rows of "
        f"{count(table.row_slots, 'slot')} ({count(table.row_tokens, 'token')})"
    )
    titles = ["num_reqs", "shapes", "rule", "overflow", "infeasible", "first num_tokens", "safe up to", "safe from"]
    titles.append("cured")
    rows = []
    of_table = (table.max_model_len, table.block_size)
    for i, row in enumerate(row for row in report.rows if (row.max_model_len, row.block_size) == of_table):
        first = i % len(report.audited) == 0
        rows.append([
            str(row.num_reqs) if first else "",
            str(row.shapes) if first else "",
            rule_title(row.rule),
            f"{row.overflow or '-'}",
            f"{row.infeasible or '-'}",
            str(row.smallest[1]) if row.smallest else "-",
            str(row.safe_num_tokens or "-"),
            f"{row.needs.row}" if row.needs else "none",
            "" if first else cured(row),
        ])  # fmt: skip
    yield _table(titles, rows, ["shapes", "infeasible", "cured", "safe up to"], style, report)


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], dropped: Sequence[str], style: Style, report: FrontierReport
) -> Table:
    """A table without the columns that are dropped one after the other until it fits; numbers are never cut."""
    heads = [title.replace(" ", "\n") for title in titles]
    widths = {
        title: max(*map(len, head.split("\n")), *(len(row[i]) for row in rows)) + 2
        for i, (title, head) in enumerate(zip(titles, heads, strict=True))
    }
    left_out = {"cured"} if len(report.audited) < 2 and "cured" in titles else set()
    for title in dropped:
        if sum(width for name, width in widths.items() if name not in left_out) - 2 > style.width:
            left_out.add(title)
    kept = [i for i, title in enumerate(titles) if title not in left_out]
    table = new_table(*((heads[i], titles[i] != "rule") for i in kept))
    for column, i in zip(table.columns, kept, strict=True):
        column.no_wrap = False
        if titles[i] == "rule":
            column.min_width = widths["rule"] - 2
    overflow = titles.index("overflow")
    for row in rows:
        texts = [Text(text) for text in row]
        texts[overflow].stylize(STYLES["fits" if row[overflow] == "-" else "overflow"])
        table.add_row(*(texts[i] for i in kept))
    return table


def comparisons(report: FrontierReport) -> Iterator[str]:
    """For each rule but the first, at each block table, whether it is the better one, with counts."""
    rules = len(report.audited)
    for others in _by_table(report.totals, rules):
        first = others[0]
        for other in others[1:]:
            where = f"max_model_len {first.max_model_len}, block_size {first.block_size}"
            yield f"{where}: {other.rule} {_compared(other, first.rule)}."


def _compared(other: Frontier, first: str) -> str:
    cures, adds = (count(number, "shape") if number else "none" for number in (other.only_first, other.only_this))
    match bool(other.only_first), bool(other.only_this):
        case False, False:
            return f"overflows at the same shapes as {first}"
        case True, False:
            return f"is strictly better than {first}: cures {cures}, adds none"
        case False, True:
            return f"is strictly worse than {first}: adds {adds}, cures none"
        case _:
            return f"is better than {first} in some places and worse in others: cures {cures}, adds {adds}"


def _by_table(totals: Sequence[Frontier], rules: int) -> Iterator[Sequence[Frontier]]:
    for i in range(0, len(totals), rules):
        yield totals[i : i + rules]


def smallest_sentences(report: FrontierReport) -> Iterator[str]:
    """What the smallest shape that is the rule's own fault does, of each rule at the last block table with one."""
    last = {layout.rule: layout for layout in report.layouts if layout.feasible}
    for layout in last.values():
        yield (
            f"{rule_title(layout.rule)}, {layout.num_reqs} x {layout.num_tokens} at max_model_len "
            f"{layout.max_model_len}: {finding_sentences(layout)}"
        )


def verdict(report: FrontierReport) -> str:
    """The whole result in one line."""
    summary = report.summary
    text = f"{summary.overflow} of {summary.layouts} layouts overflow{'s' * (summary.overflow == 1)}"
    if not summary.overflow:
        text = f"None of {summary.layouts} layouts overflows"
    if summary.over_length:
        text += f", {summary.over_length} over length"
    if summary.infeasible:
        text += f", {summary.infeasible} infeasible"
    return f"{text}. By closed form, nothing tried."


def _closing(report: FrontierReport) -> Iterable[Text]:
    for sentence in (*comparisons(report), *smallest_sentences(report)):
        yield Text(sentence)
    style = "overflow" if report.failures else "over-length" if report.summary.over_length else "fits"
    yield Text(verdict(report), style=STYLES[style])
