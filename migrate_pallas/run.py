"""A whole run: every file goes through the pipeline, on all cores, and results come out in the order of the files."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, tee
from pathlib import Path

from .changes import Change, Finding, Kernel
from .details import Detail, details, followed
from .diffs import unified
from .files import FileFault, Source, clean_up_after, decode, encode, read, write
from .parsing import SyntaxFault
from .pipeline import Unsound, edits_of, examine, proven
from .settings import Settings


@dataclass(frozen=True)
class Fault:
    """Why a file could not be done: a code of MP9xx, and where."""

    code: str
    message: str
    line: int = 1
    column: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of one file.

    `diff` is what was or would be changed, in `encoding`; `result` is the whole of it. `findings` are where they are
    now: in a file that was written, in its new text. `details` are those of `changes`, if the task asks for them.
    """

    path: str
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    details: tuple[Detail, ...] = ()
    fault: Fault | None = None
    diff: bytes = b""
    result: bytes = b""
    encoding: str = "utf-8"


@dataclass(frozen=True)
class Task:
    """What to do with each file: `write` it, or only tell what would change.

    `roots` are the paths given; `detailed` asks for the text of each change.
    """

    settings: Settings
    write: bool
    roots: tuple[str, ...] = ()
    detailed: bool = False


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
    """Take the file at `path` through the pipeline, from bytes to bytes. Raises no `Exception`."""
    return _guarded(shown(path), lambda name: _work(read(path), name, task))


def piped(raw: bytes, task: Task) -> Outcome:
    """Take the bytes of a source that is no file through the pipeline; nothing is written.

    Raises no `Exception`.
    """
    task = replace(task, write=False)
    outcome = _guarded("<stdin>", lambda name: _work(decode(raw), name, task))
    return outcome if outcome.changes or outcome.fault else replace(outcome, result=raw)


def _guarded(name: str, worked: Callable[[str], Outcome]) -> Outcome:
    try:
        with _collector_paused():
            return worked(name)
    except (FileFault, SyntaxFault, Unsound) as error:
        return Outcome(name, fault=fault_of(error))
    except Exception as error:  # A bug of ours must not keep the other files from being done.
        return Outcome(name, fault=_internal(error))


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Have Python collect no garbage while a file is done, whose trees are all alive until then."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _internal(error: Exception) -> Fault:
    """The fault that an error of this program is."""
    message = (
        f"internal error, the file is as it was: {described(error)}; please report it with the file"
    )
    return Fault("MP905", message)


def described(error: Exception) -> str:
    """What an error of this program is, and where in it, on one line."""
    [place] = traceback.extract_tb(error.__traceback__, limit=-1)
    where = f"{os.path.basename(place.filename)}:{place.lineno}"  # noqa: PTH119
    return " ".join(f"{type(error).__name__}: {error} (at {where})".split())


def cores() -> int:
    """How many processes may run at once, which in a container is not what the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _work(source: Source, name: str, task: Task) -> Outcome:
    examined = examine(source.text, task.settings)
    findings, kernels = examined.findings, examined.kernels
    if not examined.changes:
        return Outcome(name, findings=findings, kernels=kernels)
    result = proven(examined, examined.changes, task.settings)
    after = encode(source, result)
    diff = unified(name, source.raw, after)
    if task.write:
        edits = edits_of(examined, examined.changes)
        findings = tuple(followed(findings, source.text, edits, result))
    shown_changes = details(examined) if task.detailed else ()
    if task.write:  # Last of all, so that no error of ours can follow.
        write(source, result, task.roots)
    return Outcome(
        name,
        examined.changes,
        findings,
        kernels,
        shown_changes,
        diff=diff,
        result=after,
        encoding=source.encoding,
    )


# About 100 MB of trees: Python's own threshold of 700 has them walked over and over.
_OBJECTS_BETWEEN_COLLECTIONS = 500_000
# What a process takes at once ends with so many files, or before it would exceed so many bytes: large
# enough that handing it over costs little, small enough that all cores end at about the same time.
_MOST_FILES, _MOST_BYTES = 32, 64 * 1024


def run(files: Iterable[Path | FileFault], task: Task, jobs: int) -> Generator[Outcome, None, None]:
    """The outcome of every file, in order; with more than a few files, from `jobs` processes.

    Closing the iterator ends the processes; each finishes the write that it is at.
    """
    gc.freeze()  # what is there by now stays: no need to look at it again
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    chunks = _chunks(files)
    first = list(islice(chunks, 2))
    if jobs == 1 or len(first) < 2:
        for file in chain.from_iterable(chain(first, chunks)):
            yield _one(file, task)
        return
    from .workers import Work, in_order  # Not at the top: a few files need no processes.

    do = Work(partial(_worth_telling, task=task), partial(_after_death, task=task), _size)
    files_of, listed = tee(chain(first, chunks))
    with contextlib.closing(in_order(listed, do, jobs)) as results:
        for chunk, outcomes in zip(files_of, results, strict=False):
            for file, outcome in zip(chunk, outcomes, strict=True):
                yield outcome or Outcome(_name(file))


def _chunks(files: Iterable[Path | FileFault]) -> Iterator[list[Path | FileFault]]:
    chunk: list[Path | FileFault] = []
    size = 0
    for file in files:
        own = _size(file)
        if chunk and (len(chunk) == _MOST_FILES or size + own > _MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += own
    if chunk:
        yield chunk


def _size(file: Path | FileFault) -> int:
    try:
        return 0 if isinstance(file, FileFault) else os.stat(file).st_size  # noqa: PTH116
    except OSError:
        return 0


def _name(file: Path | FileFault) -> str:
    path = file.path if isinstance(file, FileFault) else file
    return shown(path) if path else ""


def _one(file: Path | FileFault, task: Task) -> Outcome:
    if isinstance(file, FileFault):
        return Outcome(_name(file), fault=fault_of(file))
    return work(file, task)


def _worth_telling(file: Path | FileFault, task: Task) -> Outcome | None:
    """The outcome of a file if there is something in it; of most files there is nothing to send."""
    outcome = _one(file, task)
    if outcome.changes or outcome.findings or outcome.kernels or outcome.fault:
        return replace(outcome, result=b"")
    return None


def _after_death(pid: int, file: Path | FileFault, last: bool, task: Task) -> Outcome | None:
    """Clean up after a process that was killed while it had `file`; an outcome if that is the end."""
    if isinstance(file, FileFault):
        return _one(file, task)
    try:
        if task.write:
            clean_up_after(pid, file)
    except FileFault as error:
        return Outcome(_name(file), fault=fault_of(error))
    if not last:
        return None
    message = (
        "the process that worked on it was killed, and so was a second one; out of memory, perhaps"
    )
    return Outcome(_name(file), fault=Fault("MP903", message))
