"""The guard: a plugin of vLLM that checks dummy batches where they are built, before attention sees them.

vLLM calls `register` in each of its processes, perhaps several times. It does nothing unless DUMMYAUDIT_GUARD is
`warn` or `raise`.
"""

from __future__ import annotations

import os

VARIABLE = "DUMMYAUDIT_GUARD"


def register() -> None:
    """The entry point of the group vllm.general_plugins."""
    mode = os.environ.get(VARIABLE, "")
    if not mode:
        return
    from dummyaudit.guard.hooks import install

    install(mode)
