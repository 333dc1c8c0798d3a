"""What does this expression refer to?

One module answers that question for every rule: it knows Python's scopes (functions, classes, lambdas,
comprehensions, `global` and `nonlocal`), every form of import, names assigned once, and
`functools.partial`. Rules ask; none of them compares spellings.

Of a tree in parts it has only those parsed that an answer depends on.

The language facts are those of the reference manual, chapter 4.2 "Naming and binding", of PEP 572 (where a
walrus binds), PEP 634 (what a pattern binds) and PEP 695 (type parameters).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from types import MappingProxyType

from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from .calls import (
    Call,
    Tree,
    ancestry,
    call_at,
    end,
    literal_text,
    start,
    unwrapped,
    written,
)
from .parsing import ANY_WORD, symbols
from .parts import Part, Parted

PARTIAL = "functools.partial"
_words = re.compile(ANY_WORD).findall
_FSTRING = re.compile(r"[a-z]*[ft][a-z]*['\"]", re.IGNORECASE)  # PEP 498 and PEP 750
_STRAIGHT = (
    symbols.simple_stmt,
    symbols.suite,
    symbols.with_stmt,
    symbols.decorated,
    symbols.async_funcdef,
    symbols.async_stmt,
)
# Tokens that name nothing, and hold nothing that does.
_SILENT = frozenset(token.tok_name) - {token.NAME, token.STRING}
_ALIAS_DEPTH = 20  # an alias of an alias of ...: real code has two or three


class How(Enum):
    """How a name came to be bound."""

    IMPORT = "import"
    FUNCTION = "function"
    CLASS = "class"
    ASSIGNED = "assigned"  # `name = value`, `name: T = value`, `(name := value)`
    PARAMETER = "parameter"
    OTHER = (
        "other"  # a loop, `with`, `except`, `del`, unpacking, a pattern, an augmented assignment
    )


@dataclass(frozen=True)
class Binding:
    """One place that binds a name.

    `node` is the statement or leaf that binds; `path` is the dotted path of an import; `value` is what was assigned.
    """

    name: str
    how: How
    node: Tree
    path: str = ""
    value: Tree | None = None


@dataclass(eq=False)
class Scope:
    """A block that holds names: the module, a function, a class, a lambda, a comprehension, type parameters."""

    node: Tree
    kind: str
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)  # name -> "global" | "nonlocal"

    def bind(self, binding: Binding) -> Scope:
        """Record `binding` in the scope where it takes effect (PEP 572, `global`, `nonlocal`), which is returned."""
        scope: Scope = self
        while scope.kind == "comprehension" and binding.how is How.ASSIGNED and scope.parent:
            scope = scope.parent
        declared = scope.elsewhere.get(binding.name)
        if declared == "global":
            while scope.parent:
                scope = scope.parent
        elif declared == "nonlocal":
            outer = scope.parent
            while outer and (outer.kind == "class" or binding.name not in outer.bindings):
                outer = outer.parent
            scope = outer or scope
        scope.bindings.setdefault(binding.name, []).append(binding)
        return scope


@dataclass(eq=False)
class Inside:
    """What the names of one part are.

    `used` is every NAME leaf that reads or binds a variable, by its spelling; `fstrings` are the f-strings, of which
    the insides have no leaves; `modules` is what `import a.b.c` imports beyond the name that it binds.
    """

    scopes: list[Scope] = field(default_factory=list)
    used: dict[str, list[Leaf]] = field(default_factory=dict)
    fstrings: list[str] = field(default_factory=list)
    modules: list[tuple[Node, str]] = field(default_factory=list)

    @cached_property
    def ordered(self) -> list[Leaf]:
        """Every leaf of `used`, in order."""
        return sorted(
            (leaf for leaves in self.used.values() for leaf in leaves), key=lambda leaf: leaf.start
        )

    @cached_property
    def offsets(self) -> list[int]:
        """Where each of `ordered` begins."""
        return [leaf.start for leaf in self.ordered]

    @cached_property
    def variables(self) -> frozenset[int]:
        """The ids of the leaves of `used`."""
        return frozenset(map(id, self.ordered))

    @cached_property
    def scopes_in_order(self) -> tuple[list[int], list[Scope]]:
        """Where each scope begins, and the scopes."""
        scopes = sorted(self.scopes, key=lambda scope: start(scope.node))
        return [start(scope.node) for scope in scopes], scopes


@dataclass(frozen=True)
class Meaning:
    """What an expression refers to.

    `path` is a dotted path as far as imports tell ("jax.experimental.pallas.run_scoped"), else empty. `defined` is
    the function, lambda or class of this module that it is, or the part that is one. `through` are the calls of
    `functools.partial` that it went through, innermost first. `value` is the expression that a name was once
    assigned, where that is neither of these.
    """

    path: str = ""
    defined: Tree | Part | None = None
    through: tuple[Call, ...] = ()
    value: Tree | None = None

    @property
    def definition(self) -> Tree | None:
        """The function, lambda or class, which is parsed for whoever asks."""
        return self.defined.definition if isinstance(self.defined, Part) else self.defined


_NOTHING = Meaning()


class Names:
    """The names of one module; built from its tree, asked about its expressions."""

    def __init__(self, tree: Parted, wrappers: Mapping[str, str] = MappingProxyType({})) -> None:
        """Collect the scopes and bindings of `tree`, of each part when it is parsed.

        `wrappers` are dotted paths that mean others.
        """
        self.tree = tree
        self._wrappers = wrappers
        self.module = Scope(tree, "module", None)
        self._scopes: dict[int, Scope] = {id(tree): self.module}
        self._meanings: dict[tuple[int, int], Meaning] = {}
        self.stars: list[str] = []  # modules imported with `*`
        self.binders: dict[int, Scope] = {}  # the scope of each leaf that binds, by the leaf's id
        self.readers: dict[int, Scope] = {}  # that of each leaf that reads a variable
        self.declared: list[
            tuple[_Collector, Leaf, Node]
        ] = []  # `name: T` of the module, which another part may bind
        self._insides: dict[Part, Inside] = {}
        self._assigning: dict[
            int, list[tuple[Scope, str]]
        ] = {}  # the names of each value, by the value's id
        self._inner_of_jax: dict[Part, frozenset[str]] = {}
        self._unbound: dict[
            str, list[Part]
        ] = {}  # parts that will bind a name of the module when they are parsed
        tree.followers.append(self._collect)
        for part in tree.parts:
            if part.is_parsed:
                self._collect(part)
            elif part.binds is None:
                part.nodes  # noqa: B018  # it may bind anything
            for name in () if part.is_parsed else part.binds or ():
                self._unbound.setdefault(name, []).append(part)
        for collector, leaf, statement in self.declared:
            if not self.of_module(leaf.value):
                collector.bind(self.module, leaf, How.OTHER, statement)

    def _collect(self, part: Part) -> None:
        """Learn what is in `part`, which has just been parsed."""
        inside = self._insides[part] = Inside()
        _Collector(self, inside, part.nodes).run()
        for name in part.binds or ():
            if part in self._unbound.get(name, []):
                self._unbound[name].remove(part)
            bindings = self.module.bindings.get(name, [])
            is_late = len(bindings) > 1 and start(bindings[-2].node) > start(bindings[-1].node)
            if is_late or part.binds != (name,):
                bindings.sort(key=lambda binding: start(binding.node))

    def inside(self, part: Part) -> Inside:
        """What is in `part`."""
        part.nodes  # noqa: B018  # has it collected
        return self._insides[part]

    def _insides_of(self, parts: Iterable[Part]) -> list[Inside]:
        return [self.inside(part) for part in parts]

    # -- the question --

    def meaning(self, node: Tree, length: int | None = None) -> Meaning:
        """What `node` refers to; with `length`, only the first `length` children of a `power` node.

        Returns an empty `Meaning` where that can't be told.
        """
        key = (id(node), length or 0)
        if key not in self._meanings:
            self._meanings[key] = _NOTHING  # a name defined by itself means nothing
            found = self._meaning(node, length, 0)
            if found.path in self._wrappers:
                found = replace(found, path=self._wrappers[found.path])
            self._meanings[key] = found
        return self._meanings[key]

    def path(self, node: Tree, length: int | None = None) -> str:
        """The dotted path that `node` refers to, or ''."""
        return self.meaning(node, length).path

    def full_path(self, leaf: Leaf) -> str:
        """The dotted path of a name with the attributes that follow it, or ''."""
        power = leaf.parent
        if power is None or power.type != symbols.power or _root(power) is not leaf:
            return self.path(leaf)
        length = power.children.index(leaf) + 1
        while length < len(power.children) and power.children[length].type == symbols.trailer:
            if power.children[length].children[0].value != ".":
                break
            length += 1
        return self.path(power, length)

    def callee(self, call: Call) -> Meaning:
        """What `call` calls."""
        return self.meaning(call.power, call.index)

    def assigned(self, leaf: Tree) -> Tree | None:
        """The one expression that the name `leaf` is ever assigned, or None."""
        if not isinstance(leaf, Leaf) or leaf.type != token.NAME:
            return None
        if any(part.name == leaf.value for part in self._put_off(leaf)):
            return None  # a function or class, whatever else
        bindings = self.bindings(leaf)
        if len(bindings) == 1 and bindings[0].how is How.ASSIGNED:
            return bindings[0].value
        return None

    def bindings(self, leaf: Leaf) -> list[Binding]:
        """All bindings that the name `leaf` may refer to, in the scope that it refers to; [] for none."""
        return self.lookup(leaf.value, self._scope_of(leaf))

    def _scope_of(self, leaf: Leaf) -> Scope:
        """The scope from which the name `leaf` is seen."""
        return self.binders.get(id(leaf)) or self.readers.get(id(leaf)) or self.scope(leaf)

    def lookup(self, name: str, scope: Scope) -> list[Binding]:
        """All bindings of `name` as seen from `scope` (a class's names are seen from its own body only)."""
        holder = self._holder(name, scope)
        return self.of_module(name) if holder is self.module else holder.bindings[name]

    def _holder(self, name: str, scope: Scope) -> Scope:
        """The scope that binds `name` as seen from `scope`; the module, where none inside it does."""
        current: Scope | None = scope
        while current and current is not self.module:
            if current is scope or current.kind != "class":
                if current.elsewhere.get(name) == "global":
                    break
                if name in current.bindings:
                    return current
            current = current.parent
        return self.module

    def _put_off(self, leaf: Leaf) -> list[Part]:
        """The parts that will bind what the name `leaf` refers to, once they are parsed."""
        waiting = self._unbound.get(leaf.value, [])
        if not waiting:
            return []
        return waiting if self._holder(leaf.value, self._scope_of(leaf)) is self.module else []

    def of_module(self, name: str) -> list[Binding]:
        """All bindings of `name` at module level, in order; [] for none."""
        self._insides_of(
            [*self._unbound.get(name, [])]
        )  # each leaves the list when it is collected
        return self.module.bindings.get(name, [])

    def is_named(self, value: Tree) -> bool:
        """Whether `value` is what a name is assigned, once.

        Names of a class are left out: its attributes are reached in ways that are not seen here.
        """
        return any(
            scope.kind != "class" and len(self.lookup(name, scope)) == 1
            for scope, name in self._assigning.get(id(unwrapped(value)), [])
        )

    def is_in_fstring(self, leaf: Tree) -> bool:
        """Whether an f-string of the module may read a name spelled like `leaf`: their insides have no leaves."""
        word = re.compile(rf"\b{re.escape(leaf.value)}\b")
        insides = self._insides_of(self.tree.holding(leaf.value))
        return any(word.search(text) for inside in insides for text in inside.fstrings)

    def uses(self, binding_leaf: Leaf) -> list[Leaf]:
        """Every other leaf of the same spelling that refers to the same bindings as `binding_leaf`."""
        name, mine = binding_leaf.value, self.bindings(binding_leaf)
        is_local = mine is not self.module.bindings.get(name)
        parts = [self.tree.part_of(binding_leaf)] if is_local else self.tree.naming(name)
        return [
            leaf
            for inside in self._insides_of(parts)
            for leaf in inside.used.get(name, [])
            if leaf is not binding_leaf and self.bindings(leaf) is mine
        ]

    def may_be_of_jax(self, leaf: Leaf) -> bool:
        """Whether what is spelled like `leaf`, where that stands, may refer to something of JAX or a GPU compiler."""
        name = leaf.value
        return (
            bool(self.stars)
            or name in self._module_of_jax
            or name in self._of_jax(self.tree.part_of(leaf))
        )

    def variables_of_jax(self, part: Part) -> Iterator[Leaf]:
        """Every variable leaf in `part` that may refer to something of JAX, or of a GPU compiler."""
        own, module = self._of_jax(part), self._module_of_jax
        for name, leaves in self.inside(part).used.items():
            if self.stars or name in module or name in own:
                yield from leaves

    @cached_property
    def _module_of_jax(self) -> frozenset[str]:
        """The names of the module that may be of JAX. Other parts that bind any are still to be parsed."""
        put_off = {part for parts in self._unbound.values() for part in parts}
        stretches = [
            (part.start, part.end, part.binds or ())
            for part in put_off
            if part.binds != (part.name,)
        ]
        return self._reaching(frozenset(), [self.module], stretches)

    def _of_jax(self, part: Part) -> frozenset[str]:
        """The other names in `part` that may be of JAX."""
        if part not in self._inner_of_jax:
            scopes = self.inside(part).scopes
            self._inner_of_jax[part] = self._reaching(self._module_of_jax, scopes, [])
        return self._inner_of_jax[part]

    def _reaching(
        self,
        known: frozenset[str],
        scopes: Sequence[Scope],
        stretches: Sequence[tuple[int, int, tuple[str, ...]]],
    ) -> frozenset[str]:
        """The names in `scopes` that may be of JAX, by their imports or as aliases of any, or of any that is `known`.

        The names of each of the `stretches` are assigned something in it.
        """
        bound = [b for scope in scopes for bs in scope.bindings.values() for b in bs]
        imported = {b.name for b in bound if _may_be_of_jax(b.path, self._wrappers)}
        values = [(start(b.value), end(b.value), (b.name,)) for b in bound if b.value is not None]
        return frozenset(_with_aliases(imported, known, self.tree.text, [*values, *stretches]))

    def is_variable(self, leaf: Leaf) -> bool:
        """Whether the NAME `leaf` reads or binds a variable: it is no attribute, keyword or dotted module."""
        return id(leaf) in self.inside(self.tree.part_of(leaf)).variables

    def scopes_in(self, node: Tree) -> list[Scope]:
        """The scopes that `node`, which is not the whole module, opens, and those inside it."""
        starts, scopes = self.inside(self.tree.part_of(node)).scopes_in_order
        found = scopes[bisect_left(starts, start(node)) : bisect_left(starts, end(node))]
        return [scope for scope in found if end(scope.node) <= end(node)]

    def read_in(self, node: Tree) -> list[Leaf]:
        """Every variable leaf inside `node`, in order."""
        if node is self.tree:
            return [leaf for inside in self._insides_of(self.tree.parts) for leaf in inside.ordered]
        inside = self.inside(self.tree.part_of(node))
        first = bisect_left(inside.offsets, start(node))
        return inside.ordered[first : bisect_left(inside.offsets, end(node))]

    def is_used(self, name: str) -> bool:
        """Whether anything in the module reads or binds a variable of that spelling."""
        return any(name in inside.used for inside in self._insides_of(self.tree.naming(name)))

    def bound_anywhere(self, name: str) -> list[Binding]:
        """Every binding of `name` in any scope of the module."""
        scopes = self._scopes_of(self._insides_of(self.tree.binding(name)))
        return [binding for scope in scopes for binding in scope.bindings.get(name, [])]

    def _scopes_of(self, insides: Iterable[Inside]) -> list[Scope]:
        """The module's scope, and those that are opened in `insides`."""
        return [self.module, *(scope for inside in insides for scope in inside.scopes)]

    def imported(self, *words: str) -> Iterator[tuple[Scope, str]]:
        """The dotted path of all that is imported with one of `words` in its path, and the scope that imports it."""
        parts = [part for part in self.tree.holding(*words) if part.holds("import")]
        insides = self._insides_of(parts)
        found = [
            (s, b.path)
            for s in self._scopes_of(insides)
            for bs in s.bindings.values()
            for b in bs
            if b.how is How.IMPORT
        ]
        found += [(self.scope(node), path) for inside in insides for node, path in inside.modules]
        return (one for one in found if any(word in one[1] for word in words))

    def names_of(self, path: str) -> list[str]:
        """The names that the module's imports give to the dotted path `path`."""
        parts = self.tree.holding(path.rpartition(".")[2])
        insides = self._insides_of(part for part in parts if part.holds("import"))
        return sorted(
            {
                name
                for s in self._scopes_of(insides)
                for name, bs in s.bindings.items()
                if any(b.path == path for b in bs)
            }
        )

    def leaf_at(self, offset: int) -> Leaf:
        """The leaf that stands at `offset`, or the first one after it."""
        nodes = self.tree.part_at(offset).nodes
        while True:
            node = next((c for c in nodes if end(c) > offset), nodes[-1])
            if isinstance(node, Leaf):
                return node
            nodes = node.children

    def runs_surely(self, binding: Binding) -> bool:
        """Whether what binds runs whenever its scope does: not in a branch, a loop, a handler, or another scope."""
        if binding.name in self.scope(binding.node).elsewhere:
            return False
        for child, parent in ancestry(binding.node):
            if parent.type in (symbols.file_input, symbols.funcdef, symbols.classdef):
                return True
            if parent.type in (symbols.if_stmt, symbols.try_stmt):
                if not _is_entered(child, parent):
                    return False
            elif parent.type not in _STRAIGHT:
                return False
        return True

    def runs_at_import(self, node: Tree) -> bool:
        """Whether `node` runs when the module is imported: in its body, a class's, a decorator, a default.

        What stands under `if __name__ == "__main__":` runs only when the module is the program.
        """
        scope = self._scope_of(node) if isinstance(node, Leaf) else self.scope(node)
        while scope.kind in ("class", "comprehension", "type parameters") and scope.parent:
            scope = scope.parent
        return scope is self.module and not any(is_main_block(p) for _, p in ancestry(node))

    # -- scopes --

    def scope(self, node: Tree) -> Scope:
        """The scope in which `node` is evaluated."""
        outside: Tree | None = None  # a comprehension whose first iterable `node` stands in
        for child, parent in ancestry(node):
            if id(parent) in self._scopes and parent is not outside and _inside(parent, child):
                return self._scopes[id(parent)]
            if parent.type == symbols.comp_for and child is _iterable(parent):
                outside = parent.parent
        return self.module

    def open(self, node: Tree, kind: str, parent: Scope) -> Scope:
        """Make the scope of `node`; for the collector."""
        scope = self._scopes[id(node)] = Scope(node, kind, parent)
        return scope

    def assigns(self, binding: Binding, scope: Scope) -> None:
        """Note that a name of `scope` is assigned the value of `binding`; for the collector."""
        if binding.how is How.ASSIGNED and binding.value is not None:
            self._assigning.setdefault(id(unwrapped(binding.value)), []).append(
                (scope, binding.name)
            )

    # -- how it is told --

    def _meaning(self, node: Tree, length: int | None, depth: int) -> Meaning:
        node = unwrapped(node) if length is None else node
        if depth > _ALIAS_DEPTH:
            return _NOTHING
        if isinstance(node, Leaf):
            return self._name(node, depth) if node.type == token.NAME else _NOTHING
        if node.type in (symbols.lambdef, symbols.old_lambdef):
            return Meaning(defined=node)
        if node.type == symbols.power:
            if length is None and node.children[0].type == token.AWAIT:
                return _NOTHING  # what is awaited gives anything
            return self._power(node, len(node.children) if length is None else length, depth)
        if node.type == symbols.namedexpr_test:
            return self._meaning(node.children[2], None, depth + 1)
        return _NOTHING

    def _power(self, node: Node, length: int, depth: int) -> Meaning:
        """A name followed by attributes and calls: paths grow, partials open, all else is unknown."""
        root = _root(node)
        meaning = self._meaning(root, None, depth + 1)
        for index in range(node.children.index(root) + 1, length):
            trailer = node.children[index]
            if trailer.type != symbols.trailer:
                return _NOTHING
            opening = trailer.children[0].value
            if opening == "." and meaning.path and not meaning.through:
                meaning = Meaning(path=f"{meaning.path}.{trailer.children[1].value}")
            elif opening == "(":
                meaning = self._called(meaning, call_at(trailer), depth)
            else:
                return _NOTHING
        return meaning

    def _called(self, meaning: Meaning, call: Call | None, depth: int) -> Meaning:
        if call is None or meaning.through:
            return _NOTHING
        if meaning.path == "importlib.import_module":
            return Meaning(path=_imported_by(call))
        first = call.positional(0)
        if meaning.path != PARTIAL or first is None:
            return _NOTHING
        bound = self._meaning(first, None, depth + 1)
        return Meaning(bound.path, bound.defined, (*bound.through, call), bound.value)

    def _name(self, leaf: Leaf, depth: int) -> Meaning:
        put_off = self._put_off(leaf)
        if len(put_off) == 1 and put_off[0].name == leaf.value not in self.module.bindings:
            return Meaning(defined=put_off[0])
        bindings = self.bindings(leaf)
        if not bindings:
            return self._starred(leaf.value)
        imports = [b for b in bindings if b.how is How.IMPORT]
        if imports:
            rest = [b for b in bindings if b.how is not How.IMPORT]
            if all(is_fallback(b, imports) for b in rest):
                return Meaning(path=_preferred(self._lasting(imports)))
            return _NOTHING
        if len(bindings) > 1:
            return _NOTHING
        (binding,) = bindings
        if binding.how in (How.FUNCTION, How.CLASS):
            return Meaning(defined=binding.node)
        if binding.how is How.ASSIGNED and binding.value is not None:
            meaning = self._meaning(binding.value, None, depth + 1)
            return meaning if meaning != _NOTHING else Meaning(value=binding.value)
        return _NOTHING

    def _lasting(self, imports: list[Binding]) -> list[Binding]:
        """Those of several imports of one name that none after them replaces, whatever runs."""
        for index in range(len(imports) - 1, 0, -1):
            if self.runs_surely(imports[index]):
                return imports[index:]
        return imports

    def _starred(self, name: str) -> Meaning:
        """A name that nothing binds may come from `from jax... import *`; no other star is believed."""
        for module in reversed(self.stars):
            if module.split(".")[0] == "jax" and not name.startswith("_"):
                return Meaning(path=f"{module}.{name}")
        return _NOTHING


def _with_aliases(
    names: set[str],
    known: frozenset[str],
    text: str,
    stretches: Sequence[tuple[int, int, tuple[str, ...]]],
) -> set[str]:
    """`names`, and those of each stretch of `text` in which one of all these, or of the `known`, stands."""
    found = set(names)
    within: dict[str, list[int]] = {}
    for number, (first, last, _) in enumerate(stretches):
        for word in _words(text, first, last):
            within.setdefault(word, []).append(number)
    waiting = [word for word in within if word in known or word in found]
    while waiting:
        for number in within.pop(waiting.pop(), []):
            more = {*stretches[number][2]} - found
            found |= more
            waiting += more
    return found


def _may_be_of_jax(path: str, wrappers: Mapping[str, str]) -> bool:
    """Whether the dotted path may lead into JAX or a GPU compiler: by itself, a wrapper, or the import of a string."""
    if not path:
        return False
    if any(word in path for word in ("jax", "triton", "mosaic")) or path.startswith("importlib"):
        return True
    return any(wrapper.startswith(path) for wrapper in wrappers)


def _root(power: Node) -> Tree:
    """What the attributes, subscripts and calls of `power` follow; an `await` may stand before it."""
    root: Tree = power.children[1 if power.children[0].type == token.AWAIT else 0]
    return root


def _inside(owner: Node, child: Tree) -> bool:
    """Whether `child` of `owner`, which has a scope, is evaluated in that scope."""
    if owner.type in (symbols.funcdef, symbols.classdef, symbols.lambdef, symbols.old_lambdef):
        return child is owner.children[-1] or child.type == symbols.typeparams
    return True


def is_main_block(node: Node) -> bool:
    """Whether `node` is `if __name__ == "__main__":`."""
    return node.type == symbols.if_stmt and any(
        leaf.value == "__name__" for leaf in node.children[1].leaves()
    )


def _iterable(comp_for: Node) -> Tree:
    """What a comprehension's `for` iterates over."""
    kids = comp_for.children
    return kids[next(i for i, kid in enumerate(kids) if _is(kid, "in")) + 1]


def _imported_by(call: Call) -> str:
    """The dotted path of the module that a call of `importlib.import_module` names in full, or ''."""
    keyword = call.brackets.keyword("name")
    name = keyword.value if keyword else call.positional(0)
    path = (literal_text(name) if name is not None else None) or ""
    return "" if path.startswith(".") else path


def _is(node: Tree, word: str) -> bool:
    return isinstance(node, Leaf) and node.value == word


def _preferred(imports: list[Binding]) -> str:
    """Of several imports of one name (`try:`, `if TYPE_CHECKING:`) the one from JAX, else the first."""
    for binding in imports:
        if binding.path.split(".")[0] == "jax":
            return binding.path
    return imports[0].path


def is_fallback(binding: Binding, imports: list[Binding]) -> bool:
    """Whether `binding` only stands in for a failed import: it is `None`, or in another branch of its `try` or `if`."""
    if binding.how is How.ASSIGNED and binding.value is not None and _is(binding.value, "None"):
        return True
    return any(_branches(binding.node, other.node) for other in imports)


def _is_entered(suite: Tree, statement: Node) -> bool:
    """Whether `suite` of an `if` or `try` runs whenever the statement does, exceptions aside."""
    kids = statement.children
    word = kids[next(i for i, kid in enumerate(kids) if kid is suite) - 2]
    if statement.type == symbols.try_stmt:
        return any(_is(word, entered) for entered in ("try", "else", "finally"))
    test = "".join(str(kids[1]).split())
    if not test.endswith("TYPE_CHECKING"):  # false when the program runs (PEP 484)
        return False
    return suite is kids[3] if test.startswith("not") else len(kids) == 7 and suite is kids[6]


def _branches(one: Tree, other: Tree) -> bool:
    """Whether the two nodes stand in different suites of one `try` or `if` statement."""
    suites = {id(parent): child for child, parent in ancestry(other)}
    for child, parent in ancestry(one):
        if id(parent) in suites:
            return (
                parent.type in (symbols.try_stmt, symbols.if_stmt)
                and suites[id(parent)] is not child
            )
    return False


class _Collector:
    """One walk over the statements of a part that opens their scopes and records every binding.

    It keeps its own stack, so that deep code can't exhaust Python's.
    """

    def __init__(self, names: Names, inside: Inside, nodes: list[Tree]) -> None:
        self.names = names
        self.inside = inside
        self.stack: list[tuple[Tree, Scope]] = []
        self.push(nodes, names.module)
        self.declared: list[tuple[Scope, Leaf, Node]] = []  # `name: T` makes a name local, unbound
        self.nonlocals: list[tuple[Scope, Binding]] = []  # bound once all outer names are known
        self.visits = {
            symbols.funcdef: self.funcdef,
            symbols.lambdef: self.lambdef,
            symbols.old_lambdef: self.lambdef,
            symbols.classdef: self.classdef,
            symbols.import_name: self.import_name,
            symbols.import_from: self.import_from,
            symbols.expr_stmt: self.expr_stmt,
            symbols.namedexpr_test: self.namedexpr,
            symbols.argument: self.argument,
            symbols.for_stmt: self.for_stmt,
            symbols.comp_for: self.comp_for,
            symbols.with_item: self.with_item,
            symbols.except_clause: self.with_item,
            symbols.del_stmt: self.del_stmt,
            symbols.global_stmt: self.global_stmt,
            symbols.trailer: self.trailer,
            symbols.case_block: self.case_block,
            symbols.type_stmt: self.type_stmt,
            symbols.typeparams: self.typeparams,
        }

    def run(self) -> None:
        while self.stack:
            node, scope = self.stack.pop()
            if isinstance(node, Leaf):
                if node.type == token.NAME:
                    self.inside.used.setdefault(node.value, []).append(node)
                    self.names.readers[id(node)] = scope
                elif node.type == token.STRING and _FSTRING.match(node.value):
                    self.inside.fstrings.append(node.value)
                continue
            visit = self.visits.get(node.type, self.children)
            visit(node, scope)
        for scope, binding in self.nonlocals:
            self.names.assigns(binding, scope.bind(binding))
        for scope, leaf, statement in self.declared:
            if scope is self.names.module:
                self.names.declared.append((self, leaf, statement))
            elif leaf.value not in scope.bindings:
                self.bind(scope, leaf, How.OTHER, statement)

    def children(self, node: Node, scope: Scope) -> None:
        """Visit all children; where one is a comprehension's `for`, all of them are in its scope."""
        children = node.children
        if children[-1].type == symbols.comp_for:
            scope = self.open(node, "comprehension", scope)
        self.stack += [(child, scope) for child in reversed(children) if child.type not in _SILENT]

    def open(self, node: Tree, kind: str, parent: Scope) -> Scope:
        scope = self.names.open(node, kind, parent)
        self.inside.scopes.append(scope)
        return scope

    def push(self, nodes: list[Tree], scope: Scope) -> None:
        self.stack.extend((node, scope) for node in reversed(nodes))

    def bind(
        self,
        scope: Scope,
        leaf: Leaf,
        how: How,
        node: Tree,
        path: str = "",
        value: Tree | None = None,
    ) -> None:
        self.inside.used.setdefault(leaf.value, []).append(leaf)
        self.names.binders[id(leaf)] = scope
        binding = Binding(leaf.value, how, node, path, value)
        if scope.elsewhere.get(leaf.value) == "nonlocal":
            self.nonlocals.append((scope, binding))
        else:
            self.names.assigns(binding, scope.bind(binding))

    def targets(self, node: Tree, scope: Scope, owner: Node) -> None:
        """Bind the names in an assignment target, a loop's or a `with`'s; visit what is evaluated in it."""
        if isinstance(node, Leaf):
            if node.type == token.NAME:
                self.bind(scope, node, How.OTHER, owner)
        elif node.type == symbols.power:
            self.push(node.children, scope)
        else:  # a tuple, a list, a starred name
            for child in node.children:
                self.targets(child, scope, owner)

    def body(self, node: Node, scope: Scope, kind: str) -> Scope:
        inner = self.open(node, kind, scope)
        self.stack.append((node.children[-1], inner))
        return inner

    def funcdef(self, node: Node, scope: Scope) -> None:
        self.bind(scope, node.children[1], How.FUNCTION, node)
        inner = self.body(node, scope, "function")
        for child in node.children[2:-1]:
            if child.type == symbols.parameters:
                self.parameters(child.children[1:-1], inner, scope)
            else:
                self.stack.append((child, inner if child.type == symbols.typeparams else scope))

    def lambdef(self, node: Node, scope: Scope) -> None:
        inner = self.body(node, scope, "function")
        self.parameters(node.children[1:-2], inner, scope)

    def parameters(self, nodes: list[Tree], inner: Scope, outer: Scope) -> None:
        """Bind parameters in `inner`; defaults and annotations are evaluated in `outer`."""
        if len(nodes) == 1 and nodes[0].type in (symbols.typedargslist, symbols.varargslist):
            nodes = nodes[0].children
        for before, node in zip([None, *nodes], nodes, strict=False):
            if before is not None and _is(before, "="):
                self.stack.append((node, outer))
            elif isinstance(node, Leaf):
                if node.type == token.NAME:
                    self.bind(inner, node, How.PARAMETER, node)
            else:
                self.bind(inner, node.children[0], How.PARAMETER, node)
                self.push(node.children[1:], outer)

    def classdef(self, node: Node, scope: Scope) -> None:
        self.bind(scope, node.children[1], How.CLASS, node)
        parameters = node.children[2]
        if parameters.type == symbols.typeparams:  # methods see them (PEP 695)
            scope = self.open(parameters, "type parameters", scope)
        self.body(node, scope, "class")
        self.push(node.children[2:-1], scope)

    def import_name(self, node: Node, scope: Scope) -> None:
        (listing,) = node.children[1:]
        for item in _listed(listing, symbols.dotted_as_names):
            if item.type == symbols.dotted_as_name:
                path, leaf = written(item.children[0]), item.children[2]
            else:
                leaf = item.children[0] if isinstance(item, Node) else item
                path = leaf.value
                self.inside.modules.append((node, "".join(str(item).split())))
            self.bind(scope, leaf, How.IMPORT, node, path="".join(path.split()))

    def import_from(self, node: Node, scope: Scope) -> None:
        at = next(i for i, child in enumerate(node.children) if _is(child, "import"))
        module = "".join("".join(str(child) for child in node.children[1:at]).split())
        if _is(node.children[at + 1], "*"):
            self.names.stars.append(module)
            return
        for child in node.children[at + 1 :]:
            for item in _listed(child, symbols.import_as_names):
                original, leaf = (
                    (item.children[0], item.children[2]) if item.children else (item, item)
                )
                if leaf.type == token.NAME:
                    joint = "" if module.endswith(".") else "."
                    path = f"{module}{joint}{original.value}"
                    self.bind(scope, leaf, How.IMPORT, node, path=path)

    def expr_stmt(self, node: Node, scope: Scope) -> None:
        kids = node.children
        if kids[1].type == symbols.annassign:
            self.annotated(kids[0], kids[1], scope, node)
        elif _is(kids[1], "="):
            single = len(kids) == 3
            for target in kids[:-1:2]:
                if single or isinstance(target, Leaf):
                    self.assign(target, kids[-1], scope, node)
                else:
                    self.targets(target, scope, node)
            self.stack.append((kids[-1], scope))
        else:
            self.targets(kids[0], scope, node)
            self.push(kids[1:], scope)

    def annotated(self, target: Tree, annotation: Node, scope: Scope, node: Node) -> None:
        self.stack.append((annotation, scope))
        if any(_is(child, "=") for child in annotation.children):
            self.assign(target, annotation.children[-1], scope, node)
        elif isinstance(target, Leaf):
            self.declared.append((scope, target, node))
        else:
            self.stack.append((target, scope))

    def assign(self, target: Tree, value: Tree, scope: Scope, node: Node) -> None:
        """`target = value`; of tuples of one length each name gets its own value."""
        target = unwrapped(target)
        if isinstance(target, Leaf) and target.type == token.NAME:
            self.bind(scope, target, How.ASSIGNED, node, value=value)
            return
        ones, others = _elements(target), _elements(value)
        if ones and len(ones) == len(others):
            for one, other in zip(ones, others, strict=True):
                self.assign(one, other, scope, node)
        else:
            self.targets(target, scope, node)

    def namedexpr(self, node: Node, scope: Scope) -> None:
        self.bind(scope, node.children[0], How.ASSIGNED, node, value=node.children[2])
        self.stack.append((node.children[2], scope))

    def argument(self, node: Node, scope: Scope) -> None:
        kids = node.children
        if len(kids) == 3 and kids[1].type == token.EQUAL:
            self.stack.append((kids[2], scope))  # a keyword is no name
        elif len(kids) == 3 and kids[1].type == token.COLONEQUAL:
            self.namedexpr(node, scope)
        else:
            self.children(node, scope)

    def for_stmt(self, node: Node, scope: Scope) -> None:
        self.targets(node.children[1], scope, node)
        self.push(node.children[2:], scope)

    def comp_for(self, node: Node, scope: Scope) -> None:
        kids = node.children
        at = next(i for i, kid in enumerate(kids) if _is(kid, "in"))
        self.targets(kids[at - 1], scope, node)
        first = node.parent is not None and node.parent is scope.node and scope.parent
        self.stack.append((kids[at + 1], scope.parent if first and scope.parent else scope))
        self.push(kids[at + 2 :], scope)

    def with_item(self, node: Node, scope: Scope) -> None:
        kids = node.children
        at = next((i for i, kid in enumerate(kids) if _is(kid, "as")), len(kids))
        self.push(kids[:at], scope)
        if at < len(kids):
            self.targets(kids[at + 1], scope, node)

    def del_stmt(self, node: Node, scope: Scope) -> None:
        self.targets(node.children[1], scope, node)

    def global_stmt(self, node: Node, scope: Scope) -> None:
        for leaf in node.children[1:]:
            if leaf.type == token.NAME:
                scope.elsewhere[leaf.value] = node.children[0].value

    def trailer(self, node: Node, scope: Scope) -> None:
        if node.children[0].value != ".":  # an attribute is no name
            self.children(node, scope)

    def type_stmt(self, node: Node, scope: Scope) -> None:
        self.bind(scope, node.children[1], How.OTHER, node)
        self.push(node.children[2:], scope)

    def typeparams(self, node: Node, scope: Scope) -> None:
        for param in node.children[1:-1]:
            leaf = next((leaf for leaf in param.leaves() if leaf.type == token.NAME), None)
            if leaf is not None:
                self.bind(scope, leaf, How.OTHER, node)
        self.push(node.children, scope)

    def case_block(self, node: Node, scope: Scope) -> None:
        self.pattern(node.children[1], scope, node)
        self.push(node.children[2:], scope)

    def pattern(self, node: Tree, scope: Scope, owner: Node) -> None:
        """Bind what a pattern captures; a dotted name and a class are read (PEP 634)."""
        if isinstance(node, Leaf):
            if node.type == token.NAME and node.value not in ("_", "None", "True", "False"):
                self.bind(scope, node, How.OTHER, owner)
        elif node.type == symbols.closed_pattern and node.children[0].type == token.NAME:
            self.stack.append((node.children[0], scope))
            opened = next((i for i, kid in enumerate(node.children) if _is(kid, "(")), None)
            for child in node.children[opened:] if opened else []:
                self.pattern(child, scope, owner)
        elif node.type == symbols.pattern_arg:
            self.pattern(node.children[-1], scope, owner)
        else:
            for child in node.children:
                if not (isinstance(child, Leaf) and child.value == "as"):
                    self.pattern(child, scope, owner)


def _listed(node: Tree, listing: int) -> list[Tree]:
    """The items of an import's list, whether it holds one or many."""
    return [c for c in node.children if c.type != token.COMMA] if node.type == listing else [node]


def _elements(node: Tree) -> list[Tree]:
    """The elements of a tuple, or [] for anything else (a starred one too)."""
    if node.type == symbols.atom and len(node.children) == 3 and node.children[0].value == "(":
        node = node.children[1]
    if node.type not in (symbols.testlist_gexp, symbols.testlist_star_expr, symbols.testlist):
        return []
    elements = [child for child in node.children if child.type != token.COMMA]
    odd = (symbols.star_expr, symbols.comp_for)
    return [] if any(element.type in odd for element in elements) else elements
