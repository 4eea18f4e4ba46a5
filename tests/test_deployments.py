from __future__ import annotations

import pytest

from dummyaudit.deployments import Deployment, audit_deployments, parse_releases
from dummyaudit.engine.releases import KNOWN_RELEASES
from dummyaudit.engine.said import Origin, Said, Settings
from dummyaudit.errors import DummyAuditError, InputError


def said(**values: int | str | bool | tuple[int, ...]) -> Settings:
    return {name: Said(value, Origin("option", f"--{name}")) for name, value in values.items()}


INCIDENT = said(max_model_len=16, max_num_seqs=256, cudagraph_mode="FULL")


def versions(text: str) -> list[str]:
    return [known.version for known in parse_releases(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.26.0", ["0.26.0"]),
        ("v0.26.0", ["0.26.0"]),
        ("0.25.1..0.27.0", ["0.25.1", "0.26.0", "0.27.0"]),
        ("0.25.0..0.26.1", ["0.25.0", "0.26.0", "0.26.1"]),
        ("0.26.0..0.26.0", ["0.26.0"]),
        ("0.31.2..0.40.0", ["0.31.2", "0.32.0", "0.33.0", "0.40.0"]),
    ],
)
def test_range_has_both_ends_and_every_known_release_between(text: str, expected: list[str]) -> None:
    assert versions(text) == expected


@pytest.mark.parametrize("text", ["", "x", "..", "0.26..", "..0.26", "0.27.0..0.26.0", "0.2.0", "0.26.0...0.27.0"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_releases(text)


def test_case_is_of_one_deployment_release_and_runner() -> None:
    report = audit_deployments(
        [Deployment("a", INCIDENT), Deployment("b", INCIDENT)], parse_releases("0.26.0..0.27.0"), device="none"
    )
    assert [(case.deployment, case.release, case.runner) for case in report.cases] == [
        (name, version, runner) for name in "ab" for version in ("0.26.0", "0.27.0") for runner in ("v1", "v2")
    ]
    assert report.summary.layouts == sum(len(case.layouts) for case in report.cases) == len(report.layouts)
    flagged = [layout for layout in report.layouts if layout.verdict != "fits"]
    assert report.summary.overflow + report.summary.over_length == len(flagged)
    assert list(report.worst) == sorted(flagged, key=lambda layout: layout.badness, reverse=True)[:20]
    assert {layout.phase["deployment"] for layout in report.layouts if layout.phase} == {"a", "b"}


def test_progress_counts_cases() -> None:
    seen: list[tuple[int, int]] = []
    audit_deployments(
        [Deployment("", INCIDENT)],
        parse_releases("0.26.0..0.27.0"),
        runners=("v2",),
        device="none",
        progress=lambda *done: seen.append(done),
    )
    assert seen == [(1, 2), (2, 2)]


def test_release_that_refuses_the_settings_is_left_out_with_a_note() -> None:
    report = audit_deployments(
        [Deployment("", INCIDENT)], parse_releases("0.16.0..0.18.0"), runners=("v2",), device="none"
    )
    assert [case.release for case in report.cases] == ["0.17.0", "0.18.0"]
    assert [note for note in report.notes if note.startswith("0.16.0 v2 left out: ")]


def test_deployment_that_every_release_refuses_leaves_no_verdict() -> None:
    bad = INCIDENT | said(block_size=16, dcp_kv_cache_interleave_size=5, decode_context_parallel_size=2)
    with pytest.raises(InputError, match=r"bad: .*interleave"):
        audit_deployments(
            [Deployment("good", INCIDENT), Deployment("bad", bad)], parse_releases("0.30.0"), device="none"
        )


def test_newest_release_stands_for_newer_ones_and_a_note_says_so() -> None:
    newest = KNOWN_RELEASES[-1].version
    newer, known = (
        audit_deployments([Deployment("", INCIDENT)], parse_releases(text), device="none")
        for text in ("0.99.0", newest)
    )
    assert newer.summary == known.summary
    assert f"vLLM 0.99.0 is newer than all known releases; audited as {newest}" in newer.notes
    assert not [note for note in known.notes if "newer" in note]


def test_split_of_the_lora_hook_stands_beside_that_of_the_batch() -> None:
    lora = INCIDENT | said(enable_lora=True)
    report = audit_deployments(
        [Deployment("", lora)], parse_releases("0.26.0..0.28.0"), runners=("v2",), device="none"
    )
    assert all(case.lora_split in ("last", "even") for case in report.cases)
    without = audit_deployments([Deployment("", INCIDENT)], parse_releases("0.26.0"), device="none")
    assert {case.lora_split for case in without.cases} == {None}


def test_missing_length_is_asked_for() -> None:
    with pytest.raises(DummyAuditError, match="max_model_len is not known"):
        audit_deployments([Deployment("", {})], parse_releases("0.30.0"), device="none")
