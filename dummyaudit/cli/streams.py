"""stdout and stderr, where they may be closed, full, or a pipe that nobody reads any more."""

from __future__ import annotations

import os
from typing import TextIO


def flush(stream: TextIO | None) -> None:
    """Flushes a stream, or gives up on it."""
    if stream is None or stream.closed:
        return
    try:
        stream.flush()
    except OSError:
        give_up(stream)


def give_up(stream: TextIO) -> None:
    """Sends to nowhere what is still buffered, which would be tried again, and fail again, when Python ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
