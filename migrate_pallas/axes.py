"""What rules about `collective_axes` have in common: which sites they change, and what a value is off TPU."""

from __future__ import annotations

from fissix.pgen2 import token
from fissix.pytree import Leaf

from .arguments import held
from .backends import TPU
from .calls import Tree, as_call, unwrapped
from .kinds import Kind
from .module import Module
from .parsing import symbols
from .settings import GATE
from .targets import SCOPED, Site


def may_change(module: Module, site: Site) -> bool:
    """Whether the axes of `site` are ours to change: it is of kind TPU or portable."""
    return site.target in SCOPED and module.kinds.kind(site) in (Kind.TPU, Kind.PORTABLE)


def needs_no_gate(module: Module, site: Site, value: Tree) -> bool:
    """Whether backend tests, or a `try` with a fallback, around the site or the value gate it already."""
    return module.is_guarded(site.call.trailer) or module.is_guarded(value)


def keeps_axes(module: Module, site: Site) -> bool:
    """Whether `site` has axes on TPU when the rules are done: strategy gate keeps them there."""
    if module.settings.strategy != GATE or not may_change(module, site):
        return False
    arguments = held(module, site, "collective_axes", lambda other: may_change(module, other))
    return any(not is_empty_on(module, argument.item.value, TPU) for argument in arguments)


def is_empty_on(module: Module, value: Tree, platform: str, depth: int = 0) -> bool:
    """Whether `value` is `()` on `platform`; `None` counts, as MP102 makes it `()`.

    Follows conditionals with a backend test and names that were assigned once.
    """
    value = unwrapped(value)
    if isinstance(value, Leaf):
        assigned = module.names.assigned(value) if depth < 10 else None
        if assigned is not None:
            return not nones(assigned) and is_empty_on(module, assigned, platform, depth + 1)
        return bool(value.value == "None")
    if value.type == symbols.atom:
        return [child.type for child in value.children] == [token.LPAR, token.RPAR]
    if value.type == symbols.test:
        return _conditional_is_empty(module, value.children, platform, depth)
    call = as_call(value)
    return call is not None and str(value).split() == ["tuple()"]


def _conditional_is_empty(module: Module, children: list[Tree], platform: str, depth: int) -> bool:
    chosen = module.backends.truth(children[2], platform)
    branches = [children[0]] if chosen else [children[4]]
    if chosen is None:
        branches = [children[0], children[4]]
    return all(is_empty_on(module, branch, platform, depth + 1) for branch in branches)


def nones(value: Tree) -> list[Leaf]:
    """Each `None` that `value` is, or is in one of its branches."""
    value = unwrapped(value)
    if isinstance(value, Leaf):
        return [value] if value.value == "None" else []
    if value.type == symbols.test and len(value.children) == 5:
        return nones(value.children[0]) + nones(value.children[4])
    return []
