"""Which operations of the interpreter table a kernel uses, and which interpreter serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain

from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from .arguments import dict_of
from .calls import Call, Tree, as_call, call_at, end, first_leaf, start, unwrapped, written
from .interpreters import OPERATIONS, Operation, Serves
from .kinds import calls_in
from .module import Module
from .names import PARTIAL
from .parsing import symbols
from .roles import Parameter, Role, Roles, called, parameters
from .targets import Site, decorated, enclosing_functions, kernel_of

_BY_KEY = {operation.key: operation for operation in OPERATIONS}
_SLICES = ("ds", "dslice", "Slice")
_REMOTE = ("make_async_remote_copy", "async_remote_copy", "semaphore_signal")
_COPIES = (
    "sync_copy",
    "async_copy",
    "make_async_copy",
    "make_async_remote_copy",
    "async_remote_copy",
)
_VIEWS = {"reshape": "ref-reshape", "bitcast": "ref-bitcast"}
# jax/_src/ad_checkpoint.py, 0.10.2: `checkpoint` and `remat` are one function
_CHECKPOINTS = ("checkpoint", "remat")
_TRANSFORMATIONS = (*_CHECKPOINTS, "vmap")
# An import alone does nothing.
_IMPORTS = (symbols.import_from, symbols.import_as_name, symbols.import_as_names)
_ARGUMENT_DEPTH = 3  # a mesh in a specification in a dict: real code has no more


@dataclass(frozen=True)
class Found:
    """An operation that a kernel uses, and the line where it does."""

    operation: Operation
    line: int

    @property
    def told(self) -> str:
        """What a message says of it."""
        return f"{self.operation.key} in line {self.line}: {self.operation.why}"

    @property
    def wrong(self) -> str:
        """What a message says of it where no interpreter does it right."""
        why = self.operation.flaw or self.operation.why
        return f"{self.operation.key} in line {self.line}: {why}"


@dataclass(frozen=True)
class Choice:
    """The interpreter for a kernel. `decided_by` is the operation that needs it; `amiss` are those that none serves.

    `lacking` tells that the simulator would be it, and that the release of JAX has none.
    """

    simulator: bool
    decided_by: Found | None = None
    amiss: tuple[Found, ...] = ()
    lacking: bool = False


def choose(module: Module, site: Site) -> Choice:
    """Which interpreter runs the kernel of `site` right, judged by every operation that it uses."""
    found = sorted(operations(module, site), key=lambda f: (f.line, f.operation.key))
    flawed = tuple(f for f in found if f.operation.flaw)
    unserved = tuple(f for f in found if _serves(module, f) is Serves.NEITHER)
    only_simulator = [f for f in found if _serves(module, f) is Serves.SIMULATOR]
    only_generic = [f for f in found if _serves(module, f) is Serves.GENERIC]
    if unserved or (only_simulator and only_generic):
        amiss = unserved or (only_simulator[0], only_generic[0])
        return Choice(False, amiss[0], amiss + flawed)
    if only_simulator:
        return Choice(True, only_simulator[0], flawed)
    return Choice(False, only_generic[0] if only_generic else None, flawed)


def _serves(module: Module, found: Found) -> Serves:
    """Who does it right in the release that was told, or else in every release that was measured."""
    release = module.settings.jax
    return found.operation.serves_in(release[:2]) if release else found.operation.serves_everywhere


def operations(module: Module, site: Site) -> Iterator[Found]:
    """The operations that the kernel of `site` uses: each row of the table once, where it is first met."""
    seen: set[str] = set()
    for key, node in _all_operations(module, site):
        if key == "core-axis-index" and site.target == "pallas_call":
            continue  # pallas_call has no axes of cores: the axis is one of devices
        if key not in seen:
            seen.add(key)
            yield Found(_BY_KEY[key], first_leaf(node).lineno)


def _all_operations(module: Module, site: Site) -> Iterator[tuple[str, Tree]]:
    kernel = kernel_of(site)
    definitions = module.functions.definitions(kernel)
    reached = _reached(module, definitions)
    meaning = module.names.meaning(kernel if kernel is not None else module.tree)
    kernels = [(definition, meaning) for definition in definitions]
    roles = cache(lambda: Roles(module.names, module.functions, kernels))  # few kernels need them
    if not reached:
        yield from _in_module(module)
    for node in reached:
        yield from _named(module, node)
        for call in calls_in(node):
            yield from _in_call(module, call, roles, followed=True)
    for call in (site.call, *site.through):
        yield from _named_in_arguments(module, call.trailer, 0)
    yield from _of_entry(module, site, definitions)


def _in_module(module: Module) -> tuple[tuple[str, Tree], ...]:
    """The operations anywhere in the module, by what is known of a kernel that can't be followed."""
    if _in_module not in module.memo:
        module.memo[_in_module] = _anywhere(module)
    found: tuple[tuple[str, Tree], ...] = module.memo[_in_module]
    return found


def _anywhere(module: Module) -> tuple[tuple[str, Tree], ...]:
    roles = cache(lambda: Roles(module.names, module.functions, []))
    in_calls = (_in_call(module, call, roles, followed=False) for call in calls_in(module.tree))
    return (*_named(module, module.tree), *chain.from_iterable(in_calls))


# -- operations that a name shows --


@cache
def _by_name() -> dict[str, list[Operation]]:
    table: dict[str, list[Operation]] = {}
    for operation in OPERATIONS:
        for name in operation.names:
            table.setdefault(name, []).append(operation)
    return table


def _canonical(path: str) -> str:
    """The public path of what `path` names: modules under jax/_src/pallas are re-exported, 0.10.2."""
    if path.startswith("jax._src.pallas.mosaic."):
        return f"jax.experimental.pallas.tpu.{path.rpartition('.')[2]}"
    if path.startswith("jax._src.pallas."):
        return f"jax.experimental.pallas.{path.rpartition('.')[2]}"
    return path


def _named(module: Module, node: Tree) -> Iterator[tuple[str, Tree]]:
    """Rows of the table whose functions are named in `node`."""
    for leaf in module.names.read_in(node):
        path = _canonical(module.names.full_path(leaf))
        if not path.startswith("jax.experimental.pallas.") or leaf.parent.type in _IMPORTS:
            continue
        last = path.rpartition(".")[2]
        rows = _by_name().get(path) or _by_name().get(f"jax.experimental.pallas.{last}") or []
        for operation in rows:
            if not operation.keyword or _passes(leaf, operation.keyword):
                yield operation.key, leaf


def _named_in_arguments(module: Module, node: Tree, depth: int) -> Iterator[tuple[str, Tree]]:
    """Rows named in `node`, and in what the names in it were once assigned: `mesh=mesh`."""
    yield from _named(module, node)
    for leaf in module.names.read_in(node):
        value = module.names.assigned(leaf)
        if value is not None and depth < _ARGUMENT_DEPTH:
            yield from _named_in_arguments(module, value, depth + 1)


def _passes(leaf: Leaf, keyword: str) -> bool:
    """Whether the call of what `leaf` begins passes `keyword`."""
    power = leaf.parent
    if power is None or power.type != symbols.power:
        return False
    for index, child in enumerate(power.children):
        if child.type == symbols.trailer and child.children[0].value == "(":
            return Call(power, index).brackets.keyword(keyword) is not None
    return False


# -- operations that a pattern shows --


def _in_call(
    module: Module, call: Call, roles: Callable[[], Roles], followed: bool
) -> Iterator[tuple[str, Tree]]:
    path = module.names.callee(call).path
    name = path.rpartition(".")[2] if path.split(".")[0] == "jax" else ""
    if name in _SLICES and _traced_size(call, roles(), followed):
        yield "traced-slice", call.trailer
    if name in _REMOTE:
        yield from _device_id(module, call)
    if name == "axis_index":
        yield "core-axis-index", call.trailer
    before = call.power.children[call.index - 1]
    attribute = before.children[1].value if _is_attribute(before) else ""
    if attribute in _VIEWS and (
        (attribute == "bitcast" and not path)  # no array has such a method
        or roles().is_ref(call.power, call.index - 1)
    ):
        yield from _view(module, call, _VIEWS[attribute])


def _is_attribute(node: Tree) -> bool:
    return isinstance(node, Node) and node.children[0].type == token.DOT


def _traced_size(call: Call, roles: Roles, followed: bool) -> bool:
    """Whether the size of `pl.ds(start, size)` is, or may be, known only when the kernel runs."""
    keyword = call.brackets.keyword("size")
    size = keyword.value if keyword else call.positional(1) or call.positional(0)
    role = roles.role(size) if size is not None else Role.UNKNOWN
    return role is Role.TRACED or (role is Role.UNKNOWN and followed)


def _device_id(module: Module, call: Call) -> Iterator[tuple[str, Tree]]:
    item = call.brackets.keyword("device_id")
    if item is None:
        return
    value = _value(module, item.value)
    if dict_of(module, value) is not None:
        yield "device-id-dict", item.first
    elif value.type == symbols.atom or (isinstance(value, Leaf) and value.type == token.NAME):
        yield "device-id-tuple", item.first  # a tuple, or a parameter, which may be one


def _view(module: Module, call: Call, key: str) -> Iterator[tuple[str, Tree]]:
    """A view of a Ref, and what is done with it at once."""
    yield key, call.trailer
    parent = call.power.parent
    rest = call.power.children[call.index + 1 :]
    if parent.type == symbols.expr_stmt and parent.children[0] is call.power and rest:
        yield "store-through-view", call.trailer
    argument = call.power
    while argument.parent is not None and argument.parent.type in (
        symbols.arglist,
        symbols.argument,
    ):
        argument = argument.parent
    holder = argument.parent
    copy = as_call(holder.parent) if holder is not None and holder.type == symbols.trailer else None
    if copy and module.names.callee(copy).path.rpartition(".")[2] in _COPIES:
        to_view = copy.positional(1) is call.power
        yield "copy-to-view" if to_view else "copy-from-view", call.trailer


# -- operations that the entry point shows --


def _of_entry(module: Module, site: Site, definitions: list[Node]) -> Iterator[tuple[str, Tree]]:
    if site.target == "core_map":
        yield "core_map", site.call.trailer
    elif site.target in ("kernel", "mpmd_map"):
        yield "handed-refs", site.call.trailer
    yield from _aliases(module, site, definitions)
    yield from _prefetched_state(module, site, definitions)
    yield from _transformed(module, site)


def _argument(site: Site, name: str) -> Tree | None:
    for call in (site.call, *site.through):
        item = call.brackets.keyword(name)
        if item is not None:
            return item.value
    return None


def _aliases(module: Module, site: Site, definitions: list[Node]) -> Iterator[tuple[str, Tree]]:
    """An aliased input, unless the kernel never stores to it nor reads it after storing to an output."""
    value = _argument(site, "input_output_aliases")
    if value is None:
        return
    entries = dict_of(module, value)
    if entries is not None and not entries.items:
        return
    indices = _indices(module, value)
    names = module.names
    for definition in definitions or [None]:
        listed = parameters(definition) if definition is not None else []
        kernel = kernel_of(site)
        through = names.meaning(kernel).through if kernel is not None else ()
        skipped = sum(not item.keyword for call in through for item in call.brackets.items[1:])
        if indices is None or any(
            not _harmless(module, definition, listed, skipped + index) for index in indices
        ):
            yield "alias-read-after-write", value


def _indices(module: Module, value: Tree) -> list[int] | None:
    """The inputs that `{input: output}` names; None where they are not literals."""
    value = _value(module, value)
    if value.type != symbols.atom or len(value.children) != 3 or value.children[0].value != "{":
        return None
    keys = value.children[1].children[::4]
    if all(isinstance(key, Leaf) and key.type == token.NUMBER for key in keys):
        return [int(key.value) for key in keys]
    return None


def _harmless(module: Module, definition: Node | None, listed: list[Parameter], index: int) -> bool:
    """Whether the parameter at `index` is only loaded from, and before anything is stored."""
    if definition is None or index >= len(listed) or any(p.star for p in listed[: index + 1]):
        return False
    leaf = listed[index].leaf
    uses = [use for use in module.names.uses(leaf) if start(use) > start(definition.children[-1])]
    uses = [use for use in uses if use.parent.type != symbols.del_stmt and not _is_deleted(use)]
    if not all(_is_load(use) for use in uses):
        return False
    # What a store reads, it reads before it stores.
    stores = [end(node) for node in _stores(definition)]
    loops = any(_in_loop(use, definition) for use in uses)
    return not uses or (
        not loops and max(start(use) for use in uses) < min(stores, default=1 << 60)
    )


def _is_deleted(leaf: Leaf) -> bool:
    node = leaf.parent
    while node is not None and node.type in (symbols.exprlist, symbols.atom):
        node = node.parent
    return node is not None and node.type == symbols.del_stmt


def _is_load(leaf: Leaf) -> bool:
    """Whether the Ref `leaf` is subscripted, and not as the target of an assignment."""
    power = leaf.parent
    if power.type != symbols.power or power.children[1].type != symbols.trailer:
        return False
    trailer = power.children[1]
    if _is_attribute(trailer):
        return trailer.children[1].value in ("shape", "dtype", "ndim", "size")
    statement = power.parent
    is_target = statement.type == symbols.expr_stmt and power is not statement.children[-1]
    is_subscript: bool = trailer.children[0].value == "["
    return is_subscript and not is_target


def _stores(definition: Node) -> Iterator[Tree]:
    """What may store to a Ref: an assignment to a subscript, or a call of anything that is handed one."""
    refs = {parameter.leaf.value for parameter in parameters(definition)}
    for node in definition.children[-1].pre_order():
        if node.type == symbols.expr_stmt and not isinstance(node.children[0], Leaf):
            if str(node.children[0]).rstrip().endswith("]"):
                yield node
        elif node.type in (symbols.funcdef, symbols.lambdef):
            yield node  # what a nested function does, and when, is not followed
        elif node.type == symbols.trailer:
            call = call_at(node)
            items = call.brackets.items if call else ()
            if any(isinstance(item.value, Leaf) and item.value.value in refs for item in items):
                yield node


def _in_loop(leaf: Leaf, definition: Node) -> bool:
    node = leaf.parent
    while node is not None and node is not definition:
        if node.type in (symbols.for_stmt, symbols.while_stmt, symbols.funcdef, symbols.lambdef):
            return True
        node = node.parent
    return False


def _prefetched_state(
    module: Module, site: Site, definitions: list[Node]
) -> Iterator[tuple[str, Tree]]:
    """A store to one of the Refs that are prefetched scalars, here or in a function that is handed it."""
    value = _argument(site, "grid_spec")
    call = as_call(_value(module, value)) if value is not None else None
    item = call.brackets.keyword("num_scalar_prefetch") if call else None
    if item is None:
        return
    count = _count(module, item.value)
    refs = [p.leaf for d in definitions for p in parameters(d)[:count]]
    seen = {id(leaf) for leaf in refs}
    for leaf in refs:
        for use in module.names.uses(leaf):
            if _is_stored(use):
                yield "scalar-prefetch-state", use
            handed = [p for p in _handed_to(module, use) if id(p) not in seen]
            seen.update(id(parameter) for parameter in handed)
            refs += handed


def _count(module: Module, node: Tree) -> int:
    """The number that `node` is: a literal, or the length of a tuple; where that can't be told, the least."""
    node = _value(module, node)
    if isinstance(node, Leaf) and node.type == token.NUMBER and node.value.isdigit():
        return int(node.value)
    call = as_call(node)
    if call is not None and written(call.power.children[0]) == "len":
        listed = call.positional(0)
        atom = _value(module, listed) if listed is not None else node
        inner = atom.children[1] if atom.type == symbols.atom else atom
        if inner.type in (symbols.testlist_gexp, symbols.listmaker):
            return len(inner.children[::2])
    return 1


def _value(module: Module, node: Tree) -> Tree:
    """`node`, or what the name `node` is once assigned."""
    node = unwrapped(node)
    assigned = module.names.assigned(node)
    return unwrapped(assigned) if assigned is not None else node


def _handed_to(module: Module, use: Leaf) -> Iterator[Leaf]:
    """The parameters of functions of the module that are `use` where it is an argument by itself."""
    holder = use.parent
    while holder is not None and holder.type in (symbols.argument, symbols.arglist):
        holder = holder.parent
    call = call_at(holder) if holder is not None and holder.type == symbols.trailer else None
    if call is None:
        return
    before = sum(len(c.brackets.items) - 1 for c in module.names.callee(call).through)
    for position, item in enumerate(call.brackets.items):
        if item.value is use and not item.star:
            for definition in called(call, module.names, module.functions):
                for place, parameter in enumerate(parameters(definition)):
                    if parameter.leaf.value == item.keyword or (
                        not item.keyword and place == before + position
                    ):
                        yield parameter.leaf


def _is_stored(leaf: Leaf) -> bool:
    power = leaf.parent
    if power.type != symbols.power or len(power.children) != 2:
        return False
    statement = power.parent
    return statement.type == symbols.expr_stmt and power is not statement.children[-1]


def _transformed(module: Module, site: Site) -> Iterator[tuple[str, Tree]]:
    """`jax.checkpoint`, or `jax.vmap` of a kernel with `dimension_semantics`, around the entry point."""
    around = {id(function) for function in enclosing_functions(site.call.trailer)}
    calls = (site.call, *site.through)
    semantics = any(_says(module, c.trailer, "dimension_semantics", 0) for c in calls)
    for name, node, functions in _all_transformations(module):
        is_inside = start(node) <= site.call.start < end(node)
        if not is_inside and around.isdisjoint(map(id, functions)):
            continue
        if name in _CHECKPOINTS:
            yield "checkpoint-grad", node
        elif semantics:
            yield "vmap-dimension-semantics", node


def _says(module: Module, node: Tree, word: str, depth: int) -> bool:
    """Whether `word` stands in `node`, or in what a name in it was once assigned."""
    assigned = [module.names.assigned(leaf) for leaf in module.names.read_in(node)]
    return word in str(node) or any(
        value is not None and depth < _ARGUMENT_DEPTH and _says(module, value, word, depth + 1)
        for value in assigned
    )


def _all_transformations(module: Module) -> tuple[tuple[str, Tree, list[Node]], ...]:
    if _transformations not in module.memo:
        module.memo[_transformations] = tuple(_transformations(module))
    found: tuple[tuple[str, Tree, list[Node]], ...] = module.memo[_transformations]
    return found


def _transformations(module: Module) -> Iterator[tuple[str, Tree, list[Node]]]:
    """Each use of `jax.checkpoint` and `jax.vmap`: its name, what it transforms, the functions that run in that."""
    nodes = [node for part in module.mentions.of(*_TRANSFORMATIONS) for node in part.nodes]
    for call in (call for node in nodes for call in calls_in(node)):
        first = call.positional(0)
        name = _transformation(module.names.callee(call).path)
        if name and first is not None:
            meanings = (module.names.meaning(leaf) for leaf in module.names.read_in(first))
            named = [m.definition for m in meanings if m.definition is not None]
            yield name, first, _reached(module, [*module.functions.definitions(first), *named])
    for inner in (inner for node in nodes for inner in node.pre_order()):
        if inner.type == symbols.decorator:
            name = _transformation(_path_of_decorator(module, inner.children[1]))
            if name:
                yield name, decorated(inner), _reached(module, [decorated(inner)])


def _transformation(path: str) -> str:
    """The name of the transformation at the dotted path `path`, or ''."""
    name = path.rpartition(".")[2]
    return name if path.split(".")[0] == "jax" and name in _TRANSFORMATIONS else ""


def _path_of_decorator(module: Module, node: Tree) -> str:
    """What decorates: `T`, `T(...)` or `partial(T, ...)`."""
    call = as_call(node)
    path = module.names.callee(call).path if call else module.names.path(node)
    first = call.positional(0) if call else None
    return module.names.path(first) if path == PARTIAL and first is not None else path


def _reached(module: Module, definitions: list[Node]) -> list[Node]:
    return [f for d in definitions for f in module.functions.reached(d)]
