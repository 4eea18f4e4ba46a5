"""Asks a builder of dummy batches, the installed vLLM's or anyone's, shape by shape, and audits what comes out."""

from dummyaudit.probing.audit import probe
from dummyaudit.probing.checks import CHECKS
from dummyaudit.probing.result import ProbeReport

__all__ = ["CHECKS", "ProbeReport", "probe"]
