"""Stand-ins for the parts of vLLM that the guard takes hold of: small, and with both runners."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dummyaudit.guard
from dummyaudit.guard import watch

BACKEND = '''
from dataclasses import dataclass
import torch

@dataclass
class CommonAttentionMetadata:
    seq_lens: torch.Tensor
    num_reqs: int
    block_table_tensor: torch.Tensor

built = []

def build(metadata):
    """What an attention backend makes of it."""
    built.append(metadata.num_reqs)
'''

FIRST = '''
import torch
from vllm.v1.attention import backend
from vllm.v1.attention.backend import CommonAttentionMetadata

class AttentionSpec: ...
class MambaSpec: ...

class Group:
    def __init__(self, spec): self.kv_cache_spec = spec

class Config:
    def __init__(self, *specs): self.kv_cache_groups = [Group(spec) for spec in specs]

class BlockTable:
    def __init__(self, rows, slots, block_size):
        self.max_num_reqs, self.max_num_blocks_per_req, self.block_size = rows, slots, block_size

class Tables:
    def __init__(self, *tables): self.block_tables = list(tables)

class Batch:
    def __init__(self, *tables): self.block_table = Tables(*tables)

class GPUModelRunner:
    def __init__(self, rows=8, slots=4, block_size=32):
        self.rows, self.slots = rows, slots
        self.input_batch = Batch(BlockTable(rows, slots, block_size), BlockTable(rows, 1, 2**20))
        self.kv_cache_config = Config(AttentionSpec(), MambaSpec())

    def _dummy_run(self, num_tokens, cudagraph_runtime_mode=None, force_attention=False, is_profile=False):
        num_reqs = min(num_tokens, self.rows)
        if force_attention:
            self.run([num_tokens] * num_reqs)
        return num_tokens

    def run(self, lengths):
        """What a real request goes through too."""
        table = torch.zeros(self.rows, self.slots, dtype=torch.int32)[: len(lengths)]
        metadata = CommonAttentionMetadata(torch.tensor(lengths, dtype=torch.int32), len(lengths), table)
        backend.build(metadata)
'''

CAPTURE = """
import torch
from vllm.v1.attention import backend
from vllm.v1.attention.backend import CommonAttentionMetadata

def prepare_inputs_to_capture(num_reqs, num_tokens, block_tables, kv_cache_config, full_cudagraph):
    lengths = [num_tokens // num_reqs] * num_reqs
    lengths[-1] += num_tokens % num_reqs
    metadata = CommonAttentionMetadata(torch.tensor(lengths), num_reqs, block_tables.input_block_tables[0][:num_reqs])
    backend.build(metadata)
"""

SECOND = """
import torch
from vllm.v1.attention import backend
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.worker.gpu.cudagraph_utils import prepare_inputs_to_capture
from vllm.v1.worker.gpu_model_runner import AttentionSpec, Config

class BlockTables:
    cp_size, cp_interleave = 1, 1
    def __init__(self, rows, slots, block_size):
        self.input_block_tables, self.block_sizes = [torch.zeros(rows, slots, dtype=torch.int32)], [block_size]

class GPUModelRunner:
    def __init__(self, rows=256, slots=8, block_size=16):
        self.rows = rows
        self.block_tables = BlockTables(rows, slots, block_size)
        self.kv_cache_config = Config(AttentionSpec())

    def _dummy_run(self, num_tokens, *args, skip_attn=False, is_profile=False, **kwargs):
        if not skip_attn:
            self.draft([num_tokens])

    def capture_model(self, sizes, full=True, draft=()):
        for size in sizes:
            num_reqs = min(size, self.rows)
            prepare_inputs_to_capture(num_reqs, size, self.block_tables, self.kv_cache_config, full_cudagraph=full)
        if draft:
            self.draft(list(draft))

    def draft(self, lengths):
        table = self.block_tables.input_block_tables[0][: len(lengths)]
        backend.build(CommonAttentionMetadata(torch.tensor(lengths), len(lengths), table))
"""

KINDS = """
class KVCacheSpec: ...
class AttentionSpec(KVCacheSpec): ...
class FullAttentionSpec(AttentionSpec): ...
class CircularBufferSpec(AttentionSpec): ...
class CrossAttentionSpec(AttentionSpec): ...
class EncoderOnlyAttentionSpec(AttentionSpec): ...
class MambaSpec(KVCacheSpec): ...
class HiSparseHotSpec(KVCacheSpec): ...
class UniformTypeKVCacheSpecs(KVCacheSpec):
    def __init__(self, spec): self.kv_cache_specs = {"layer": spec}
"""

FILES = {
    "vllm/v1/attention/backend.py": BACKEND,
    "vllm/v1/worker/gpu_model_runner.py": FIRST,
    "vllm/v1/worker/gpu/cudagraph_utils.py": CAPTURE,
    "vllm/v1/worker/gpu/model_runner.py": SECOND,
}

FIRST_RUNNER = "vllm.v1.worker.gpu_model_runner"
SECOND_RUNNER = "vllm.v1.worker.gpu.model_runner"


def write_vllm(root: Path, version: str = "0.32.0", **changes: str) -> None:
    """Writes the stand-ins; `changes` are sources by the last part of their module's name."""
    for name, source in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in (path.parent, *path.parent.parents):
            if parent == root:
                break
            (parent / "__init__.py").touch()
        path.write_text(changes.get(name.replace("/", "_").removesuffix(".py"), source))
    info = root / f"vllm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


@contextmanager
def clean(root: Path) -> Iterator[None]:
    """Has vLLM imported from `root` and, at the end, the guard and vLLM forgotten."""
    finders, path, mode = list(sys.meta_path), list(sys.path), watch.mode
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.meta_path[:], sys.path[:], watch.mode = finders, path, mode
        watch._said.clear()
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def built() -> list[int]:
    """The num_reqs of what attention has seen."""
    found: list[int] = load("vllm.v1.attention.backend").built
    return found


def turn_on(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("DUMMYAUDIT_GUARD", mode)
    dummyaudit.guard.register()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "vllm.dummyaudit"]


def kinds(*names: str) -> list[Any]:
    """Groups of these kinds, and of a group of groups for `Uniform` before the name."""
    known: dict[str, Any] = {}
    exec(KINDS, known)
    specs = [known[name.removeprefix("Uniform")]() for name in names]
    outer = known["UniformTypeKVCacheSpecs"]
    return [
        load(FIRST_RUNNER).Group(outer(spec) if name.startswith("Uniform") else spec)
        for name, spec in zip(names, specs, strict=True)
    ]
