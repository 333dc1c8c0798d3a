"""In which parts of a module something may be named, told from the text before any of them is parsed.

The answer may have parts too many, never one too few: a rule that looks for calls of a function need look nowhere
else. A function is named by an attribute (`pl.run_scoped`), by an import, or by a name of the module that is one of
these, be it through others (`scoped = functools.partial(pl.run_scoped, ...)`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from .calls import end, start
from .names import Binding, How, Names
from .parts import Part, Parted

_SPACE = " \t\r\n\f\\"


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

    def of(self, *words: str, answers: bool = False, aliases: tuple[str, ...] = ()) -> list[Part]:
        """The parts that may name something whose dotted path ends with one of `words`, or use one of `aliases`.

        With `answers`, also those that may call a function of the module that does.
        """
        key = (words, answers, aliases)
        if key not in self._found:
            means = self.wrappers.items()
            wrapping = [
                path.rpartition(".")[2]
                for path, meant in means
                if meant.rpartition(".")[2] in words
            ]
            search = _Search(self.tree, {*words, *wrapping, *aliases}, answers, set(aliases))
            self._found[key] = search.parts(self.names)
        return self._found[key]


class _Search:
    """One search: where the words stand, and which names of the module lead to them."""

    def __init__(self, tree: Parted, words: set[str], answers: bool, aliases: set[str]) -> None:
        self.tree = tree
        self.words = words
        self.answers = answers
        self.aliases = aliases
        # Names may be handed to these as strings, and to the latter in pieces.
        asks, imports = "getattr" in tree.text, "import_module" in tree.text
        if imports:
            self.words.add("import_module")
        # Where a word may be a name, and whether it must be code for that.
        self.places: list[tuple[int, bool]] = []
        for offset in (at for word in self.words for at in tree.places(word)):
            before = self._before(offset)
            if before == ".":
                self.places.append((offset, not imports))
            elif (asks and before in ("'", '"')) or tree.has_star or tree.is_imported(offset):
                self.places.append((offset, False))

    def parts(self, names: Callable[[], Names]) -> list[Part]:
        """The parts that name any of the words."""
        if not self.places and not any(map(self.tree.places, self.aliases)):
            return []  # and the text need not be cut
        part_at = self.tree.part_at
        places = [at for at, is_code in self.places if not is_code or part_at(at).is_code(at)]
        if places or self.aliases:
            self.aliases = self._aliases(places, names().module.bindings)
        found = {*map(part_at, places), *self.tree.naming(*self.aliases)}
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

    def _aliases(self, places: Sequence[int], bound: Mapping[str, list[Binding]]) -> set[str]:
        """The names of the module that lead to what stands at `places`, be it through others."""
        everything = [binding for bindings in bound.values() for binding in bindings]
        imported = (b.name for b in everything if b.how is How.IMPORT and self._is_meant(b))
        spans = [(start(b.value), end(b.value), b.name) for b in everything if b.value is not None]
        if self.answers:
            functions = (b for b in everything if b.how is How.FUNCTION)
            spans += [(start(b.node), end(b.node), b.name) for b in functions]
        first = {*self.aliases, *imported}
        return _led_to(self.tree, places, first, _Spans(spans), self._put_off)

    def _is_meant(self, binding: Binding) -> bool:
        return binding.name in self.words or binding.path.rpartition(".")[2] in self.words

    def _put_off(self, part: Part) -> Iterable[str]:
        """The names that `part`, which leads to one of the words, may be for that, where it has not been parsed."""
        if part.is_parsed:
            return ()
        return (name for name in part.binds or () if self.answers or name != part.name)


def _heads(line: str) -> Iterator[str]:
    """What stands before each `#` in `line`."""
    return (line[:at] for at, character in enumerate(line) if character == "#")


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
    seen: set[Part] = set()
    waiting = [*offsets, *(at for name in found for at in tree.variables(name))]
    while waiting:
        at = waiting.pop()
        part = tree.part_at(at)
        more = {*spans.at(at), *(() if part in seen else bound_by(part))} - found
        seen.add(part)
        found |= more
        waiting += [place for name in more for place in tree.variables(name)]
    return found


class _Spans:
    """Stretches of a text, each with a name; some may lie in others."""

    def __init__(self, spans: Iterable[tuple[int, int, str]]) -> None:
        self._spans = sorted(spans)
        self._starts = [first for first, _, _ in self._spans]
        self._reached = [*accumulate((last for _, last, _ in self._spans), max)]

    def at(self, offset: int) -> Iterator[str]:
        """The names of those in which `offset` lies."""
        index = bisect_right(self._starts, offset) - 1
        while index >= 0 and self._reached[index] > offset:
            if self._spans[index][1] > offset:
                yield self._spans[index][2]
            index -= 1
