"""In which parts of a module something may be named, told from the text before any of them is parsed.

The answer may have parts too many, never one too few: a rule that looks for calls of a function need look nowhere
else. A function is named by an attribute (`pl.run_scoped`), by an import, or by a name of the module that is one of
these, be it through others (`scoped = functools.partial(pl.run_scoped, ...)`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache

from .calls import end, start
from .names import Binding, How, Names
from .parts import Part

_SPACE = " \t\r\n\f\\"
# Before a name: the dot of an attribute, or the quote of getattr(device, "platform").
_ATTRIBUTE = (".", '"', "'")
_header = re.compile(r"^def\b[^(]*\((?P<parameters>[^()]*)(?P<end>[()])", re.MULTILINE).search


class Mentions:
    """Tells, for one module, where names stand in it."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._found: dict[tuple[tuple[str, ...], bool], list[Part]] = {}

    def of(self, *words: str, answers: bool = False) -> list[Part]:
        """The parts that may name something whose dotted path ends with one of `words`.

        With `answers`, also those that may call a function of the module which does, without arguments.
        """
        key = (words, answers)
        if key not in self._found:
            self._found[key] = _Search(self.names, words, answers).parts()
        return self._found[key]


class _Search:
    """One search: where the words stand, and which names of the module lead to them."""

    def __init__(self, names: Names, words: tuple[str, ...], answers: bool) -> None:
        self.names = names
        self.text = names.tree.text
        self.answers = answers
        self.words = {*words, *names.wrapping(words)}
        self.attributes: list[int] = []  # where one of the words may be an attribute
        self.others: list[int] = []  # where one stands otherwise
        for offset in sorted(at for word in self.words for at in names.tree.places(word)):
            (self.attributes if self._is_attribute(offset) else self.others).append(offset)
        self.aliases: frozenset[str] = frozenset()

    def parts(self) -> list[Part]:
        """The parts that name any of the words."""
        if not self.attributes and not self.others:
            return []
        self._find_aliases()
        return [part for part in self.names.tree.parts if self._names_any(part)]

    def _is_attribute(self, offset: int) -> bool:
        """Whether a dot stands before the word at `offset`, or may do so before a comment."""
        at = offset - 1
        while at >= 0 and self.text[at] in _SPACE:
            at -= 1
        if at < 0 or self.text[at] in _ATTRIBUTE:
            return at >= 0
        return "#" in self.text[max(self.text.rfind("\n", 0, at), self.text.rfind("\r", 0, at)) + 1 : at + 1]

    def _names_any(self, part: Part) -> bool:
        """Whether `part` has one of the words as an attribute, imports it, or uses an alias."""
        if self._leads(part.start, part.end):
            return True
        says = _any_within(self.others, part.start, part.end)
        return says and (bool(self.names.stars) or part.holds("import"))

    def _leads(self, first: int, last: int) -> bool:
        """Whether the text from `first` to `last` has one of the words as an attribute, or uses an alias."""
        if _any_within(self.attributes, first, last):
            return True
        return bool(self.aliases) and bool(_any_of(self.aliases).search(self.text, first, last))

    def _find_aliases(self) -> None:
        """Find the names of the module that lead to one of the words, be it through others."""
        grown = True
        while grown:
            bound = self.names.module.bindings.items()
            found = {name for name, bindings in bound if any(map(self._is_alias, bindings))}
            if self.answers:
                found |= {part.name for part in self.names.tree.parts if self._answers(part)}
            grown = not found <= self.aliases
            self.aliases |= found

    def _is_alias(self, binding: Binding) -> bool:
        if binding.how is How.IMPORT:
            return binding.name in self.words or binding.path.rpartition(".")[2] in self.words
        if binding.how is How.ASSIGNED and binding.value is not None:
            return self._leads(start(binding.value), end(binding.value))
        if binding.how is How.FUNCTION and self.answers:
            begin, after = start(binding.node), end(binding.node)
            return _may_answer(self.text[begin:after]) and self._leads(begin, after)
        return False

    def _answers(self, part: Part) -> bool:
        """Whether `part` is a function, which has not been parsed, that leads to one of the words."""
        is_open = bool(part.name) and not part.is_parsed
        return is_open and _may_answer(part.text) and self._leads(part.start, part.end)


def leading_to(names: Names, offsets: Sequence[int]) -> list[Part]:
    """The parts that may run what stands at `offsets`: those that hold it, or name what leads to it."""
    tree, known = names.tree, frozenset[str]()

    def leads(first: int, last: int) -> bool:
        holds = any(first <= offset < last for offset in offsets)
        return holds or (bool(known) and bool(_any_of(known).search(tree.text, first, last)))

    while True:
        parts = [part for part in tree.parts if leads(part.start, part.end)]
        found = {part.name for part in parts if part.name}
        for name, bindings in names.module.bindings.items():
            if any(leads(start(binding.node), end(binding.node)) for binding in bindings):
                found.add(name)
        if found <= known:
            return parts
        known |= found


def _any_within(offsets: list[int], first: int, last: int) -> bool:
    """Whether any of the ordered `offsets` is from `first` to before `last`."""
    at = bisect_left(offsets, first)
    return at < len(offsets) and offsets[at] < last


@cache
def _any_of(names: frozenset[str]) -> re.Pattern[str]:
    """What a text must match in which one of `names` stands as a variable."""
    return re.compile(rf"(?<![\w.])(?:{'|'.join(sorted(names))})(?!\w)")


@cache
def _may_answer(text: str) -> bool:
    """Whether `text` is a function, other than a coroutine, that can be called without arguments."""
    header = _header(text)
    if header is None or any(odd in header["parameters"] for odd in "#[{") or header["end"] == "(":
        return header is not None
    parameters = (parameter.strip() for parameter in header["parameters"].split(","))
    return all("=" in parameter or parameter[:1] in ("", "*", "/") for parameter in parameters)
