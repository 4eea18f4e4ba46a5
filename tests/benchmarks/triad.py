"""The bandwidth of this machine's memory: NumPy's triad `a = b + 3 * c`."""

from __future__ import annotations

import time

import numpy as np


def triad_seconds(numbers: int) -> float:
    """Seconds for arrays of so many doubles, the quickest of some rounds."""
    a, b, c = np.ones((3, numbers))
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)
        best = min(best, time.perf_counter() - start)
    return best
