"""New processes to measure."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(code: str, *arguments: str) -> str:
    """What a new process of one thread prints."""
    # An installed package has its bytecode at hand; the warm-up round writes it here.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout
