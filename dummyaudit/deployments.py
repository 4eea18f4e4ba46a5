"""Audits deployments of vLLM: every dummy batch that releases build from their settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dummyaudit.api import WORST, find_check
from dummyaudit.engine.case import Case
from dummyaudit.engine.cures import find_cures
from dummyaudit.engine.graphs import Runner
from dummyaudit.engine.model_config import max_model_len_of
from dummyaudit.engine.releases import KNOWN_RELEASES, Release, release, version_key
from dummyaudit.engine.resolve import Gpu, Resolved, runners_of
from dummyaudit.engine.said import Settings, Value
from dummyaudit.errors import InputError
from dummyaudit.layout import Layout
from dummyaudit.report import Built, DeploymentCase, Report, Setting, Summary
from dummyaudit.tally import Progress


@dataclass(frozen=True, slots=True)
class Deployment:
    """Settings that belong together.

    Attributes:
        name: for the report; empty if there is but one.
        said: the settings.
    """

    name: str
    said: Settings


def parse_releases(text: str) -> tuple[Release, ...]:
    """`0.26.0`, or all known releases of a range `0.25.1..0.33.0`, its ends included.

    Raises:
        InputError: a version is malformed or too old, or the range is reversed.
    """
    first, dots, last = text.partition("..")
    low = release(first)
    if not dots:
        return (low,)
    high = release(last)
    if version_key(high) < version_key(low):
        raise InputError(f"releases {text!r} are reversed", f"write {last}..{first}")
    minors = range(version_key(KNOWN_RELEASES[0])[1], version_key(KNOWN_RELEASES[-1])[1] + 1)
    between = (release(f"0.{minor}.0") for minor in minors)
    inner = (r for r in between if version_key(low) < version_key(r) < version_key(high))
    return (low, *inner, high) if low.version != high.version else (low,)


def audit_deployments(
    deployments: Sequence[Deployment],
    releases: Sequence[Release],
    *,
    runners: tuple[Runner, ...] | None = None,
    gpu: Gpu = "small",
    flashinfer_warm_up: bool = True,
    device: str = "auto",
    strict: bool = False,
    only_flagged: bool = False,
    worst: int | None = WORST,
    progress: Progress | None = None,
) -> Report:
    """Audits every deployment on every release.

    Args:
        deployments: what to audit.
        releases: on which releases.
        runners: by which runners; those that the release may choose if not given.
        gpu: whose defaults are used.
        flashinfer_warm_up: whether the first runner warms FlashInfer up.
        device: where batches are built to check the arithmetic: auto, none, cpu, cuda or cuda:N.
        strict: whether over-length and latent layouts count as failures.
        only_flagged: whether the report lists flagged layouts only.
        worst: how many flagged layouts `Report.worst` keeps, or None for all.
        progress: called now and then with the cases done and to do.

    Raises:
        DummyAuditError: no case can be audited, or a built batch disagrees.
    """
    built_on, check = find_check(device)
    plan = [
        (deployment, known, runner)
        for deployment in deployments
        for known in releases
        for runner in runners or runners_of(known, deployment.said)
    ]
    cases: list[DeploymentCase] = []
    notes: list[str] = []
    refused: dict[str, InputError] = {}
    for done, (deployment, known, runner) in enumerate(plan, start=1):
        case = Case(
            name=deployment.name,
            said=_with_model(deployment.said, known),
            release=known,
            runner=runner,
            gpu=gpu,
            flashinfer_warm_up=flashinfer_warm_up,
            strict=strict,
        )
        try:
            layouts = case.layouts(check)
        except InputError as error:
            refused.setdefault(deployment.name, error)
            where = " ".join(filter(None, (deployment.name, known.version, runner)))
            notes.append(f"{where} left out: {error}")
            continue
        cases.append(_finish(case, layouts))
        if progress:
            progress(done, len(plan))
    audited = {case.deployment for case in cases}
    for name, refusal in refused.items():
        if name not in audited:
            raise InputError(f"{name}: {refusal.message}" if name else refusal.message, refusal.hint)
    layouts = [layout for case in cases for layout in case.layouts]
    flagged = sorted((layout for layout in layouts if layout.verdict != "fits"), key=_badness, reverse=True)
    return Report(
        command="vllm",
        settings={
            "deployments": [deployment.name for deployment in deployments],
            "releases": [known.version for known in releases],
            "runners": sorted({case.runner for case in cases}),
            "gpu": gpu,
            "strict": strict,
        },
        summary=_summary(layouts),
        layouts=layouts,
        worst=tuple(flagged[:worst]),
        cases=tuple(cases),
        built=None if built_on is None else Built(built_on, len(layouts)),
        notes=(*notes, *_notes(releases, deployments, runners)),
        strict=strict,
        only_flagged=only_flagged,
    )


def _with_model(said: Settings, known: Release) -> Settings:
    """The settings, with the model's own max_model_len if none is given and the model is a local directory."""
    length, model = said.get("max_model_len"), said.get("model")
    if (length is None or length.value == "auto") and model is not None:
        found = max_model_len_of(str(model.value), scales_yarn=known.scales_yarn)
        if found is not None:
            return {**said, "max_model_len": found}
    return said


def _badness(layout: Layout) -> tuple[bool, int, int]:
    return layout.badness


def _summary(layouts: Sequence[Layout]) -> Summary:
    def count(matches: Callable[[Layout], bool]) -> int:
        return sum(map(matches, layouts))

    return Summary(
        layouts=len(layouts),
        fits=count(lambda layout: layout.verdict == "fits"),
        over_length=count(lambda layout: layout.verdict == "over-length"),
        overflow=count(lambda layout: layout.verdict == "overflow"),
        infeasible=count(lambda layout: not layout.feasible),
        latent=count(lambda layout: not layout.live),
        live_overflow=count(lambda layout: layout.fails(strict=False)),
    )


def _notes(
    releases: Sequence[Release], deployments: Sequence[Deployment], runners: tuple[Runner, ...] | None
) -> list[str]:
    notes = [
        f"vLLM {known.version} is newer than all known releases; audited as {KNOWN_RELEASES[-1].version}"
        for known in releases
        if known.is_newer_than_known
    ]
    undecided = any(len(runners_of(known, d.said)) > 1 for known in releases for d in deployments)
    if runners is None and undecided:
        notes.append(
            "from vLLM 0.22 to 0.28 the model decides which runner is used; both are audited "
            "(--runner v1 or v2 if you know)"
        )
    return notes


def _finish(case: Case, layouts: Sequence[Layout]) -> DeploymentCase:
    resolved = case.resolved()
    sizes = resolved.sizes_of(case.runner)
    return DeploymentCase(
        deployment=case.name,
        release=case.release.version,
        runner=case.runner,
        settings=tuple(
            Setting(setting, _shown(said.value), str(said.origin)) for setting, said in resolved.said.items()
        ),
        capture_sizes=sizes,
        dropped=_dropped(resolved, sizes),
        lora_split=case.release.lora_split if case.runner == "v2" and resolved.said["enable_lora"].value else None,
        layouts=tuple(layouts),
        cures=find_cures(case, layouts),
    )


def _shown(value: Value) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _dropped(resolved: Resolved, sizes: Sequence[int]) -> tuple[tuple[int, str], ...]:
    """The user's capture sizes that are not used, each with the reason."""
    tokens, query_len = resolved.number("max_num_batched_tokens"), resolved.decode_query_len
    return tuple(
        (
            size,
            "cudagraph_mode is NONE"
            if resolved.cudagraph_mode == "NONE"
            else f"over max_num_batched_tokens {tokens}"
            if size > tokens
            else f"rounded up to a multiple of {query_len}, 1 + num_speculative_tokens",
        )
        for size in sorted(set(resolved.given_sizes or ()))
        if size not in sizes
    )
