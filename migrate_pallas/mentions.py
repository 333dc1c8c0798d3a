"""In which parts of a module something may be named, told from the text before any of them is parsed.

The answer may have parts too many, never one too few: a rule that looks for calls of a function need look nowhere
else. A function is named by an attribute (`pl.run_scoped`), by an import, or by a name of the module that is one of
these, be it through others (`scoped = functools.partial(pl.run_scoped, ...)`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate

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
        everything = [binding for bindings in bound.values() for binding in bindings]
        imported = {b.name for b in everything if b.how is How.IMPORT and self._is_meant(b)}
        spans = _Spans((start(b.value), end(b.value), b.name) for b in everything if _is_alias(b))
        if self.answers:
            spans.add((start(b.node), end(b.node), b.name) for b in everything if self._may_answer(b))
        places = [*self.attributes, *self.others]
        self.aliases = frozenset(_led_to(self.tree, places, imported, spans, self._put_off))

    def _is_meant(self, binding: Binding) -> bool:
        return binding.name in self.words or binding.path.rpartition(".")[2] in self.words

    def _may_answer(self, binding: Binding) -> bool:
        node = binding.node
        return binding.how is How.FUNCTION and _may_answer(self.tree.text[start(node) : end(node)])

    def _put_off(self, part: Part) -> list[str]:
        """The names that `part`, which leads to one of the words, may be for that, where it has not been parsed."""
        if part.is_parsed:
            return []
        return [name for name in part.binds or () if name != part.name or self._answers(part)]

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
    tree = names.tree
    everything = (binding for bindings in names.module.bindings.values() for binding in bindings)
    spans = _Spans((start(b.node), end(b.node), b.name) for b in everything)
    found = _led_to(tree, offsets, (), spans, lambda part: part.binds or ())
    parts = {*(tree.part_at(offset) for offset in offsets), *tree.naming(*found)}
    return [part for part in tree.parts if part in parts]


def _led_to(
    tree: Parted,
    offsets: Sequence[int],
    first: Iterable[str],
    spans: _Spans,
    bound_by: Callable[[Part], Iterable[str]],
) -> set[str]:
    """The names that lead to what stands at `offsets`, or are the `first` or lead to those.

    A name leads to what stands in one of its `spans`, and to what is in a part that it is `bound_by`.
    """
    found = set(first)
    waiting = [*offsets, *(at for name in found for at in tree.variables(name))]
    while waiting:
        at = waiting.pop()
        more = {*spans.at(at), *bound_by(tree.part_at(at))} - found
        found |= more
        waiting += [place for name in more for place in tree.variables(name)]
    return found


class _Spans:
    """Stretches of a text, each with a name; some may lie in others."""

    def __init__(self, spans: Iterable[tuple[int, int, str]]) -> None:
        self._spans = sorted(spans)
        self._arrange()

    def add(self, spans: Iterable[tuple[int, int, str]]) -> None:
        """Add `spans`."""
        self._spans = sorted([*self._spans, *spans])
        self._arrange()

    def _arrange(self) -> None:
        self._starts = [first for first, _, _ in self._spans]
        self._reached = [*accumulate((last for _, last, _ in self._spans), max)]

    def at(self, offset: int) -> Iterator[str]:
        """The names of those in which `offset` lies."""
        index = bisect_right(self._starts, offset) - 1
        while index >= 0 and self._reached[index] > offset:
            if self._spans[index][1] > offset:
                yield self._spans[index][2]
            index -= 1


def _is_alias(binding: Binding) -> bool:
    """Whether a name is assigned a value."""
    return binding.how is How.ASSIGNED and binding.value is not None


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
