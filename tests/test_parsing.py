"""Everything that Python 3.14 reads parses, under every Python, and prints back byte for byte."""

import ast
import io
import sysconfig
import tokenize
import warnings
from pathlib import Path

import pytest
from fissix import pygram, pytree
from fissix.patcomp import PatternCompiler
from fissix.pgen2 import token
from fissix.pgen2.driver import Driver
from hypothesis import example, given, settings
from hypothesis import strategies as st

from migrate_pallas import parsing
from migrate_pallas.parsing import SyntaxFault, name_of, parse, parse_part, symbols


def check(text):
    """Parse a text and prove that the tree is the text and its leaves know where they stand."""
    tree = parse(text)
    assert tree.type == symbols.file_input
    assert str(tree) == text
    assert "".join(leaf.prefix + leaf.value for leaf in tree.leaves()) == text
    for leaf in tree.leaves():
        assert text[leaf.start : leaf.end] == leaf.value
    return tree


def fault(text):
    with pytest.raises(SyntaxFault) as caught:
        parse(text)
    return caught.value


def nodes(tree, type):
    return [node for node in tree.pre_order() if node.type == type]


# Each group is what one release, or one corner of the language, lets one write.
VALID = {
    "layout": [
        "",
        "\n",
        "# only a comment",
        "# only a comment\n",
        "   ",
        "\t# indented comment\n\n",
        "\n  # comment\nx",
        "x = 1",
        "x = 1\r",
        "x = 1\ry = 2\r\nz = 3\n",
        "if x:\r\n    y\r\n\r\n    # c\r\n",
        "if x:\n  pass\n  ",
        "if x:\n  pass  # c",
        "if x:\n\ty\n        z\n",
        "if x:\n  if y:\n    a\n    # of y\n  # of x\n# of neither\nb\n",
        "\x0cx = 1\n\x0c\ndef f():\n    \x0c  pass\n",
        "if x:\n  y\n\x0cz\n",
        "if x:\n  y\n    \x0c  z\n",
        "x = 1 \\\n  + 2\n",
        "x = 1 \\\n\n",
        "x = 1 \\\n# c\n",
        "x\n \\\n\n",
        "if 1:\n  \\\n  x\n",
        "if 1:\n\\\n  x\n",
        "if 1:\n  \\\nx\n  y\n",
        "if 1:\n \x0c\\\n  x\n",
        "x\\\r",
        "x = (1,\n  # c\n\n  2 \\\n )\n",
        "x = (\\\r\n\\\r\n1)\r\n",
        "a; b;\nif x: c; d;\n",
        "class A: pass;\n",
        "x = '\x0b\x1c\u2028\x85'\ny\n",
        "'''\r\n'''\r\n",
        "'a\\\nb'\n'a\\\r\nb'\n",
    ],
    "numbers": [
        "0xfor x\n",
        "1if x else y\n",
        "0b1and 2\n",
        "[0x1for x in y]\n",
        "1_000.5_0e-1_0j + 0x_F + 0O17 + 0b_1 + 00 + 0_0 + 07.5 + 08j + .5 + 5. + 1E5\n",
        "1..real, 1.5.imag, 1 .real\n",
    ],
    "names": [
        "print >>x, 1\nprint = exec\nexec\nprint\n",
        "match = case = type = _ = 1\n",
        "e\u0301 = ℘ = ª = a·b = 变量 = 1\n",
        "𝐱 = 1\n",
        "\u1c89 = \ua7cb\n",  # letters since Unicode 16
    ],
    "strings": [
        "rb'x', Rb'x', bR'x', BR'x', B'x', u'x', U'x', r'\\\\', R'x'\n",
        "'a' \"b\"'''c'''\n",
        "not'x'\n",
        "if'x'in y:pass\n",
        "'' \"\" '''''' \"\"\"\"\"\"\n",
        "'''a'b''c\\'''d'''\n",
    ],
    "f-strings": [
        "f'' F'' rf'' fR'' f'{x}' f'{{}}' f'{{{x}}}'\n",
        "f'{x!r:>{w}.{p}}' f'{x=}' f'{x = !s}' f'{a!=b}' f'{x:=5}' f'{x::}'\n",
        'f\'{a[\'b\']}\' f"{f"{f"{1}"}"}"\n',
        "f'{'\\n'.join(x)}'\n",
        "f'{\nx\n}' f'{x # }\n}'\n",
        "f'''{\nx:{\ny}}'''\n",
        "rf'\\{x}' f'\\N{DIGIT ONE}{x}' rf'\\N{x}' f'\\'{x}' f'\\{x}'\n",
        "f'{(lambda x: {1: 2})(x)}' f'{d[1:2]:d}' f'{x:{y:{z}}}'\n",
        "f'{x:%H:%M}' f'{x:{{1}.pop()}}'\n",
        "f'\\\n{x}\\\r\n'\n",
        "t'{x}' T'' rt'{x!r}' Tr'\\{t'{y}'}'\n",
        "f'{x}' 'b' f\"c\"\n",
    ],
    "expressions": [
        "not a and b or c if d else e\n",
        "a is not b not in c < d == e != f\n",
        "-a ** -b ** ~c @ d // e << f | g ^ h & i\n",
        "..., x[...], a.b.c[1](2)**-x\n",
        "lambda: (yield)\nlambda *, a, **k: 1\nlambda a, /, *b, c=1, **d: 0\nlambda a=1, b=2,: 0\n",
        "[*a, b], (*a, b), {*a, b}, {**a, 'b': c, **d}, {}, (), []\n",
        "{a: b for a, *b in c if d if e for f in g}\n",
        "f(a, *b, c=1, **d, print=2)\nf(x for x in y)\nf(y := x for x in z)\nf(a := 1)\n",
        "x[*a], x[*a, b:c, *d or e], x[a:b:c, ::], x[a:=1], x[a:=1, b:=2], x[()]\n",
        "{a := 1, 2}, [b := 1], (c := 1)\n",
        "[y for x in z if (y := f(x))]\n",
    ],
    "statements": [
        "for x in *a, b: pass\nfor x, in y: pass\nfor (x), *y in z: pass\nelse: pass\n",
        "def f():\n    return *a, b\n    x = yield *a, b\n    yield\n    x: int = yield\n",
        "def f():\n    global a, b\n    nonlocal c\n    del (a), b\n    del (a, b), c[0],\n",
        "x += *a, b\nx: int = *a, b\nx: (int) = 1\n(x): int\nx = y = *z,\n",
        "raise\nraise A from b\nassert a, b\n",
        "import a.b as c, d\nfrom . import (a as b, c,)\nfrom ... import *\nfrom ....a.b import c as d\n",
        "if x := 1: pass\nelif y := 2: pass\nwhile z := 3: pass\n",
        "async def f():\n  async with a as b, (c): pass\n  async for x in y: await z\n"
        "  [x async for x in y if await z]\n  {a: b async for a in c}\n  -await x ** 2\n",
        "@a\n@b.c(1)\n@(yield)\n@x[0].y\n@a if b else c\n@x := y\nasync def f(): pass\n"
        "@d\n# c\n\nclass A(B, metaclass=C, *d, **e): pass\n",
        "def f(a, b: int = 1, /, c=2, *args: *Ts, d: str, **kw: int) -> x: pass\n",
        "def f(*, a): pass\ndef f(a,): pass\ndef f(*a,): pass\ndef f(**a,): pass\n",
        "try: pass\nexcept: pass\nelse: pass\nfinally: pass\ntry: pass\nfinally: pass\n",
        "try: pass\nexcept* A: pass\nexcept *(B, C) as e: pass\n",
        "try: pass\nexcept A, B: pass\ntry: pass\nexcept* A, B, : pass\n",
        "with a: pass\nwith (yield x): pass\nwith a as b, c as (d, e), f as g.h[0]: pass\n",
        "with (a as b, c as d,): pass\nwith (a as b): pass\nwith (a, b): pass\nwith (a, b) as c: pass\n"
        "with (a), b: pass\nwith (a) as b, (c): pass\nwith (a, b as c): pass\nwith (a): pass\n",
        "with (\n  a as b,  # c\n  d,\n): pass\n",
    ],
    "types": [
        "type X = int\ntype X[T: int = str, *Ts = *a, **P = [int]] = T\n",
        "type type = type\ntype match = case\ntype \\\n X = int\nif x: type X = int\na; type X = int\n",
        "type(x)\ntype in x\ntype: int = 3\ntype = 1\ntype.x\ntype, a\ntype is not a\ntype if a else b\n",
        "def f[T](x: T) -> T: pass\nclass A[T: (int, str), *Ts, **P,](B): pass\nclass A[T]: pass\n",
    ],
    "match": [
        "match x:\n case 1: pass\n",
        "match (x):\n case (1): pass\n",
        "match *a, b:\n case [*_], *c: pass\n",
        "match x, :\n  # c\n case _: pass\n\n # d\n case _ if (y := z): pass\n",
        "match -x:\n case -1 | 2: pass\n",
        "match x := 1:\n case _: pass\n",
        "match not x:  # c\n case _: pass\n",
        "match\\\n x:\n case _: pass\n",
        "match {'a': 1}:\n case _: pass\n",
        "match'a':\n case'a': pass\n",
        "match lambda: 1:\n case _: pass\n",
        "match match:\n case case: case(case)\n",
        "match x:\n case 1:\n  match y:\n   case 2:\n    case = 1\n    case[x]\n case 3: pass\ncase(x)\n",
        "match x:\n case {'a': 1, B.c: [d, e], -1: f, **r} if r: pass\n case {}: pass\n case {**r,}: pass\n",
        "match x:\n case A.b | -1 + 2j | 3 - 4j | 'a' 'b' | None | True: pass\n",
        "match x:\n case A(), B(x, C.d(), y=1, z=[_]) as z, (), [], (a,), (b): pass\n case *a, b,: pass\n",
        "match x:\n case (A() as a) | (B() as a), [c as d]: pass\n",
        "match(x)[0]: int = 3\nmatch[x]: int\nmatch: int\nmatch.x: int\nmatch(x)\nmatch * a\nmatch - x\n",
        "match in x\nmatch if x else y\nmatch = {\n1: 2}\nmatch and x\nmatch[a:b]\nmatch, case\n",
    ],
}


@pytest.mark.parametrize("text", [text for texts in VALID.values() for text in texts])
def test_prints_back(text):
    check(text)


@pytest.mark.parametrize("text", [text for texts in VALID.values() for text in texts])
def test_prints_back_with_other_line_ends(text):
    if "\r" not in text:
        check(text.replace("\n", "\r\n"))
        check(text.replace("\n", "\r"))


@pytest.mark.parametrize(
    "text", [text for group, texts in VALID.items() if group != "layout" for text in texts]
)
def test_prints_back_within_a_block(text):
    check("if x:\n" + "".join(f"    {line}\n" for line in text.split("\n")) + "    pass\n")


INVALID = {
    "a b": (1, 3),
    "x = 1\ny = $\n": (2, 5),
    "x = ?": (1, 5),
    "x = !y": (1, 5),
    "x = “a”": (1, 5),
    "x\xa0= 1": (1, 1),
    "x\x0b= 1": (1, 2),
    "x = 'a\n": (1, 5),
    "\nx = '''a\n\n": (2, 5),
    "x = f'a": (1, 7),
    "f'{x'": (1, 3),
    "f'}'": (1, 3),
    "f'{x)}'": (1, 3),
    "f'{x:": (1, 6),
    "x = (1,\n\n": (1, 5),
    "x = [1)": (1, 7),
    "x = 1)": (1, 6),
    "if x:\npass": (2, 1),
    "if x:\n    y\n  z": (3, 3),
    "x\n  y": (2, 1),
    "def f(self)\n    pass": (1, 12),
    "try:\n  x\n": (3, 1),
    "x = \\ y": (1, 5),
    "x = 1\r\ny = 2\rz = = 3": (3, 5),
    "x = '\u2028'\n\x0c$": (2, 2),
    "match x:\n  y": (2, 3),
    "case x:\n  pass": (1, 6),
    "match:\n  case x: pass": (1, 7),
    "1__0": (1, 1),
    "0777": (1, 1),
    "1e": (1, 1),
    "1a": (1, 1),
    "ur'x'": (1, 3),
    "print 'x'": (1, 7),
    "exec 'x'": (1, 6),
    "raise A, b": (1, 8),
    "lambda (a, b): 1": (1, 8),
    "def f(a, (b, c)): pass": (1, 10),
    "`x`": (1, 1),
    "1 <> 2": (1, 4),
    "x\n\x00": (2, 1),
}


@pytest.mark.parametrize(("text", "place"), INVALID.items())
def test_refuses_at_the_place(text, place):
    found = fault(text)
    assert (found.line, found.column) == place
    assert found.message


def test_fault_reads_as_a_sentence():
    assert str(fault("if x:\npass\n")) == "2:1: expected an indented block"
    assert fault("x = (1\n").message == "'(' was never closed"
    assert fault("a b").message == "unexpected 'b'"


STANDARD_TESTS = Path(sysconfig.get_path("stdlib")) / "test"


def compiles(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def decoded(path):
    data = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding)


def grammar_tests():
    """Those of Python's own tests that are about its grammar, and every fifth of the others."""
    paths = sorted(STANDARD_TESTS.rglob("*.py")) if STANDARD_TESTS.is_dir() else []
    words = ("gram", "string", "patma", "syntax", "type_", "unparse", "token", "unicode", "future")
    return [
        path
        for index, path in enumerate(paths)
        if index % 5 == 0 or any(word in path.name for word in words)
    ]


def test_what_this_python_compiles_prints_back():
    paths = [path for path in grammar_tests() if compiles(path)]
    if not paths:
        pytest.skip("this Python comes without its tests")
    for path in paths:
        text = decoded(path)
        try:
            assert str(parse(text)) == text, path
        except SyntaxFault as found:
            pytest.fail(f"{path}:{found}")


@pytest.fixture(scope="module")
def example_texts():
    """Modules of the standard library that fissix reads too."""
    names = ("argparse", "tarfile", "asyncio/streams", "smtplib", "ftplib", "optparse", "difflib")
    return [decoded(Path(sysconfig.get_path("stdlib")) / f"{name}.py") for name in names]


def without_decorators(text):
    """Decorators as comments: fissix knows only names and calls there, and shapes them apart."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        for decorator in getattr(node, "decorator_list", ()):
            for number in range(decorator.lineno - 1, decorator.end_lineno):
                lines[number] = "#" + lines[number]
    return "".join(lines)


def test_trees_have_the_shape_of_fissix(example_texts):
    driver = Driver(pygram.python_grammar_no_print_and_exec_statement, pytree.convert)
    for text in map(without_decorators, example_texts):
        expected, tree = driver.parse_string(text), parse(text)
        assert tree == expected
        places = [
            [(leaf.lineno, leaf.column) for leaf in each.leaves() if leaf.value]
            for each in (tree, expected)
        ]
        assert places[0] == places[1]


def test_patterns_that_fissix_compiles_match():
    tree = check("x = pl.pallas_call(kernel, interpret=True)(y)\n")
    pattern = PatternCompiler().compile_pattern(
        "power< 'pl' trailer< '.' 'pallas_call' > trailer< '(' any* ')' > any* >"
    )
    assert [str(node).strip() for node in tree.pre_order() if pattern.match(node)] == [
        "pl.pallas_call(kernel, interpret=True)(y)"
    ]


def test_symbols_keep_the_numbers_of_fissix():
    theirs = vars(pygram.python_symbols)
    ours = vars(symbols)
    assert theirs.items() <= ours.items()
    assert len(set(ours.values())) == len(ours)
    assert symbols.match_stmt > max(theirs.values())
    assert name_of(symbols.match_stmt) == "match_stmt"
    assert name_of(symbols.power) == "power"
    assert name_of(token.NAME) == "NAME"


def test_grammar_that_is_not_as_expected_is_refused(monkeypatch):
    amendments = (*parsing._AMENDMENTS, ("power", "no such text", ""))
    monkeypatch.setattr(parsing, "_AMENDMENTS", amendments)
    with pytest.raises(RuntimeError, match=r"no 'no such text' in rule 'power'"):
        parsing._amended_grammar()
    monkeypatch.setattr(parsing, "_AMENDMENTS", (("no_rule", "a", "b"),))
    with pytest.raises(RuntimeError, match="no single rule 'no_rule'"):
        parsing._amended_grammar()


def test_tables_are_never_ambiguous():
    """The first of two rules that could take a token would silently win: so there are none."""
    tables = parsing._tables
    for dfa, _ in tables.dfas.values():
        for arcs in dfa:
            firsts = [
                list(tables.dfas[type][1]) if type >= token.NT_OFFSET else [label]
                for label, _ in arcs
                if label
                for type in [tables.labels[label][0]]
            ]
            taken = [label for first in firsts for label in first]
            assert len(taken) == len(set(taken))


def test_soft_keywords_open_statements_only_where_they_are_ones():
    tree = check("match(x):\n  case(y): pass\nmatch(x)[0]: int = 3\ntype X = int\ntype(X)\n")
    assert len(nodes(tree, symbols.match_stmt)) == 1
    assert len(nodes(tree, symbols.case_block)) == 1
    assert len(nodes(tree, symbols.annassign)) == 1
    assert len(nodes(tree, symbols.type_stmt)) == 1


def test_parenthesised_with_items_are_with_items():
    tree = check("with (a as b, c as d): pass\n")
    assert [str(item).strip() for item in nodes(tree, symbols.with_item)] == ["a as b", "c as d"]


def test_f_string_is_one_leaf():
    tree = check("x = f'{a['b']:{c}}' + y\n")
    assert [leaf.value for leaf in tree.leaves() if leaf.type == token.STRING] == [
        "f'{a['b']:{c}}'"
    ]


def test_comment_belongs_to_the_block_it_is_indented_as():
    tree = check("if x:\n    if y:\n        a\n        # of y\n    # of x\n\n# of b\nb\n")
    outer, inner = nodes(tree, symbols.suite)
    assert str(inner).endswith("# of y\n")
    assert str(outer).endswith("# of x\n")
    assert tree.children[1].prefix == "\n# of b\n"


def test_comment_of_an_outer_block_ends_the_inner_one():
    tree = check("if x:\n    a\n# outer\n    # inner looks, but is not\nb\n")
    (suite,) = nodes(tree, symbols.suite)
    assert str(suite) == "\n    a\n"


def test_lines_are_counted_as_python_counts_them():
    tree = check("a\r\nb\rc\n'\x0b\x1c\u2028\x85'\x0c\n\x0cd\n'''\r'''; e\n")
    assert [(leaf.value, leaf.lineno) for leaf in tree.leaves() if leaf.type == token.NAME] == [
        ("a", 1),
        ("b", 2),
        ("c", 3),
        ("d", 5),
        ("e", 7),
    ]


def test_part_knows_its_place_in_the_whole():
    text = "import a\r\n\nx = '''\n'''\n\n\ndef f():\n    return 1\n# c\ny\n"
    start, end = text.index("\n\ndef"), text.index("y\n")
    part = parse_part(text, start, end, 5)
    assert str(part) == text[start:end]
    whole = {leaf.start: leaf for leaf in parse(text).leaves() if leaf.value}
    for leaf in part.leaves():
        assert text[leaf.start : leaf.end] == leaf.value
        if leaf.value:
            same = whole[leaf.start]
            assert (leaf.lineno, leaf.column) == (same.lineno, same.column)


def test_fault_in_a_part_tells_the_place_in_the_whole():
    text = "a\n\nb\nc d\n"
    with pytest.raises(SyntaxFault) as caught:
        parse_part(text, text.index("b"), len(text), 3)
    assert (caught.value.line, caught.value.column) == (4, 3)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + " + ".join(["a"] * 3000) + "\n",
        "x = " + "(" * 200 + ")" * 200 + "\n",
        "f(" * 120 + ")" * 120 + "\n",
        "if a:\n  b\n" + "elif a:\n  b\n" * 3000,
        "".join(" " * depth + "if a:\n" for depth in range(100)) + " " * 100 + "b\n",
        "a" + ".b" * 3000 + "\n",
        "x = [" + "1,\n" * 5000 + "]\n",
        "x = " + "a if b else " * 240 + "c\n",
    ],
    ids=["sum", "parentheses", "calls", "elif", "blocks", "attributes", "list", "ternaries"],
)
def test_long_and_deep_texts_print_back(text):
    tree = check(text)
    assert tree.clone() == tree


@pytest.mark.parametrize(
    "opening", ["(", "f(", "[a, ", "{1: ", "-", "not ", "lambda: ", "a if b else "]
)
def test_too_deep_is_a_fault(opening):
    assert fault(opening * 5000 + "x\n").message in ("nested too deeply", "'(' was never closed")


def test_too_deep_f_string_is_a_fault():
    assert fault("f'{" * 5000).message == "f-string nested too deeply"
    assert fault("f'{x:{" * 5000).message == "f-string nested too deeply"


EVERYTHING = "".join(text for texts in VALID.values() for text in texts if text.endswith("\n"))


def test_everything_in_one_file_prints_back():
    check(EVERYTHING)


def survives(text):
    """Damage must show as a SyntaxFault that stands within the text, if it shows at all."""
    try:
        check(text)
    except SyntaxFault as found:
        lines = len(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
        assert 1 <= found.line <= lines
        assert found.column >= 1


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_text_prints_back_or_is_a_fault(data):
    texts = [text for group in VALID.values() for text in group]
    text = "".join(data.draw(st.lists(st.sampled_from(texts), min_size=1, max_size=4)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 3))
        new = data.draw(st.text("{}()[]'\"\\\n\r\t\f :#fr!.=0aé\x00\u2028", max_size=3))
        text = text[:at] + new + text[at + gone :]
    survives(text)


@given(st.text(max_size=30))
@example("\\")
@example("'\\")
@example("f'\\")
@example("f'\\N{")
@example("rf'{\\")
@example("match\\")
@example("if x:\n a\n\\\n")
@settings(max_examples=100, deadline=None)
def test_any_text_prints_back_or_is_a_fault(text):
    survives(text)
