"""Pictures as image files, by matplotlib."""

from __future__ import annotations

import contextlib
import os
import tempfile
from functools import partial
from operator import mul
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dummyaudit.errors import InputError
from dummyaudit.render.plot.ink import HEX
from dummyaudit.render.plot.maps import NAMES, NO_SHAPE, Map, make_maps
from dummyaudit.render.plot.rows import PAGE_NAMES, drawn, legal_pages, page_tokens, reads_of
from dummyaudit.render.words import rule_title, span

if TYPE_CHECKING:
    from dummyaudit.report import Report

_COLUMNS, _ROWS = 640, 256
"""Most cells of a map."""

_MOST = 12
"""Maps, or layouts, of one image."""

_LEGEND = 2.0
"""Inches of a name in the legend."""

_TICKS = 12
"""Most labels of an axis on which each value has its own place."""

_COLOURS = ListedColormap(list(HEX.values()))
_NORM = BoundaryNorm(np.arange(len(HEX) + 1) - 0.5, len(HEX))


def save_image(report: Report, path: str) -> None:
    """Draws the report to a file whose name says the format.

    Raises:
        InputError: the file cannot be written, or the report has nothing to draw.
    """
    figure = _rows(report) if report.command == "compare" else _maps(report)
    form = os.path.splitext(path)[1].lower()[1:]
    # The same report is to give the same file, and text in it is to stay text.
    metadata: dict[str, Any] = {"Date": None} if form == "svg" else {}
    try:
        part = tempfile.mkstemp(prefix=".dummyaudit.", dir=os.path.dirname(os.path.realpath(path)))
    except OSError as error:
        raise InputError(f"cannot write {path!r}: {error.strerror or error}") from error
    try:
        with (
            open(part[0], "wb") as stream,
            mpl.rc_context({"svg.hashsalt": "dummyaudit", "svg.fonttype": "none"}),
        ):
            figure.savefig(stream, format=form, dpi=120, metadata=metadata)
        os.umask(umask := os.umask(0))
        os.chmod(part[1], 0o666 & ~umask)
        os.replace(part[1], os.path.realpath(path))
    except OSError as error:
        raise InputError(f"cannot write {path!r}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part[1])


def _panels(rows: int, columns: int, height: float) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(max(6.5 * columns, 7.5), height * rows + 0.8), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    return figure, panels.tolist()


def _legend(figure: Figure, found: set[int], names: dict[int, str]) -> None:
    """The names of what was found, then those of the lines."""
    colours = [(HEX.get(severity, "white"), name) for severity, name in names.items() if severity in found]
    handles: list[Artist] = [Patch(facecolor=c, edgecolor="black", linewidth=0.5, label=name) for c, name in colours]
    handles += figure.axes[0].get_legend_handles_labels()[0]
    abreast = int(figure.get_figwidth() // _LEGEND)
    figure.legend(handles=handles, loc="outside lower center", ncols=abreast, frameon=False)


def _maps(report: Report) -> Figure:
    """A row for each block table, a column for each rule."""
    telling, _ = make_maps(report, _COLUMNS, _ROWS, _MOST)
    across = max(map(len, telling))
    telling = telling[: max(_MOST // across, 1)]
    figure, panels = _panels(len(telling), across, 3.8)
    for maps, axes in zip(telling, panels, strict=True):
        for one, panel in zip(maps, axes, strict=False):
            _draw_map(panel, one)
        for panel in axes[len(maps) :]:
            panel.set_axis_off()
    found = {int(s) for maps in telling for one in maps for s in np.unique(one.severity)}
    _legend(figure, found, {**NAMES, NO_SHAPE: "no such shape"})
    figure.suptitle(f"dummyaudit {report.command}: the worst verdict of each num_reqs and num_tokens")
    return figure


def _draw_map(panel: Axes, one: Map) -> None:
    if one.every:
        x, y = (
            [first - 0.5 for first, _ in spans] + [spans[-1][1] + 0.5] for spans in (one.num_tokens, one.num_reqs)
        )
    else:
        x, y = ([i - 0.5 for i in range(len(spans) + 1)] for spans in (one.num_tokens, one.num_reqs))
    cells = np.ma.masked_less(one.severity, 0)
    panel.pcolormesh(x, y, cells, cmap=_COLOURS, norm=_NORM, rasterized=True)
    panel.set_title(one.title, fontsize=9)
    panel.set_xlabel("num_tokens")
    panel.set_ylabel("num_reqs")
    if one.every:
        if len(one.num_reqs) > 1:
            panel.plot([0, y[-1] * one.max_model_len], [0, y[-1]], "k--", linewidth=1, label="below: infeasible")
        else:
            panel.set_yticks([])
            panel.set_ylabel(f"num_reqs {span(*one.num_reqs[0])}")
        panel.set_xlim(x[0], x[-1])
        panel.set_ylim(y[0], y[-1])
    else:
        for axis, spans in ((panel.xaxis, one.num_tokens), (panel.yaxis, one.num_reqs)):
            places = range(0, len(spans), -(-len(spans) // _TICKS))
            axis.set_ticks(list(places), [f"{spans[i][0]}" for i in places])


def _rows(report: Report) -> Figure:
    """For each layout the pages of every request, in the colours of where they are read from."""
    layouts = drawn(report, False)[:_MOST]
    top = max(max(layout.worst.pages, layout.row_slots) for layout in layouts) * 1.1
    across = min(len(report.settings["rules"]), len(layouts))
    figure, panels = _panels(-(-len(layouts) // across), across, 3.4)
    found: set[int] = set()
    flat = [panel for axes in panels for panel in axes]
    for layout, panel in zip(layouts, flat, strict=True):
        for reads in reads_of(layout, legal_pages(report, layout)):
            below = 0
            for severity, pages in reads.pages:
                if pages:
                    panel.fill_between(
                        [reads.first, reads.first + reads.count], below, below + pages,
                        color=HEX[severity], linewidth=0.6,
                    )  # fmt: skip
                    found.add(severity)
                below += pages
        panel.axhline(layout.row_slots, color="black", linestyle="--", linewidth=1, label="row_slots")
        title = f"{rule_title(layout.rule)}: {layout.num_reqs} requests, {layout.num_tokens} tokens"
        panel.set_title(f"{title}, max_model_len {layout.max_model_len}", fontsize=9)
        panel.set_xlabel("request")
        panel.set_ylabel("pages")
        panel.set_xlim(0, layout.num_reqs)
        panel.set_ylim(0, top)
        page = page_tokens(report, layout)
        panel.secondary_yaxis("right", functions=(partial(mul, page), partial(mul, 1 / page))).set_ylabel("tokens")
    _legend(figure, found, PAGE_NAMES)
    figure.suptitle("dummyaudit compare: pages that attention reads for each request")
    return figure
