"""How verdicts look in pictures: blue what is in order, orange what is not, darker or lighter within each.

Blue and orange stay apart for every kind of colour-blindness, and the two of each by how light they are. Without
colour each verdict has its own character instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from dummyaudit.audit import FITS, NEXT_ROW, OVER_LENGTH, PAST_TABLE
from dummyaudit.render import Style

COLOURS = {FITS: 25, OVER_LENGTH: 75, NEXT_ROW: 220, PAST_TABLE: 166}
"""Of the 256 colours of terminals."""

HEX = {FITS: "#005faf", OVER_LENGTH: "#5fafff", NEXT_ROW: "#ffd700", PAST_TABLE: "#d75f00"}
"""The same colours for images."""

_SHADES = {FITS: "·", OVER_LENGTH: "░", NEXT_ROW: "▒", PAST_TABLE: "█"}
_LETTERS = {FITS: ".", OVER_LENGTH: "~", NEXT_ROW: "!", PAST_TABLE: "#"}


def uses_half_blocks(style: Style) -> bool:
    """Whether a character shows two cells, one above the other, by colour."""
    return style.colour and style.unicode


def symbol(severity: int, style: Style) -> str:
    """One character for a verdict, in colour if there is any; a space for no shape."""
    if severity not in COLOURS:
        return " "
    letter = (_SHADES if style.unicode else _LETTERS)[severity]
    if not style.colour:
        return letter
    return f"\x1b[38;5;{COLOURS[severity]}m{'█' if style.unicode else letter}\x1b[0m"


def symbols(severities: Sequence[int], style: Style) -> str:
    """A line of cells."""
    if style.colour:
        return half_blocks(severities, severities) if style.unicode else "".join(symbol(s, style) for s in severities)
    return "".join(symbol(severity, style) for severity in severities)


def legend(parts: Sequence[tuple[str, str]], width: int) -> str:
    """Symbols with what they mean, on as many lines as that takes."""
    lines, filled = [""], 0
    for mark, meaning in parts:
        size = len(meaning) + 2 * bool(mark)
        if filled and filled + 3 + size > width:
            lines.append("")
            filled = 0
        lines[-1] += ("   " if filled else "") + (f"{mark} {meaning}" if mark else meaning)
        filled += size + 3 * bool(filled)
    return "\n".join(lines)


def half_blocks(upper: Sequence[int], lower: Sequence[int]) -> str:
    """Two lines of cells as one line of characters."""
    text, now = [], ""
    for top, bottom in zip(upper, lower, strict=True):
        codes, character = _half_block(top, bottom)
        if codes != now:
            text.append(f"\x1b[0m{codes}" if now else codes)
            now = codes
        text.append(character)
    return "".join(text) + ("\x1b[0m" if now else "")


def _half_block(top: int, bottom: int) -> tuple[str, str]:
    upper, lower = COLOURS.get(top), COLOURS.get(bottom)
    if upper is None:
        return ("", " ") if lower is None else (f"\x1b[38;5;{lower}m", "▄")
    if lower is None:
        return f"\x1b[38;5;{upper}m", "▀"
    return (f"\x1b[38;5;{upper}m", "█") if upper == lower else (f"\x1b[38;5;{upper};48;5;{lower}m", "▀")
