"""Edits as lines of a diff: which lines they touch, what becomes of them, and which words differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate

from .edits import Edit, Edits, apply, line_start

CONTEXT = 3
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_WORD = re.compile(r"\w+|[\r\n]+|[^\S\r\n]+|[^\w\s]")
_NEWLINES = ("\r", "\n")


@dataclass(frozen=True)
class Scope:
    """A function or class around a change: the lines, from 0, of its first decorator and of its `def` or `class`."""

    top: int
    header: int


@dataclass(frozen=True)
class Block:
    """Lines of a hunk: context where `old` and `new` are equal, else what goes and what comes."""

    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class Hunk:
    """A part of a diff; `header` is the line that git begins it with."""

    header: str
    blocks: tuple[Block, ...]


def lines(text: str) -> list[str]:
    """The lines of `text` as Python counts them, each with its ending."""
    return _LINE.findall(text)


def touched(text: str, edits: Edits) -> tuple[int, int]:
    """Where the lines that `edits` touch begin and end, so that what they become is whole lines too."""
    first = line_start(text, min(edit.start for edit in edits))
    last = max(edit.end for edit in edits)
    becomes = apply(text[first:last], moved(edits, -first))
    whole = text[:last].endswith(_NEWLINES) or last == 0
    if whole and (not becomes or becomes.endswith(_NEWLINES)):
        return first, last
    rest = _LINE.match(text, last)
    return first, rest.end() if rest else last


def excerpt(text: str, edits: Edits, others: Edits = ()) -> tuple[str, str]:
    """The lines that `edits` touch, and what they become; where `others` are made too, both as these leave them."""
    first, last = touched(text, edits)
    inside = tuple(
        edit
        for edit in others
        if first <= edit.start and edit.end <= last and not any(clash(edit, own) for own in edits)
    )
    lines_touched = text[first:last]
    before = apply(lines_touched, moved(inside, -first))
    return before, apply(lines_touched, moved((*inside, *edits), -first))


def clash(one: Edit, other: Edit) -> bool:
    """Whether no order of the two edits gives what both of them mean."""
    same_place = (one.start, one.end) == (other.start, other.end)
    return same_place or (one.start < other.end and other.start < one.end)


def moved(edits: Edits, by: int) -> Edits:
    """`edits` of a text that begins `by` characters earlier in another."""
    return tuple(Edit(edit.start + by, edit.end + by, edit.text) for edit in edits)


def hunks(text: str, edits: Edits, scopes: Sequence[Scope] = ()) -> list[Hunk]:
    """The diff that `edits` alone make, in `scopes` (the innermost first), where the context ends upwards."""
    first, last = (len(lines(text[:offset])) for offset in touched(text, edits))
    old, new = lines(text), lines(apply(text, edits))
    top = min(scopes[0].top, first) if scopes else 0
    low, high = max(first - CONTEXT, top), min(last + CONTEXT, len(old))
    left, right = old[low:high], new[low : len(new) - (len(old) - high)]
    groups = SequenceMatcher(None, left, right, autojunk=False).get_grouped_opcodes(CONTEXT)
    found = []
    for group in groups:
        begin = low + group[0][1]
        header = _range("-", begin, group[-1][2] - group[0][1])
        header += _range(" +", low + group[0][3], group[-1][4] - group[0][3])
        label = next((old[s.header].strip() for s in scopes if s.header < begin), "")
        blocks = tuple(Block(tuple(left[i:j]), tuple(right[k:m])) for _, i, j, k, m in group)
        found.append(Hunk(f"@@ {header} @@ {label}".rstrip(), blocks))
    return found


def _range(sign: str, begin: int, length: int) -> str:
    """Lines of one side, as a unified diff gives them: an empty range is named by the line before it."""
    start = begin + 1 if length else begin
    return f"{sign}{start}" if length == 1 else f"{sign}{start},{length}"


def word_changes(before: str, after: str) -> Iterator[tuple[int, int, int, int]]:
    """Where words of `before` became others in `after`: the offsets of both, as `SequenceMatcher` orders them."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    # What is equal at both ends is left out: a changed word in a line of thousands costs nothing then.
    head = _same_at_start(old, new)
    left, right = old[head:], new[head:]
    tail = _same_at_start(left[::-1], right[::-1])
    left, right = left[: len(left) - tail], right[: len(right) - tail]
    shared = sum(map(len, old[:head]))
    at_old, at_new = _offsets(shared, left), _offsets(shared, right)
    for tag, i, j, k, m in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag != "equal":
            yield at_old[i], at_old[j], at_new[k], at_new[m]


def _same_at_start(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _offsets(first: int, words: Sequence[str]) -> list[int]:
    return list(accumulate(map(len, words), initial=first))
