"""Checks the attention metadata of dummy runs, and of nothing else."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dummyaudit.axes import Ints
from dummyaudit.block_table import BlockTable, cdiv
from dummyaudit.engine import release
from dummyaudit.environment import vllm_version
from dummyaudit.errors import DummyAuditError
from dummyaudit.findings import Finding
from dummyaudit.guard.runs import Run, Table

# A child of vLLM's own logger, which has the handlers.
logger = logging.getLogger("vllm.dummyaudit")

mode = "warn"
"""What is done with what is found: `warn` or `raise`."""

_HOMES = ("vllm.v1.attention.backend", "vllm.v1.attention.backends.utils")
"""Modules that define CommonAttentionMetadata, the newest first."""

_runs: list[Run] = []
"""The dummy runs that are under way, the innermost last."""

_said: set[str] = set()


class GuardError(DummyAuditError):
    """A dummy batch that overflows its block table, found before attention reads it."""


def warn_once(text: str) -> None:
    """Logs a warning, the first time that it comes."""
    if text not in _said:
        _said.add(text)
        logger.warning("dummyaudit: %s", text)


@contextlib.contextmanager
def during(describe: Callable[[], Run]) -> Iterator[None]:
    """Watches what is built in here. What is not understood is warned of, and never stops the engine."""
    try:
        run = describe()
        watched = _metadata_class()
    except Exception as error:
        warn_once(f"cannot tell which dummy run this is ({_words(error)}): it is not checked.")
        yield
        return
    original = watched.__init__
    if not _runs:
        watched.__init__ = _checked(original)
    _runs.append(run)
    try:
        yield
    finally:
        _runs.pop()
        if not _runs:
            watched.__init__ = original


def _metadata_class() -> Any:
    for name in _HOMES:
        found = getattr(sys.modules.get(name), "CommonAttentionMetadata", None)
        if found is not None:
            return found
    return importlib.import_module(_HOMES[0]).CommonAttentionMetadata


def _checked(original: Callable[..., None]) -> Callable[..., None]:
    def build(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            _check(self)
        except GuardError:
            raise
        except Exception as error:
            warn_once(f"cannot read this vLLM's attention metadata ({_words(error)}): it is not checked.")

    return build


def _check(metadata: Any) -> None:
    run = _runs[-1]
    tables = run.tables or next((outer.tables for outer in reversed(_runs) if outer.tables), ())
    seq_lens = metadata.seq_lens
    if not tables or _is_capturing(seq_lens):
        return
    lengths = seq_lens[: int(metadata.num_reqs)].cpu().numpy().astype(np.int64)
    for table in tables:
        error = find_overflow(run, table, lengths)
        if error is None:
            continue
        if mode == "raise":
            raise error
        warn_once(str(error))


def _is_capturing(tensor: Any) -> bool:
    """Whether a CUDA graph is being captured right now, in which nothing may be read back."""
    import torch

    return bool(tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def find_overflow(run: Run, table: Table, lengths: Ints) -> GuardError | None:
    """What is wrong with a batch of these lengths [num_reqs], and what cures it; None if nothing is."""
    geometry = _geometry(table)
    pages = geometry.pages(lengths)
    over = np.flatnonzero(pages > table.slots)
    if not over.size:
        return None
    past = over * table.slots + pages[over] > table.rows * table.slots
    # A read past the table is worse than a longer one in it; of equals the last one, as in a report.
    request = int(over[np.lexsort((pages[over], past))[-1]])
    finding = Finding(
        verdict="overflow",
        request=request,
        seq_len=int(lengths[request]),
        pages=int(pages[request]),
        row_slots=table.slots,
        reach="past-table" if past.any() else "next-row",
        max_num_seqs=table.rows,
        max_model_len=None,
    )
    cures = _cures(run, table, len(lengths), geometry.max_model_len_for(int(pages.max())))
    where = f"vLLM {vllm_version() or 'of unknown version'}, runner {run.runner}, {run}"
    return GuardError(f"{where}: {finding}", ", or ".join(cures))


def _geometry(table: Table) -> BlockTable:
    """How pages are counted, and how rows are widened if they are as the release is known to widen them."""
    plain = BlockTable(
        max_model_len=1,
        block_size=table.block_size,
        max_num_seqs=table.rows,
        dcp=table.dcp,
        interleave=table.interleave,
        token_alignment=0,
    )
    with contextlib.suppress(DummyAuditError):
        known = release(vllm_version() or "").block_table(max_model_len=1, block_size=table.block_size)
        if table.slots % known.align == 0:
            return replace(plain, token_alignment=known.token_alignment)
    return plain


def _cures(run: Run, table: Table, num_reqs: int, longer: int) -> Iterator[str]:
    tokens = run.num_tokens
    if tokens is not None:
        evenly = cdiv(tokens, num_reqs)
        if cdiv(evenly, table.block_size * table.dcp) <= table.slots:
            yield f"split the tokens evenly (at most {evenly} a request)"
    yield f"--max-model-len {longer} or more"
    if run.name == "capture" and tokens is not None:
        yield f"leave capture size {tokens} out (dummyaudit vllm says which sizes fit)"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
