"""A whole run: every file goes through the pipeline, on all cores, and results come out in the order of the files."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from .changes import Change, Finding
from .diffs import unified
from .files import FileFault, Source, decode, encode, read, write
from .parsing import SyntaxFault
from .pipeline import Unsound, examine, proven
from .settings import Settings

_CHUNK = 16  # files that one task takes: large enough that handing them over costs little


@dataclass(frozen=True)
class Fault:
    """Why a file could not be done: a code of MP9xx, and where."""

    code: str
    message: str
    line: int = 1
    column: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of one file. `diff` is what was or would be changed, `result` the whole of it."""

    path: str
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    fault: Fault | None = None
    diff: bytes = b""
    result: bytes = b""


@dataclass(frozen=True)
class Task:
    """What to do with each file: `write` it, or only tell what would change. `roots` are the paths given."""

    settings: Settings
    write: bool
    roots: tuple[str, ...] = ()


def fault_of(error: FileFault | SyntaxFault | Unsound) -> Fault:
    """The fault that a failure of the pipeline is."""
    if isinstance(error, SyntaxFault):
        return Fault("MP901", f"not Python: {error.message}", error.line, error.column - 1)
    if isinstance(error, FileFault):
        return Fault(error.code, error.message, error.line or 1)
    return Fault(
        "MP905", f"our own rewrite was refused, the file is as it was: {error}", error.line
    )


def shown(path: str | os.PathLike[str]) -> str:
    """`path` relative to the working directory."""
    return os.path.relpath(path)


def work(path: str | os.PathLike[str], task: Task) -> Outcome:
    """Take the file at `path` through the pipeline, from bytes to bytes. Raises nothing."""
    name = shown(path)
    try:
        return _work(read(path), name, task)
    except (FileFault, SyntaxFault, Unsound) as error:
        return Outcome(name, fault=fault_of(error))


def _work(source: Source, name: str, task: Task) -> Outcome:
    examined = examine(source.text, task.settings)
    if not examined.changes:
        return Outcome(name, findings=examined.findings)
    result = proven(examined, examined.changes, task.settings)
    after = encode(source, result)
    if task.write:
        write(source, result, task.roots)
    diff = unified(name, source.raw, after)
    return Outcome(name, examined.changes, examined.findings, diff=diff, result=after)


def piped(raw: bytes, task: Task) -> Outcome:
    """Take the bytes of a source that is no file through the pipeline. Raises nothing."""
    name = "<stdin>"
    try:
        outcome = _work(decode(raw), name, task)
    except (FileFault, SyntaxFault, Unsound) as error:
        return Outcome(name, fault=fault_of(error))
    return outcome if outcome.changes else replace(outcome, result=raw)


def run(files: Iterable[Path | FileFault], task: Task, jobs: int) -> Iterator[Outcome]:
    """The outcome of every file, in order; with more than a few files, on `jobs` processes."""
    waiting = iter(files)
    first = list(islice(waiting, _CHUNK))
    if jobs == 1 or len(first) < _CHUNK:
        for file in (*first, *waiting):
            yield _one(file, task)
        return
    yield from _on_many(first, waiting, task, jobs)


def _one(file: Path | FileFault, task: Task) -> Outcome:
    if isinstance(file, FileFault):
        return Outcome(shown(file.path) if file.path else "", fault=fault_of(file))
    return work(file, task)


def _chunk(files: Sequence[Path | FileFault], task: Task) -> list[Outcome]:
    return [_one(file, task) for file in files]


def _on_many(
    first: list[Path | FileFault], rest: Iterator[Path | FileFault], task: Task, jobs: int
) -> Iterator[Outcome]:
    """Chunks are handed out a few ahead of what is read, so that memory does not grow with their number."""
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(jobs, context, initializer=_leave_interrupts_to_parent)
    ahead: deque[Future[list[Outcome]]] = deque()
    try:
        chunk = first
        while chunk or ahead:
            while chunk and len(ahead) < 4 * jobs:
                ahead.append(pool.submit(_chunk, chunk, task))
                chunk = list(islice(rest, _CHUNK))
            yield from ahead.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts_to_parent() -> None:
    """A write under way is finished; the parent, which gets the signal too, hands out no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
