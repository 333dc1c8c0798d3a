"""Where a keyword argument of a site stands: in the call, or in a dict that is splatted into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fissix.pgen2 import token
from fissix.pytree import Leaf

from .calls import Brackets, Item, Tree, as_call, call_at, dict_display, unwrapped
from .edits import Edits, remove_item
from .module import Module
from .parsing import symbols
from .targets import Site


@dataclass(frozen=True, eq=False)
class Held:
    """A keyword argument, or the entry of a dict that becomes one.

    `brackets` are those that `item` stands in; `outer` are those that hold them, in the argument `splat`: `**{...}`.
    """

    item: Item
    brackets: Brackets
    outer: Brackets | None = None
    splat: Item | None = None

    def removal(self, text: str) -> Edits:
        """The edits that take the argument or entry away, an emptied `**{}` with it."""
        if self.outer and self.splat and len(self.brackets.items) == 1:
            return remove_item(text, self.outer, self.splat)
        return remove_item(text, self.brackets, self.item)


def held(
    module: Module, site: Site, keyword: str, shares: Callable[[Site], bool] | None
) -> Iterator[Held]:
    """Every place that hands `keyword` to `site`.

    A dict that was assigned to a name counts if each use of the name is a splat into a site that `shares` allows;
    with None, whatever uses it.
    """
    brackets = site.call.brackets
    for item in brackets.items:
        if item.keyword == keyword:
            yield Held(item, brackets)
        elif item.star == "**":
            inner = keywords_of(module, item.value)
            shared = None if inner else assigned_dict(module, item.value, shares)
            for entries, outer in ((inner, brackets), (shared, None)):
                entry = entries.keyword(keyword) if entries else None
                if entries and entry:
                    yield Held(entry, entries, outer, item)


def dict_of(module: Module, node: Tree) -> Brackets | None:
    """The entries of `{...}` or `dict(...)`; None for any other expression."""
    display = dict_display(node)
    if display is not None:
        return display
    call = as_call(node)
    if call is None or call.index != 1:
        return None
    callee = call.power.children[0]
    is_builtin = (
        isinstance(callee, Leaf) and callee.value == "dict" and not module.names.bindings(callee)
    )
    return call.brackets if is_builtin else None


def keywords_of(module: Module, node: Tree) -> Brackets | None:
    """The entries of the dict `node` as keyword arguments; None where `dict_of` gives none or a key can't be told.

    A key can't be told where it is computed, where the entries are those of an argument of `dict`, and where an entry
    replaces another.
    """
    brackets = dict_of(module, node)
    if brackets is None:
        return None
    keys = [item.keyword for item in brackets.items if item.star != "**"]
    return brackets if all(keys) and len(set(keys)) == len(keys) else None


def assigned_dict(
    module: Module, node: Tree, shares: Callable[[Site], bool] | None
) -> Brackets | None:
    """The dict that the name `node` was once assigned in the scope where it is splatted.

    Only where each use of the name is a splat into a site that `shares` allows; with None, whatever uses it.
    """
    node = unwrapped(node)
    value = module.names.assigned(node)
    brackets = keywords_of(module, value) if value is not None else None
    if (
        brackets is None
        or value is None
        or module.names.scope(value) is not module.names.scope(node)
    ):
        return None
    if module.names.is_in_fstring(node) or module.is_skipped(value) or not _has_one_name(value):
        return None
    uses = [leaf for leaf in module.names.uses(node) if not _is_assigned(leaf)]
    if shares is None or all(_is_shared(module, leaf, shares) for leaf in (node, *uses)):
        return brackets
    return None


def _is_assigned(leaf: Leaf) -> bool:
    """Whether `leaf` is the name on the left of its assignment."""
    return leaf.parent.type == symbols.expr_stmt and leaf is not leaf.parent.children[-1]


def _has_one_name(value: Tree) -> bool:
    """Whether what is assigned `value` is one name: `kw = {...}`, and not `kw = options = {...}`."""
    statement = value.parent
    return statement.type == symbols.annassign or len(statement.children) == 3


def _is_shared(module: Module, leaf: Leaf, shares: Callable[[Site], bool]) -> bool:
    site = _splatted_into(module, leaf)
    return site is not None and shares(site)


def sharing(module: Module, argument: Held) -> list[Site]:
    """Every site that `argument` is handed to: several, where it is the entry of a dict assigned to a name."""
    name = argument.splat.value if argument.splat and argument.outer is None else None
    name = unwrapped(name) if name is not None else None
    if not isinstance(name, Leaf):
        return []
    found = {leaf.start: _splatted_into(module, leaf) for leaf in (name, *module.names.uses(name))}
    return [site for site in found.values() if site is not None]


def _splatted_into(module: Module, leaf: Leaf) -> Site | None:
    """The site that the name `leaf` is splatted into, or None."""
    argument = leaf.parent
    if argument.type != symbols.argument or argument.children[0].type != token.DOUBLESTAR:
        return None
    trailer = argument.parent if argument.parent.type == symbols.trailer else argument.parent.parent
    call = call_at(trailer) if trailer.type == symbols.trailer else None
    return module.site(call) if call else None
