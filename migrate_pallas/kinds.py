"""For which hardware a site is written: TPU, GPU, or any.

The evidence is what the code names: modules of Mosaic GPU and Triton, or of Pallas for TPU. It is looked for nearest
to the call first: in the call's own arguments, in the kernel, in the functions around it and the entry points that
reach them, and last in the module's imports. The nearest place that has any decides.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cached_property

from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from .calls import Call, Item, Tree, call_at, end, literal_text, start
from .mentions import Mentions
from .names import Names
from .parsing import symbols
from .parts import Part
from .targets import (
    ENTRY_POINTS,
    SCOPED,
    Functions,
    Site,
    enclosing_functions,
    kernel_of,
    site_of,
    with_decorators,
)

Evidence = frozenset[str]


class Kind(Enum):
    """The hardware a site is written for. `MIXED`: both are named at one level, and nothing nearer decides."""

    TPU = "TPU"
    GPU = "GPU"
    PORTABLE = "portable"
    MIXED = "mixed"


_NONE: Evidence = frozenset()
_GPU_PARTS = ("mosaic_gpu", "triton")
_TPU_PARTS = ("tpu", "tpu_sc", "mosaic")
# What MP110 writes tells nothing: a second run must see what the first saw.
_WRITTEN_BY_US = ("InterpretParams",)
# What a compiler parameter or `backend=` says in words: pallas_call(..., backend="mosaic_gpu")
_WORDS = {
    "triton": "GPU",
    "mosaic_gpu": "GPU",
    "mosaic": "TPU",
    "mosaic_tpu": "TPU",
}


def evidence_of_path(path: str) -> Evidence:
    """What hardware the dotted path `path` names.

    The Pallas modules are those of jax/experimental/pallas and jax/_src/pallas, 0.10.2.
    """
    parts = path.split(".")
    if parts[-1] in _WRITTEN_BY_US:
        return _NONE
    if any(part in _GPU_PARTS for part in parts) or path.startswith("jax.experimental.mosaic.gpu"):
        return frozenset({"GPU"})
    if "pallas" in parts and any(p in _TPU_PARTS for p in parts[parts.index("pallas") + 1 :]):
        return frozenset({"TPU"})
    return _NONE


class Kinds:
    """Tells the kind of each site of one module."""

    def __init__(self, names: Names, functions: Functions, mentions: Mentions) -> None:
        self.names = names
        self.functions = functions
        self.mentions = mentions
        self._marks: dict[Part, tuple[list[int], list[Evidence]]] = {}
        self._kinds: dict[int, Kind] = {}

    def kind(self, site: Site) -> Kind:
        """The kind of `site`."""
        key = id(site.call.trailer)
        if key not in self._kinds:
            found = next((level for level in self._levels(site) if level), _NONE)
            kinds = {
                _NONE: Kind.PORTABLE,
                frozenset({"GPU"}): Kind.GPU,
                frozenset({"TPU"}): Kind.TPU,
            }
            self._kinds[key] = kinds.get(found, Kind.MIXED)
        return self._kinds[key]

    def _levels(self, site: Site) -> Iterator[Evidence]:
        """The evidence for `site`, nearest first."""
        if _defines_target(site):
            yield frozenset({"GPU", "TPU"})
        yield self._own(site)
        kernels = self.functions.definitions(kernel_of(site))
        yield self._joined(self.named_in(kernel) for kernel in kernels)
        yield self._joined(self.named_in(f) for k in kernels for f in self.functions.reached(k))
        for function in enclosing_functions(site.call.trailer):
            yield self.named_in(with_decorators(function)) | self._entry(function)
        yield from self._imports

    @cached_property
    def _imports(self) -> tuple[Evidence, Evidence]:
        """The evidence in what the module imports, and in what its functions do."""
        imported = [
            (scope is self.names.module, evidence_of_path(path))
            for scope, path in self.names.imported(*_GPU_PARTS, *_TPU_PARTS)
        ]
        at_top = self._joined(evidence for is_top, evidence in imported if is_top)
        return at_top, self._joined(evidence for is_top, evidence in imported if not is_top)

    def named_in(self, node: Tree) -> Evidence:
        """What hardware the names in `node` belong to."""
        offsets, marked = self._marks_in(self.names.tree.part_of(node))
        first = bisect_left(offsets, start(node))
        return self._joined(marked[first : bisect_left(offsets, end(node))])

    def _own(self, site: Site) -> Evidence:
        """Evidence in a site's callee and arguments, the kernel left out."""
        kernel = kernel_of(site)
        found = evidence_of_path(site.path)
        for call in (*site.through, site.call):
            for item in call.brackets.items:
                if item.value is not kernel and not self.functions.definitions(item.value):
                    found |= self._argument(item, 0)
        return found

    def _argument(self, item: Item, depth: int) -> Evidence:
        """Evidence in an argument, and in what the names in it were once assigned."""
        node = item.first if item.star else item.value
        found = self.named_in(node) | self._words(item.first)
        for leaf in self.names.read_in(node):
            value = self.names.assigned(leaf)
            if value is not None and depth < 3 and value.type != symbols.lambdef:
                found |= self._argument(Item(value, value, value), depth + 1)
        return found

    def _words(self, node: Tree) -> Evidence:
        """Words for a compiler among the keywords and strings of `node`: `dict(mosaic_gpu=...)`."""
        words = set()
        for leaf in node.leaves():
            if leaf.type == token.STRING:
                words.add(literal_text(leaf))
            elif leaf.type == token.NAME and leaf.parent.type == symbols.argument:
                words.add(leaf.value if leaf is leaf.parent.children[0] else None)
        return frozenset(_WORDS[word] for word in words if word in _WORDS)

    def _entry(self, function: Node) -> Evidence:
        """Evidence in the entry points that reach `function`."""
        return self._reached.get(id(function), _NONE)

    def is_reached(self, function: Node) -> bool:
        """Whether an entry point of the module has a kernel that is, or names, `function`."""
        return id(function) in self._reached

    @cached_property
    def _reached(self) -> dict[int, Evidence]:
        """For each function that a kernel reaches, the evidence in the arguments of that kernel's entry points."""
        found: dict[int, Evidence] = {}
        for site in self.entry_sites:
            kernels = self.functions.definitions(kernel_of(site))
            own = self._own(site) if kernels else _NONE
            for function in (f for kernel in kernels for f in self.functions.reached(kernel)):
                found[id(function)] = found.get(id(function), _NONE) | own
        return found

    @cached_property
    def follows_all(self) -> bool:
        """Whether the kernel of every entry point of the module can be followed to its definition."""
        return all(self.functions.definitions(kernel_of(site)) for site in self.entry_sites)

    @cached_property
    def entry_sites(self) -> list[Site]:
        """Every site of an entry point in the module."""
        parts = self.mentions.of(*ENTRY_POINTS)
        calls = (call for part in parts for node in part.nodes for call in calls_in(node))
        sites = (site_of(call, self.names) for call in calls)
        return [site for site in sites if site is not None and site.target not in SCOPED]

    def _marks_in(self, part: Part) -> tuple[list[int], list[Evidence]]:
        """The offset of every name in `part` that belongs to some hardware, and to which."""
        if part not in self._marks:
            leaves = self.names.variables_of_jax(part)
            marks = [(leaf.start, evidence_of_path(self.names.full_path(leaf))) for leaf in leaves]
            marks = sorted((mark for mark in marks if mark[1]), key=lambda mark: mark[0])
            self._marks[part] = [offset for offset, _ in marks], [evidence for _, evidence in marks]
        return self._marks[part]

    @staticmethod
    def _joined(levels: Iterable[Evidence]) -> Evidence:
        return _NONE.union(*levels)


def _defines_target(site: Site) -> bool:
    """Whether `site` stands in JAX's own definition of a target, which serves kernels of every kind.

    `with_scoped` calls `run_scoped` in jax/_src/pallas/helpers.py, 0.10.2.
    """
    functions = enclosing_functions(site.call.trailer)
    names = (f.children[1].value for f in functions if f.type == symbols.funcdef)
    return site.path.startswith("jax._src.") and any(name in SCOPED for name in names)


def calls_in(node: Tree) -> Iterator[Call]:
    """Every call in `node`, in order."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, Leaf):
            continue
        if current.type == symbols.trailer:
            call = call_at(current)
            if call is not None:
                yield call
        stack.extend(reversed(current.children))
