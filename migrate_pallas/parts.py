"""A source text in parts, each of which is parsed when something is first asked of it.

Most functions of a file have nothing that a rule looks at, and parsing is most of what a run costs. So a text is cut
at its top-level statements. A function, a class or an assignment is a part by itself: all that it tells the rest of
the module before it is parsed is which names it binds there, and which words stand in it. What may bind any name (an
import, an `if`, a loop) is not put off.

The parts are in every way those of the whole tree: an offset, a line, a parent are what they are there. Only comments
between parts belong to no token.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from fissix.pytree import Leaf, Node

from .calls import Tree, start
from .cuts import Cut, cuts, string_spans
from .parsing import ANY_WORD, NEWLINE, FaultAt, parse_part, symbols

# What follows a name that is bound, and not only read: no attribute, and no word of a sentence.
_may_bind = re.compile(r"(?![ \t]*\.)(?![ \t]+(?!(?:in|if|as)\b)\w)").match
_import = re.compile(
    rf"import[ \t\f]*(?:\\{NEWLINE}[ \t\f]*)*(\((?:[^()\#]|\#[^\r\n]*)*|(?:[^\r\n;\\\#]|\\{NEWLINE})*)"
).match


_words = re.compile(ANY_WORD).finditer
_newlines = re.compile(NEWLINE).findall
_MANY_WORDS = (
    200  # to search for each of more than that takes longer than to find all words at once
)


@dataclass(eq=False)
class Part:
    """One or more top-level statements, at `text[start:end]`; a function or class has a `name`.

    `binds` are the names that the part binds at module level; None where that is not known before it is parsed.
    """

    tree: Parted
    start: int
    end: int
    name: str
    binds: tuple[str, ...] | None

    @property
    def text(self) -> str:
        """The source text of the part."""
        return self.tree.text[self.start : self.end]

    def holds(self, word: str) -> bool:
        """Whether `word` stands anywhere in the part, be it within another word."""
        return self.tree.text.find(word, self.start, self.end) >= 0

    def is_code(self, offset: int) -> bool:
        """Whether what stands at `offset` is neither in a string nor in a comment."""
        begins, ends = self._strings
        index = bisect_right(begins, offset) - 1
        return index < 0 or offset >= ends[index]

    @cached_property
    def _strings(self) -> tuple[list[int], list[int]]:
        """Where strings and comments begin and end; none where that can't be told."""
        try:
            spans = list(string_spans(self.tree.text, self.start, self.end))
        except FaultAt:
            spans = []
        return [first for first, _ in spans], [last for _, last in spans]

    @property
    def definition(self) -> Node:
        """The function or class that a part with a name is."""
        node = self.nodes[0]
        while node.type not in (symbols.funcdef, symbols.classdef):
            node = node.children[-1]
        return node

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

    def __init__(self, text: str, where: Callable[[str], list[Cut]]) -> None:
        """`where` tells the places to cut `text` at, which is done when its parts are first asked for."""
        self.type = symbols.file_input
        self.text = text
        self.followers: list[Callable[[Part], None]] = []
        self._where = where
        self._places: dict[str, list[int]] = {}
        self._last: list[Leaf] = []

    @cached_property
    def parts(self) -> list[Part]:
        """The parts, in order."""
        where = self._where(self.text)
        ends = [*(cut.start for cut in where[1:]), len(self.text)]
        return [
            Part(self, cut.start, end, cut.name, cut.binds)
            for cut, end in zip(where, ends, strict=True)
        ]

    @cached_property
    def _starts(self) -> list[int]:
        return [part.start for part in self.parts]

    @cached_property
    def _lines(self) -> list[int]:
        """The number of the line in which each part begins."""
        text, has_returns = self.text, "\r" in self.text
        counts = (
            len(_newlines(text, part.start, part.end))
            if has_returns
            else text.count("\n", part.start, part.end)
            for part in self.parts
        )
        return [*accumulate(counts, initial=1)]

    @property
    def children(self) -> list[Tree]:
        """All statements, and the end of the file."""
        return [node for part in self.parts for node in part.nodes] + self._last

    @property
    def others(self) -> Iterator[Tree]:
        """The statements, in order, that are no function, class or simple statement."""
        return (node for part in self.parts if part.binds is None for node in part.nodes)

    def adopt(self, part: Part) -> list[Tree]:
        """Parse `part`, whose statements become children."""
        line = self._lines[self._index(part.start)]
        children: list[Tree] = parse_part(self.text, part.start, part.end, line).children
        for node in children:
            node.parent = self
        ending = children.pop()
        if part is self.parts[-1]:
            self._last = [ending]
        return children

    def part_at(self, offset: int) -> Part:
        """The part in which the text at `offset` stands."""
        return self.parts[self._index(offset)]

    def _index(self, offset: int) -> int:
        return bisect_right(self._starts, offset) - 1

    def part_of(self, node: Tree) -> Part:
        """The part to which `node` belongs."""
        return self.part_at(start(node))

    def holding(self, *words: str) -> Iterator[Part]:
        """The parts in which any of `words` stands, be it within another word, in order."""
        found = {index for word in words for index in self._indices(word)}
        return (self.parts[index] for index in sorted(found))

    def naming(self, *names: str) -> Iterator[Part]:
        """The parts in which any of `names` may stand as a variable, in order."""
        found = {self._index(at) for name in names for at in self.variables(name)}
        return (self.parts[index] for index in sorted(found))

    def binding(self, name: str) -> Iterator[Part]:
        """The parts that may bind `name` in any scope: they do more than read its attributes.

        `import name.submodule` binds it, too.
        """
        after = ((at, at + len(name)) for at in self.variables(name))
        found = {
            self._index(at)
            for at, end in after
            if _may_bind(self.text, end) or self.is_imported(at)
        }
        return (self.parts[index] for index in sorted(found))

    def variables(self, name: str) -> Iterator[int]:
        """Where `name` stands in code, and not right after a dot."""
        places = (at for at in self.places(name) if self.text[max(at - 1, 0)] != ".")
        return (at for at in places if self.part_at(at).is_code(at))

    def is_imported(self, offset: int) -> bool:
        """Whether the word at `offset` may stand in an import, after `import`."""
        firsts, ends = self._imports
        index = bisect_right(firsts, offset) - 1
        return index >= 0 and offset < ends[index]

    @cached_property
    def has_star(self) -> bool:
        """Whether anything looks like `import *`."""
        return any(self.text.startswith("*", first) for first in self._imports[0])

    @cached_property
    def _imports(self) -> tuple[list[int], list[int]]:
        """Where the lists of names of what looks like imports begin, and the furthest that any so far has reached."""
        spans = [one.span(1) for at in self.places("import") if (one := _import(self.text, at))]
        return [first for first, _ in spans], [*accumulate((last for _, last in spans), max)]

    def places(self, word: str) -> list[int]:
        """Where `word` stands in the text, and not within another word."""
        if len(self._places) > _MANY_WORDS:
            return self._all_places.get(word, [])
        if word not in self._places:
            self._places[word] = list(self._search(word))
        return self._places[word]

    @cached_property
    def _all_places(self) -> dict[str, list[int]]:
        """Where each word stands."""
        found: dict[str, list[int]] = {}
        for word in _words(self.text):
            found.setdefault(word.group(), []).append(word.start())
        return found

    def _search(self, word: str) -> Iterator[int]:
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
            index = self._index(at)
            yield index
            at = self.text.find(word, self.parts[index].end)


def in_parts(text: str) -> Parted:
    """The tree of `text`, cut at its top-level statements.

    It has one part where that can't be done exactly. Whether a part is Python shows when it is parsed.
    """
    return Parted(text, cuts)
