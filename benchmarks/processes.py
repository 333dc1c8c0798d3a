"""Run a command as a whole process, and tell its time and memory. For Linux."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_EVERY = 0.02  # seconds between two looks at the memory


@dataclass(frozen=True)
class Timed:
    """A run that nothing looked at.

    `processor` are the seconds that all its processes computed, which a busy machine disturbs less than `seconds`.
    """

    seconds: float
    processor: float
    output: str


@dataclass(frozen=True)
class Watched:
    """A run that was looked at all the time: peaks, in bytes, of its first process and of all its processes together.

    Memory that processes share is counted once in `together` (it is the proportional set size, `man 5 proc`).
    """

    seconds: float
    first: int
    together: int


class Failed(Exception):
    """A command ended with a status that it should not have."""


def timed(command: Sequence[str], environment: Mapping[str, str]) -> Timed:
    """Run `command` and wait for it; raises `Failed` if its status is neither 0 nor 1."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)  # also counts the children that it waited for
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        _require_success(process, errors.read())
        processor = usage.ru_utime + usage.ru_stime
        return Timed(seconds, processor, output.read().decode())


def watched(command: Sequence[str], environment: Mapping[str, str]) -> Watched:
    """Run `command` and look at its processes all the time; raises `Failed` if its status is neither 0 nor 1."""
    first = together = 0
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=errors
        )
        while process.poll() is None:
            first = max(first, _figure(process.pid, "status", "VmHWM"))
            sizes = (_figure(pid, "smaps_rollup", "Pss") for pid in _family(process.pid))
            together = max(together, sum(sizes))
            time.sleep(_EVERY)
        seconds = time.perf_counter() - begin
        errors.seek(0)
        _require_success(process, errors.read())
    return Watched(seconds, first, max(together, first))


def _require_success(process: subprocess.Popen[bytes], errors: bytes) -> None:
    if process.returncode not in (0, 1):  # 1 tells that something was found
        said = errors.decode(errors="replace")[-2000:]
        raise Failed(
            f"{shlex.join(map(str, process.args))} ended with {process.returncode}:\n{said}"
        )


def _family(pid: int) -> list[int]:
    """The process `pid` and all that descend from it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, *(one for child in children for one in _family(int(child)))]


def _figure(pid: int, file: str, name: str) -> int:
    """A figure of a process that Linux tells in kB, in bytes; 0 where the process is no more."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
