"""Audits the dummy batches that LLM serving engines build when they profile, warm up and capture CUDA graphs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dummyaudit import engine
    from dummyaudit.api import build, compare, grid
    from dummyaudit.batch import DummyBatch
    from dummyaudit.block_table import BlockTable
    from dummyaudit.errors import DummyAuditError
    from dummyaudit.findings import Finding, assert_fits, check
    from dummyaudit.frontier_audit import frontier
    from dummyaudit.layout import Layout
    from dummyaudit.report import Report

__version__ = "0.1.0"

__all__ = [
    "BlockTable",
    "DummyAuditError",
    "DummyBatch",
    "Finding",
    "Layout",
    "Report",
    "assert_fits",
    "build",
    "check",
    "compare",
    "engine",
    "frontier",
    "grid",
]

# Loaded when they are asked for, so that the command line starts without numpy and torch.
_HOMES = {
    "BlockTable": "block_table",
    "DummyAuditError": "errors",
    "DummyBatch": "batch",
    "Finding": "findings",
    "Layout": "layout",
    "Report": "report",
    "assert_fits": "findings",
    "build": "api",
    "check": "findings",
    "compare": "api",
    "frontier": "frontier_audit",
    "grid": "api",
}


def __getattr__(name: str) -> Any:
    if name == "engine":
        return importlib.import_module("dummyaudit.engine")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"dummyaudit.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
