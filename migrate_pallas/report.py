"""What the user is told, and where: results go to stdout, everything else to stderr."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .run import Outcome

Say = Callable[[str], None]


@dataclass
class Totals:
    """Counts of a run."""

    files: int = 0
    changed: int = 0
    changes: int = 0
    declined: int = 0
    findings: int = 0
    faults: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count `outcome`."""
        self.files += 1
        self.changed += bool(outcome.diff)
        self.changes += len(outcome.changes)
        self.findings += len(outcome.findings)
        self.faults += outcome.fault is not None


def tell(outcome: Outcome, say: Say) -> None:
    """Say each finding of `outcome`, and its fault: `path:line:column: CODE message`."""
    for finding in outcome.findings:
        say(f"{outcome.path}:{finding.line}:{finding.column + 1}: {finding.code} {finding.message}")
    fault = outcome.fault
    if fault:
        say(f"{outcome.path}:{fault.line}:{fault.column + 1}: {fault.code} {fault.message}")


def summary(totals: Totals, verb: str) -> str:
    """One line of totals: "would change 3 arguments in 2 of 14 files, 1 finding"."""
    parts = [
        f"{verb} {_count(totals.changes, 'argument')} in {totals.changed} of {_count(totals.files, 'file')}",
        _count(totals.findings, "finding"),
    ]
    if totals.declined:
        parts.insert(1, f"{totals.declined} declined")
    if totals.faults:
        parts.append(f"{_count(totals.faults, 'file')} failed")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
