"""The gate: what it is called in a module, what it looks like, and where it and needed imports are put."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from .backends import CPU, TPU, Backends
from .calls import Tree, as_call, end, first_leaf, start
from .changes import Change, Need
from .edits import Edit, Edits, line_start, newline_of
from .mentions import leading_to
from .names import Binding, How, Names, is_fallback, is_main_block
from .parsing import symbols
from .parts import Parted
from .settings import Settings
from .targets import Functions, with_decorators

_DOCSTRING = "Whether JAX runs on TPU by default: kernels take their TPU path only there."
TPU_MODULE = "jax.experimental.pallas.tpu"
# How a module that a rewrite names is imported where it is not bound: (statement, alias for a taken name)
_IMPORTS = {
    "jax": ("import jax", "import jax as {}"),
    "contextlib": ("import contextlib", "import contextlib as {}"),
    TPU_MODULE: (
        "from jax.experimental.pallas import tpu as pltpu",
        "from jax.experimental.pallas import tpu as {}",
    ),
}
# Packages whose decorators do not call what they decorate while a module is imported.
_CALL_LATER = ("jax", "functools", "contextlib", "pytest")
_USUAL_NAME = {"jax": "jax", "contextlib": "contextlib", TPU_MODULE: "pltpu"}


@dataclass(frozen=True)
class Spelled:
    """How something is written at a place, and what that needs to be bound."""

    text: str
    needs: frozenset[Need] = frozenset()


class Gate:
    """The gate of one module."""

    def __init__(self, names: Names, backends: Backends, settings: Settings) -> None:
        self.names = names
        self.backends = backends
        self.settings = settings
        self.name, self.definition = free_or_bound(names, settings.gate, self._is_gate)

    def call(self, node: Tree) -> Spelled | None:
        """The gate's call as it is written at `node`; None where no gate may run there (it runs at import)."""
        if self.names.runs_at_import(node):
            late = self.definition is not None and start(self.definition) > start(node)
            if not self.settings.gate_at_import or late:
                return None
        return self.later()

    def later(self) -> Spelled:
        """The gate's call where it runs after import, whatever the place that asks."""
        return Spelled(f"{self.name}()", self._needs)

    def _is_gate(self, binding: Binding) -> bool:
        if binding.how is How.IMPORT:  # of a function: modules can't be called, and JAX has no gate
            return binding.node.type == symbols.import_from and not binding.path.startswith("jax.")
        if binding.how is not How.FUNCTION or not _callable_without_arguments(binding.node):
            return False
        return (
            self.backends.answer(binding.node, TPU) is True
            and self.backends.answer(binding.node, CPU) is False
        )

    @cached_property
    def _needs(self) -> frozenset[Need]:
        if self.definition is not None:
            return frozenset()
        if self.settings.gate_import:
            module, name = self.settings.gate_import
            alias = "" if name == self.name else f" as {self.name}"
            return frozenset({Need(self.name, f"from {module} import {name}{alias}")})
        jax = module_name("jax", None, self.names)
        lines = (
            f"def {self.name}() -> bool:",
            f'\t"""{_DOCSTRING}"""',
            f'\treturn {jax.text}.default_backend() == "tpu"',
        )
        return frozenset({Need(self.name, lines=lines)}) | jax.needs


def free_or_bound(
    names: Names, wanted: str, serves: Callable[[Binding], bool]
) -> tuple[str, Tree | None]:
    """The first of `wanted`, `_wanted`, `_wanted_2`, ... that is bound to what `serves`, or that nothing binds.

    With what binds it at module level, or None. A name that is only read may come from an `import *`.
    """
    for name in _alternatives(wanted):
        bindings = names.bound_anywhere(name)
        if not bindings and not (names.stars and names.is_used(name)):
            return name, None
        if (
            bindings == names.of_module(name)
            and all(serves(b) for b in bindings)
            and any(names.runs_surely(b) for b in bindings)
        ):
            return name, bindings[0].node
    raise AssertionError("unreachable: names do not run out")


def module_name(path: str, node: Tree | None, names: Names) -> Spelled:
    """How the module `path` is written at `node` (at module level where that is None).

    A name that is bound to it at run time and seen from there is used (for `jax` itself, its own name); else it is
    imported at module level, under its usual name or, where that is bound to anything else, another.
    """
    own = [name for name in names.names_of(path) if path != "jax" or name.strip("_") == "jax"]
    for name in own:
        if _is_bound(name, path, node, names):
            return Spelled(name)
    for name in _alternatives(_USUAL_NAME[path]):
        bindings = names.bound_anywhere(name)
        if all(b.how is How.IMPORT and b.path == path for b in bindings):
            return Spelled(name, frozenset({_import_of(path, name)}))
    raise AssertionError("unreachable: names do not run out")


def _import_of(path: str, name: str) -> Need:
    usual, aliased = _IMPORTS[path]
    return Need(name, usual if name == _USUAL_NAME[path] else aliased.format(name))


def _is_bound(name: str, path: str, node: Tree | None, names: Names) -> bool:
    """Whether `name`, as seen at `node`, is bound to the module `path` at run time, and to nothing else."""
    scope = names.scope(node) if node is not None else names.module
    seen = names.lookup(name, scope)
    imports = [b for b in seen if b.how is How.IMPORT and b.path == path]
    sure = [b for b in imports if names.runs_surely(b) and not _is_later(b, node, names)]
    return bool(sure) and all(
        b in imports
        or (
            is_fallback(b, imports)
            and (start(b.node) < start(sure[-1].node) or not names.runs_surely(b))
        )
        for b in seen
    )


def _is_later(binding: Binding, node: Tree | None, names: Names) -> bool:
    """Whether `binding` stands after `node` in the same scope."""
    return (
        node is not None
        and names.scope(binding.node) is names.scope(node)
        and start(binding.node) > start(node)
    )


def _alternatives(name: str) -> Iterator[str]:
    """`name`, `_name`, `_name_2`, `_name_3`, ..."""
    yield name
    yield f"_{name}"
    number = 2
    while True:
        yield f"_{name}_{number}"
        number += 1


def _callable_without_arguments(definition: Node) -> bool:
    parameters = next(c for c in definition.children if c.type == symbols.parameters).children[1:-1]
    if not parameters:
        return True
    listed = parameters[0].children if parameters[0].type == symbols.typedargslist else parameters
    for index, node in enumerate(listed):
        before = listed[index - 1].value if index and isinstance(listed[index - 1], Leaf) else ""
        after = (
            listed[index + 1].value
            if index + 1 < len(listed) and isinstance(listed[index + 1], Leaf)
            else ""
        )
        is_name = node.type in (token.NAME, symbols.tname)
        if is_name and before not in ("=", "*", "**") and after != "=":
            return False
    return True


# -- where the gate and the imports go --


@dataclass(frozen=True)
class _Place:
    """An offset at which a line begins (or the file ends), and what stands before it there."""

    offset: int
    after: str  # "import", "docstring", or "" where neither does


def additions(text: str, tree: Parted, functions: Functions, changes: Sequence[Change]) -> Edits:
    """The one edit that binds at module level all that `changes` need; () where they need nothing.

    It stands after the last top-level import, or before the first statement that may use what it binds while the
    module is imported.
    """
    needy = [change for change in changes if change.needs]
    needs = sorted({need for change in needy for need in change.needs}, key=_order)
    if not needs:
        return ()
    parts = leading_to(functions.names, [change.start for change in needy])
    statements = (node for part in parts for node in part.nodes)
    used = next((start(s) for s in statements if _uses(s, functions, needy)), len(text))
    place = _place(text, tree, used)
    needs = sorted({*needs, *_bound_later(needs, place, functions.names)}, key=_order)
    return (Edit(place.offset, place.offset, _block(text, tree, place, needs)),)


def _bound_later(needs: Sequence[Need], place: _Place, names: Names) -> Iterator[Need]:
    """The imports of what the definitions among `needs` use and the module binds only after `place`."""
    lines = (line for need in needs for line in need.lines)
    for name in {word for line in lines for word in re.findall(r"\w+(?=\.)", line)}:
        imports = [b for b in names.of_module(name) if b.path in _IMPORTS]
        if imports and not any(
            names.runs_surely(b) and start(b.node) < place.offset for b in imports
        ):
            yield _import_of(imports[0].path, name)


def _order(need: Need) -> tuple[int, str]:
    """Imports by their text, then the gate, then what calls it."""
    return (0, need.statement) if need.statement else (len(need.lines), need.name)


def _block(text: str, tree: Parted, place: _Place, needs: Sequence[Need]) -> str:
    """The lines that are put in at `place`: imports, then definitions with two blank lines around each.

    At the end of a file that ends without a line ending they end without one too.
    """
    indent, newline = _indent_of(tree), newline_of(text)
    head, tail = text[: place.offset], text[place.offset :]
    blank = _blank_lines_at_start(tail)
    imports = "".join(need.statement + newline for need in needs if need.statement)
    written = [_written(need.lines, indent, newline) for need in needs if need.lines]
    definitions = (newline * 2).join(written)
    unended = bool(head) and head[-1] not in "\r\n"
    block = newline if unended else ""
    if imports and place.after == "docstring":
        block += newline
    block += imports
    if definitions:
        block += newline * 2 if block or head.strip() else ""
        block += definitions
    wanted = 2 if definitions else 0 if place.after == "import" else 1
    if tail.strip():
        return block + newline * max(0, wanted - blank)
    return block.removesuffix(newline) if unended else block


def _written(lines: Iterable[str], indent: str, newline: str) -> str:
    """A definition in the indentation and with the line endings of its module."""
    return "".join(line.replace("\t", indent) + newline for line in lines)


def _blank_lines_at_start(text: str) -> int:
    blank = re.match(r"(?:[ \t\f]*(?:\r\n|\r|\n))*", text)
    return len(re.findall(r"\r\n|\r|\n", blank.group())) if blank else 0


def _indent_of(tree: Parted) -> str:
    """The indentation that the module uses first; four spaces where it has none."""
    blocks = (part for part in tree.parts if part.name or part.binds is None)
    leaves = (leaf for part in blocks for node in part.nodes for leaf in node.leaves())
    return next((leaf.value for leaf in leaves if leaf.type == token.INDENT), "    ")


def _uses(statement: Tree, functions: Functions, changes: Sequence[Change]) -> bool:
    """Whether importing the module may run one of `changes` in the top-level `statement`."""
    names = functions.names
    first, last = start(statement), end(statement)
    for change in changes:
        if first <= change.start < last and names.runs_at_import(names.leaf_at(change.start)):
            return True
    for leaf in names.read_in(statement):
        definitions = _may_run(leaf, functions) if names.runs_at_import(leaf) else []
        for function in (f for definition in definitions for f in functions.reached(definition)):
            if any(start(function) <= change.start < end(function) for change in changes):
                return True
    return False


def _may_run(leaf: Leaf, functions: Functions) -> list[Node]:
    """The functions and classes that may run where the variable `leaf` stands."""
    names = functions.names
    if id(leaf) in names.binders:
        defined = leaf.parent.type in (symbols.funcdef, symbols.classdef)
        return [leaf.parent] if defined and _is_handed_on(leaf.parent, names) else []
    definition = names.meaning(leaf).definition
    return [definition] if definition is not None else functions.definitions(leaf)


def _is_handed_on(definition: Node, names: Names) -> bool:
    """Whether a decorator that may call it gets `definition`."""
    decorated = with_decorators(definition)
    if decorated is definition:
        return False
    listed = decorated.children[0]
    decorators = listed.children if listed.type == symbols.decorators else [listed]
    return any(_may_call(decorator.children[1], names) for decorator in decorators)


def _may_call(decorator: Tree, names: Names) -> bool:
    call = as_call(decorator)
    path = names.callee(call).path if call else names.path(decorator)
    if path:
        return path.partition(".")[0] not in _CALL_LATER
    root = first_leaf(decorator)
    return bool(names.bindings(root))  # no builtin calls what it decorates


def _place(text: str, tree: Parted, used: int) -> _Place:
    """Where additions go that are not after the offset `used`."""
    imports = [s for s in tree.others if start(s) < used and _is_import(s)]
    if imports:
        return _Place(_line_after(text, imports[-1]), "import")
    first = tree.parts[0].nodes[0]
    if used > start(first) and _is_docstring(first):
        return _Place(_line_after(text, first), "docstring")
    # Before the first statement, the comments right above it included; after a comment that heads the file.
    offset = line_start(text, start(first))
    above = text[:offset]
    comments = re.search(r"(?:[ \t\f]*#[^\r\n]*(?:\r\n|\r|\n))+\Z", above)
    if comments and above[: comments.start()].strip():
        offset = comments.start()
    return _Place(offset, "")


def _is_docstring(statement: Tree) -> bool:
    is_string: bool = first_leaf(statement).type == token.STRING
    return is_string and statement.type == symbols.simple_stmt


def _is_import(statement: Tree) -> bool:
    """Whether a top-level statement imports: by itself, or in the suites of a `try`, `if` or `with`."""
    if statement.type == symbols.simple_stmt:
        return any(c.type in (symbols.import_name, symbols.import_from) for c in statement.children)
    if statement.type not in (symbols.try_stmt, symbols.if_stmt, symbols.with_stmt, symbols.suite):
        return False
    return not is_main_block(statement) and any(
        _is_import(c) for c in statement.children if c.children
    )


def _line_after(text: str, statement: Tree) -> int:
    """Where the line after `statement` begins, comments of its last suite left to it."""
    leaves = [leaf for leaf in statement.leaves() if leaf.type == token.NEWLINE]
    offset: int = leaves[-1].end
    if statement.type != symbols.simple_stmt:
        inside = re.compile(r"[ \t]+#[^\r\n]*(?:\r\n|\r|\n)").match(text, offset)
        while inside:
            offset = inside.end()
            inside = re.compile(r"[ \t]+#[^\r\n]*(?:\r\n|\r|\n)").match(text, offset)
    return offset
