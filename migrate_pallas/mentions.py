"""In which parts of a module something may be named, told from the text before any of them is parsed.

The answer may have parts too many, never one too few: a rule that looks for calls of a function need look nowhere
else. A function is named by an attribute (`pl.run_scoped`), by an import, or by a name of the module that is one of
these, be it through others (`scoped = functools.partial(pl.run_scoped, ...)`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from .calls import end, start
from .names import Binding, How, Names
from .parts import Part, Parted

_SPACE = " \t\r\n\f\\"
# The first parameter of a function, if it is a plain one.
_header = re.compile(r"^def\b[^(\r\n]*\(\s*(?P<name>[^\W\d]\w*)?", re.MULTILINE).search


class Mentions:
    """Tells, for one module, where names stand in it."""

    def __init__(
        self, tree: Parted, wrappers: Mapping[str, str], names: Callable[[], Names]
    ) -> None:
        """`wrappers` are dotted paths that mean others; `names`, which has the module's, is asked only if need be."""
        self.tree = tree
        self.wrappers = wrappers
        self.names = names
        self._found: dict[tuple[object, ...], list[Part]] = {}

    def of(self, *words: str, answers: bool = False, beside: tuple[str, ...] = ()) -> list[Part]:
        """The parts that may name something whose dotted path ends with one of `words`.

        With `answers`, also those that may call a function of the module which does, without arguments. Of those that
        name it themselves, only such as say one of `beside` too, or use a name that is assigned something with it.
        """
        key = (words, answers, beside)
        if key not in self._found:
            means = self.wrappers.items()
            wrapping = [
                path.rpartition(".")[2]
                for path, meant in means
                if meant.rpartition(".")[2] in words
            ]
            search = _Search(self.tree, {*words, *wrapping}, answers, beside)
            self._found[key] = search.parts(self.names)
        return self._found[key]


class _Search:
    """One search: where the words stand, and which names of the module lead to them."""

    def __init__(
        self, tree: Parted, words: set[str], answers: bool, beside: tuple[str, ...]
    ) -> None:
        self.tree = tree
        self.words = words
        self.answers = answers
        self.beside = beside
        self.attributes: list[int] = []  # where one of the words follows a dot
        self.others: list[int] = []  # where one is imported, or a string that getattr may be given
        asks = "getattr" in tree.text
        for offset in sorted(at for word in words for at in tree.places(word)):
            before = self._before(offset)
            if before == ".":
                self.attributes.append(offset)
            elif (asks and before in ("'", '"')) or tree.has_star or tree.is_imported(offset):
                self.others.append(offset)
        self.direct: set[Part] = set()
        self.aliases: frozenset[str] = frozenset()

    def parts(self, names: Callable[[], Names]) -> list[Part]:
        """The parts that name any of the words."""
        if not self.attributes and not self.others:
            return []  # and the text need not be cut
        self.attributes = [at for at in self.attributes if self.tree.part_at(at).is_code(at)]
        self.direct = {self.tree.part_at(at) for at in (*self.attributes, *self.others)}
        if not self.direct:
            return []
        bindings = names().module.bindings
        self._find_aliases(bindings)
        found = {*self._using(self.aliases), *self._direct_beside(bindings)}
        return [part for part in self.tree.parts if part in found]

    def _before(self, offset: int) -> str:
        """What stands before the word at `offset`, comments not counted; a dot, where one may stand there."""
        text, at = self.tree.text, offset - 1
        while True:
            while at >= 0 and text[at] in _SPACE:
                at -= 1
            if at < 0 or not any(ending in text[at:offset] for ending in "\r\n"):
                return text[max(at, 0)]
            begin = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
            line = text[begin : at + 1]
            if "#" not in line:
                return line[-1]
            if line.endswith(".") or any(
                head.rstrip(_SPACE).endswith(".") for head in _heads(line)
            ):
                return "."
            if line.lstrip(_SPACE)[0] != "#":
                return line[-1]
            at = begin - 1

    def _using(self, names: frozenset[str]) -> set[Part]:
        """The parts in which one of `names` stands as a variable."""
        return set(self.tree.naming(*names))

    def _direct_beside(self, bound: Mapping[str, list[Binding]]) -> set[Part]:
        """The parts that name one of the words themselves, and say what must stand beside it or a name for that."""
        if not self.beside:
            return self.direct
        says = set(self.tree.holding(*self.beside))
        assigned = [b for bindings in bound.values() for b in bindings if b.value is not None]
        constants = {b.name for b in assigned if any(word in str(b.value) for word in self.beside)}
        constants.update(
            name for part in _assignments(self.tree) if part in says for name in part.binds or ()
        )
        return self.direct & (says | self._using(frozenset(constants)))

    def _find_aliases(self, bound: Mapping[str, list[Binding]]) -> None:
        """Find the names of the module that lead to one of the words, be it through others."""
        grown = True
        while grown:
            leading = self.direct | self._using(self.aliases)
            found = {name for name, bindings in bound.items() if any(map(self._is_alias, bindings))}
            for part in leading:
                if part.binds and not part.is_parsed:
                    found.update(
                        name for name in part.binds if name != part.name or self._answers(part)
                    )
            grown = not found <= self.aliases
            self.aliases |= found

    def _is_alias(self, binding: Binding) -> bool:
        if binding.how is How.IMPORT:
            return binding.name in self.words or binding.path.rpartition(".")[2] in self.words
        if binding.how is How.ASSIGNED and binding.value is not None:
            return self._leads(start(binding.value), end(binding.value))
        if binding.how is How.FUNCTION and self.answers:
            begin, after = start(binding.node), end(binding.node)
            return self._leads(begin, after) and _may_answer(self.tree.text[begin:after])
        return False

    def _leads(self, first: int, last: int) -> bool:
        """Whether the text from `first` to `last` names one of the words, or uses an alias."""
        if any(_any_within(offsets, first, last) for offsets in (self.attributes, self.others)):
            return True
        return bool(self.aliases) and bool(
            _any_of(self.aliases).search(self.tree.text, first, last)
        )

    def _answers(self, part: Part) -> bool:
        return self.answers and _may_answer(part.text)


def _heads(line: str) -> Iterator[str]:
    """What stands before each `#` in `line`."""
    return (line[:at] for at, character in enumerate(line) if character == "#")


def _assignments(tree: Parted) -> Iterator[Part]:
    """The parts that are assignments and have not been parsed."""
    return (part for part in tree.parts if part.binds and not part.name and not part.is_parsed)


def leading_to(names: Names, offsets: Sequence[int]) -> list[Part]:
    """The parts that may run what stands at `offsets`: those that hold it, or name what leads to it."""
    tree, known = names.tree, frozenset[str]()
    holding = {tree.part_at(offset) for offset in offsets}

    def leads(binding: Binding) -> bool:
        first, last = start(binding.node), end(binding.node)
        holds = any(first <= offset < last for offset in offsets)
        return holds or (bool(known) and bool(_any_of(known).search(tree.text, first, last)))

    while True:
        parts = {*holding, *tree.naming(*known)}
        found = {name for part in parts for name in part.binds or ()}
        bound = names.module.bindings.items()
        found.update(name for name, bindings in bound if any(map(leads, bindings)))
        if found <= known:
            return [part for part in tree.parts if part in parts]
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
    if header is None:
        return False
    if not header["name"]:
        return True
    depth = 0
    for character in text[header.end() :]:
        if character == "=" or (character == "#"):
            return True  # a default; and a comment may hold anything
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if depth < 0 or (character == "," and not depth):
            return False
    return True
