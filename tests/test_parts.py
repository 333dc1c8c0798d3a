"""Parts: each is parsed when something is asked of it, and then is what it is in the whole tree."""

from __future__ import annotations

from pathlib import Path

import pytest
import test
from fissix.pytree import Leaf, Node

from migrate_pallas.parsing import SyntaxFault, parse
from migrate_pallas.parts import Parted, in_parts

MODULE = """\
import jax
from jax.experimental import (  # two of them
    pallas as pl,
    sparse,
)

LIMIT = pl.cdiv(7, 2)


def first(x):
    return x + LIMIT  # jax


class Second:
    text = "first"

    def method(self):
        jax = None
        return self.first


register(first)
"""


def shape(node: Node | Leaf) -> tuple[object, ...]:
    """All that rules see of a node: types, values and places."""
    if isinstance(node, Leaf):
        return (node.type, node.value, node.start, node.end, node.lineno, node.column)
    return (node.type, *(shape(child) for child in node.children))


def named(parts) -> list[str]:
    """The names of parts, or how their text begins."""
    return [part.name or part.text.split()[0] for part in parts]


@pytest.fixture
def tree() -> Parted:
    return in_parts(MODULE)


def test_nothing_is_parsed_before_it_is_asked_for(tree):
    assert named(tree.parts) == ["import", "LIMIT", "first", "Second", "register(first)"]
    assert not any(part.is_parsed for part in tree.parts)
    assert str(tree.parts[2].definition.children[1]).strip() == "first"
    assert [part.is_parsed for part in tree.parts] == [False, False, True, False, False]


def test_all_parts_together_are_the_whole_tree(tree):
    assert shape(tree) == shape(parse(MODULE))
    assert all(node.parent is tree for node in tree.children)
    assert all(part.is_parsed for part in tree.parts)


def test_a_follower_sees_each_part_once(tree):
    seen = []
    tree.followers.append(seen.append)
    assert tree.parts[3].nodes is tree.parts[3].nodes
    assert tree.children
    assert sorted(named(seen)) == sorted(named(tree.parts))


def test_a_definition_is_found_under_decorators_and_async():
    text = "@d\n@e\nasync def f(): pass\n@d\nclass C: pass\nasync def g(): pass\n"
    found = [part.definition for part in in_parts(text).parts]
    assert [node.children[1].value for node in found] == ["f", "C", "g"]


def test_parts_are_found_by_place(tree):
    for word, name in [("import", "import"), ("return x", "first"), ("self.first", "Second")]:
        assert named([tree.part_at(MODULE.index(word))]) == [name]
    assert tree.part_of(tree.parts[2].definition) is tree.parts[2]


def test_parts_are_found_by_words_within_others(tree):
    assert named(tree.holding("meth", "LIM")) == ["LIMIT", "first", "Second"]


def test_a_name_is_no_attribute_and_stands_in_no_string_or_comment(tree):
    assert named(tree.naming("first")) == ["first", "register(first)"]
    assert named(tree.naming("jax", "pl")) == ["import", "LIMIT", "Second"]


@pytest.mark.parametrize(
    ("binding", "binds"),
    [
        ("x = 1", True),
        ("for x in y: pass", True),
        ("for a, x in y: pass", True),
        ("with y as x: pass", True),
        ("def x(): pass", True),
        ("def f(x): pass", True),
        ("lambda x: 0", True),
        ("import x.y", True),
        ("import a, \\\n  x.y", True),
        ("from a import (b,\n x)", True),
        ("import a as x", True),
        ("try: pass\n except E as x: pass", True),
        ("match a:\n  case [x]: pass", True),
        ("match a:\n  case x if b: pass", True),
        ("(x := 1)", True),
        ("del x", True),
        ("x.y()", False),
        ("return x.y + a.x", False),
        ("'x = 1'", False),
        ("pass  # x = 1", False),
        ("from x.y import z", False),
        ("from x import z", False),
        ("x and y", False),
    ],
)
def test_parts_that_may_bind_a_name_are_told(binding, binds):
    text = f"def f():\n {binding}\n" if "\n" not in binding else f"{binding}\n"
    assert bool(list(in_parts(text).binding("x"))) is binds


def test_what_is_imported_is_told(tree):
    imported = [at for at in range(len(MODULE)) if tree.is_imported(at)]
    said = MODULE[min(imported) : max(imported) + 1]
    assert said.startswith("jax\n") and said.endswith("sparse,\n")
    assert not tree.is_imported(MODULE.index("LIMIT"))
    assert not tree.has_star
    assert in_parts("from a import\\\n *\n").has_star


def test_a_fault_is_told_when_its_part_is_parsed():
    text = "def f(): pass\n\n\ndef g():\n    x y\n"
    one, other = in_parts(text).parts
    assert one.nodes
    with pytest.raises(SyntaxFault) as told:
        other.nodes  # noqa: B018
    assert (told.value.line, told.value.column) == (5, 7)


FILES = sorted(Path(test.__file__).parent.rglob("test_*.py"))[::12]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_parts_of_the_standard_librarys_tests_are_the_whole_tree(path):
    try:
        text = path.read_text("utf-8")
        whole = parse(text)
    except (UnicodeDecodeError, SyntaxFault):  # bad on purpose
        return
    assert shape(in_parts(text)) == shape(whole)
