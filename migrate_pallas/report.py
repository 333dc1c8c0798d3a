"""What the user is told, and where: results go to stdout, everything else to stderr."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from .changes import Change, Finding, Status
from .run import Fault, Outcome
from .screens import BOLD, CYAN, GREEN, RED, Paint
from .settings import ALWAYS, AUTO_COLOUR

Say = Callable[[str], None]
Put = Callable[[bytes], None]
Told = Change | Finding | Fault

STATUSES = {
    Status.MIGRATED: "migrated",
    Status.PORTABLE: "already portable",
    Status.PERSON: "needs a person",
    Status.GPU: "for GPU, left alone",
}
_PLAIN = Paint(False)
_YELLOW = 33


@dataclass
class Totals:
    """Counts of a run; `codes` are those of changes, findings and faults, `kernels` those of entry points."""

    files: int = 0
    changed: int = 0
    changes: int = 0
    declined: int = 0
    findings: int = 0
    faults: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    kernels: Counter[Status] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count `outcome`."""
        self.files += 1
        self.changed += bool(outcome.diff)
        self.changes += len(outcome.changes)
        self.findings += len(outcome.findings)
        self.faults += outcome.fault is not None
        self.codes.update(told.code for told in told_of(outcome))
        self.kernels.update(kernel.status for kernel in outcome.kernels)

    @property
    def share(self) -> float | None:
        """Of the entry points that are not for GPU, the share that need no help; None where there are none."""
        whole = sum(self.kernels.values()) - self.kernels[Status.GPU]
        return 1 - self.kernels[Status.PERSON] / whole if whole else None


def told_of(outcome: Outcome) -> list[Told]:
    """All that there is to tell of a file, in the order of its lines; a fault comes last."""
    told: list[Told] = [*outcome.changes, *outcome.findings]
    told.sort(key=lambda one: (one.line, one.column))
    return [*told, outcome.fault] if outcome.fault else told


class PageFault(Exception):
    """A page of a report can't be written; the message names it and says why."""


class Reporter(Protocol):
    """Tells of a run: of each file in its turn, and of all in the end."""

    def file(self, outcome: Outcome) -> None:
        """Tell what became of one file."""

    def end(self, totals: Totals) -> None:
        """Tell what became of all."""


class Text:
    """For people: findings on stderr, grouped by file, and the diff on stdout.

    `mode` is what the run does: diff, write or check; of source `from_stdin` the result is put out, unless it is one
    of diff and check. `paint` colours what goes to stderr, `paint_out` the diff.
    """

    def __init__(
        self, mode: str, from_stdin: bool, put: Put, say: Say, paint: Paint, paint_out: Paint
    ) -> None:
        self.mode, self.from_stdin = mode, from_stdin
        self.put, self.say = put, say
        self.paint, self.paint_out = paint, paint_out
        self.verb = "changed" if mode == "write" else "would change"

    def file(self, outcome: Outcome) -> None:
        """Put out its diff or result, or say that it changes, and what was found in it."""
        if self.mode == "diff":
            self.put(painted_diff(outcome.diff, self.paint_out))
        elif self.from_stdin:
            self.put(outcome.result if self.mode != "check" else b"")
        elif outcome.diff:
            self.say(f"{self.verb} {self.paint(outcome.path, BOLD)}")
        tell(outcome, self.say, self.paint)

    def end(self, totals: Totals) -> None:
        """Say the totals, where there may be more than one file."""
        if not self.from_stdin:
            self.say(summary(totals, self.verb))


def tell(outcome: Outcome, say: Say, paint: Paint = _PLAIN) -> None:
    """Say each finding of `outcome`, and its fault: `path:line:column: CODE message`."""
    path = paint(outcome.path, BOLD)
    for finding in outcome.findings:
        place = f"{path}:{finding.line}:{finding.column + 1}"
        say(f"{place}: {paint(finding.code, _YELLOW)} {finding.message}")
    fault = outcome.fault
    if fault:
        place = f"{path}:{fault.line}:{fault.column + 1}"
        say(f"{place}: {paint(fault.code, BOLD, RED)} {fault.message}")


def summary(totals: Totals, verb: str) -> str:
    """One line of totals: "would change 3 arguments in 2 of 14 files, 1 finding"."""
    parts = [
        f"{verb} {counted(totals.changes, 'argument')} in {totals.changed} of {counted(totals.files, 'file')}",
        counted(totals.findings, "finding"),
    ]
    if totals.declined:
        parts.insert(1, f"{totals.declined} declined")
    if totals.faults:
        parts.append(f"{counted(totals.faults, 'file')} failed")
    return ", ".join(parts)


def statistics(totals: Totals, names: dict[str, str]) -> Iterator[str]:
    """Lines of counts: one for each code, which `names` names, then one for each status of entry points."""
    width = max((len(str(count)) for count in totals.codes.values()), default=1)
    for code, count in sorted(totals.codes.items()):
        yield f"{count:{width}} {code} {names[code]}"
    known = sum(totals.kernels.values())
    told = (f"{totals.kernels[status]} {words}" for status, words in STATUSES.items())
    yield f"{counted(known, 'entry point')}: {', '.join(told)}"
    share = totals.share
    if share is not None:
        whole = known - totals.kernels[Status.GPU]
        yield f"{whole - totals.kernels[Status.PERSON]} of {whole} that are not for GPU need no help: {percent(share)}"


def percent(share: float) -> str:
    """`share` in percent; 100% is all, and 0% none."""
    if 0 < share < 1:
        return f"{min(max(round(share * 100), 1), 99)}%"
    return f"{share:.0%}"


def counted(number: int, noun: str) -> str:
    """`number` and `noun`, in the plural where it is not one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def wants_colour(choice: str, stream: TextIO | None) -> bool:
    """Whether what goes to `stream` is to be coloured, where --color is `choice`.

    On a terminal that is not dumb, unless `NO_COLOR` is set and not empty (https://no-color.org).
    """
    if choice != AUTO_COLOUR:
        return choice == ALWAYS
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return stream is not None and stream.isatty()


def painted_diff(diff: bytes, paint: Paint) -> bytes:
    """`diff` in the colours that git gives to one."""
    if not paint.coloured or not diff:
        return diff
    painted = []
    for line in diff.decode("latin-1").split("\n"):  # which keeps every byte
        style = _style(line)
        ending = "\r" if line.endswith("\r") else ""
        painted.append(paint(line.removesuffix("\r"), style) + ending if style else line)
    return "\n".join(painted).encode("latin-1")


def _style(line: str) -> int:
    if line.startswith(("--- ", "+++ ")):
        return BOLD
    if line.startswith("@@"):
        return CYAN
    return GREEN if line.startswith("+") else RED if line.startswith("-") else 0
