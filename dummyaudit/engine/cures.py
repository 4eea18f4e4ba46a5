"""What cures a case that fails: changes as an operator would paste them, each applied and audited again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dummyaudit.axes import in_steps
from dummyaudit.block_table import INT32_MAX, cdiv
from dummyaudit.engine.case import Case
from dummyaudit.engine.graphs import Runner
from dummyaudit.engine.releases import KNOWN_RELEASES, version_key
from dummyaudit.errors import InputError
from dummyaudit.layout import Advice, Layout

_SIZES = ("cudagraph_capture_sizes", "cuda_graph_sizes", "max_cudagraph_capture_size")


def find_cures(case: Case, layouts: Sequence[Layout]) -> tuple[Advice, ...]:
    """Changes each of which, alone, leaves nothing that fails; none if nothing does.

    What is legal is kept: of the capture sizes only those go that fail.
    """
    bad = [layout for layout in layouts if layout.fails(case.strict)]
    if not bad:
        return ()
    cures = (
        _fewer_sizes(case, bad),
        _longer(case, bad),
        _more_seqs(case, bad),
        _other_mode(case),
        _other_runner(case),
        _newer_release(case),
    )
    return tuple(cure for cure in cures if cure is not None)


def _clean(case: Case) -> bool:
    try:
        return not case.failing()
    except InputError:
        return False  # the release would refuse it


def _fewer_sizes(case: Case, bad: Sequence[Layout]) -> Advice | None:
    """Without the capture sizes that fail: the whole list of those left, since vLLM has no way to take one out."""
    resolved = case.resolved()
    all_sizes = sizes = resolved.sizes_of(case.runner)
    length = resolved.decode_query_len
    while bad:
        # A graph of uniform decode may be of a size rounded up to a multiple of the query length.
        gone = {layout.num_tokens for layout in bad if layout.phase and layout.phase["run"] == "capture"}
        left = tuple(size for size in sizes if not {size, cdiv(size, length) * length} & gone)
        if left == sizes or not left:
            return None
        sizes = left
        try:
            bad = case.but({"cudagraph_capture_sizes": sizes}, without=_SIZES).failing()
        except InputError:
            return None
    removed = [size for size in all_sizes if size not in sizes]
    flag = f"-cc.cudagraph_capture_sizes=[{','.join(map(str, sizes))}]"
    return Advice("cudagraph_capture_sizes", list(sizes), f"leave out {in_steps(removed)}: {flag}")


def _longer(case: Case, bad: Sequence[Layout]) -> Advice | None:
    """A longer max_model_len. More tokens may then be batched by default, so that it may have to grow again."""
    while bad:
        needs = [layout.needs_max_model_len for layout in bad]
        length = max(need.strict if case.strict else need.row for need in needs)
        if length > INT32_MAX:
            return None
        try:
            bad = case.but({"max_model_len": length}).failing()
        except InputError:
            return None
    return Advice("max_model_len", length, f"--max-model-len {length}, if the model allows it")


def _more_seqs(case: Case, bad: Sequence[Layout]) -> Advice | None:
    """More requests for shapes that are infeasible with so few."""
    seqs = max(cdiv(layout.num_tokens, layout.max_model_len) for layout in bad)
    if all(layout.feasible for layout in bad) or not _clean(case.but({"max_num_seqs": seqs})):
        return None
    return Advice("max_num_seqs", seqs, f"--max-num-seqs {seqs}")


def _other_mode(case: Case) -> Advice | None:
    """Graphs that leave attention out of mixed batches."""
    mode = "FULL_AND_PIECEWISE"
    if not _clean(case.but({"cudagraph_mode": mode})):
        return None
    return Advice("cudagraph_mode", mode, f"-cc.cudagraph_mode={mode}")


def _other_runner(case: Case) -> Advice | None:
    runner: Runner = "v1" if case.runner == "v2" else "v2"
    if not _clean(replace(case, runner=runner)):
        return None
    return Advice("runner", runner, f"VLLM_USE_V2_MODEL_RUNNER={int(runner == 'v2')} in front of the command")


def _newer_release(case: Case) -> Advice | None:
    for release in KNOWN_RELEASES:
        if version_key(release) > version_key(case.release) and _clean(replace(case, release=release)):
            return Advice("release", release.version, f"vLLM {release.version} or newer")
    return None
