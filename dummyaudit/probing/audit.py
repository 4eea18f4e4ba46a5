"""`probe`: the audit of a builder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from dummyaudit.api import WORST, find_check
from dummyaudit.audit import Severities, Worst
from dummyaudit.axes import Ints, Shapes
from dummyaudit.block_table import BlockTable, TokenAlignment
from dummyaudit.errors import InputError
from dummyaudit.probing.builders import Builder, load_callable, load_vllm, make_buffers
from dummyaudit.probing.checks import CHECKS
from dummyaudit.probing.matching import match_rules
from dummyaudit.probing.result import OVERFLOW, ProbeReport, equality
from dummyaudit.probing.rule import Answers, ProbedRule, Shape
from dummyaudit.probing.search import Search
from dummyaudit.report import Built
from dummyaudit.rules import Fill, Rule, Runs
from dummyaudit.space import DEFAULT_MAX_MODEL_LEN, Axis, describe, make_shapes, make_tables
from dummyaudit.splits import Split
from dummyaudit.sweep import Layouts, Sweep
from dummyaudit.tally import Check, Progress, tally

MAX_SHAPES = 2**20
"""Shapes that a builder is asked for, one call each."""


def probe(
    builder: str | Callable[..., Any] | None = None,
    *,
    buffers: bool = False,
    num_reqs: Axis | None = None,
    num_tokens: Axis | None = None,
    max_model_len: Axis = DEFAULT_MAX_MODEL_LEN,
    block_size: Axis = 16,
    max_num_seqs: int | None = None,
    shapes: Iterable[tuple[int, int]] | None = None,
    dcp: int = 1,
    interleave: int = 1,
    token_alignment: TokenAlignment = 128,
    kernel_block_size: int | None = None,
    device: str = "auto",
    ignore: Collection[str] = (),
    strict: bool = False,
    only_flagged: bool = False,
    worst: int | None = WORST,
    progress: Progress | None = None,
) -> ProbeReport:
    """Asks a builder for the dummy batch of every shape, and audits what it returns.

    Args:
        builder: `module:callable`, or a callable; the installed vLLM's `InputBatch.make_dummy` if not given. It is
            called with num_reqs and num_tokens and returns the tokens of each request, or an object or mapping with
            num_scheduled_tokens and seq_lens.
        buffers: whether the builder is called with an object of buffers too (max_num_reqs, max_num_tokens, device).
        num_reqs: as in `dummyaudit.grid`, and so are all that are not said here.
        num_tokens: see there.
        max_model_len: see there.
        block_size: see there.
        max_num_seqs: see there; also the max_num_reqs of the buffers.
        shapes: see there.
        dcp: see there.
        interleave: see there.
        token_alignment: see there.
        kernel_block_size: see there.
        device: where vLLM, or the buffers, build; batches of the same lengths are built and walked there too.
        ignore: names of checks that are left out.
        strict: see there.
        only_flagged: see there.
        worst: see there.
        progress: called now and then with the shapes done and to do, and then the layouts.

    Raises:
        DummyAuditError: a setting cannot be used, there is no such builder, or it raises or returns what is no batch.
    """
    for name in ignore:
        if name not in CHECKS:
            raise InputError(f"unknown check {name!r}", f"known are {', '.join(CHECKS)}")
    space = make_shapes(num_reqs, num_tokens, shapes, max_num_seqs)
    tables = make_tables(max_model_len, block_size, dcp, interleave, token_alignment, kernel_block_size)
    torch_device, check = find_check(device)
    asked = _listed(space)
    answers = Answers(_load(builder, buffers, asked, max_num_seqs, torch_device))
    checks = tuple(name for name in CHECKS if name not in ignore)
    search = Search(answers, asked, tables, checks)
    search.ask(progress)
    equal, differs = match_rules(answers, asked)
    rule = ProbedRule(answers.builder.name, *_split_and_fill(answers, asked, equal), answers)
    sweep = Sweep(space, tables, (rule,), max_num_seqs, strict)
    evidence = None if check is None else _Evidence(check)
    found = tally(sweep, worst, None if evidence is None else evidence.check)
    failed = search.failures()
    equals = tuple(rule.name for rule in equal)
    return ProbeReport(
        command="probe",
        settings=describe(sweep) | {"buffers": answers.builder.buffers is not None, "ignore": sorted(ignore)},
        summary=found.summary,
        layouts=Layouts(sweep),
        worst=found.worst,
        cells=found.cells,
        outlooks=found.outlooks,
        notes=(equality(equals, differs), *(str(failure) for failure in failed if failure.name == OVERFLOW)),
        problems=tuple(str(failure) for failure in failed if failure.name != OVERFLOW),
        built=Built(torch_device, evidence.built) if torch_device and evidence else None,
        strict=strict,
        only_flagged=only_flagged,
        builder=answers.builder.what,
        checks=tuple(name for name in checks if any(name in answers[shape].made for shape in asked)),
        failed=failed,
        equals=equals,
        differs=differs,
    )


def _listed(space: Shapes) -> list[Shape]:
    """The shapes by num_tokens, then by num_reqs."""
    if len(space) > MAX_SHAPES:
        raise InputError(f"{len(space)} shapes are too many to ask for one by one", f"use at most {MAX_SHAPES}")
    num_reqs, num_tokens = (values.tolist() for values in space.slice(0, len(space)))
    return sorted(zip(num_reqs, num_tokens, strict=True), key=lambda shape: (shape[1], shape[0]))


def _load(
    builder: str | Callable[..., Any] | None,
    buffers: bool,
    shapes: Sequence[Shape],
    max_num_seqs: int | None,
    device: str | None,
) -> Builder:
    most_reqs = max_num_seqs or max(num_reqs for num_reqs, _ in shapes)
    most_tokens = shapes[-1][1]
    if builder is None:
        return load_vllm(most_reqs, most_tokens, device)
    function = load_callable(builder) if isinstance(builder, str) else builder
    name = builder if isinstance(builder, str) else str(getattr(builder, "__qualname__", type(builder).__name__))
    return Builder(name, name, function, make_buffers(most_reqs, most_tokens, device) if buffers else None)


def _split_and_fill(answers: Answers, shapes: Sequence[Shape], equal: tuple[Rule, ...]) -> tuple[Split, Fill]:
    """Of the rule that it equals; else ones that nothing is known of, by which advice is given."""
    if equal:
        return equal[0].split, equal[0].fill
    same = all(np.array_equal(answers[shape].query_lens, answers[shape].seq_lens) for shape in shapes)
    return _unknown_split, Fill("query") if same else Fill("constant", 1)


def _unknown_split(num_reqs: Ints, num_tokens: Ints) -> tuple[Ints, Ints]:
    raise NotImplementedError("a probed rule has its runs from its builder")


class _Evidence:
    """Holds batches of the same lengths, built again, against the arithmetic.

    What is no split of num_tokens cannot be built again and has its verdict from arithmetic alone.

    Attributes:
        built: how many layouts were.
    """

    def __init__(self, inner: Check) -> None:
        self.inner = inner
        self.built = 0

    def check(
        self,
        rule: Rule,
        table: BlockTable,
        num_reqs: Ints,
        num_tokens: Ints,
        max_num_seqs: Ints,
        runs: Runs,
        severity: Severities,
        worst: Worst,
    ) -> None:
        """As `dummyaudit.tally.Check`."""
        used = runs.count > 0
        kept = (runs.count * runs.query_len).sum(axis=0) == num_tokens
        kept &= runs.num_reqs <= max_num_seqs
        kept &= (~used | ((runs.query_len > 0) & (runs.seq_len > 0))).all(axis=0)
        if not kept.any():
            return
        runs = Runs(runs.count[:, kept], runs.query_len[:, kept], runs.seq_len[:, kept])
        worst = Worst(worst.longest[kept], worst.pages[kept], worst.request[kept], worst.seq_len[kept])
        shapes = num_reqs[kept], num_tokens[kept], max_num_seqs[kept]
        self.inner(rule, table, *shapes, runs, severity[kept], worst)
        self.built += int(kept.sum())
