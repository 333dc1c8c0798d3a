"""What review shows: a change, its diff and what follows from the accepted ones, as text for a terminal.

Source text is shown, never sent: a character that would move the cursor, or that can't be seen, is spelled out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from fissix.pytree import Leaf, Node

from .changes import Change
from .gates import additions
from .hunks import Block, Hunk, Scope, hunks, word_changes
from .parsing import symbols
from .pipeline import Examined

BOLD, REVERSE, RED, GREEN, CYAN, BLUE = 1, 7, 31, 32, 36, 34
_TAB = 8
_EMPHASIS_NEEDS = (
    0.3  # of a line's characters kept: one that is new almost wholly gains nothing from it
)

HELP = """\
y - apply this change
n - leave this change
a - apply this change and all later ones in this file
d - leave this change and all later ones in this file
A - apply this change and all later ones of this rule, in this file and the next ones
q - quit; what was accepted so far is written
e - edit the proposed lines in $VISUAL or $EDITOR, and apply what you make of them
u - undo the last answer
? - show this help
Ctrl-C - stop; this file is left as it is, earlier ones are written
"""


class Paint:
    """Puts text in colour, or leaves it plain."""

    def __init__(self, coloured: bool) -> None:
        self.coloured = coloured

    def __call__(self, text: str, *styles: int) -> str:
        """`text`, between the codes of ECMA-48's SGR for `styles` and the one that ends them."""
        if not self.coloured or not text:
            return text
        return f"\x1b[{';'.join(map(str, styles))}m{text}\x1b[0m"


def visible(text: str) -> str:
    """`text` with everything spelled out that a terminal would obey, or not show: `^[`, `<U+202E>`, `\\xff`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _spelled(ord(c)) for c in text)


def _spelled(code: int) -> str:
    if code < 0x20 or code == 0x7F:
        return f"^{chr(code ^ 0x40)}"
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name that is no text (PEP 383)
        return f"\\x{code - 0xDC00:02x}"
    return f"<U+{code:04X}>"


def width(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def displayed(line: str) -> str:
    """A source line as it is shown, its ending left out; tabs become the columns they stand for."""
    first, *rest = line.rstrip("\r\n").split("\t")
    shown = visible(first)
    for part in rest:
        shown += " " * (_TAB - width(shown) % _TAB) + visible(part)
    return shown


def change_screen(name: str, examined: Examined, change: Change, paint: Paint) -> str:
    """Where `change` stands in the file `name`, its code and reason, and the diff that it alone makes."""
    place = f"{visible(name)}:{change.line}:{change.column + 1}:"
    heading = f"\n{paint(place, BOLD)} {change.code} {visible(change.reason)}\n"
    found = hunks(examined.text, change.edits, scopes(examined, change))
    return heading + diff_screen(found, paint)


def additions_screen(
    name: str, examined: Examined, accepted: Sequence[Change], paint: Paint
) -> str:
    """The gate and imports that follow from `accepted`, as a diff; "" where none do."""
    module = examined.module
    added = additions(examined.text, module.tree, module.functions, accepted) if module else ()
    if not added:
        return ""
    heading = f"\n{paint(visible(name), BOLD)}: this follows from the changes accepted\n"
    return heading + diff_screen(hunks(examined.text, added), paint)


def scopes(examined: Examined, change: Change) -> list[Scope]:
    """The functions and classes around `change`, the innermost first."""
    if examined.module is None:
        return []
    found = []
    node: Node | Leaf | None = examined.module.names.leaf_at(change.start)
    while node is not None:
        parent = node.parent
        if node.type in (symbols.funcdef, symbols.classdef):
            outer = node
            while outer.parent is not None and outer.parent.type in _AROUND_DEFINITION:
                outer = outer.parent
            found.append(Scope(outer.get_lineno() - 1, node.get_lineno() - 1))
        node = parent
    return found


_AROUND_DEFINITION = (symbols.decorated, symbols.async_funcdef, symbols.async_stmt)


def diff_screen(found: Iterable[Hunk], paint: Paint) -> str:
    """The lines of a diff; words that differ stand out in lines that were changed."""
    out = []
    for hunk in found:
        out.append(paint(visible(hunk.header), CYAN))
        for block in hunk.blocks:
            out += _block_lines(block, paint)
    return "".join(f"{line}\n" for line in out)


def _block_lines(block: Block, paint: Paint) -> list[str]:
    old, new = ([displayed(line) for line in side] for side in (block.old, block.new))
    if block.old == block.new:
        return [line for pair in zip(old, block.old, strict=True) for line in _row(" ", *pair)]
    old_marks, new_marks = _emphasis("\n".join(old), "\n".join(new))
    out = []
    for sign, colour, shown, lines, marks in (
        ("-", RED, old, block.old, old_marks),
        ("+", GREEN, new, block.new, new_marks),
    ):
        start = 0
        for text, line in zip(shown, lines, strict=True):
            here = [(a - start, b - start) for a, b in marks]
            out += _row(paint(sign, colour), _emphasised(text, here, colour, paint), line)
            start += len(text) + 1
    return out


def _row(sign: str, shown: str, line: str) -> list[str]:
    row = f"{sign}{shown}"
    return [row] if line.endswith(("\r", "\n")) else [row, "\\ No newline at end of file"]


def _emphasis(old: str, new: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The spans of both texts that stand out; none where hardly anything is common."""
    spans = list(word_changes(old, new)) if old and new else []
    kept = len(old) - sum(b - a for a, b, _, _ in spans)
    if kept < _EMPHASIS_NEEDS * min(len(old), len(new)):
        return [], []
    return [(a, b) for a, b, _, _ in spans], [(c, d) for _, _, c, d in spans]


def _emphasised(text: str, spans: Sequence[tuple[int, int]], colour: int, paint: Paint) -> str:
    """`text` in `colour`, its `spans` (which may reach beyond it) reversed."""
    out, done = "", 0
    for begin, stop in spans:
        begin, stop = max(begin, done), min(stop, len(text))
        if begin < stop:
            out += paint(text[done:begin], colour) + paint(text[begin:stop], colour, REVERSE)
            done = stop
    return out + paint(text[done:], colour)
