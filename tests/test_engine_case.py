"""Deployments against a request-by-request reference, and cures against the audit itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dummyaudit.engine import release
from dummyaudit.engine.case import Case
from dummyaudit.engine.cures import find_cures
from dummyaudit.engine.resolve import resolve, runners_of
from dummyaudit.engine.said import Origin, Said, Settings
from dummyaudit.errors import InputError

RELEASES = (
    *("0.11.2", "0.17.1", "0.20.2", "0.21.0", "0.23.0", "0.25.1", "0.26.0", "0.27.0", "0.28.0", "0.32.0", "0.33.0"),
)
MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")


def said(**values) -> Settings:
    return {name: Said(value, Origin("option", name)) for name, value in values.items()}


def case(version: str, runner: str, **values) -> Case:
    return Case(said=said(**values), release=release(version), runner=runner)


@st.composite
def cases(draw, longest: int = 700) -> Case:
    version = draw(st.sampled_from(RELEASES))
    runner = draw(st.sampled_from(("v1", "v2") if release(version).v2_split else ("v1",)))
    values = {
        "max_model_len": draw(st.integers(1, longest)),
        "max_num_seqs": draw(st.integers(1, 300)),
        "block_size": draw(st.sampled_from((1, 16, 32, 48, 128, 176))),
        "cudagraph_mode": draw(st.sampled_from(MODES)),
        "num_speculative_tokens": draw(st.integers(0, 3)),
    }
    if draw(st.booleans()):
        values["max_num_batched_tokens"] = values["max_num_seqs"] + draw(st.integers(0, 3000))
    if draw(st.booleans()):
        values["cudagraph_capture_sizes"] = tuple(draw(st.lists(st.integers(1, 900), min_size=1, max_size=6)))
    elif draw(st.booleans()):
        values["max_cudagraph_capture_size"] = draw(st.integers(1, 900))
    if draw(st.booleans()):
        values["decode_context_parallel_size"] = draw(st.sampled_from((2, 4)))
    return case(version, runner, **values)


def by_hand(item: Case) -> list[tuple[int, int, bool]]:
    """num_reqs, num_tokens and live of every overflow, from lists of requests."""
    resolved = item.resolved()
    numbers = {name: s.value for name, s in resolved.said.items()}
    length, size, seqs = numbers["max_model_len"], numbers["block_size"], numbers["max_num_seqs"]
    dcp, version = numbers["decode_context_parallel_size"], item.release
    minor = int(version.version.split(".")[1])
    align = 1 if minor < 21 else max(128 // size, 1) if minor < 27 else 128 // math.gcd(128, size)
    slots = math.ceil(math.ceil(length / (size * dcp)) / align) * align

    def overflows(lengths: list[int]) -> bool:
        return any(-(-(n // dcp + min(n % dcp, 1)) // size) > slots for n in lengths)

    def old(tokens: int, reqs: int) -> list[int]:
        return [tokens // reqs] * (reqs - 1) + [tokens // reqs + tokens % reqs]

    def new(tokens: int, reqs: int) -> list[int]:
        return [tokens // reqs + (i >= reqs - tokens % reqs) for i in range(reqs)]

    split = new if minor >= 27 else old
    context = dcp if dcp > 1 and minor >= 26 else 0
    found = []
    if item.runner == "v1":
        tokens = min(16, length, numbers["max_num_batched_tokens"]) if minor >= 32 else 16
        ones = min(seqs - 1, tokens // 2)
        prefill = tokens - ones
        found.append((min(tokens, seqs), tokens, True, [1 + context] * ones + [prefill + (context or 1)]))
    budget = numbers["max_num_batched_tokens"]
    profiled = (old if item.runner == "v1" else split)(budget, min(budget, seqs))
    found.append((min(budget, seqs), budget, False, profiled))
    for graph in version.graphs(
        runner=item.runner,
        capture_sizes=resolved.sizes_of(item.runner),
        cudagraph_mode=numbers["cudagraph_mode"],
        max_num_seqs=seqs,
        decode_query_len=resolved.decode_query_len,
    ):
        tokens, reqs = graph.num_tokens, graph.num_reqs
        if item.runner == "v2":
            lengths = split(tokens, reqs)
        elif graph.kind == "mixed":
            lengths = [tokens] * reqs
        else:
            lengths = [resolved.decode_query_len + context] * reqs
        live = graph.mode == "FULL" or (item.runner == "v2" and minor >= 27)
        found.append((reqs, tokens, live, lengths))
    return sorted((reqs, tokens, live) for reqs, tokens, live, lengths in found if overflows(lengths))


@settings(max_examples=300, deadline=None)
@given(cases())
def test_overflows_of_random_settings_are_those_of_a_list_of_requests(item):
    try:
        layouts = item.layouts()
    except InputError:
        assume(False)
    found = [(x.num_reqs, x.num_tokens, x.live) for x in layouts if x.verdict == "overflow"]
    assert sorted(found) == by_hand(item)


@settings(max_examples=300, deadline=None)
@given(cases(), st.booleans())
def test_every_cure_of_random_settings_leaves_nothing_that_fails(item, strict):
    item = replace(item, strict=strict)
    try:
        layouts = item.layouts()
    except InputError:
        assume(False)
    cures = find_cures(item, layouts)
    assert bool(item.failing()) or not cures
    for cure in cures:
        assert applied(item, cure).failing() == []


def applied(item: Case, cure) -> Case:
    match cure.change:
        case "cudagraph_capture_sizes":
            flag = cure.text.split("=", 1)[1]
            assert flag == f"[{','.join(map(str, cure.to))}]"
            return item.but({cure.change: tuple(cure.to)}, without=("cuda_graph_sizes", "max_cudagraph_capture_size"))
        case "runner":
            return replace(item, runner=cure.to)
        case "release":
            return replace(item, release=release(cure.to))
        case _:
            return item.but({cure.change: cure.to})


SEARCH = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


@SEARCH
@given(cases(longest=40))
def test_only_capture_sizes_that_fail_are_taken_out(item):
    try:
        cures = {cure.change: cure for cure in find_cures(item, item.layouts())}
        sizes = item.resolved().sizes_of(item.runner)
    except InputError:
        assume(False)
    assume("cudagraph_capture_sizes" in cures)
    kept = cures["cudagraph_capture_sizes"].to
    query_len = item.resolved().decode_query_len
    bad = {layout.num_tokens for layout in item.failing()}
    assert set(kept) < set(sizes)
    for size in set(sizes) - set(kept):
        assert {size, -(-size // query_len) * query_len} & bad


@SEARCH
@given(cases(longest=40))
def test_one_token_less_of_max_model_len_does_not_cure(item):
    try:
        cures = {cure.change: cure for cure in find_cures(item, item.layouts())}
    except InputError:
        assume(False)
    assume("max_model_len" in cures)
    less = item.but({"max_model_len": cures["max_model_len"].to - 1})
    assume(less.resolved().number("max_num_batched_tokens") == item.resolved().number("max_num_batched_tokens"))
    assert less.failing()


INCIDENT = {"max_model_len": 16, "max_num_seqs": 256}
LATE = {"max_model_len": 4096, "max_num_seqs": 256, "max_num_batched_tokens": 8192, "cudagraph_mode": "FULL"}


@pytest.mark.parametrize(
    ("version", "mode", "live", "latent"),
    [
        ("0.26.0", "FULL", 8, 0),
        ("0.26.0", "PIECEWISE", 0, 8),
        ("0.27.0", "FULL", 0, 0),
        ("0.27.0", "PIECEWISE", 0, 0),
    ],
)
def test_report_49751_is_live_under_full_and_latent_under_piecewise_until_0_27(version, mode, live, latent):
    layouts = case(version, "v2", cudagraph_mode=mode, **INCIDENT).layouts()
    over = [layout for layout in layouts if layout.verdict == "overflow"]
    assert [sum(layout.live for layout in over), sum(not layout.live for layout in over)] == [live, latent]
    if over:
        worst = max(over, key=lambda layout: layout.badness)
        assert (worst.num_tokens, worst.worst.request, worst.worst.seq_len) == (496, 255, 241)
        assert worst.reach == "past-table"
        assert worst.phase == {
            "run": "capture",
            "graph": mode,
            "kind": "mixed",
            "runner": "v2",
            "release": "0.26.0",
        }


@pytest.mark.parametrize("version", ["0.23.0", "0.33.0"])
def test_report_53658_names_4096_as_the_largest_size(version):
    item = case(version, "v1", cudagraph_capture_sizes=(4096, 4097, 4128), **LATE)
    assert [layout.num_tokens for layout in item.failing()] == [4128, 4097]
    assert {layout.requests.overflow for layout in item.failing()} == {256}
    cures = {cure.change: cure.to for cure in find_cures(item, item.layouts())}
    assert cures["cudagraph_capture_sizes"] == [4096]
    assert cures["max_model_len"] == 4097  # 4128 tokens need 258 pages, which rows of 257, rounded up to 264, hold


@pytest.mark.parametrize("version", ["0.27.0", "0.33.0"])
def test_infeasible_size_given_by_hand_is_cured_by_requests_and_not_by_the_split(version):
    item = case(
        version,
        "v2",
        max_model_len=448,
        max_num_seqs=5,
        max_num_batched_tokens=8192,
        cudagraph_mode="FULL",
        cudagraph_capture_sizes=(5, 8192),
    )
    (bad,) = item.failing()
    assert (bad.feasible, bad.worst.seq_len, bad.worst.pages, bad.row_slots) == (False, 1639, 103, 32)
    cures = {cure.change: cure.to for cure in find_cures(item, item.layouts())}
    assert cures["max_num_seqs"] == 19
    assert cures["cudagraph_capture_sizes"] == [5]
    assert "release" not in cures


def test_mixed_warm_up_overflows_rows_that_are_not_aligned():
    def warm_up(version: str) -> str:
        layouts = case(version, "v1", max_model_len=16, max_num_seqs=1).layouts()
        (found,) = (layout for layout in layouts if layout.phase["run"] == "warm-up")
        assert (found.worst.seq_len, found.worst.pages) == (17, 2)
        return found.verdict

    assert [warm_up("0.20.2"), warm_up("0.21.0")] == ["overflow", "over-length"]


def test_warm_up_is_left_out_when_it_is_not_wanted():
    item = case("0.20.2", "v1", max_model_len=16, max_num_seqs=1)
    runs = {layout.phase["run"] for layout in replace(item, flashinfer_warm_up=False).layouts()}
    assert runs == {"profile", "capture"}


def test_context_of_context_parallelism_is_added_from_0_26_on():
    def uniform(version: str) -> set[int]:
        item = case(version, "v1", max_model_len=64, max_num_seqs=8, decode_context_parallel_size=2)
        return {x.worst.seq_len for x in item.layouts() if x.phase["kind"] == "uniform-decode"}

    assert [uniform("0.25.1"), uniform("0.26.0")] == [{1}, {3}]


@pytest.mark.parametrize(
    ("gpu", "version", "expected"),
    [
        ("small", "0.26.0", (256, 2048)),
        ("80gb", "0.26.0", (1024, 8192)),
        ("160gb", "0.26.0", (1024, 8192)),
        ("160gb", "0.28.0", (1024, 16384)),
        ("blackwell", "0.33.0", (1024, 16384)),
    ],
)
def test_defaults_follow_the_gpu(gpu, version, expected):
    resolved = resolve(release(version), said(max_model_len=4096), gpu)
    assert (resolved.number("max_num_seqs"), resolved.number("max_num_batched_tokens")) == expected
    assert resolved.said["max_num_seqs"].origin.source == "default"


def test_default_of_batched_tokens_stays_feasible_and_a_given_one_does_not():
    small = resolve(release("0.33.0"), said(max_model_len=2, max_num_seqs=5))
    assert small.number("max_num_batched_tokens") == 10
    assert small.sizes == (1, 2, 4, 5, 8, 10)
    forced = resolve(release("0.33.0"), said(max_model_len=2, max_num_seqs=5, max_num_batched_tokens=2048))
    assert forced.number("max_num_batched_tokens") == 2048


def test_default_of_max_num_seqs_gives_way_to_batched_tokens():
    assert resolve(release("0.33.0"), said(max_model_len=64, max_num_batched_tokens=32)).number("max_num_seqs") == 32


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({}, "FULL_AND_PIECEWISE"),
        ({"optimization_level": 0}, "NONE"),
        ({"optimization_level": 1}, "PIECEWISE"),
        ({"optimization_level": 3}, "FULL_AND_PIECEWISE"),
        ({"optimization_level": 0, "cudagraph_mode": "FULL"}, "FULL"),
        ({"enforce_eager": True, "cudagraph_mode": "FULL"}, "NONE"),
        ({"enforce_eager": False, "cudagraph_mode": "FULL"}, "FULL"),
    ],
)
def test_cudagraph_mode_follows_eager_then_the_flag_then_the_level(values, mode):
    resolved = resolve(release("0.33.0"), said(max_model_len=64, **values))
    assert resolved.cudagraph_mode == mode
    assert bool(resolved.sizes) == (mode != "NONE")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"max_model_len": "auto"},
        {"max_model_len": 64, "max_num_seqs": 64, "max_num_batched_tokens": 32},
        {"max_model_len": 64, "cudagraph_capture_sizes": (4,), "cuda_graph_sizes": (8,)},
    ],
)
def test_settings_that_the_release_refuses_are_refused(values):
    with pytest.raises(InputError):
        resolve(release("0.33.0"), said(**values))


def test_older_name_of_capture_sizes_means_the_same():
    assert resolve(release("0.12.0"), said(max_model_len=64, cuda_graph_sizes=(8, 4))).sizes == (4, 8)


@pytest.mark.parametrize(
    ("version", "runner", "expected"),
    [
        ("0.23.0", "v2", (4, 8)),  # rounds every size up to a multiple of 4, and 9 to 12, over the largest
        ("0.25.0", "v2", (1, 5, 8, 9)),
        ("0.25.0", "v1", (4, 8)),
    ],
)
def test_sizes_are_rounded_to_the_query_length_where_the_runner_does(version, runner, expected):
    values = said(max_model_len=64, num_speculative_tokens=3, cudagraph_capture_sizes=(1, 5, 8, 9))
    assert resolve(release(version), values).sizes_of(runner) == expected


def test_no_size_left_after_rounding_is_refused():
    values = said(max_model_len=64, num_speculative_tokens=3, cudagraph_capture_sizes=(1, 2))
    with pytest.raises(InputError, match="no capture size is left"):
        resolve(release("0.33.0"), values).sizes_of("v1")


def test_runner_is_that_of_the_variable_else_of_the_release():
    wanted = [runners_of(release(v), said()) for v in ("0.21.0", "0.22.0", "0.28.0", "0.29.0")]
    assert wanted == [("v1",), ("v1", "v2"), ("v1", "v2"), ("v2",)]
    assert runners_of(release("0.33.0"), said(VLLM_USE_V2_MODEL_RUNNER=False)) == ("v1",)
    assert runners_of(release("0.21.0"), said(VLLM_USE_V2_MODEL_RUNNER=True)) == ("v2",)


def test_a_layout_points_at_the_line_of_the_setting_at_fault():
    values = said(max_model_len=16)
    values["cudagraph_capture_sizes"] = Said((256,), Origin("config", "cudagraph_capture_sizes", "serve.yaml", 7))
    values["max_num_seqs"] = Said(256, Origin("config", "max_num_seqs", "serve.yaml", 3))
    item = Case(said=values, release=release("0.26.0"), runner="v2")
    assert {layout.location for layout in item.layouts()} == {("serve.yaml", 7)}
    del values["cudagraph_capture_sizes"]
    assert {layout.location for layout in item.layouts()} == {("serve.yaml", 3)}
