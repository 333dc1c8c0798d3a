"""The one box of editing tools: how an item is removed or added, how a value is wrapped or replaced.

A tool returns edits, spans of the source text with what stands there afterwards. A file's result is its text with
the edits of the accepted changes applied, so whatever no edit spans is the same byte for byte.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from .calls import Brackets, Item, Tree, end, start
from .parsing import symbols

_REST_OF_LINE = re.compile(r"[ \t\f]*(?P<comment>#[^\r\n]*)?(?P<newline>\r\n|\r|\n|\Z)")
_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, order=True)
class Edit:
    """The characters from `start` to `end` of the source become `text`."""

    start: int
    end: int
    text: str


Edits = tuple[Edit, ...]

_TIGHTER = (
    symbols.power,
    symbols.factor,
    symbols.term,
    symbols.arith_expr,
    symbols.shift_expr,
    symbols.and_expr,
    symbols.xor_expr,
    symbols.expr,
    symbols.comparison,
    symbols.not_test,
    symbols.and_test,
    symbols.or_test,
    symbols.star_expr,
    symbols.comp_for,
    symbols.comp_if,
)


def apply(text: str, edits: Iterable[Edit]) -> str:
    """`text` with `edits` made; an edit inside a span that another one removes is dropped.

    Raises ValueError where two edits contradict each other.
    """
    parts: list[str] = []
    done = 0
    for edit in sorted(set(edits), key=lambda e: (e.start, e.end > e.start, -e.end)):
        if edit.end <= done and edit.start < done:
            continue  # inside what has been removed
        if edit.start < done:
            if edit.text:
                raise ValueError(f"edits overlap at offset {edit.start}")
            edit = Edit(done, edit.end, "")
        parts += text[done : edit.start], edit.text
        done = edit.end
    return "".join([*parts, text[done:]])


@lru_cache(maxsize=1)  # every change of a file asks for it
def newline_of(text: str) -> str:
    r"""The line ending that `text` uses most, of several the first; "\n" where it has none."""
    used = Counter(_NEWLINE.findall(text))
    return max(used, key=used.__getitem__, default="\n")


def line_start(text: str, offset: int) -> int:
    """Offset of the first character of the line that holds `offset`."""
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def replace(node: Tree, text: str) -> Edits:
    """`node` becomes `text`."""
    return (Edit(start(node), end(node), text),)


def wrap(node: Tree, before: str, after: str) -> Edits:
    """`before` and `after` are put around `node`, which itself stays as it is."""
    return Edit(start(node), start(node), before), Edit(end(node), end(node), after)


def parentheses_for(value: Tree) -> tuple[str, str]:
    """What must stand around `value` where an operand is wanted: nothing, unless it binds less tightly than `or`."""
    loose = value.type in (symbols.test, symbols.lambdef, symbols.namedexpr_test)
    return ("(", ")") if loose else ("", "")


def gated(first: Tree, last: Tree, gate: str, otherwise: str) -> Edits:
    """What a gate looks like: the expression from `first` to `last` becomes `X if gate else otherwise`.

    X gets parentheses where it binds less tightly, and so does the whole where what is around it would take it apart:
    an operator, or an attribute that follows.
    """
    inner = parentheses_for(first) if first is last else ("", "")
    node = first if first is last else first.parent
    followed = first is not last and node.children[-1] is not last
    outer = ("(", ")") if followed or binds_tighter(node) else ("", "")
    return (
        Edit(start(first), start(first), outer[0] + inner[0]),
        Edit(end(last), end(last), f"{inner[1]} if {gate} else {otherwise}{outer[1]}"),
    )


def binds_tighter(node: Tree) -> bool:
    """Whether what is around `node` would take a conditional expression in its place apart.

    The Python language reference, 6.17 "Operator precedence".
    """
    parent = node.parent
    if parent.type == symbols.test:
        return node is not parent.children[-1]
    return parent.type in _TIGHTER


def remove_item(text: str, brackets: Brackets, item: Item) -> Edits:
    """Take `item` out of `brackets` as a careful person would.

    An item that has its lines to itself takes them away, with the comment on the last of them. The comma style of
    the others stays: where the last item had a trailing comma, the new last one has it too, and where not, not.
    """
    index = brackets.items.index(item)
    stop = item.comma.end if item.comma else item.end
    rest = _REST_OF_LINE.match(text, stop)
    if len(brackets.items) == 1:
        return _remove_only(text, brackets, item, stop, rest)
    first_in_line = _starts_line(text, item, brackets)
    last = index == len(brackets.items) - 1
    previous = brackets.items[index - 1].comma if index else None
    own = _REST_OF_LINE.match(text, item.end)
    if first_in_line and item.comma and own and own.end() <= item.comma.start:
        return _remove_apart(text, item, item.comma, own.end())
    if first_in_line and rest:
        lines = Edit(line_start(text, item.start), rest.end(), "")
        if last and previous and not item.comma:
            return Edit(previous.start, previous.end, ""), lines
        return (lines,)
    if last and previous and not item.comma and rest and _leads_line(text, previous, item):
        return (Edit(line_start(text, previous.start), rest.end(), ""),)
    if last and previous:
        return _remove_last(text, item, previous, stop)
    if rest and previous:
        return (Edit(previous.end, stop, ""),)
    following = brackets.items[index + 1].start
    return (Edit(item.start, stop if "#" in text[stop:following] else following, ""),)


def _remove_only(
    text: str, brackets: Brackets, item: Item, stop: int, rest: re.Match[str] | None
) -> Edits:
    """The brackets become empty, unless a comment of another line stays in them."""
    left, right = brackets.opening.end, brackets.closing.start
    alone = _starts_line(text, item, brackets) and rest is not None
    after = rest.end("comment") if alone and rest and rest["comment"] else stop
    if "#" not in text[left : item.start] + text[after:right]:
        return (Edit(left, right, ""),)
    if alone and rest:
        return (Edit(line_start(text, item.start), rest.end(), ""),)
    return (Edit(item.start, stop, ""),)


def _remove_apart(text: str, item: Item, comma: Tree, stop: int) -> Edits:
    """Take away the lines of `item`, up to `stop`, and its comma on a later line; a comment beside that one stays."""
    rest = _REST_OF_LINE.match(text, comma.end)
    begin = line_start(text, comma.start)
    is_alone = rest and not rest["comment"] and not text[stop : comma.start].strip()
    gone = Edit(comma.start, comma.end, "")
    if rest and is_alone:
        gone = Edit(begin, rest.end(), "")
    return Edit(line_start(text, item.start), stop, ""), gone


def _leads_line(text: str, comma: Tree, item: Item) -> bool:
    """Whether `comma` and `item` begin one line, as where commas lead."""
    beginning = line_start(text, item.start)
    return beginning <= comma.start and not text[beginning : comma.start].strip(" \t\f")


def _remove_last(text: str, item: Item, previous: Tree, stop: int) -> Edits:
    gap = text[previous.end : item.start]
    if "#" in gap:  # the closing bracket must not be drawn into that comment
        kept = () if item.comma else (Edit(previous.start, previous.end, ""),)
        return (*kept, Edit(item.start, stop, ""))
    return (Edit(previous.end if item.comma else previous.start, stop, ""),)


def add_item(text: str, brackets: Brackets, new: str) -> Edits:
    """Put `new` in after the last item of `brackets`.

    Where an item starts a line, `new` gets a line of its own, aligned with the last such item; a comment after the
    last item stays with that item, and a trailing comma stays trailing.
    """
    if not brackets.items:
        return (Edit(brackets.opening.end, brackets.opening.end, new),)
    last = brackets.items[-1]
    anchor = next((i for i in reversed(brackets.items) if _starts_line(text, i, brackets)), None)
    if anchor is None:
        return (Edit(last.end, last.end, f", {new}"),)
    stop = last.comma.end if last.comma else last.end
    rest = _REST_OF_LINE.match(text, stop)
    place = rest.end("comment") if rest and rest["comment"] else stop
    indent = text[line_start(text, anchor.start) : anchor.start]
    line = f"{newline_of(text)}{indent}{new}"
    if last.comma:
        return (Edit(place, place, f"{line},"),)
    if place == stop:
        return (Edit(place, place, f",{line}"),)
    return Edit(stop, stop, ","), Edit(place, place, line)


def _starts_line(text: str, item: Item, brackets: Brackets) -> bool:
    """Whether `item` is the first thing on a line of its own brackets."""
    beginning = line_start(text, item.start)
    return beginning >= brackets.opening.end and not text[beginning : item.start].strip(" \t\f")
