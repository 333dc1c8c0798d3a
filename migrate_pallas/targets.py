"""What a target is: the Pallas functions whose calls rules look at, and where their kernels are.

A site is a call that hands arguments to a target: the call itself, a call of an alias, a decorator, or
`functools.partial(target, ...)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fissix.pytree import Leaf, Node

from .calls import Call, Tree, call_at, unwrapped
from .names import PARTIAL, How, Meaning, Names
from .parsing import symbols

# jax/_src/pallas/primitives.py (run_scoped) and helpers.py (with_scoped), 0.10.2
SCOPED = ("run_scoped", "with_scoped")
# pallas_call.py, helpers.py, core.py and mpmd.py in jax/_src/pallas, 0.10.2
ENTRY_POINTS = ("pallas_call", "kernel", "core_map", "mpmd_map")

_PALLAS = ("jax.experimental.pallas.", "jax._src.pallas.")
# These take the function they run in a second call, or as a decorator, and something else first.
_TAKES_KERNEL_LATER = ("with_scoped", "core_map")


@dataclass(frozen=True, eq=False)
class Site:
    """One call that hands arguments to a target.

    `target` is the target's own name, `path` its dotted path. `binds` tells that the call is a `partial(target, ...)`.
    `through` are the partials between the target and this call, innermost first.
    """

    call: Call
    target: str
    path: str
    binds: bool
    through: tuple[Call, ...]

    def __hash__(self) -> int:
        return id(self.call.trailer)


def target_of(path: str) -> str:
    """The name of the target at the dotted path `path`, or ''.

    What `jax.experimental.pallas.ops` has under such a name is a kernel of JAX: `ops.gpu.hopper_matmul_mgpu.kernel`.
    """
    package, _, name = path.rpartition(".")
    is_target = name in (*SCOPED, *ENTRY_POINTS) and path.startswith(_PALLAS)
    return name if is_target and "ops" not in package.split(".") else ""


def site_of(call: Call, names: Names) -> Site | None:
    """The site that `call` is, or None where it hands nothing to a target."""
    meaning = names.callee(call)
    target = target_of(meaning.path)
    if target:
        return Site(call, target, meaning.path, False, meaning.through)
    first = call.positional(0)
    if meaning.path != PARTIAL or first is None:
        return None
    bound = names.meaning(first)
    target = target_of(bound.path)
    return Site(call, target, bound.path, True, bound.through) if target else None


def kernel_of(site: Site) -> Tree | None:
    """The expression, or the decorated definition, that is the function that `site` runs; None where unknown."""
    decorated = decorated_by(site.call)
    if decorated is not None:
        return decorated
    if site.target not in _TAKES_KERNEL_LATER:
        for call in (*site.through, site.call):
            is_partial = site.binds if call is site.call else True
            keyword = call.brackets.keyword("body") or call.brackets.keyword("kernel")
            first = keyword.value if keyword else call.positional(1 if is_partial else 0)
            if first is not None:
                return first
    later = _next_call(site.call)
    return later.positional(0) if later else None


def _next_call(call: Call) -> Call | None:
    """The call of what `call` returned, where it follows at once: `core_map(mesh)(body)`."""
    following = call.power.children[call.index + 1 : call.index + 2]
    if following and following[0].type == symbols.trailer:
        return call_at(following[0])
    return None


def decorated_by(call: Call) -> Node | None:
    """The function that `call` decorates, or None where it is no decorator."""
    decorator = call.power.parent
    if decorator is None or decorator.type != symbols.decorator:
        return None
    if call.power.children[-1] is not call.trailer:
        return None
    definition = decorated(decorator)
    return definition if definition.type == symbols.funcdef else None


def decorated(decorator: Node) -> Node:
    """The function or class under `decorator`."""
    holder = decorator.parent
    while holder.type != symbols.decorated:
        holder = holder.parent
    definition: Node = holder.children[-1]
    if definition.type in (symbols.async_funcdef, symbols.async_stmt):
        definition = definition.children[-1]
    return definition


class Functions:
    """The functions of one module, and which of them may run when one does."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._reached: dict[int, dict[int, Node]] = {}
        self._defined: dict[int, list[Node]] = {}

    def definitions(self, node: Tree | None) -> list[Node]:
        """The functions and lambdas that `node` may be: through names, partials and conditionals."""
        if id(node) not in self._defined:
            found: dict[int, Node] = {}
            self._define(node, found, 0)
            self._defined[id(node)] = list(found.values())
        return self._defined[id(node)]

    def _define(self, node: Tree | None, found: dict[int, Node], depth: int) -> None:
        if node is None or depth > 20:
            return
        node = unwrapped(node)
        if node.type in (symbols.funcdef, symbols.lambdef):
            found[id(node)] = node
            return
        if node.type == symbols.test and len(node.children) == 5:
            self._define(node.children[0], found, depth + 1)
            self._define(node.children[4], found, depth + 1)
            return
        meaning: Meaning = self.names.meaning(node)
        if meaning.definition is not None:
            self._define(meaning.definition, found, depth + 1)
        elif meaning.value is not None:
            self._define(meaning.value, found, depth + 1)
        elif meaning.through:  # a partial of a name that may be several functions
            self._define(meaning.through[0].positional(0), found, depth + 1)
        elif isinstance(node, Leaf):
            for binding in self.names.bindings(node):
                if binding.how is How.FUNCTION:
                    self._define(binding.node, found, depth + 1)
                elif binding.how is How.ASSIGNED:
                    self._define(binding.value, found, depth + 1)

    def around(self, site: Site) -> list[Node]:
        """The functions around `site`."""
        return list(enclosing_functions(site.call.trailer))

    def reached(self, definition: Node) -> list[Node]:
        """`definition` and every function and class of the module that it names, and that those name in turn."""
        if id(definition) not in self._reached:
            found = {id(definition): definition}
            waiting = [definition]
            while waiting:
                for function in self._named_in(waiting.pop()):
                    if id(function) not in found:
                        found[id(function)] = function
                        waiting.append(function)
            self._reached[id(definition)] = found
        return list(self._reached[id(definition)].values())

    def _named_in(self, definition: Node) -> Iterator[Node]:
        for leaf in self.names.read_in(definition):
            meaning = self.names.meaning(leaf)
            if meaning.definition is not None and meaning.definition.type != symbols.lambdef:
                yield meaning.definition


def enclosing_functions(node: Tree) -> Iterator[Node]:
    """The functions and lambdas around `node`, innermost first."""
    current = node.parent
    while current is not None:
        if current.type in (symbols.funcdef, symbols.lambdef):
            yield current
        current = current.parent


def with_decorators(definition: Node) -> Node:
    """`definition` with its decorators, where it has any."""
    outer = definition.parent
    while outer is not None and outer.type in (symbols.async_funcdef, symbols.async_stmt):
        outer = outer.parent
    return outer if outer is not None and outer.type == symbols.decorated else definition
