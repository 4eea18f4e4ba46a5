"""Which runs and which tables the guard finds, in releases and models of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from guard_cases import (
    CAPTURE,
    FIRST_RUNNER,
    SECOND,
    SECOND_RUNNER,
    built,
    clean,
    kinds,
    load,
    turn_on,
    warnings,
    write_vllm,
)

from dummyaudit.guard import watch


@pytest.fixture(autouse=True)
def vllm(tmp_path: Path) -> Iterator[None]:
    write_vllm(tmp_path)
    with clean(tmp_path):
        yield


@pytest.mark.parametrize("version", ["0.27.0", "0.1.dev1+g5f3a2c1", "dev"])
def test_attention_on_piecewise_graphs_is_checked_in_builds_without_a_release_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    (tmp_path / "vllm-0.32.0.dist-info" / "METADATA").write_text(f"Name: vllm\nVersion: {version}\n")
    turn_on(monkeypatch, "raise")
    with pytest.raises(watch.GuardError, match=r"capture PIECEWISE of 496 tokens: request 255 .*--max-model-len"):
        load(SECOND_RUNNER).GPUModelRunner().capture_model([496], full=False)


SKIP_ATTN = "skip_attn=False):\n    if skip_attn: return"


@pytest.mark.parametrize(
    ("parameters", "call", "says"),
    [
        pytest.param("full_cudagraph):", "full_cudagraph=full", "capture FULL of", id="0.27"),
        pytest.param(SKIP_ATTN, "skip_attn=not full", "capture FULL of", id="0.21"),
        pytest.param("_=None):", "_=full", "capture of", id="0.17"),
    ],
)
def test_graphs_of_older_releases_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: str, call: str, says: str
) -> None:
    path = tmp_path / "vllm/v1/worker/gpu"
    (path / "cudagraph_utils.py").write_text(CAPTURE.replace("full_cudagraph):", parameters))
    (path / "model_runner.py").write_text(SECOND.replace("full_cudagraph=full", call))
    turn_on(monkeypatch, "raise")
    runner = load(SECOND_RUNNER).GPUModelRunner()
    with pytest.raises(watch.GuardError, match=f"runner v2, {says} 496 tokens"):
        runner.capture_model([496])
    assert built() == []
    if parameters == SKIP_ATTN:
        runner.capture_model([496], full=False)
        assert built() == []


@pytest.mark.parametrize(
    "kind",
    ["MambaSpec", "UniformMambaSpec", "CircularBufferSpec", "CrossAttentionSpec", "HiSparseHotSpec"],
)
def test_row_that_is_not_counted_in_tokens_of_seq_len_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    turn_on(monkeypatch, "raise")
    first, second = load(FIRST_RUNNER).GPUModelRunner(), load(SECOND_RUNNER).GPUModelRunner()
    first.kv_cache_config.kv_cache_groups = kinds(kind, "MambaSpec")
    second.kv_cache_config.kv_cache_groups = kinds(kind)
    first._dummy_run(250, force_attention=True)
    second._dummy_run(300)
    assert built() == [8, 1]
    assert warnings(caplog) == []


@pytest.mark.parametrize("kind", ["FullAttentionSpec", "UniformFullAttentionSpec"])
def test_attention_beside_groups_without_a_table_is_checked(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    turn_on(monkeypatch, "raise")
    runner = load(FIRST_RUNNER).GPUModelRunner()
    runner.kv_cache_config.kv_cache_groups = kinds(kind, "MambaSpec", "EncoderOnlyAttentionSpec")
    with pytest.raises(watch.GuardError, match="8 pages of 4 slots"):
        runner._dummy_run(250, force_attention=True)


def test_slots_of_the_kernels_smaller_pages_are_not_taken_for_whole_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_on(monkeypatch, "raise")
    runner = load(SECOND_RUNNER).GPUModelRunner(slots=8, block_size=64)
    runner.block_tables.kernel_block_sizes = [16]
    runner._dummy_run(128)
    with pytest.raises(watch.GuardError, match="9 pages of 8 slots, reads slots 8 to 8"):
        runner._dummy_run(129)


def test_ranks_share_the_tokens_of_sharded_groups_only(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_on(monkeypatch, "raise")
    runner = load(SECOND_RUNNER).GPUModelRunner(slots=8, block_size=16)
    runner.block_tables.cp_size = 4
    runner._dummy_run(512)
    with pytest.raises(watch.GuardError, match="seq_len 513: 9 pages of 8 slots"):
        runner._dummy_run(513)
    runner.kv_cache_config.kv_cache_groups[0].kv_cache_spec.dcp_sharded = False
    with pytest.raises(watch.GuardError, match="seq_len 129: 9 pages of 8 slots"):
        runner._dummy_run(129)


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ([40, 300, 8, 129], "request 3 has seq_len 129: 9 pages of 8 slots, reads slots 8 to 8 past the end"),
        ([300, 160, 8, 8], "request 0 has seq_len 300: 19 pages of 8 slots, reads slots 8 to 18 in the next row"),
        ([160, 160, 8, 8], "request 1 has seq_len 160: 10 pages of 8 slots, reads slots 8 to 9 in the next row"),
    ],
)
def test_request_that_is_named_is_the_one_that_reads_so(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], says: str
) -> None:
    turn_on(monkeypatch, "raise")
    runner = load(SECOND_RUNNER).GPUModelRunner(rows=4)
    with pytest.raises(watch.GuardError, match=says):
        runner.capture_model([], draft=lengths)
