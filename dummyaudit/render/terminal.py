"""Rich, set up so that what it prints is a function of a Style alone."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from dummyaudit.render import Style
from dummyaudit.render.words import visible


def new_table(*columns: tuple[str, bool]) -> Table:
    """A table without lines; each column has a title and says whether it is to the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title, right in columns:
        table.add_column(
            Text(title, style="bold"), justify="right" if right else "left", overflow="fold", no_wrap=right
        )
    return table


def to_text(parts: Sequence[Table | Text | str], style: Style) -> str:
    """What a terminal of that style shows of these parts, one below the other."""
    console = Console(
        file=io.StringIO(),
        width=max(style.width, 20),
        force_terminal=style.colour,
        color_system="standard" if style.colour else None,
        no_color=not style.colour,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    with console.capture() as capture:
        for part in parts:
            for line in Segment.split_lines(console.render(part)):
                console.print(Segments([*_clean(line), Segment.line()]), end="", crop=False)
    return capture.get()


def _clean(line: list[Segment]) -> list[Segment]:
    """A line without blanks at its end, and with control characters made visible.

    Names come from files and modules, and a terminal would obey what control characters they hold.
    """
    shown = [Segment(visible(text), style) for text, style, _ in line]
    while shown and not (text := shown[-1].text.rstrip()):
        shown.pop()
    if shown:
        shown[-1] = Segment(text, shown[-1].style)
    return shown
