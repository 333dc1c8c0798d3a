"""MP203: a target that is passed around as a value."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from ..calls import Call, Tree, call_at, written
from ..module import Module
from ..names import PARTIAL
from ..parsing import symbols
from ..targets import ENTRY_POINTS, SCOPED, target_of
from . import rule

# These look at a function, or carry its name and docstring over, and do not call it.
_LOOK_ONLY = (
    "wraps",
    "update_wrapper",
    "signature",
    "getsource",
    "getdoc",
    "getsourcelines",
    "isinstance",
    "callable",
    "getattr",
    "hasattr",
    "id",
    "print",
    "repr",
    "str",
    "type",
)
_ASSIGNED = (symbols.expr_stmt, symbols.annassign)
_TUPLES = (symbols.testlist, symbols.testlist_gexp, symbols.testlist_star_expr)
# A statement or expression that asks whether the target is there, or is another one.
_ONLY_TESTED = (symbols.comparison, symbols.not_test, symbols.if_stmt, symbols.assert_stmt)


@rule(
    "MP203",
    "target-as-value",
    *(
        ("pallas", name)
        for name in ("run_scoped", "with_scoped", "pallas_call", "kernel", "core_map", "mpmd_map")
    ),
    about=(*SCOPED, *ENTRY_POINTS),
)
def target_as_value(query: Query) -> Query:
    """A target that is passed around as a value, so that its calls can't be seen.

    What it does: reports `run_scoped`, `pallas_call` and the like where they are neither called, nor bound by
    `functools.partial`, nor given another name once: handed to a function, put in a table, returned.

    Why: whoever calls it decides on `interpret` and `collective_axes`, and that call is not found.

    Example:

        launch = choose(pl.pallas_call, my_pallas_call)

    Use instead: call the target itself, or give its `interpret=` where the value is called.

    References: none; this is a limit of reading code without running it.
    """
    return query.select("NAME").filter(is_passed_on).modify(report)


def is_passed_on(node: Leaf, capture: dict[str, Any], filename: str) -> bool:
    """Whether the name `node` begins a target that is used as a value."""
    module: Module = capture["module"]
    names = module.names
    if id(node) in names.binders or not names.may_be_of_jax(node) or not names.is_variable(node):
        return False
    target = target_of(names.full_path(node))
    if not target or "mosaic_gpu" in names.full_path(node) or module.is_skipped(node):
        return False
    capture["target"] = target
    whole: Tree = node.parent if node.parent.type == symbols.power else node
    if any(call_at(child) for child in whole.children if child.type == symbols.trailer):
        return False  # it is called here
    return not _is_harmless(module, whole)


def _is_harmless(module: Module, whole: Tree) -> bool:
    """Whether the target is bound to a name, or to arguments by `partial`, or only looked at."""
    whole = _with_parentheses(whole)
    parent = whole.parent
    if parent.type == symbols.power or _in_import(parent):
        return True  # called: the call's own rules see it
    if parent.type == symbols.namedexpr_test:
        return _is_named(module, whole) and _is_harmless(module, parent)
    if parent.type in _ASSIGNED and whole is parent.children[-1]:
        return _is_annotation(parent) or _is_named(module, whole)
    if parent.type in (symbols.expr_stmt, symbols.annassign, symbols.tname):
        return True  # a target of an assignment, or an annotation
    if parent.type in _TUPLES and _is_named(module, whole):
        return True
    if parent.type in _ONLY_TESTED:
        return parent.type == symbols.comparison or whole is parent.children[1]
    call = _call_around(whole)
    if call is None:
        return False
    path = module.names.callee(call).path
    called = path.rpartition(".")[2] or written(call.power.children[0])
    return called in _LOOK_ONLY or (path == PARTIAL and call.positional(0) is whole)


def _with_parentheses(node: Tree) -> Tree:
    """`node`, or the outermost parentheses that hold nothing else."""
    while node.parent.type == symbols.atom and len(node.parent.children) == 3:
        if node.parent.children[0].value != "(":
            break
        node = node.parent
    return node


def _is_annotation(node: Node) -> bool:
    """Whether `node` is `: T` without a value."""
    return node.type == symbols.annassign and len(node.children) == 2


def _is_named(module: Module, value: Tree) -> bool:
    """Whether `value` is what a name is assigned, once."""
    return module.names.is_named(value)


def _in_import(node: Tree) -> bool:
    return node.type in (
        symbols.import_as_name,
        symbols.import_as_names,
        symbols.import_from,
        symbols.import_name,
        symbols.dotted_name,
        symbols.dotted_as_name,
    )


def _call_around(node: Tree) -> Call | None:
    holder = node.parent
    while holder.type in (symbols.arglist, symbols.argument):
        holder = holder.parent
    return call_at(holder) if holder.type == symbols.trailer else None


def report(node: Leaf, capture: dict[str, Any], filename: str) -> None:
    """Report the use."""
    assert node.type == token.NAME
    capture["module"].find(
        "MP203",
        node,
        f"{capture['target']} is passed around as a value: give interpret= and drop collective_axes where it is called",
    )
