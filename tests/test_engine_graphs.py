from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dummyaudit import engine
from dummyaudit.errors import InputError

ROWS = json.loads((Path(__file__).parent / "data" / "graphs.json").read_text())["rows"]
MODES = ["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]


def graphs_of(version, sizes, mode="FULL_AND_PIECEWISE", *, runner="v2", max_num_seqs=256, decode_query_len=1):
    return engine.release(version).graphs(
        runner=runner,
        capture_sizes=sizes,
        cudagraph_mode=mode,
        max_num_seqs=max_num_seqs,
        decode_query_len=decode_query_len,
    )


def shapes(graphs):
    return [(graph.mode, graph.num_tokens, graph.num_reqs, graph.uniform_query_len) for graph in graphs]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['engine']}-{row['mode']}-{row['sizes']}")
def test_graphs_are_those_that_the_release_listed(row):
    graphs = graphs_of(
        row["engine"],
        row["sizes"],
        row["mode"],
        max_num_seqs=row["max_num_seqs"],
        decode_query_len=row["decode_query_len"],
    )
    expected = [
        (mode, num_tokens, num_reqs or min(num_tokens, row["max_num_seqs"]), uniform)
        for mode, num_tokens, num_reqs, uniform in row["graphs"]
    ]
    assert shapes(graphs) == expected


def test_a_remainder_of_uniform_decode_is_left_to_the_split_before_0_25():
    graphs = graphs_of("0.24.0", [8], "FULL_DECODE_ONLY", decode_query_len=3)
    assert shapes(graphs) == [("FULL", 8, 2, 3)]
    assert graphs[0].rule == "last"


def test_sizes_round_up_to_whole_decodes_once_each_from_0_25():
    graphs = graphs_of("0.25.0", [1, 2, 3, 4, 9], "FULL_DECODE_ONLY", decode_query_len=3)
    assert shapes(graphs) == [("FULL", 9, 3, 3), ("FULL", 6, 2, 3), ("FULL", 3, 1, 3)]


def test_rounding_up_never_passes_the_largest_size_or_the_requests():
    assert graphs_of("0.25.0", [7], "FULL_DECODE_ONLY", decode_query_len=4) == []
    assert shapes(graphs_of("0.25.0", [8, 9, 99], "FULL_DECODE_ONLY", max_num_seqs=2, decode_query_len=4)) == [
        ("FULL", 8, 2, 4)
    ]


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_decode_has_no_graphs_of_its_own_in_full_mode(runner):
    kinds = {graph.kind for graph in graphs_of("0.33.0", [1, 8, 512], "FULL", runner=runner)}
    assert kinds == {"mixed"}


@pytest.mark.parametrize(
    ("version", "rule", "piecewise_live"),
    [("0.17.0", "last", False), ("0.26.0", "last", False), ("0.27.0", "even", True), ("0.33.0", "even", True)],
)
def test_the_second_runner_lays_all_graphs_out_by_the_rule_of_its_release(version, rule, piecewise_live):
    graphs = graphs_of(version, [4, 496])
    assert {graph.rule for graph in graphs} == {rule}
    assert {(graph.mode, graph.kind, graph.live) for graph in graphs} == {
        ("FULL", "uniform-decode", True),
        ("PIECEWISE", "mixed", piecewise_live),
    }
    assert [graph.live for graph in graphs_of(version, [496], "FULL")] == [True]


@pytest.mark.parametrize("version", ["0.11.2", "0.26.0", "0.33.0"])
def test_the_first_runner_lays_mixed_graphs_out_by_v1_in_every_release(version):
    graphs = graphs_of(version, [8, 496, 512], "FULL", runner="v1")
    assert shapes(graphs) == [("FULL", 512, 256, None), ("FULL", 496, 256, None), ("FULL", 8, 8, None)]
    assert {(graph.rule, graph.kind, graph.live) for graph in graphs} == {("v1", "mixed", True)}


@pytest.mark.parametrize("version", ["0.11.2", "0.26.0", "0.33.0"])
def test_attention_never_runs_on_piecewise_graphs_of_the_first_runner(version):
    graphs = graphs_of(version, [8, 496], "PIECEWISE", runner="v1")
    assert [(graph.rule, graph.live) for graph in graphs] == [("v1", False), ("v1", False)]


@pytest.mark.parametrize("version", ["0.11.2", "0.24.0", "0.25.0", "0.33.0"])
def test_the_first_runner_gives_what_is_left_to_a_request_more(version):
    graphs = graphs_of(version, [2, 3, 8, 12, 13], runner="v1", max_num_seqs=4, decode_query_len=3)
    decode = [graph for graph in graphs if graph.kind == "uniform-decode"]
    assert shapes(decode) == [("FULL", 12, 4, 3), ("FULL", 8, 3, 3), ("FULL", 3, 1, 3)]
    assert {(graph.rule, graph.live) for graph in decode} == {("uniform:3", True)}
    assert [graph.num_tokens for graph in graphs[3:]] == [13, 12, 8, 3, 2]


def test_full_graphs_come_before_piecewise_ones_and_large_before_small():
    graphs = graphs_of("0.24.0", [12, 1, 6], decode_query_len=3)
    assert [(graph.mode, graph.num_tokens) for graph in graphs] == [
        ("FULL", 12),
        ("FULL", 6),
        ("PIECEWISE", 12),
        ("PIECEWISE", 6),
        ("PIECEWISE", 1),
    ]


def test_a_size_given_twice_is_captured_once():
    assert shapes(graphs_of("0.33.0", [8, 8], "FULL")) == [("FULL", 8, 8, None)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_no_sizes_make_no_graphs(runner, mode):
    assert graphs_of("0.33.0", [], mode, runner=runner) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", ["0.11.2", "0.16.0"])
def test_the_second_runner_is_not_modelled_before_0_17(version, mode):
    with pytest.raises(InputError, match=rf"vLLM {version} is not modelled \(experimental\)") as caught:
        graphs_of(version, [8], mode)
    assert caught.value.hint == "use runner v1, or 0.17 or newer"


def test_a_runner_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="unknown runner 'v3'; known are v1, v2"):
        graphs_of("0.33.0", [8], runner="v3")


def test_a_mode_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="unknown cudagraph_mode 'full'; known are NONE, PIECEWISE"):
        graphs_of("0.33.0", [8], "full")


@pytest.mark.parametrize("value", [0, -1, 2**31, 1.5, True, "8"])
@pytest.mark.parametrize("name", ["max_num_seqs", "decode_query_len", "capture size"])
def test_a_setting_that_is_no_size_is_refused(name, value):
    settings = {} if name == "capture size" else {name: value}
    with pytest.raises(InputError, match=name):
        graphs_of("0.33.0", [8, value] if name == "capture size" else [8], **settings)


@given(
    version=st.sampled_from(["0.11.2", "0.17.1", "0.24.0", "0.25.0", "0.27.0", "0.33.0"]),
    runner=st.sampled_from(["v1", "v2"]),
    mode=st.sampled_from(MODES),
    sizes=st.lists(st.integers(1, 700), max_size=8),
    max_num_seqs=st.integers(1, 600),
    decode_query_len=st.integers(1, 9),
)
def test_every_graph_is_a_shape_that_fits_the_table_and_the_sizes(
    version, runner, mode, sizes, max_num_seqs, decode_query_len
):
    if runner == "v2" and version == "0.11.2":
        runner = "v1"
    graphs = graphs_of(
        version, sizes, mode, runner=runner, max_num_seqs=max_num_seqs, decode_query_len=decode_query_len
    )
    assert len(set(graphs)) == len(graphs)
    for graph in graphs:
        assert 1 <= graph.num_reqs <= min(graph.num_tokens, max_num_seqs)
        assert graph.num_tokens <= max(sizes)
        assert (graph.kind == "uniform-decode") == (graph.uniform_query_len == decode_query_len)
        if graph.kind == "mixed":
            assert graph.num_tokens in sizes
            assert graph.uniform_query_len is None
        elif runner == "v1":
            assert graph.num_tokens <= graph.num_reqs * decode_query_len < graph.num_tokens + decode_query_len
        elif version >= "0.25":
            assert graph.num_tokens == graph.num_reqs * decode_query_len
        else:
            assert graph.num_reqs == graph.num_tokens // decode_query_len
