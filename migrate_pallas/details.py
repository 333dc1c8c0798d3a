"""Changes and findings as text and places, for whoever has not the file at hand."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .changes import Change, Finding
from .edits import Edits
from .gates import additions
from .hunks import excerpt, lines, touched
from .pipeline import Examined

_CONTEXT = 2
_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Replacement:
    """What stands from `start` to `end`, each a line and a column from 1, becomes `text`."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True)
class Detail:
    """A change as text.

    `before` are the whole lines that it touches, of which `line` is the number of the first; `after` is what it makes
    of them, other changes not counted. `above` and `below` are lines around them. `replacements` make the change, with
    the imports and definitions that it needs, and no other change.
    """

    line: int
    before: str
    after: str
    above: tuple[str, ...]
    below: tuple[str, ...]
    replacements: tuple[Replacement, ...]


def details(examined: Examined) -> tuple[Detail, ...]:
    """A detail for each change of the file, in their order."""
    places = _Places(examined.text)
    return tuple(_detail(examined, change, places) for change in examined.changes)


def _detail(examined: Examined, change: Change, places: _Places) -> Detail:
    text, module = examined.text, examined.module
    first, last = touched(text, change.edits)
    before, after = excerpt(text, change.edits)
    needed = additions(text, module.tree, module.functions, [change]) if module else ()
    line = places.at(first)[0]
    above = text[places.start(line - _CONTEXT) : first]
    below = text[last : places.start(line + len(lines(before)) + _CONTEXT)]
    replacements = (
        Replacement(places.at(edit.start), places.at(edit.end), edit.text)
        for edit in sorted((*change.edits, *needed))
    )
    return Detail(
        line, before, after, tuple(lines(above)), tuple(lines(below)), tuple(replacements)
    )


def followed(findings: Sequence[Finding], text: str, edits: Edits, result: str) -> list[Finding]:
    """`findings` in `text`, where they are in the `result` of `edits`."""
    before, after = _Places(text), _Places(result)
    moved = []
    for finding in findings:
        offset = before.start(finding.line) + finding.column
        for edit in sorted(set(edits), reverse=True):
            if edit.end <= offset:
                offset += len(edit.text) - (edit.end - edit.start)
            elif edit.start < offset:
                offset = edit.start
        line, column = after.at(offset)
        moved.append(replace(finding, line=line, column=column - 1))
    return moved


class _Places:
    """Offsets of a text as lines and columns, and back."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(found.end() for found in _NEWLINE.finditer(text))]
        self._end = len(text)

    def at(self, offset: int) -> tuple[int, int]:
        """The line and column, from 1, of `offset`."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def start(self, line: int) -> int:
        """The offset of the first character of `line`, from 1; of a line beyond the last, the end."""
        index = max(line - 1, 0)
        return self._starts[index] if index < len(self._starts) else self._end
