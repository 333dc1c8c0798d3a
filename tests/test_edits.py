"""Items are removed and added as a careful person would, and nothing else changes."""

from __future__ import annotations

import ast
import io
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrate_pallas.calls import Brackets, dict_display
from migrate_pallas.edits import Edit, add_item, apply, newline_of, remove_item, replace, wrap
from migrate_pallas.kinds import calls_in
from migrate_pallas.parsing import parse


def brackets_of(text: str) -> Brackets:
    """The brackets of the first call, or of the dict display, in `text`."""
    tree = parse(text)
    calls = list(calls_in(tree))
    if calls:
        return calls[0].brackets
    display = dict_display(tree.children[0].children[0].children[-1])
    assert display is not None
    return display


def without(text: str, keyword: str) -> str:
    brackets = brackets_of(text)
    item = brackets.keyword(keyword)
    assert item is not None
    return apply(text, remove_item(text, brackets, item))


def with_added(text: str, new: str = "new=1") -> str:
    return apply(text, add_item(text, brackets_of(text), new))


@pytest.mark.parametrize(
    "before, after",
    [
        ("f(x=1)\n", "f()\n"),
        ("f( x=1 )\n", "f()\n"),
        ("f(x=1,)\n", "f()\n"),
        ("f(a, x=1)\n", "f(a)\n"),
        ("f(a, x=1,)\n", "f(a,)\n"),
        ("f(a , x=1)\n", "f(a )\n"),
        ("f(x=1, a=2)\n", "f(a=2)\n"),
        ("f(x=1,a=2)\n", "f(a=2)\n"),
        ("f(a, x=1, b=2)\n", "f(a, b=2)\n"),
        ("f(a, x=g(1, 2), b=2)\n", "f(a, b=2)\n"),
        ("d = {'x': 1}\n", "d = {}\n"),
        ("d = {'a': 2, 'x': 1}\n", "d = {'a': 2}\n"),
        ("d = {'x': 1, **a}\n", "d = {**a}\n"),
        ("f(\n    x=1\n)\n", "f()\n"),
        ("f(\n    x=1,\n)\n", "f()\n"),
        ("f(\n    a,\n    x=1,\n)\n", "f(\n    a,\n)\n"),
        ("f(\n    a,\n    x=1\n)\n", "f(\n    a\n)\n"),
        ("f(\n    a,\n    x=1,\n    b=2\n)\n", "f(\n    a,\n    b=2\n)\n"),
        ("f(\n    a,\n    x=1)\n", "f(\n    a)\n"),
        ("f(a,\n  x=1,\n  b=2)\n", "f(a,\n  b=2)\n"),
        ("f(a,\n  x=(\n    1,\n  ),\n  b=2)\n", "f(a,\n  b=2)\n"),
        ("f(\n    a, x=1,\n    b=2,\n)\n", "f(\n    a,\n    b=2,\n)\n"),
        ("f(\n    x=1, a=2,\n)\n", "f(\n    a=2,\n)\n"),
        (
            "f(\n    a,  # one\n    x=1,  # two\n    b=2,  # three\n)\n",
            "f(\n    a,  # one\n    b=2,  # three\n)\n",
        ),
        ("f(\n    a,\n    # about x\n    x=1,\n)\n", "f(\n    a,\n    # about x\n)\n"),
        ("f(\n    # about x\n    x=1,\n)\n", "f(\n    # about x\n)\n"),
        ("f(\r\n    a,\r\n    x=1,\r\n)\r\n", "f(\r\n    a,\r\n)\r\n"),
        ("f(\n\ta,\n\tx=1,\n)\n", "f(\n\ta,\n)\n"),
        ("f(\n    a  # a\n    , x=1  # x\n)\n", "f(\n    a  # a\n)\n"),
        ("f(\n    a\n    , x=1\n    , b=2\n)\n", "f(\n    a\n    , b=2\n)\n"),
    ],
)
def test_an_item_is_removed_with_its_comma_and_its_lines(before, after):
    assert without(before, "x") == after


@pytest.mark.parametrize(
    "before, after",
    [
        ("f()\n", "f(new=1)\n"),
        ("f(a)\n", "f(a, new=1)\n"),
        ("f(a, b=2)\n", "f(a, b=2, new=1)\n"),
        ("f(a,)\n", "f(a, new=1,)\n"),
        ("d = {'a': 1}\n", "d = {'a': 1, new=1}\n"),
        ("f(\n    a,\n    b=2,\n)\n", "f(\n    a,\n    b=2,\n    new=1,\n)\n"),
        ("f(\n    a,\n    b=2\n)\n", "f(\n    a,\n    b=2,\n    new=1\n)\n"),
        ("f(a,\n  b=2)\n", "f(a,\n  b=2,\n  new=1)\n"),
        ("f(\n    a, b=2,\n)\n", "f(\n    a, b=2,\n    new=1,\n)\n"),
        ("f(\n    a,  # one\n)\n", "f(\n    a,  # one\n    new=1,\n)\n"),
        ("f(\n    a  # one\n)\n", "f(\n    a,  # one\n    new=1\n)\n"),
        ("f(\r\n    a,\r\n)\r\n", "f(\r\n    a,\r\n    new=1,\r\n)\r\n"),
        ("f(\n\ta,\n)\n", "f(\n\ta,\n\tnew=1,\n)\n"),
        ("f(g(\n    a,\n), b=2)\n", "f(g(\n    a,\n), b=2, new=1)\n"),
        ("f(\n)\n", "f(new=1\n)\n"),
    ],
)
def test_an_item_is_added_in_the_manner_of_the_others(before, after):
    assert with_added(before) == after


def test_edits_are_applied_in_order_and_a_repeated_one_once():
    edits = [Edit(4, 5, "E"), Edit(0, 1, "A"), Edit(2, 2, "-"), Edit(0, 1, "A")]
    assert apply("abcdef", edits) == "Ab-cdEf"


def test_an_edit_inside_a_removed_span_is_dropped():
    assert apply("abcdef", [Edit(1, 5, ""), Edit(2, 3, "X")]) == "af"


def test_overlapping_removals_remove_both_spans():
    assert apply("abcdef", [Edit(1, 4, ""), Edit(3, 5, "")]) == "af"


def test_contradicting_edits_are_refused():
    with pytest.raises(ValueError, match="overlap at offset 3"):
        apply("abcdef", [Edit(1, 4, ""), Edit(3, 5, "X")])


def test_replace_and_wrap_leave_what_is_around():
    text = "f( a , b )\n"
    first = brackets_of(text).items[0].value
    assert apply(text, replace(first, "()")) == "f( () , b )\n"
    assert apply(text, wrap(first, "(", ") if c else d")) == "f( (a) if c else d , b )\n"


@pytest.mark.parametrize(
    "text, newline", [("a\r\nb\n", "\r\n"), ("a\nb\r\n", "\n"), ("a\rb", "\r"), ("a", "\n")]
)
def test_the_line_ending_of_a_text_is_the_first_one(text, newline):
    assert newline_of(text) == newline


# -- generated calls --

VALUES = st.sampled_from(
    ["1", "a", "g(1, b=2)", "(1,\n     2)", "[x for x in y]", "'#'", '","', "lambda: 0", "{'k': 1}"]
)
GAPS = st.sampled_from(["", " ", "\n    ", "  # why, not\n    ", "\n    # above\n    "])


@st.composite
def calls(draw) -> tuple[str, list[str]]:
    """The text of a call `f(...)` of keyword arguments and gaps, and the arguments, in order.

    Each comment in it has a number of its own.
    """
    values = draw(st.lists(VALUES, min_size=1, max_size=5))
    items = [f"k{index}={value}" for index, value in enumerate(values)]
    parts = ["f(", draw(GAPS)]
    for index, item in enumerate(items):
        parts += item, draw(GAPS)
        if index < len(items) - 1 or draw(st.booleans()):
            parts += ",", draw(GAPS)
    parts = [part.replace("# ", f"# {number} ") for number, part in enumerate(parts)]
    return "".join(parts) + ")\n", items


def arguments(text: str) -> list[str]:
    """The arguments of the call that `text` is, as Python reads them."""
    call = ast.parse(text).body[0].value
    return [ast.dump(keyword) for keyword in call.keywords]


def comments(text: str, lines: range = range(0)) -> list[str]:
    """The comments of `text`, those on `lines` left out."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = [token for token in tokens if token.type == tokenize.COMMENT]
    return [token.string for token in found if token.start[0] not in lines]


def lines_of(text: str, keyword: str) -> range:
    """The lines on which an item and its comma stand."""
    item = brackets_of(text).keyword(keyword)
    stop = item.comma.end if item.comma else item.end
    return range(text.count("\n", 0, item.start) + 1, text.count("\n", 0, stop) + 2)


def is_in_order(some: list[str], all_of_them: list[str]) -> bool:
    rest = iter(all_of_them)
    return all(one in rest for one in some)


@given(calls(), st.integers(0, 4))
def test_removing_keeps_the_other_items_and_the_comments_of_other_lines(made, which):
    text, items = made
    which %= len(items)
    result = without(text, f"k{which}")
    before = arguments(text)
    assert arguments(result) == before[:which] + before[which + 1 :]
    assert is_in_order(comments(text, lines_of(text, f"k{which}")), comments(result))
    parse(result)


@given(calls())
def test_adding_keeps_all_items_and_all_comments(made):
    text, _ = made
    result = with_added(text)
    assert arguments(result) == [*arguments(text), *arguments("f(new=1)")]
    assert comments(result) == comments(text)
    parse(result)


@given(calls())
def test_adding_and_removing_again_gives_back_the_items(made):
    text, _ = made
    assert arguments(without(with_added(text), "new")) == arguments(text)


@given(calls(), st.data())
def test_items_are_removed_in_any_order(made, data):
    text, items = made
    for name in data.draw(st.permutations([f"k{index}" for index in range(len(items))])):
        text = without(text, name)
        parse(text)
    assert arguments(text) == []
