"""Calls and dict displays as rules see them: brackets that hold items.

An argument of a call and an entry of a dict display are the same to a rule that takes one away or changes its
value, so one type serves both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from .parsing import symbols

Tree: TypeAlias = Node | Leaf


@dataclass(frozen=True, eq=False)
class Item:
    """One argument of a call, or one entry of a dict display.

    `keyword` is the argument's name or the entry's key, where that is a plain string; `star` is "*" or "**" for a
    splat. `first` and `last` are the outermost nodes of the item, `comma` the comma after it.
    """

    first: Tree
    last: Tree
    value: Tree
    keyword: str = ""
    star: str = ""
    comma: Leaf | None = None

    @property
    def start(self) -> int:
        """Offset of the item's first character."""
        return start(self.first)

    @property
    def end(self) -> int:
        """Offset after the item's last character, its comma not counted."""
        return end(self.last)


@dataclass(frozen=True, eq=False)
class Brackets:
    """A pair of brackets with the items between them."""

    opening: Leaf
    closing: Leaf
    items: tuple[Item, ...]

    def keyword(self, name: str) -> Item | None:
        """The item of that keyword or key, or None."""
        return next((item for item in self.items if item.keyword == name), None)

    @property
    def splats(self) -> tuple[Item, ...]:
        """The items with `**`."""
        return tuple(item for item in self.items if item.star == "**")


@dataclass(frozen=True, eq=False)
class Call:
    """A call: the children of `power` before `index` are called, the child at `index` holds the arguments."""

    power: Node
    index: int

    @property
    def trailer(self) -> Node:
        """The parenthesised arguments."""
        node: Node = self.power.children[self.index]
        return node

    @cached_property
    def brackets(self) -> Brackets:
        """The arguments."""
        opening, *middle, closing = self.trailer.children
        inner = middle[0] if middle else None
        if inner is not None and inner.type == symbols.arglist:
            return Brackets(opening, closing, tuple(_arguments(inner.children)))
        return Brackets(opening, closing, tuple(_arguments(middle)))

    def positional(self, position: int) -> Tree | None:
        """The positional argument at `position`, or None where there is none or a `*` splat hides it."""
        for item in self.brackets.items[: position + 1]:
            if item.keyword or item.star:
                return None
        items = self.brackets.items
        return items[position].value if position < len(items) else None

    @property
    def start(self) -> int:
        """Offset of the first character of what is called."""
        return start(self.power)

    @property
    def end(self) -> int:
        """Offset after the closing parenthesis."""
        return end(self.trailer)


def call_at(trailer: Node) -> Call | None:
    """The call whose arguments `trailer` holds; None where `trailer` is an attribute or a subscript."""
    if trailer.children[0].value != "(":
        return None
    kept: Call | None = vars(trailer).get("call")  # with its node, as each rule asks for it
    power = trailer.parent
    if kept is None and power is not None and power.type == symbols.power:
        index = next(i for i, child in enumerate(power.children) if child is trailer)
        kept = trailer.call = Call(power, index)
    return kept


def as_call(node: Tree) -> Call | None:
    """The call that the whole expression `node` is, or None."""
    node = unwrapped(node)
    if node.type != symbols.power or node.children[-1].type != symbols.trailer:
        return None
    return call_at(node.children[-1])


def dict_display(node: Tree) -> Brackets | None:
    """The entries of a dict display `{...}`; None for any other expression, a comprehension too."""
    node = unwrapped(node)
    if node.type != symbols.atom or node.children[0].value != "{":
        return None
    opening, *middle, closing = node.children
    if not middle:
        return Brackets(opening, closing, ())
    inner = middle[0]
    if inner.type != symbols.dictsetmaker or any(
        child.type == symbols.comp_for for child in inner.children
    ):
        return None
    if not any(child.type in (token.COLON, token.DOUBLESTAR) for child in inner.children):
        return None  # a set
    return Brackets(opening, closing, tuple(_entries(inner.children)))


def _arguments(children: list[Tree]) -> Iterator[Item]:
    for (node,), comma in _separated(children):
        kids = node.children
        if node.type == symbols.argument and len(kids) == 3 and kids[1].type == token.EQUAL:
            yield Item(node, node, kids[2], keyword=kids[0].value, comma=comma)
        elif node.type in (symbols.argument, symbols.star_expr) and kids[0].type in (
            token.STAR,
            token.DOUBLESTAR,
        ):
            yield Item(node, node, kids[1], star=kids[0].value, comma=comma)
        else:
            yield Item(node, node, node, comma=comma)


def _entries(children: list[Tree]) -> Iterator[Item]:
    for nodes, comma in _separated(children):
        if nodes[0].type == token.DOUBLESTAR:
            yield Item(nodes[0], nodes[-1], nodes[-1], star="**", comma=comma)
        else:
            key = literal_text(nodes[0]) or ""
            yield Item(nodes[0], nodes[2], nodes[2], keyword=key, comma=comma)


def _separated(children: list[Tree]) -> Iterator[tuple[list[Tree], Leaf | None]]:
    """The runs of `children` between commas, each with the comma that follows it."""
    run: list[Tree] = []
    for child in children:
        if child.type == token.COMMA:
            yield run, child
            run = []
        else:
            run.append(child)
    if run:
        yield run, None


def literal_text(node: Tree) -> str | None:
    """The text of a plain string literal (implicitly joined ones too); None for anything else."""
    node = unwrapped(node)
    strings = [node] if isinstance(node, Leaf) else list(node.children)
    if any(leaf.type != token.STRING for leaf in strings):
        return None
    try:
        value = ast.literal_eval(" ".join(leaf.value for leaf in strings))
    except (ValueError, SyntaxError):  # an f-string, or a literal newer than the running Python
        return None
    return value if isinstance(value, str) else None


def plain_text(node: Tree) -> str | None:
    """The text of a string literal that stands in the source as it is: one string, without escapes; else None."""
    is_one = isinstance(node, Leaf) and "\\" not in node.value
    return literal_text(node) if is_one else None


def written(node: Tree) -> str:
    """The source text of `node`, without the white space and comments before it."""
    return str(node)[len(node.prefix) :]


def ancestry(node: Tree) -> Iterator[tuple[Tree, Node]]:
    """Each (child, parent) from `node` upwards to the root."""
    while node.parent is not None:
        yield node, node.parent
        node = node.parent


def unwrapped(node: Tree) -> Tree:
    """`node` without the parentheses around it."""
    while (
        node.type == symbols.atom
        and len(node.children) == 3
        and node.children[0].value == "("
        and node.children[1].type not in (symbols.testlist_gexp, symbols.yield_expr)
    ):
        node = node.children[1]
    return node


def first_leaf(node: Tree) -> Leaf:
    """The first token of `node`."""
    while isinstance(node, Node):
        node = node.children[0]
    return node


def last_leaf(node: Tree) -> Leaf:
    """The last token of `node`."""
    while isinstance(node, Node):
        node = node.children[-1]
    return node


def holds_comment(first: Tree, last: Tree | None = None) -> bool:
    """Whether a comment stands between the first and the last token of `first`, or of all up to the sibling `last`."""
    leaves = list(first.leaves())
    node = first
    while last is not None and node is not last:
        node = node.next_sibling
        leaves += node.leaves()
    return any("#" in leaf.prefix for leaf in leaves[1:])


def start(node: Tree) -> int:
    """Offset of the first character of `node`, what precedes it not counted."""
    offset: int = first_leaf(node).start
    return offset


def end(node: Tree) -> int:
    """Offset after the last character of `node`."""
    offset: int = last_leaf(node).end
    return offset
