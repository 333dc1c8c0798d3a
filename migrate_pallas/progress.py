"""A line on the terminal that says how far a long run has come, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TextIO

_PATIENCE = 1.0  # seconds without a word that nobody minds
_INTERVAL = 0.1  # seconds between two words
_ERASE = "\r\x1b[K"  # ECMA-48: erase in line, from the cursor to its end


class Progress:
    """Counts files that are done, on `stream`, if that is a terminal that can erase a line.

    How many there will be is not known before the last is found, so that there is a count and no
    bar; this is why it is not `click.progressbar`, which also leaves its last line behind. `clock`
    tells seconds. Whoever writes to the same terminal calls `hide` before.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._can_erase = stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb")
        self._due = clock() + _PATIENCE
        self._done = 0
        self._visible = False

    def step(self) -> None:
        """Count one file more, and say so if it is time."""
        self._done += 1
        if not self._can_erase or self._clock() < self._due:
            return
        self._due = self._clock() + _INTERVAL
        files = "file" if self._done == 1 else "files"
        self._stream.write(f"{_ERASE}{self._done} {files} done")
        self._stream.flush()
        self._visible = True

    def hide(self) -> None:
        """Erase the line, until the next step that is due."""
        if self._visible:
            self._visible = False
            self._stream.write(_ERASE)
            self._stream.flush()


@contextlib.contextmanager
def progress(stream: TextIO) -> Iterator[Progress]:
    """A `Progress` that is erased in the end, whatever the end is."""
    shown = Progress(stream)
    try:
        yield shown
    finally:
        shown.hide()
