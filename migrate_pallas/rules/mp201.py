"""MP201: `collective_axes` may hide in a splat."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from ..arguments import assigned_dict, keywords_of
from ..axes import may_change, needs_no_gate
from ..calls import Call, Item, Tree, call_at, literal_text, unwrapped, written
from ..module import Module
from ..parsing import symbols
from ..targets import SCOPED
from . import CALL, rule


@rule("MP201", "hidden-axes", ("pallas", "scoped", "**"), about=SCOPED)
def hidden_axes(query: Query) -> Query:
    """A splat handed to `run_scoped` or `with_scoped` that may hold `collective_axes`.

    What it does: reports a `**` of what can't be seen to be free of `collective_axes`: a parameter, the result of a
    call, a dict that is also used elsewhere. What is splatted stays as it is.

    Why: if it holds axes, the call raises outside Mosaic GPU, and nothing here could drop or gate them.

    Example:

        def scoped(body, *shapes, **options):
            return pl.run_scoped(body, *shapes, **options)

    Use instead: see that no caller passes `collective_axes`, or take it out of the dict before the call.

    References: `run_scoped` in jax/_src/pallas/primitives.py, JAX 0.10.2.
    """
    return query.select(CALL).filter(has_hiding_splat).modify(report)


def has_hiding_splat(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` is a site with a splat that may hold axes which no rule changes."""
    module: Module = capture["module"]
    site = module.site_at(node)
    if site is None or not may_change(module, site) or needs_no_gate(module, site, node):
        return False
    if site.call.brackets.keyword("collective_axes"):
        return False
    capture["splats"] = [item for item in site.call.brackets.splats if _may_hide(module, item)]
    capture["target"] = site.target
    return bool(capture["splats"])


def _may_hide(module: Module, item: Item) -> bool:
    entries = keywords_of(module, item.value)
    if entries is None:
        entries = assigned_dict(module, item.value, lambda site: may_change(module, site))
    if entries is not None:  # MP101 sees the axes in it
        return not all(_is_harmless(module, entry) for entry in entries.items)
    return not _holds_none(module, item.value)


def _is_harmless(module: Module, entry: Item) -> bool:
    """Whether an entry of a dict puts nothing unseen into it."""
    return _holds_none(module, entry.value) if entry.star == "**" else bool(entry.keyword)


def _holds_none(module: Module, node: Tree, depth: int = 0) -> bool:
    """Whether `node` is seen to hold no axes: a dict without them, also by its name or as each branch of a choice."""
    node = unwrapped(node)
    if node.type == symbols.test and len(node.children) == 5:
        return all(_holds_none(module, node.children[at], depth) for at in (0, 4))
    entries = keywords_of(module, node)
    if entries is not None:
        return not entries.keyword("collective_axes") and all(
            _is_harmless(module, entry) for entry in entries.items
        )
    value = module.names.assigned(node) if depth < 10 else None
    if value is None or not _holds_none(module, value, depth + 1):
        return False
    return not any(_may_fill(use) for use in module.names.uses(node))


def _may_fill(use: Leaf) -> bool:
    """Whether a use of the name of a dict may put axes into it: anything but a splat or another key."""
    parent = use.parent
    if parent.type == symbols.argument and parent.children[0].type == token.DOUBLESTAR:
        return False
    if parent.type == symbols.expr_stmt and use is parent.children[0]:
        return False
    if parent.type != symbols.power:
        return True
    trailer = parent.children[1]
    if trailer.children[0].value == "[":
        return literal_text(trailer.children[1]) in (None, "collective_axes")
    call: Call | None = call_at(parent.children[2]) if len(parent.children) > 2 else None
    return call is None or written(trailer) not in (
        ".get",
        ".items",
        ".keys",
        ".values",
        ".copy",
    )


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report each such splat."""
    for item in capture["splats"]:
        capture["module"].find(
            "MP201",
            item.first,
            f"this splat may hand collective_axes to {capture['target']}, which raises outside Mosaic GPU: see that "
            "it holds none",
        )
