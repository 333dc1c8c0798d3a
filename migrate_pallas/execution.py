"""A run, once it is known what was asked: files are found, done and told of, and an exit status comes out."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from .console import say, to_stdout
from .files import FileFault, discover
from .progress import progress
from .report import PageFault, Totals, statistics
from .reporting import Output, reporters
from .run import Outcome, Task, cores, piped, run
from .settings import ALWAYS, AUTO_COLOUR, Settings

DONE, PENDING, FAILED, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class Asked:
    """What a run is to do. `paths` is None where the source stands on stdin."""

    settings: Settings
    output: Output
    paths: tuple[str, ...] | None
    exclude: Sequence[str] = ()
    gitignore: bool = True
    session: str | None = None
    jobs: int | None = None


def execute(asked: Asked) -> int:
    """Do it, and return the exit status."""
    output = asked.output
    task = Task(asked.settings, output.mode == "write", asked.paths or (), output.detailed)
    try:
        if asked.paths is None:
            return _report(_piped(task), asked.settings, output)
        found = discover(asked.paths, exclude=asked.exclude, gitignore=asked.gitignore)
        if output.mode == "review":
            return _review(found, task, asked.session, output)
        return _report(run(found, task, asked.jobs or cores()), asked.settings, output)
    except PageFault as error:
        say(f"--html: {error}")
        return FAILED


def _report(outcomes: Generator[Outcome, None, None], settings: Settings, output: Output) -> int:
    """Tell what becomes of each file, and in the end of all."""
    totals = Totals()
    with reporters(output, settings, to_stdout, say) as told_by:
        with progress(sys.stderr) as line, contextlib.closing(outcomes):
            for outcome in outcomes:
                totals.add(outcome)
                if outcome.diff or outcome.findings or outcome.fault:
                    line.hide()
                for reporter in told_by:
                    reporter.file(outcome)
                line.step()
        for reporter in told_by:
            reporter.end(totals)
    if output.statistics:
        from .explain import names

        for count in statistics(totals, names()):
            say(count)
    return _status(totals, output)


def _review(found: Iterator[Path | FileFault], task: Task, kept: str | None, output: Output) -> int:
    from .review import Review  # Not at the top: no other mode needs these.
    from .sessions import Damaged, Session
    from .terminal import Terminal

    try:
        session = Session(Path(kept) if kept is not None else None)
    except (Damaged, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.UsageError(f"--session: {kept}: {reason}") from error
    coloured = None if output.colour == AUTO_COLOUR else output.colour == ALWAYS
    with Terminal(coloured) as terminal:
        reviewed = Review(task.settings, task.roots, terminal, session).run(found)
        terminal.report(reviewed.summary)
    if reviewed.interrupted:
        return INTERRUPTED
    if reviewed.faults:
        return FAILED
    left = reviewed.declined or (output.strict and reviewed.findings)
    return PENDING if left else DONE


def _piped(task: Task) -> Generator[Outcome, None, None]:
    """What becomes of the source that stands on stdin."""
    yield piped(sys.stdin.buffer.read(), task)


def _status(totals: Totals, output: Output) -> int:
    if totals.faults:
        return FAILED
    left = totals.changed or (output.strict and totals.findings)
    return PENDING if output.mode == "check" and left else DONE
