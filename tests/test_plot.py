from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from render_cases import engine

from dummyaudit import api
from dummyaudit.block_table import BlockTable
from dummyaudit.cli.plot import name_plots
from dummyaudit.errors import InputError
from dummyaudit.frontier_audit import frontier
from dummyaudit.frontier_space import Space
from dummyaudit.render import Style
from dummyaudit.render.plot import maps, picture, save
from dummyaudit.render.plot.ink import COLOURS, HEX, half_blocks, legend, symbols
from dummyaudit.render.plot.maps import NO_SHAPE, _of_space, make_maps
from dummyaudit.render.plot.rows import reads_of
from dummyaudit.report import Report
from dummyaudit.rules import find_rule
from dummyaudit.sweep import VERDICTS

ESCAPE = re.compile("\x1b\\[[0-9;]*m")
PLAIN = Style(width=80)
REPORTS = {
    "frontier": lambda: frontier(max_model_len=16),
    "reachable": lambda: frontier(max_model_len=16, reachable=True),
    "grid": lambda: api.grid(device="none"),
    "wide grid": lambda: api.grid(
        num_reqs=range(1, 300), num_tokens=range(5, 900, 5), max_model_len=16, device="none"
    ),
    "vllm": engine,
    "compare": lambda: api.compare(num_reqs=256, num_tokens=496, device="none"),
    "compare, long rows": lambda: api.compare(
        num_reqs=256, num_tokens=4128, max_model_len=4096, rules=["v1", "last"], max_num_seqs=400, device="none"
    ),
}


@pytest.fixture(params=REPORTS)
def report(request: pytest.FixtureRequest) -> Report:
    found: Report = REPORTS[request.param]()
    return found


@pytest.mark.parametrize("rule", ["last", "even", "even-first", "v1", "v1-mixed", "single"])
@pytest.mark.parametrize("reachable", [False, True])
def test_each_cell_has_the_worst_verdict_of_its_shapes(rule: str, reachable: bool) -> None:
    table = BlockTable(max_model_len=5, block_size=8, token_alignment=0)
    one = _of_space(Space(40, 300, reachable), find_rule(rule), table, 17, 9)
    axes = {"num_reqs": range(1, 41), "num_tokens": range(1, 301)}
    tried = api.grid(**axes, max_model_len=5, block_size=8, token_alignment=0, rules=[rule], device="none")
    worst = np.full((len(one.num_reqs), len(one.num_tokens)), NO_SHAPE)
    ranks = {words: severity for severity, words in VERDICTS.items()}
    for layout in tried.layouts:
        if reachable and layout.num_reqs != min(layout.num_tokens, 40):
            continue
        row = next(i for i, (low, high) in enumerate(one.num_reqs) if low <= layout.num_reqs <= high)
        column = next(i for i, (low, high) in enumerate(one.num_tokens) if low <= layout.num_tokens <= high)
        worst[row, column] = max(worst[row, column], ranks[layout.verdict, layout.reach])
    assert (one.severity == worst).all()


@pytest.mark.parametrize("bins", [(1, 1), (7, 5), (100, 100)])
def test_maps_of_a_grid_hold_the_worst_of_its_layouts(bins: tuple[int, int]) -> None:
    report = api.grid(
        num_reqs=[3, 8, 64, 256], num_tokens=range(8, 600, 7), max_model_len=[16, 300], rules=["last"], device="none"
    )
    ranks = {words: severity for severity, words in VERDICTS.items()}
    for (one,), length in zip(make_maps(report, *bins)[0], [16, 300], strict=True):
        worst = np.full(one.severity.shape, NO_SHAPE)
        for layout in report.layouts:
            if layout.max_model_len != length:
                continue
            row = next(i for i, (low, high) in enumerate(one.num_reqs) if low <= layout.num_reqs <= high)
            column = next(i for i, (low, high) in enumerate(one.num_tokens) if low <= layout.num_tokens <= high)
            worst[row, column] = max(worst[row, column], ranks[layout.verdict, layout.reach])
        assert (one.severity == worst).all()


@pytest.mark.parametrize("width", [20, 80, 119, 140, 200])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("unicode", [False, True])
def test_pictures_fit_the_terminal(report: Report, width: int, colour: bool, unicode: bool) -> None:
    text = picture(report, Style(width=width, colour=colour, unicode=unicode))
    lines = ESCAPE.sub("", text).splitlines()
    if width >= 80:
        assert max(map(len, lines)) <= width
    assert colour == ("\x1b[" in text)
    assert unicode or text.isascii()


def test_the_saw_tooth_of_the_remainder_is_seen_without_colour() -> None:
    lines = picture(frontier(max_model_len=16, rules=["last"]), PLAIN).splitlines()
    top = next(line for line in lines if line.lstrip().startswith("256"))
    assert len(re.findall("█+", top)) >= 5


def test_the_saw_tooth_of_reachable_shapes_is_one_row() -> None:
    # 256 requests in rows of 128 tokens: of every 256 tokens those with the largest remainders overflow.
    lines = picture(REPORTS["reachable"](), Style(width=140)).splitlines()
    (row,) = [line for line in lines if line.lstrip().startswith("1-256")]
    last, even = row.split("1-256│")[1:]
    assert len(re.findall("█+", last)) == 7
    assert set(even.strip()) == {"·"}


@pytest.mark.parametrize("bins", [(80, 20), (2, 2)])
def test_maps_of_a_deployment_hold_the_worst_of_its_layouts(bins: tuple[int, int]) -> None:
    report = engine()
    ranks = {words: severity for severity, words in VERDICTS.items()}
    (found,), _ = make_maps(report, *bins)
    assert [one.max_model_len for one in found] == [16, 4096]
    for one in found:
        worst = np.full(one.severity.shape, NO_SHAPE)
        for layout in report.layouts:
            if layout.max_model_len == one.max_model_len:
                row = next(i for i, (_, high) in enumerate(one.num_reqs) if layout.num_reqs <= high)
                column = next(i for i, (_, high) in enumerate(one.num_tokens) if layout.num_tokens <= high)
                worst[row, column] = max(worst[row, column], ranks[layout.verdict, layout.reach])
        assert (one.severity == worst).all()
        assert one.title.startswith("0.26.0 v2, max_model_len")


def test_a_cell_of_several_shapes_says_so() -> None:
    assert "a cell: worst of 13 x 30 shapes\n" in picture(REPORTS["frontier"](), PLAIN)
    large = frontier(max_num_reqs=10**6, max_num_tokens=10**6, max_model_len=16)
    assert "a cell: worst of 50000 x 14286 shapes, sampled\n" in picture(large, PLAIN)
    assert "a cell" not in picture(REPORTS["grid"](), PLAIN)
    assert "a cell: worst of 15 x 3 shapes\n" in picture(REPORTS["wide grid"](), PLAIN)


def test_a_large_grid_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "_MOST_TRIED", 1000)
    report = api.grid(num_reqs=range(1, 101), num_tokens=range(100, 300), max_model_len=16, device="none")
    assert report.summary.layouts > 2 * 1000
    assert "shapes, sampled\n" in picture(report, PLAIN)


def test_maps_without_a_fault_are_drawn_too() -> None:
    text = picture(api.grid(num_reqs=[1, 2], num_tokens=[2, 4], device="none", rules=["even"]), PLAIN)
    assert text.count("even (new), max_model_len ") == 4
    assert "█" not in text


def test_verdicts_differ_in_character_and_in_colour() -> None:
    for style in (PLAIN, Style(unicode=False)):
        assert len(set(symbols(sorted(COLOURS), style))) == len(COLOURS)
    assert len(set(COLOURS.values())) == len(set(HEX.values())) == len(COLOURS)


def test_colours_of_fair_and_foul_differ_in_blue_and_within_each_in_lightness() -> None:
    def light(text: str) -> float:
        red, green, blue = (int(text[i : i + 2], 16) for i in (1, 3, 5))
        return 0.3 * red + 0.6 * green + 0.1 * blue

    fits, over_length, next_row, past_table = HEX.values()
    assert min(int(colour[5:], 16) for colour in (fits, over_length)) > 150
    assert max(int(colour[5:], 16) for colour in (next_row, past_table)) < 50
    lightness = sorted(map(light, HEX.values()))
    assert min(after - before for before, after in pairwise(lightness)) > 35


def test_images_have_the_colours_of_the_terminal() -> None:
    levels = (0, 95, 135, 175, 215, 255)
    for severity, number in COLOURS.items():
        red, green, blue = (levels[(number - 16) // base % 6] for base in (36, 6, 1))
        assert HEX[severity] == f"#{red:02x}{green:02x}{blue:02x}"


def test_half_blocks_show_two_cells() -> None:
    blue, orange = COLOURS[0], COLOURS[3]
    assert half_blocks([-1], [-1]) == " "
    assert half_blocks([0, 0], [0, 0]) == f"\x1b[38;5;{blue}m██\x1b[0m"
    assert half_blocks([0], [3]) == f"\x1b[38;5;{blue};48;5;{orange}m▀\x1b[0m"
    assert half_blocks([-1], [3]) == f"\x1b[38;5;{orange}m▄\x1b[0m"
    assert half_blocks([3, -1], [-1, -1]) == f"\x1b[38;5;{orange}m▀\x1b[0m "


def test_a_row_without_a_partner_fills_half_a_line() -> None:
    report = api.grid(num_reqs=range(1, 32), num_tokens=[40], max_model_len=64, rules=["even"], device="none")
    lines = picture(report, Style(width=80, colour=True)).splitlines()
    (alone,) = [line for line in lines if line.lstrip().startswith("1│")]
    assert "▀" in alone
    assert "█" not in alone
    assert sum("█" in line for line in lines if "│" in line) == 15


def test_a_legend_goes_on_in_the_next_line() -> None:
    assert legend([("a", "one"), ("", "two"), ("b", "three")], 12) == "a one   two\nb three"


def test_pages_of_each_request_are_told_apart_by_where_they_are_read() -> None:
    report = api.compare(num_reqs=4, num_tokens=300, max_model_len=128, rules=["v1"], max_num_seqs=5, device="none")
    parts = list(reads_of(report.layouts[0], 8))
    # 19 pages in rows of 8 slots, 5 rows: request 2 reads 16 of other rows at most, of which 3 lie in its last.
    assert [(p.first, p.count, p.own, p.padding, p.other, p.outside) for p in parts] == [
        (0, 3, 8, 0, 11, 0),
        (3, 1, 8, 0, 8, 3),
    ]


def test_a_ladder_shows_the_last_block_tables_that_overflow_unless_all_are_asked_for() -> None:
    report = REPORTS["compare"]()
    some, every = (picture(report, Style(width=100, all=everything)) for everything in (False, True))
    assert "max_model_len 128" in some
    assert "max_model_len 256" not in some
    assert "max_model_len 256" in every


def test_maps_that_are_left_out_are_counted() -> None:
    text = picture(REPORTS["grid"](), PLAIN)
    assert "and 3 more block tables (--all draws them)" in text
    assert "more block table" not in picture(REPORTS["grid"](), Style(width=80, all=True))


@pytest.mark.parametrize("make", [frontier, partial(api.grid, device="none")])
def test_only_maps_that_are_shown_are_drawn(make: Callable[..., Report]) -> None:
    report = make(max_model_len=[*range(16, 116), 4096, 8192], rules=["last"])
    with mock.patch.object(maps, "Map", wraps=maps.Map) as drawn:
        text = picture(report, PLAIN)
    assert drawn.call_count == 4
    assert "max_model_len 19," in text
    assert "and 98 more block tables" in text


def test_block_tables_that_overflow_are_drawn_before_others() -> None:
    text = picture(frontier(max_model_len=[1024, 4096, 16], block_size=[16, 32], rules=["last"]), PLAIN)
    assert text.count("max_model_len 16,") == 2
    assert "max_model_len 1024," in text
    assert "max_model_len 4096," not in text


@pytest.mark.parametrize("form", ["png", "svg"])
def test_more_rules_than_fit_an_image_and_cases_of_unequal_size_are_drawn(form: str, tmp_path: Path) -> None:
    rules = [f"last+context:{i}" for i in range(1, 14)]
    save(
        api.compare(num_reqs=2, num_tokens=30, max_model_len=16, rules=rules, device="none"),
        str(tmp_path / f"rules.{form}"),
    )
    report = engine()
    case = report.cases[0]
    save(replace(report, cases=(case, replace(case, layouts=case.layouts[:9]))), str(tmp_path / f"cases.{form}"))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("form", ["png", "svg"])
def test_images_are_written_and_the_same_each_time(report: Report, form: str, tmp_path: Path) -> None:
    one, other = tmp_path / f"one.{form}", tmp_path / f"other.{form}"
    save(report, str(one))
    save(report, str(other))
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes().startswith(b"\x89PNG" if form == "png" else b"<?xml")
    assert sorted(path.name for path in tmp_path.iterdir()) == [one.name, other.name]


def test_text_of_an_svg_is_text(tmp_path: Path) -> None:
    save(REPORTS["frontier"](), str(tmp_path / "map.svg"))
    text = (tmp_path / "map.svg").read_text("utf-8")
    for words in ("num_reqs", "num_tokens", "over-length", "overflow past-table", "last (old), max_model_len 16"):
        assert words in text


def test_a_file_that_cannot_be_drawn_or_written_is_named(tmp_path: Path) -> None:
    report = REPORTS["compare"]()
    with pytest.raises(InputError, match=r"\.png or \.svg"):
        save(report, str(tmp_path / "map.jpg"))
    with pytest.raises(InputError, match="cannot write"):
        save(report, str(tmp_path / "missing" / "map.png"))
    (tmp_path / "map.png").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        save(report, str(tmp_path / "map.png"))
    assert [path.name for path in tmp_path.iterdir()] == ["map.png"]


def test_without_matplotlib_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'dummyaudit\[plot\]'"):
        save(REPORTS["compare"](), str(tmp_path / "map.png"))


def test_a_report_without_shapes_has_no_picture() -> None:
    report = api.compare(num_reqs=2, num_tokens=3, max_model_len=16, device="none")
    with pytest.raises(InputError, match="has no picture"):
        picture(Report("check", report.settings, report.summary, tuple(report.layouts)), PLAIN)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["grid", "--plot"], ["grid", "--plot=-"]),
        (["grid", "--plot", "--all"], ["grid", "--plot=-", "--all"]),
        (["grid", "--plot", "a.PNG"], ["grid", "--plot", "a.PNG"]),
        (["grid", "--plot", "a.jpg"], ["grid", "--plot", "a.jpg"]),
        (["grid", "--plot", "-"], ["grid", "--plot", "-"]),
        (["grid", "--plot=x.svg"], ["grid", "--plot=x.svg"]),
        (["vllm", "--plot", "config.yaml"], ["vllm", "--plot=-", "config.yaml"]),
        (["vllm", "--", "--plot"], ["vllm", "--", "--plot"]),
    ],
)
def test_a_plot_without_file_goes_to_the_terminal(given: list[str], named: list[str]) -> None:
    assert name_plots(given) == named
