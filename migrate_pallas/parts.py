"""A source text in parts, each of which is parsed when something is first asked of it.

Most functions of a file have nothing that a rule looks at, and parsing is most of what a run costs. So a text is cut
at its top-level statements, by a scan that is ten times as fast. A function or class is a part by itself: all that it
tells the rest of the module before it is parsed is its name, and which words stand in it. What may bind any other
name at module level (all other statements; a function that says `global`) is not put off.

The parts are in every way those of the whole tree: an offset, a line, a parent are what they are there. Only comments
between parts belong to no token.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from fissix.pytree import Leaf, Node

from .calls import Tree, start
from .parsing import NEWLINE, PLAIN_STRING, FaultAt, formatted_end, parse_part, symbols

# From one place of interest to the next: a bracket, a line that begins with code, a quote that may open an f-string
# (those need the tokenizer, PEP 701). What goes by in between is code, plain strings, comments, and other line ends.
_CODE = r"""[^"'\#()\[\]{}\\\r\n]*"""
_PASSED = rf"""(?<![fFtT])(?<![fFtT][rR]){PLAIN_STRING} | \#[^\r\n]* | \\{NEWLINE} | {NEWLINE}(?=[ \t\r\n\#]|\Z)"""
_next_stop = re.compile(
    rf"{_CODE}(?:(?:{_PASSED}){_CODE})*(?:([(\[{{])|([)\]}}])|({NEWLINE})|(?=['\"])|\Z)", re.VERBOSE | re.DOTALL
).match
_OPENS, _CLOSES, _LINE = 1, 2, 3
_plain_string = re.compile(PLAIN_STRING, re.VERBOSE | re.DOTALL).match
_format_prefix = re.compile(r"(?<!\w)(?:[fFtT][rR]?|[rR][fFtT])\Z").search
# How a line without indentation begins.
_head = re.compile(
    r"(?P<decorator>@) | (?:async[ \t]+)?(?:def|class)[ \t]+(?P<name>[A-Za-z_]\w*) |"
    r"(?P<clause>(?:else|elif|except|finally)\b)",
    re.VERBOSE,
).match
# What binds names of the module inside a function: PEP 572 in a default, and a statement.
_binds_outside = re.compile(r":=|[\r\n;:][ \t]*global[ \t\\]").search


@dataclass(eq=False)
class Part:
    """Consecutive top-level statements, at `text[start:end]`: one function or class of that `name`, or any others."""

    tree: Parted
    start: int
    end: int
    name: str = ""

    @property
    def text(self) -> str:
        """The source text of the part."""
        return self.tree.text[self.start : self.end]

    def holds(self, word: str) -> bool:
        """Whether `word` stands anywhere in the part, be it within another word."""
        return self.tree.text.find(word, self.start, self.end) >= 0

    def matches(self, pattern: re.Pattern[str]) -> bool:
        """Whether `pattern` is found in the part."""
        return pattern.search(self.tree.text, self.start, self.end) is not None

    @property
    def is_parsed(self) -> bool:
        """Whether it has been parsed."""
        return "nodes" in vars(self)

    @cached_property
    def nodes(self) -> list[Tree]:
        """The statements, without the end of the file. Raises `SyntaxFault` if they are not Python."""
        self.nodes = self.tree.adopt(self)
        for follower in self.tree.followers:
            follower(self)
        return self.nodes


class Parted(Node):  # type: ignore[misc]  # fissix has no types
    """The `file_input` node of a text in parts. Whoever asks for its children has all of them parsed."""

    def __init__(self, text: str, parts: list[tuple[int, str]]) -> None:
        """`parts` are where each begins, and its name."""
        self.type = symbols.file_input
        self.text = text
        ends = [*(begin for begin, _ in parts[1:]), len(text)]
        self.parts = [Part(self, begin, end, name) for (begin, name), end in zip(parts, ends, strict=True)]
        self.followers: list[Callable[[Part], None]] = []
        self._starts = [part.start for part in self.parts]
        self._places: dict[str, list[int]] = {}
        self._last: list[Leaf] = []

    @property
    def children(self) -> list[Tree]:
        """All statements, and the end of the file."""
        return [node for part in self.parts for node in part.nodes] + self._last

    @property
    def others(self) -> Iterator[Tree]:
        """The statements, in order, that are not each a part with a name."""
        return (node for part in self.parts if not part.name for node in part.nodes)

    def adopt(self, part: Part) -> list[Tree]:
        """Parse `part`, whose statements become children."""
        children: list[Tree] = parse_part(self.text, part.start, part.end).children
        for node in children:
            node.parent = self
        ending = children.pop()
        if part is self.parts[-1]:
            self._last = [ending]
        return children

    def part_at(self, offset: int) -> Part:
        """The part in which the text at `offset` stands."""
        return self.parts[bisect_right(self._starts, offset) - 1]

    def part_of(self, node: Tree) -> Part:
        """The part to which `node` belongs."""
        return self.part_at(start(node))

    def holding(self, *words: str) -> Iterator[Part]:
        """The parts in which any of `words` stands, be it within another word, in order."""
        found = {
            index for word in words for index in self._indices(word)
        }
        return (self.parts[index] for index in sorted(found))

    def places(self, word: str) -> list[int]:
        """Where `word` stands in the text, and not within another word."""
        if word not in self._places:
            self._places[word] = list(self._words(word))
        return self._places[word]

    def _words(self, word: str) -> Iterator[int]:
        at = self.text.find(word)
        while at >= 0:
            after = at + len(word)
            around = self.text[max(at - 1, 0) : at] + self.text[after : after + 1]
            if not any(character.isalnum() or character == "_" for character in around):
                yield at
            at = self.text.find(word, after)

    def _indices(self, word: str) -> Iterator[int]:
        at = self.text.find(word)
        while at >= 0:
            index = bisect_right(self._starts, at) - 1
            yield index
            at = self.text.find(word, self.parts[index].end)


def in_parts(text: str) -> Parted:
    """The tree of `text`, cut at its top-level statements.

    It has one part where that can't be done exactly. Raises `SyntaxFault` for a text of one part that is not Python;
    of others that shows when a part is parsed.
    """
    return Parted(text, _parts(text) or [(0, "")])


def in_one(text: str) -> Parted:
    """The tree of `text` as one part."""
    return Parted(text, [(0, "")])


def _parts(text: str) -> list[tuple[int, str]]:
    """Where each part begins, and its name; [] where that is not told exactly by a scan."""
    # A form feed moves what is indented, and a comment may tell to skip what follows: those are for the whole tree.
    if any(odd in text for odd in ("\f", "\0", "migrate-pallas")):
        return []
    lines = _lines(text)
    begins: list[tuple[int, str]] = []
    decorated = plain = False
    for at in lines:
        head = _head(text, at)
        kind = head.lastgroup if head else None
        if text[at] == "\\" or (decorated and kind not in ("decorator", "name")):
            return []
        goes_on = decorated or kind == "clause" or (plain and kind is None)
        name = head["name"] if head and kind == "name" else ""
        if not goes_on or not begins:
            begins.append((at, name))
        elif name:
            begins[-1] = (begins[-1][0], name)
        decorated = kind == "decorator"
        plain = kind is None or (plain and kind == "clause")
    if not begins or decorated:
        return []
    begins[0] = (0, begins[0][1])
    ends = [*(begin for begin, _ in begins[1:]), len(text)]
    binding = [bool(_binds_outside(text, begin, end)) for (begin, _), end in zip(begins, ends, strict=True)]
    return [(begin, "" if binds else name) for (begin, name), binds in zip(begins, binding, strict=True)]


def _lines(text: str) -> list[int]:
    """Where the lines begin that have no indentation and continue nothing; [] where that can't be told."""
    found = [] if text[:1] in ("", " ", "\t", "#", "\r", "\n") else [0]
    at = depth = 0
    try:
        while stop := _next_stop(text, at):
            at, kind = stop.end(), stop.lastindex
            if kind == _OPENS:
                depth += 1
            elif kind == _CLOSES:
                depth -= 1
                if depth < 0:
                    return []
            elif kind == _LINE:
                if not depth:
                    found.append(at)
            elif at == len(text):
                return [] if depth else found
            else:
                at = _string_end(text, at)
    except FaultAt:
        pass
    return []


def _string_end(text: str, at: int) -> int:
    """Where the string ends whose quote stands at `at`. Raises `FaultAt` if it does not end."""
    prefix = _format_prefix(text, max(at - 3, 0), at)
    plain = _plain_string(text, at)
    if prefix is None or (plain is not None and "{" not in plain.group()):
        if plain is None:
            raise FaultAt("unterminated string literal", at)
        return plain.end()
    quote = text[at] * 3 if text.startswith(text[at] * 3, at) else text[at]
    return formatted_end(text, prefix.group() + quote, at + len(quote))
