"""What rules say: changes that may be accepted one by one, and findings that only tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from .edits import Edit


@dataclass(frozen=True, order=True)
class Need:
    """A name that a changed text uses and that must be bound at module level.

    Either `statement` imports it, or `lines` define it; a tab that begins a line stands for one indentation.
    """

    name: str
    statement: str = ""
    lines: tuple[str, ...] = ()


NOTHING: frozenset[Need] = frozenset()


@dataclass(frozen=True)
class Change:
    """One edited argument or entry.

    `line` (from 1) and `column` (from 0, in characters) are where the argument or entry stands, `start` its offset.
    `edits` make the change; `needs` are the names that must be bound once it is made; `reason` is one line.
    `edited` is set where a person has rewritten what was proposed, and `edits` are theirs.
    """

    code: str
    line: int
    column: int
    start: int
    reason: str
    edits: tuple[Edit, ...]
    needs: frozenset[Need] = NOTHING
    edited: bool = False


@dataclass(frozen=True, order=True)
class Finding:
    """Something that a person should know; `message` says why it matters and what to do."""

    line: int
    column: int
    code: str
    message: str = field(compare=False)


class Status(IntEnum):
    """What became of an entry point; of two that apply, the larger counts."""

    PORTABLE = 0  # it runs on CPU as it stands
    MIGRATED = 1
    PERSON = 2  # it was left, or can't be interpreted rightly: a person has to look
    GPU = 3  # not ours to change


@dataclass(frozen=True)
class Kernel:
    """An entry point and what became of it; `line` and `column` are as in a change, `target` is what it calls."""

    line: int
    column: int
    target: str
    status: Status
