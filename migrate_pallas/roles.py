"""What kind of value an expression inside a kernel is: known when the kernel is traced, traced itself, or a Ref.

A kernel's parameters are Refs, but for those that `functools.partial` binds. From there roles spread through calls of
the module's functions, loops and scopes until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from .calls import Call, Item, Tree, unwrapped, written
from .kinds import calls_in
from .names import PARTIAL, Binding, How, Meaning, Names
from .parsing import symbols
from .targets import SCOPED, Functions, decorated_by


class Role(IntEnum):
    """What an expression is; of two that may be, the larger counts."""

    STATIC = 0  # a Python value that is known while the kernel is traced
    REF = 1
    UNKNOWN = 2
    TRACED = 3


_STATIC_ATTRIBUTES = ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "weak_type")
# Traced whatever their arguments: jax/_src/pallas/primitives.py and jax/_src/lax/parallel.py, 0.10.2.
_ALWAYS_TRACED = ("program_id", "axis_index", "semaphore_read", "prng_random_bits", "iota")
# Functions of JAX that compute with Python values and return one.
_KEEPS_ROLE = (
    "cdiv",
    "next_power_of_2",
    "align_to",
    "multiple_of",
    "ds",
    "dslice",
    "axis_size",
    "strides_from_shape",
)
_CALLS_WITH_REFS = (*SCOPED, "emit_pipeline", "emit_pipeline_with_allocations", "run_state")
_CALLS_WITH_OPERANDS = ("cond", "switch")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: its name, `star` of "*" or "**", and whether a call may leave it out."""

    leaf: Leaf
    star: str
    keyword_only: bool
    optional: bool


def parameters(definition: Node) -> list[Parameter]:
    """The parameters of a function or lambda, in order."""
    kids = definition.children
    if definition.type == symbols.lambdef:
        nodes = kids[1:-2]
    else:
        nodes = next(kid for kid in kids if kid.type == symbols.parameters).children[1:-1]
    if len(nodes) == 1 and nodes[0].type in (symbols.typedargslist, symbols.varargslist):
        nodes = nodes[0].children
    found: list[Parameter] = []
    star, after_star = "", False
    for index, node in enumerate(nodes):
        word = node.value if isinstance(node, Leaf) else ""
        if word in ("*", "**"):
            star = word
        elif word == ",":
            after_star, star = after_star or star == "*", ""
        elif (word == "" or node.type == token.NAME) and not (
            index and _word(nodes[index - 1]) == "="
        ):
            leaf = node if isinstance(node, Leaf) else node.children[0]
            optional = index + 1 < len(nodes) and _word(nodes[index + 1]) == "="
            found.append(Parameter(leaf, star, after_star and not star, optional))
            after_star, star = after_star or star == "*", ""
    return found


def _word(node: Tree) -> str:
    return node.value if isinstance(node, Leaf) else ""


@dataclass(frozen=True, eq=False)
class _Way:
    """How roles get from a call to parameters.

    `definitions` are the functions that it calls, with the arguments of the partials `through` which it does; `handed`
    are those that it hands to what it calls, `by`, and what they are there.
    """

    call: Call
    through: tuple[Call, ...]
    definitions: list[Node]
    by: Meaning
    handed: list[tuple[Meaning, Node]]


class Roles:
    """The roles of expressions in one kernel and the functions that it reaches."""

    def __init__(
        self, names: Names, functions: Functions, kernels: Iterable[tuple[Node, Meaning]]
    ) -> None:
        """`kernels` are the definitions that may be the kernel, each with the partials it went through."""
        self.names = names
        self.functions = functions
        self.known: dict[
            int, Role
        ] = {}  # by the leaf of a parameter, or by the binding of another name
        self.returns: dict[int, Role] = {}  # by the function
        self.inside: dict[int, Node] = {}
        for definition, meaning in kernels:
            self._seed(definition, meaning)
            for function in functions.reached(definition):
                for nested in _functions_in(function):
                    self.inside[id(nested)] = nested
        self.bindings = {
            id(binding): binding
            for function in self.inside.values()
            for scope in names.scopes_in(function)
            for bindings in scope.bindings.values()
            for binding in bindings
        }
        self._spread()

    def role(self, node: Tree) -> Role:
        """The role of the expression `node`, as far as is known."""
        node = unwrapped(node)
        if isinstance(node, Leaf):
            return self._name(node) if node.type == token.NAME else Role.STATIC
        if node.type == symbols.power:
            return self._power(node, len(node.children))
        if node.type == symbols.lambdef:
            return Role.STATIC
        return self._joined(node.children)

    def is_ref(self, node: Tree, length: int | None = None) -> bool:
        """Whether `node` (or the first `length` children of a `power` node) is a Ref."""
        if length is not None:
            return self._power(node, length) is Role.REF
        return self.role(node) is Role.REF

    # -- one expression --

    def _joined(self, nodes: Iterable[Tree]) -> Role:
        return max(
            (self.role(n) for n in nodes if not isinstance(n, Leaf) or n.type == token.NAME),
            default=Role.STATIC,
        )

    def _name(self, leaf: Leaf) -> Role:
        bindings = self.names.bindings(leaf)
        return max((self._bound(binding) for binding in bindings), default=Role.STATIC)

    def _bound(self, binding: Binding) -> Role:
        if binding.how is How.PARAMETER:
            return self.known.get(id(_parameter_leaf(binding)), Role.STATIC)
        return self.known.get(id(binding), Role.STATIC)

    def _from_binding(self, binding: Binding) -> bool:
        """Learn the role of a name from what it is bound to."""
        if binding.how is How.ASSIGNED and binding.value is not None:
            return self._learn(binding, self.role(binding.value))
        if binding.how is not How.OTHER:
            return False
        node = binding.node
        if node.type in (symbols.for_stmt, symbols.comp_for):
            kids = node.children
            at = next(i for i, kid in enumerate(kids) if _word(kid) == "in")
            return self._learn(binding, self.role(kids[at + 1]))
        if node.type == symbols.expr_stmt:
            return self._learn(binding, self.role(node.children[-1]))
        return False

    def _power(self, node: Node, length: int) -> Role:
        """A name followed by attributes, subscripts and calls."""
        first = node.children[0]
        role = self.role(first) if first.type != token.AWAIT else Role.UNKNOWN
        is_tuple = self._is_star(first)
        for index in range(1, length):
            trailer = node.children[index]
            if trailer.type != symbols.trailer:
                return max(role, self._joined(node.children[index + 1 : length]))
            opening = trailer.children[0].value
            if opening == ".":
                attribute = trailer.children[1].value
                role = Role.STATIC if attribute in _STATIC_ATTRIBUTES else role
            elif opening == "[":
                before = node.children[index - 1]
                view = written(before) == ".at" or is_tuple
                role = Role.TRACED if role is Role.REF and not view else role
                is_tuple = False
            else:
                role = self._called(node, index, role)
        return role

    def _is_star(self, node: Tree) -> bool:
        if not isinstance(node, Leaf):
            return False
        bindings = self.names.bindings(node)
        return any(b.how is How.PARAMETER and _is_starred(_parameter_leaf(b)) for b in bindings)

    def _called(self, node: Node, index: int, receiver: Role) -> Role:
        """The role of what a call returns."""
        call = Call(node, index)
        arguments = max(
            (self.role(item.value) for item in call.brackets.items), default=Role.STATIC
        )
        meaning = self.names.meaning(node, index)
        name = meaning.path.rpartition(".")[2]
        if name in _ALWAYS_TRACED:
            return Role.TRACED
        if meaning.path.split(".")[0] == "jax" and name not in _KEEPS_ROLE:
            return (
                Role.STATIC
                if name in ("dtype", "ShapeDtypeStruct", "num_programs")
                else Role.TRACED
            )
        if id(meaning.definition) in self.inside:
            return self.returns.get(id(meaning.definition), Role.STATIC)
        if receiver is Role.REF:  # ref.reshape(...) is a view; other methods of a Ref are not
            before = written(node.children[index - 1])
            return (
                Role.REF
                if before in (".reshape", ".bitcast", ".transpose")
                else max(arguments, receiver)
            )
        if written(node.children[0]) in ("len", "range") and index == 1:
            return Role.STATIC if written(node.children[0]) == "len" else arguments
        return max(receiver, arguments)

    # -- from calls to parameters --

    def _seed(self, definition: Node, meaning: Meaning) -> None:
        given = sum(
            len([i for i in c.brackets.items if not i.keyword and not i.star]) - 1
            for c in meaning.through
        )
        named = {item.keyword for call in meaning.through for item in call.brackets.items}
        for position, parameter in enumerate(parameters(definition)):
            bound = position < given or parameter.leaf.value in named
            is_static = bound or parameter.keyword_only or parameter.star == "**"
            self._learn(parameter.leaf, Role.STATIC if is_static else Role.REF)

    def _learn(self, key: Leaf | Binding, role: Role) -> bool:
        """Note that `key` may have `role`; whether that is news."""
        old = self.known.get(id(key), Role.STATIC)
        self.known[id(key)] = max(old, role)
        return role > old

    def _spread(self) -> None:
        """Let roles spread until nothing changes; then give up on parameters that no call was seen to fill."""
        calls = [call for function in self.inside.values() for call in calls_in(function)]
        ways = [way for call in calls if (way := self._way(call))]
        returned = [(function, [*_returned(function)]) for function in self.inside.values()]
        self._settle(ways, returned)
        for function in self.inside.values():
            for parameter in parameters(function):
                if id(parameter.leaf) not in self.known and not parameter.optional:
                    self.known[id(parameter.leaf)] = Role.UNKNOWN
        self._settle(ways, returned)

    def _settle(self, ways: list[_Way], returned: list[tuple[Node, list[Tree]]]) -> None:
        for _ in range(
            20
        ):  # roles only grow, through chains of names and calls that are short in practice
            news = [self._from_binding(binding) for binding in self.bindings.values()]
            news += [self._from_call(way) for way in ways]
            news += [self._from_returns(function, values) for function, values in returned]
            if True not in news:
                return

    def _from_returns(self, function: Node, values: list[Tree]) -> bool:
        role = max((self.role(value) for value in values), default=Role.STATIC)
        is_news = role > self.returns.get(id(function), Role.STATIC)
        self.returns[id(function)] = max(role, self.returns.get(id(function), Role.STATIC))
        return is_news

    def _way(self, call: Call) -> _Way | None:
        """The way from `call` to functions of the module; None where there is none, as in most calls."""
        meaning = self.names.callee(call)
        definitions = called(call, self.names, self.functions)
        decorated, first = decorated_by(call), call.positional(0)
        by = meaning
        if decorated is not None and meaning.path == PARTIAL and first is not None:
            by = self.names.meaning(first)
        handed = [
            (item.value, definition)
            for item in call.brackets.items
            if not isinstance(item.value, Leaf) or item.value.type == token.NAME
            for definition in self.functions.definitions(item.value)
        ]
        if decorated is not None:
            handed.append((decorated, decorated))
        if not definitions and not handed:
            return None
        values = [(self.names.meaning(value), definition) for value, definition in handed]
        return _Way(call, meaning.through, definitions, by, values)

    def _from_call(self, way: _Way) -> bool:
        changed = False
        for definition in way.definitions:
            changed |= self._bind(definition, way.through, way.call.brackets.items)
        role = self._handed_role(way.call, way.by) if way.handed else None
        if role is not None:
            for meaning, definition in way.handed:
                changed |= self._hand(meaning, definition, role)
        return changed

    def _handed_role(self, call: Call, meaning: Meaning) -> Role | None:
        """With what a function that is handed to `call` is called; None where that can't be told."""
        name = meaning.path.rpartition(".")[2]
        if meaning.path.split(".")[0] != "jax":
            return None
        if name in _CALLS_WITH_REFS:
            return Role.REF
        if name in _CALLS_WITH_OPERANDS:
            operands = max((self.role(i.value) for i in call.brackets.items[1:]), default=Role.REF)
            return Role.REF if operands is Role.REF else Role.TRACED  # a number is traced, too
        return Role.TRACED

    def _hand(self, meaning: Meaning, definition: Node, role: Role) -> bool:
        changed = False
        bound = [i for c in meaning.through for i in c.brackets.items[1:]]
        named = {item.keyword: item for item in bound if item.keyword}
        places = [item for item in bound if not item.keyword and not item.star]
        for position, parameter in enumerate(parameters(definition)):
            item = places[position] if position < len(places) else named.get(parameter.leaf.value)
            changed |= self._learn(parameter.leaf, self.role(item.value) if item else role)
        return changed

    def _bind(self, definition: Node, through: tuple[Call, ...], items: Iterable[Item]) -> bool:
        """Learn the roles of the parameters of a function of the module from one call of it."""
        changed = False
        handed = [i for c in through for i in c.brackets.items[1:]] + list(items)
        listed = parameters(definition)
        places = [i for i in handed if not i.keyword and i.star != "**"]
        named = {i.keyword: i for i in handed if i.keyword}
        for position, parameter in enumerate(listed):
            spread = [
                i for i in handed if i.star and not (i.star == "*" and parameter.keyword_only)
            ]
            item = named.get(parameter.leaf.value)
            if item is None and position < len(places) and not parameter.keyword_only:
                rest = places[position:] if parameter.star else places[position : position + 1]
                role = max(self.role(i.value) for i in rest)
            elif item is not None:
                role = self.role(item.value)
            elif spread:
                role = max(self.role(i.value) for i in spread)
            elif parameter.optional or parameter.star:
                role = Role.STATIC
            else:
                continue
            changed |= self._learn(parameter.leaf, role)
        return changed


def called(call: Call, names: Names, functions: Functions) -> list[Node]:
    """The functions of the module that `call` may call; none for a class."""
    definition = names.callee(call).definition
    if definition is not None:
        return [] if definition.type == symbols.classdef else [definition]
    return functions.definitions(call.power.children[0]) if call.index == 1 else []


def _parameter_leaf(binding: Binding) -> Leaf:
    node = binding.node
    return node if isinstance(node, Leaf) else node.children[0]


def _is_starred(leaf: Leaf) -> bool:
    node: Tree = leaf if leaf.parent is None or leaf.parent.type != symbols.tname else leaf.parent
    before = node.prev_sibling
    return before is not None and _word(before) == "*"


def _functions_in(node: Node) -> Iterator[Node]:
    for child in node.pre_order():
        if child.type in (symbols.funcdef, symbols.lambdef):
            yield child


def _returned(definition: Tree) -> Iterator[Tree]:
    """What a function or lambda may return."""
    if definition.type == symbols.lambdef:
        yield definition.children[-1]
        return
    stack: list[Tree] = [definition.children[-1]]
    while stack:
        node = stack.pop()
        if node.type == symbols.return_stmt:
            yield node.children[1]
        elif isinstance(node, Node) and node.type not in (
            symbols.funcdef,
            symbols.classdef,
            symbols.lambdef,
        ):
            stack.extend(node.children)
