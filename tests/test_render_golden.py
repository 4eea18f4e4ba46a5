"""Each format, whole. DUMMYAUDIT_REGENERATE=1 writes the files anew; read the difference before you keep it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from render_cases import engine, incident, releases, small_grid, text_of

from dummyaudit import __version__
from dummyaudit.render import FORMATS, Format, Style

GOLDEN = Path(__file__).parent / "golden"
REPORTS = {"grid": small_grid, "compare": incident, "vllm": releases}
STYLES = {
    "80": Style(width=80),
    "140": Style(width=140),
    "140-colour": Style(width=140, colour=True),
}
CASES: list[tuple[str, str, Format, Style]] = [
    (f"{name}.{form}", name, form, Style()) for name in REPORTS for form in FORMATS if form != "table"
]
CASES += [(f"{name}.table-{width}", name, "table", style) for name in REPORTS for width, style in STYLES.items()]


def check(file: str, text: str) -> None:
    path = GOLDEN / file
    text = text.replace(f'"version": "{__version__}"', '"version": "VERSION"')
    if os.environ.get("DUMMYAUDIT_REGENERATE") == "1":
        path.write_bytes(text.encode())
    assert text == path.read_bytes().decode()


@pytest.mark.parametrize(("file", "name", "form", "style"), CASES, ids=[case[0] for case in CASES])
def test_output_is_what_was_agreed(file: str, name: str, form: Format, style: Style) -> None:
    check(file, text_of(REPORTS[name](), form, style))


@pytest.mark.parametrize("form", ["markdown", "github", "sarif"])
def test_output_for_dummy_runs_is_what_was_agreed(form: Format) -> None:
    check(f"engine.{form}", text_of(engine(), form))
