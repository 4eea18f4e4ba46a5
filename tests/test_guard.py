from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guard_cases import (
    FIRST,
    FIRST_RUNNER,
    SECOND_RUNNER,
    built,
    clean,
    load,
    turn_on,
    warnings,
    write_vllm,
)

import dummyaudit.guard
from dummyaudit.errors import DummyAuditError
from dummyaudit.guard import hooks, watch

OVERFLOW = (
    "vLLM 0.32.0, runner v1, warm-up of 250 tokens: request 7 has seq_len 250: 8 pages of 4 slots, "
    "reads slots 4 to 7 past the end of the table (past-table)"
)


@pytest.fixture(autouse=True)
def vllm(tmp_path: Path) -> Iterator[Path]:
    write_vllm(tmp_path)
    with clean(tmp_path):
        yield tmp_path


@pytest.fixture(params=["raise", "warn"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    turn_on(monkeypatch, request.param)
    return str(request.param)


@pytest.mark.parametrize("value", [None, ""])
def test_installing_the_package_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, value: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    if value is not None:
        monkeypatch.setenv("DUMMYAUDIT_GUARD", value)
    finders = list(sys.meta_path)
    dummyaudit.guard.register()
    assert sys.meta_path == finders
    load(FIRST_RUNNER).GPUModelRunner()._dummy_run(250, force_attention=True)
    assert built() == [8]
    assert warnings(caplog) == []


def test_plugin_that_is_off_imports_nothing() -> None:
    code = "import sys, dummyaudit.guard as g; g.register(); print('numpy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_unknown_mode_is_warned_of_and_checks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turn_on(monkeypatch, "yes")
    load(FIRST_RUNNER).GPUModelRunner()._dummy_run(250, force_attention=True)
    assert warnings(caplog) == [
        "dummyaudit: DUMMYAUDIT_GUARD=yes is not known; use warn or raise. Nothing is checked."
    ]


def test_raise_stops_before_attention_sees_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_on(monkeypatch, "raise")
    runner = load(FIRST_RUNNER).GPUModelRunner()
    with pytest.raises(watch.GuardError) as raised:
        runner._dummy_run(250, force_attention=True)
    assert raised.value.message == OVERFLOW
    assert raised.value.hint == "split the tokens evenly (at most 32 a request), or --max-model-len 129 or more"
    assert built() == []
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again), again.hint) == (watch.GuardError, str(raised.value), raised.value.hint)
    assert isinstance(again, DummyAuditError)


def test_warn_logs_each_case_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turn_on(monkeypatch, "warn")
    runner = load(FIRST_RUNNER).GPUModelRunner()
    for tokens in (250, 250, 251):
        assert runner._dummy_run(tokens, force_attention=True) == tokens
    assert built() == [8, 8, 8]
    assert len(warnings(caplog)) == 2
    assert warnings(caplog)[0].startswith(f"dummyaudit: {OVERFLOW}; split the tokens evenly")
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_what_fits_and_what_no_attention_reads_passes(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    runner = load(FIRST_RUNNER).GPUModelRunner()
    runner._dummy_run(128, force_attention=True)
    runner._dummy_run(4096, is_profile=True)
    assert built() == [8]
    assert warnings(caplog) == []


def test_real_requests_are_not_checked_and_cost_nothing(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    runner = load(FIRST_RUNNER).GPUModelRunner()
    metadata = load("vllm.v1.attention.backend").CommonAttentionMetadata
    untouched = metadata.__init__
    runner._dummy_run(8, force_attention=True)
    assert metadata.__init__ is untouched
    runner.run([4096] * 8)
    assert built() == [8, 8]
    assert warnings(caplog) == []


def test_metadata_is_left_as_it_was_after_an_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_on(monkeypatch, "raise")
    runner = load(FIRST_RUNNER).GPUModelRunner()
    untouched = load("vllm.v1.attention.backend").CommonAttentionMetadata.__init__
    for _ in range(2):
        with pytest.raises(watch.GuardError):
            runner._dummy_run(250, force_attention=True)
    assert load("vllm.v1.attention.backend").CommonAttentionMetadata.__init__ is untouched


@pytest.mark.parametrize("early", [True, False])
def test_modules_loaded_before_or_after_are_wrapped_once(monkeypatch: pytest.MonkeyPatch, early: bool) -> None:
    if early:
        load(SECOND_RUNNER)
    turn_on(monkeypatch, "raise")
    dummyaudit.guard.register()
    function = load(FIRST_RUNNER).GPUModelRunner._dummy_run
    assert hasattr(function, hooks._MARK)
    assert not hasattr(function.__wrapped__, hooks._MARK)
    assert load(FIRST_RUNNER).__spec__.loader is load(FIRST_RUNNER).__loader__
    assert sum(isinstance(finder, hooks._Finder) for finder in sys.meta_path) == 1


class Mode:
    name = "FULL"


def test_first_runner_names_profile_warm_up_and_capture(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turn_on(monkeypatch, "warn")
    runner = load(FIRST_RUNNER).GPUModelRunner()
    arguments: list[dict[str, Any]] = [{}, {"is_profile": True}, {"cudagraph_runtime_mode": Mode}]
    for more in arguments:
        runner._dummy_run(250, force_attention=True, **more)
    names = [text.split(": ")[1].split(", ")[2] for text in warnings(caplog)]
    assert names == ["warm-up of 250 tokens", "profile of 250 tokens", "capture FULL of 250 tokens"]
    assert "leave capture size 250 out" in warnings(caplog)[2]


def test_second_runner_names_the_graph_and_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_on(monkeypatch, "raise")
    runner = load(SECOND_RUNNER).GPUModelRunner()
    runner.capture_model([8, 256, 368, 512])
    with pytest.raises(watch.GuardError) as raised:
        runner.capture_model([496])
    assert str(raised.value) == (
        "vLLM 0.32.0, runner v2, capture FULL of 496 tokens: request 255 has seq_len 241: 16 pages of 8 slots, "
        "reads slots 8 to 15 past the end of the table (past-table); split the tokens evenly (at most 2 a request), "
        "or --max-model-len 129 or more, or leave capture size 496 out (dummyaudit vllm says which sizes fit)"
    )
    assert built() == [8, 256, 256, 256]
    readme = " ".join((Path(__file__).parents[1] / "README.md").read_text().split())
    assert str(raised.value).replace("0.32.0", "0.26.0") in readme


def test_what_a_draft_model_builds_while_graphs_are_captured_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_on(monkeypatch, "raise")
    runner = load(SECOND_RUNNER).GPUModelRunner()
    with pytest.raises(watch.GuardError, match=r"runner v2, capture: request 0 has .* in the next row \(next-row\)"):
        runner.capture_model([], draft=[200, 3])


def test_second_runner_is_checked_in_warm_ups_and_not_in_profiling(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_on(monkeypatch, "raise")
    runner = load(SECOND_RUNNER).GPUModelRunner()
    runner._dummy_run(8192, skip_attn=True, is_profile=True)
    with pytest.raises(watch.GuardError, match="runner v2, warm-up of 300 tokens"):
        runner._dummy_run(300)


def test_infeasible_batch_is_not_told_to_split_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_on(monkeypatch, "raise")
    with pytest.raises(watch.GuardError) as raised:
        load(SECOND_RUNNER).GPUModelRunner(rows=2)._dummy_run(300)
    assert "evenly" not in str(raised.value)


def test_guard_and_assertion_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_on(monkeypatch, "raise")
    with pytest.raises(watch.GuardError) as raised:
        load(FIRST_RUNNER).GPUModelRunner()._dummy_run(250, force_attention=True)
    with pytest.raises(AssertionError) as failed:
        dummyaudit.assert_fits([250] * 8, (8, 4), block_size=32)
    assert raised.value.message.partition("tokens: ")[2] == str(failed.value).splitlines()[-1]


def test_runner_without_tables_yet_is_not_checked(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    first, second = load(FIRST_RUNNER).GPUModelRunner(), load(SECOND_RUNNER).GPUModelRunner()
    first.kv_cache_config = second.kv_cache_config = None
    first._dummy_run(250, force_attention=True)
    second._dummy_run(300)
    assert built() == [8, 1]
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("name", "source", "says"),
    [
        ("gpu_model_runner", FIRST.replace("_dummy_run", "_other_run"), "has no GPUModelRunner._dummy_run"),
        ("gpu_model_runner", FIRST.replace("num_tokens", "size"), "cannot tell which dummy run this is (KeyError"),
        (
            "gpu_model_runner",
            FIRST.replace("block_size = rows", "page = rows"),
            "cannot tell which dummy run this is",
        ),
    ],
)
def test_engine_that_is_not_known_is_warned_of_once_and_runs(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture, name: str, source: str, says: str
) -> None:
    (tmp_path / "vllm/v1/worker" / f"{name}.py").write_text(source)
    runner = load(FIRST_RUNNER).GPUModelRunner()
    run = getattr(runner, "_dummy_run", None) or runner._other_run
    for _ in range(2):
        assert run(250, force_attention=True) == 250
    assert built() == [8, 8]
    [text] = warnings(caplog)
    assert says in text


def test_metadata_that_is_not_known_is_warned_of_once_and_passes(
    tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend = tmp_path / "vllm/v1/attention/backend.py"
    backend.write_text(backend.read_text().replace("seq_lens", "lengths"))
    runner = load(FIRST_RUNNER).GPUModelRunner()
    for _ in range(2):
        runner._dummy_run(250, force_attention=True)
    assert built() == [8, 8]
    [text] = warnings(caplog)
    assert "cannot read this vLLM's attention metadata (AttributeError" in text


def test_missing_metadata_class_is_warned_of(tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    runner = load(FIRST_RUNNER).GPUModelRunner()
    del sys.modules["vllm.v1.attention.backend"].CommonAttentionMetadata
    runner._dummy_run(250, force_attention=True)
    [text] = warnings(caplog)
    assert "cannot tell which dummy run this is (AttributeError" in text


def test_module_that_cannot_be_loaded_fails_as_without_the_guard(tmp_path: Path, mode: str) -> None:
    (tmp_path / "vllm/v1/worker/gpu_model_runner.py").write_text("raise RuntimeError('own fault')")
    with pytest.raises(RuntimeError, match="own fault"):
        load(FIRST_RUNNER)
    (tmp_path / "vllm/v1/worker/gpu_model_runner.py").unlink()
    with pytest.raises(ModuleNotFoundError):
        load(FIRST_RUNNER)
