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

from dummyaudit.block_table import BlockTable, cdiv
from dummyaudit.engine import release
from dummyaudit.environment import vllm_version
from dummyaudit.errors import DummyAuditError
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
        text = describe_overflow(run, table, lengths)
        if text is None:
            continue
        if mode == "raise" and not _is_latent(run):
            raise GuardError(*text)
        warn_once("; ".join(text) + ("; latent: built, and not read" if _is_latent(run) else ""))


def _is_capturing(tensor: Any) -> bool:
    """Whether a CUDA graph is being captured right now, in which nothing may be read back."""
    import torch

    return bool(tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _is_latent(run: Run) -> bool:
    """Whether attention never runs on what is built: PIECEWISE graphs of the second runner before 0.27."""
    if (run.runner, run.graph) != ("v2", "PIECEWISE"):
        return False
    return not release(vllm_version() or "").v2_piecewise_live


def describe_overflow(run: Run, table: Table, lengths: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[str, str] | None:
    """What is wrong with a batch of these lengths [num_reqs], and what cures it; None if nothing is."""
    slots = table.slots
    geometry = _geometry(table)
    pages = geometry.pages(lengths)
    if not len(pages) or int(pages.max()) <= slots:
        return None
    request = len(pages) - 1 - int(np.argmax(pages[::-1]))
    most = int(pages[request])
    past = int((np.arange(len(pages)) * slots + pages).max()) > table.rows * slots
    where = "past-table: past the end of the table" if past else "next-row: another request's"
    what = (
        f"vLLM {vllm_version() or 'of unknown version'}, runner {run.runner}, {run}: request {request} of "
        f"{len(pages)} has seq_len {lengths[request]}: {most} pages of {slots} slots, reads slots {slots}-{most - 1} "
        f"({where})"
    )
    return what, ", or ".join(_cures(run, table, lengths, geometry.max_model_len_for(most)))


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


def _cures(run: Run, table: Table, lengths: np.ndarray[Any, np.dtype[np.int64]], longer: int) -> Iterator[str]:
    tokens = run.num_tokens
    if tokens is not None and len(lengths):
        evenly = cdiv(tokens, len(lengths))
        if cdiv(evenly, table.block_size * table.dcp) <= table.slots:
            yield f"split the tokens evenly (at most {evenly} a request)"
    yield f"--max-model-len {longer} or more"
    if run.name == "capture" and tokens is not None:
        yield f"leave capture size {tokens} out (dummyaudit vllm says which sizes fit)"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
