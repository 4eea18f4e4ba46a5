from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import environment

import dummyaudit
from dummyaudit.axes import Shapes
from dummyaudit.errors import DummyAuditError, RuleError
from dummyaudit.rules import NAMED_RULES

INT32_MAX = 2**31 - 1


def key(layout: dummyaudit.Layout) -> tuple[int, int, int, int, str]:
    return layout.max_model_len, layout.block_size, layout.num_reqs, layout.num_tokens, layout.rule


def test_grid_audits_every_pair_that_is_a_shape_by_every_rule() -> None:
    report = dummyaudit.grid(
        num_reqs=[2, 1, 8, 2], num_tokens=range(1, 10, 4), max_model_len=[16, 4], block_size=[16, 4], device="none"
    )
    expected = [
        (max_model_len, block_size, num_reqs, num_tokens, rule)
        for max_model_len in (4, 16)
        for block_size in (4, 16)
        for num_reqs in (1, 2, 8)
        for num_tokens in (1, 5, 9)
        if num_tokens >= num_reqs
        for rule in ("last", "even")
    ]
    assert [key(layout) for layout in report.layouts] == expected
    assert report.summary.layouts == len(report.layouts) == len(expected)
    assert [key(report.layouts[i]) for i in range(len(expected))] == expected
    assert key(report.layouts[-1]) == expected[-1]
    assert [key(layout) for layout in report.layouts[3:9:2]] == expected[3:9:2]
    assert report.command == "grid"
    assert all(layout.groups is None for layout in report.layouts)


def test_settings_say_what_was_audited() -> None:
    report = dummyaudit.grid(
        num_reqs=256,
        num_tokens=496,
        max_model_len=16,
        rules=["old", "even", "last"],
        token_alignment=0,
        device="none",
    )
    assert report.settings == {
        "num_reqs": [256],
        "num_tokens": [496],
        "max_model_len": [16],
        "block_size": [16],
        "max_num_seqs": None,
        "rules": ["last", "even"],
        "dcp": 1,
        "interleave": 1,
        "token_alignment": 0,
        "kernel_block_size": None,
        "strict": False,
    }


def test_grid_without_axes_takes_the_capture_sizes_of_each_num_reqs() -> None:
    report = dummyaudit.grid(device="none")
    assert report.settings["num_reqs"] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert report.settings["max_model_len"] == [16, 64, 256, 1024, 4096]
    sizes = {reqs: sorted({x.num_tokens for x in report.layouts if x.num_reqs == reqs}) for reqs in (1, 4, 8, 256)}
    # The largest capture size is 2 * num_reqs, at most 512; those below num_reqs are no shapes.
    assert sizes == {1: [1, 2], 4: [4, 8], 8: [8, 16], 256: list(range(256, 513, 16))}
    assert dummyaudit.grid(max_num_seqs=20, device="none").settings["num_reqs"] == [1, 2, 4, 8, 16]


def test_given_shapes_are_audited_as_they_are() -> None:
    pairs = [(4, 9), (2, 100), (4, 9), (1, 1)]
    report = dummyaudit.grid(shapes=iter(pairs), max_model_len=16, rules=["even"], device="none")
    assert [(layout.num_reqs, layout.num_tokens) for layout in report.layouts] == [(1, 1), (2, 100), (4, 9)]


def test_grid_counts_layouts_by_verdict() -> None:
    # 15, 16, 17 and 129 tokens of one request under max_model_len 16, rows of 8 slots.
    shapes = [(1, 15), (1, 16), (1, 17), (1, 129)]
    summary = dummyaudit.grid(shapes=shapes, max_model_len=16, rules=["single"], device="cpu").summary
    assert (summary.fits, summary.over_length, summary.overflow) == (2, 1, 1)
    assert (summary.layouts, summary.infeasible, summary.latent, summary.live_overflow) == (4, 2, 0, 1)
    assert not summary.ok


@pytest.mark.parametrize("strict", [False, True])
def test_strict_audit_fails_what_is_over_length(strict: bool) -> None:
    report = dummyaudit.grid(shapes=[(1, 17)], max_model_len=16, rules=["even"], strict=strict, device="none")
    assert report.ok
    assert report.failures == int(strict)
    assert report.is_failure(report.layouts[0]) is strict


def test_only_flagged_leaves_out_what_fits() -> None:
    report = dummyaudit.grid(shapes=[(256, 496)], max_model_len=[16, 4096], only_flagged=True, device="none")
    assert report.summary.layouts == 4
    assert [(x["rule"], x["max_model_len"]) for x in report.to_dict()["layouts"]] == [("last", 16)]


@pytest.mark.parametrize(("worst", "kept"), [(0, 0), (3, 3), (None, 45), (99, 45)])
def test_worst_layouts_are_kept_worst_first(worst: int | None, kept: int) -> None:
    # One token over a row of 8 slots and more, up to 45 of them.
    report = dummyaudit.grid(
        num_reqs=1, num_tokens=range(120, 174), max_model_len=128, rules=["single"], worst=worst, device="none"
    )
    assert report.summary.overflow == 45
    assert len(report.worst) == kept
    pages = [layout.worst.pages for layout in report.worst]
    assert pages == sorted(pages, reverse=True)
    assert pages[:1] == [11][:kept]


def test_report_says_what_was_built() -> None:
    space: dict[str, Any] = {"num_reqs": [2, 4], "num_tokens": range(4, 20), "max_model_len": [4, 8]}
    built = dummyaudit.grid(**space)
    assert built.to_dict()["built"] == {"device": "cpu", "layouts": 2 * 16 * 2 * 2}
    arithmetic = dummyaudit.grid(**space, device="none")
    assert arithmetic.to_dict()["built"] is None
    assert arithmetic.to_dict() | {"built": 0} == built.to_dict() | {"built": 0}


def test_device_none_imports_no_torch() -> None:
    script = (
        "import sys, dummyaudit; dummyaudit.grid(device='none'); "
        "dummyaudit.compare(num_reqs=2, num_tokens=9, device='none'); dummyaudit.grid(summary=True); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], env=environment(), check=False).returncode == 0


@pytest.mark.parametrize("step", [1, 3])  # there are closed forms for whole ranges only
def test_summary_keeps_counts_and_the_worst_of_each_cell(step: int) -> None:
    space: dict[str, Any] = {"num_reqs": [1, 7, 64], "num_tokens": range(64, 400, step), "max_model_len": [16, 64]}
    whole = dummyaudit.grid(**space, device="none")
    for device in ("auto", "cpu"):
        brief = dummyaudit.grid(**space, summary=True, device=device)
        assert brief.summary == whole.summary
        assert brief.closed_form is (device == "auto" and step == 1)
        assert brief.built == (None if device == "auto" else dummyaudit.grid(**space).built)
        assert [key(layout) for layout in brief.layouts] == [key(cell.worst) for cell in brief.cells]
        assert [(cell.rule, cell.max_model_len, cell.num_reqs) for cell in brief.cells] == [
            (rule, length, (1, 64)) for length in (16, 64) for rule in ("last", "even")
        ]
        assert sum(cell.overflow for cell in brief.cells) == whole.summary.overflow
        assert brief.worst[0].badness == max(layout.badness for layout in whole.layouts)
        assert [layout.badness for layout in brief.worst] == sorted((x.badness for x in brief.worst), reverse=True)
        assert len(brief.to_dict()["cells"]) == 4
    assert "cells" not in whole.to_dict()


def test_summary_leaves_out_of_worst_what_fits() -> None:
    report = dummyaudit.grid(shapes=[(256, 496)], max_model_len=16, summary=True)
    assert [(layout.rule, layout.verdict) for layout in report.layouts] == [("last", "overflow"), ("even", "fits")]
    assert [layout.rule for layout in report.worst] == ["last"]


def test_progress_reaches_all_layouts() -> None:
    seen: list[tuple[int, int]] = []
    dummyaudit.grid(num_reqs=[1, 2], num_tokens=[4, 5], device="none", progress=lambda *done: seen.append(done))
    assert seen[-1] == (40, 40)
    assert seen == sorted(seen)


def test_stopped_audit_says_how_much_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dummyaudit.sweep.CHUNK", 3)
    report = dummyaudit.grid(num_reqs=1, num_tokens=range(1, 9), max_model_len=16, device="none", stop=lambda: True)
    assert (report.summary.layouts, report.planned) == (6, 16)
    assert [layout.num_tokens for layout in report.layouts] == [1, 1, 2, 2, 3, 3]
    whole = dummyaudit.grid(num_reqs=1, num_tokens=range(1, 9), max_model_len=16, device="none", stop=lambda: False)
    assert (whole.summary.layouts, whole.planned) == (16, None)


def test_jobs_change_nothing() -> None:
    space: dict[str, Any] = {"num_reqs": [3, 4], "num_tokens": range(8, 40), "max_model_len": [8]}
    assert dummyaudit.grid(**space, jobs=2).to_dict() == dummyaudit.grid(**space).to_dict()


@pytest.mark.parametrize(
    ("num_reqs", "num_tokens", "rules", "ladder"),
    [
        (256, 496, ["last", "even"], [2, 4, 8, 16, 32, 64, 128, 256]),  # last needs 241
        (256, 496, ["even"], [2]),
        (256, 496, ["v1"], [2, 4, 8, 16, 32, 64, 128, 256, 512]),
        (1, 1, ["last", "even"], [1]),
        (1, 2, ["last"], [2]),
        (4, 12, ["even"], [4]),
        (4, 16, ["even"], [4]),
        (4, 17, ["even"], [8]),
        (4, 17, ["even+constant:9"], [8, 16]),
        (4, 17, ["last+max-model-len"], [8]),
        (1, 17, ["v1-mixed"], [32]),
        (1, 16, ["v1-mixed"], [16, 32]),
        (1, INT32_MAX, ["even"], [INT32_MAX]),
        (2, INT32_MAX, ["single"], [2**30, INT32_MAX]),
    ],
)
def test_ladder_leads_to_the_first_length_at_which_every_rule_fits(
    num_reqs: int, num_tokens: int, rules: list[str], ladder: list[int]
) -> None:
    report = dummyaudit.compare(num_reqs=num_reqs, num_tokens=num_tokens, rules=rules, device="none")
    assert report.settings["max_model_len"] == ladder
    assert [layout.max_model_len for layout in report.layouts] == [n for n in ladder for _ in rules]
    assert all(layout.verdict == "fits" for layout in report.layouts if layout.max_model_len == ladder[-1])
    assert all(layout.feasible for layout in report.layouts)


def test_compare_lists_requests_as_runs_of_equal_ones() -> None:
    report = dummyaudit.compare(num_reqs=5, num_tokens=13, max_model_len=16, rules=["even", "v1-mixed", "single"])
    groups = [[(g.first, g.count, g.query_len, g.seq_len) for g in layout.groups or ()] for layout in report.layouts]
    assert groups == [[(0, 2, 2, 2), (2, 3, 3, 3)], [(0, 4, 1, 1), (4, 1, 9, 10)], [(0, 1, 13, 13)]]
    assert report.command == "compare"
    assert report.to_dict()["layouts"][0]["groups"][1] == {"first": 2, "count": 3, "query_len": 3, "seq_len": 3}


def test_compare_keeps_every_flagged_layout_as_worst() -> None:
    report = dummyaudit.compare(
        num_reqs=2, num_tokens=4000, max_model_len=range(1, 50), block_size=[1, 16], device="none"
    )
    assert report.summary.overflow + report.summary.over_length == len(report.worst) == 49 * 2 * 2


def test_batch_is_built_by_rules_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rule_of_a_user.py").write_text("def split(r, n):\n    return [n - r + 1] + [1] * (r - 1)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    table = dummyaudit.BlockTable(max_model_len=16, max_num_seqs=4)
    seq_lens = {
        rule: dummyaudit.build(rule, 3, 8, table).seq_lens.tolist()
        for rule in ("old", "new", "even+max-model-len", "rule_of_a_user:split+total", "rule_of_a_user:split")
    }
    assert seq_lens == {
        "old": [2, 2, 4, 0],
        "new": [2, 3, 3, 0],
        "even+max-model-len": [16, 16, 16, 0],
        "rule_of_a_user:split+total": [8, 8, 8, 0],
        "rule_of_a_user:split": [6, 1, 1, 0],
    }
    assert dummyaudit.build(NAMED_RULES["v1"], 3, 8, table, device="auto").seq_lens.tolist() == [8, 8, 8, 0]
    with pytest.raises(RuleError, match="unknown rule 'lats'"):
        dummyaudit.build("lats", 3, 8, table)


def test_rule_of_a_user_is_built_and_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "another_rule.py").write_text(
        "def split(r, n):\n    return [1 + (n - r) // r + (i % 2 == 0) for i in range(r - 1)] + [3]\n"
        "def zigzag(r, n):\n    return [1, 2] * (n // 3)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    report = dummyaudit.compare(
        num_reqs=6, num_tokens=9, max_model_len=1, block_size=1, rules=["another_rule:zigzag"], token_alignment=0
    )
    (layout,) = report.layouts
    assert report.built is not None
    # Requests 1, 3 and 5 read two ids of rows of one; that of row 5 is the last of the table.
    assert (layout.requests.overflow, layout.reach, layout.worst.request) == (3, "past-table", 5)
    with pytest.raises(RuleError, match="num_reqs 6, num_tokens 9"):
        dummyaudit.compare(num_reqs=6, num_tokens=9, rules=["another_rule:split"])


def test_numpy_sizes_are_sizes() -> None:
    report = dummyaudit.grid(
        num_reqs=np.int64(4), num_tokens=np.arange(8, 12), max_model_len=np.array([16]), device="none"
    )
    assert report.settings["num_tokens"] == [8, 9, 10, 11]
    assert '"num_reqs": 4' in report.to_json()


def test_public_names_are_all_there() -> None:
    for name in dummyaudit.__all__:
        assert getattr(dummyaudit, name) is not None
        assert name in dir(dummyaudit)
    assert dummyaudit.DummyAuditError is DummyAuditError
    with pytest.raises(AttributeError, match="no attribute 'grids'"):
        _ = dummyaudit.grids  # type: ignore[attr-defined]
    assert not hasattr(dummyaudit, Shapes.__name__)
