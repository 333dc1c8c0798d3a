"""Where texts are cut: at each function, class and simple statement, and never inside of one."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migrate_pallas.cuts import cuts, string_spans


def cut(text: str) -> list[tuple[str, str, tuple[str, ...] | None]]:
    """The first line, the name and the bindings of each part."""
    text = dedent(text)
    return [(text[one.head :].partition("\n")[0], one.name, one.binds) for one in cuts(text)]


def test_functions_and_classes_are_cut_apart_with_their_decorators():
    text = """\
        # a comment belongs to what stands before it
        @first
        # in between
        @second(
          1)
        def f(a, b):
            x = 1

        async def g(): pass
        class C(f):
            def method(self):
                pass
            # here, too
    """
    assert cut(text) == [
        ("def f(a, b):", "f", ("f",)),
        ("async def g(): pass", "g", ("g",)),
        ("class C(f):", "C", ("C",)),
    ]


def test_the_parts_begin_at_the_decorators_and_the_first_at_the_start():
    text = "# head\n@d\ndef f(): pass\n\n# above\n@d\ndef g(): pass\n"
    assert [one.start for one in cuts(text)] == [0, text.rindex("@d")]


@pytest.mark.parametrize(
    ("statement", "binds"),
    [
        ("x = 1", ("x",)),
        ("x=f(a=1, b={'c': 2})", ("x",)),
        ("x = [\n  1,\n2]", ("x",)),
        ("x = a == b", ("x",)),
        ("x = '''\ny\n'''", ("x",)),
        ("f(x)", ()),
        ("a.b(c=1)\\\n  .d(2)", ()),
        ("print(1, end='')", ()),
        ("type(x)", ()),
    ],
)
def test_a_simple_statement_tells_what_it_binds(statement, binds):
    assert cuts(f"{statement}\ndef f(): pass\n")[0].binds == binds


@pytest.mark.parametrize(
    "statement",
    [
        "x = y = 1",
        "x = 1; y = 2",
        "x = (y := 1)",
        "x = lambda a=1: a",
        "x, y = 1, 2",
        "x: int = 1",
        "x += 1",
        "a.b = 1",
        "f(x)[0], y = 1, 2",
        "f(y := 1)",
        "(f)(x)",
        "if(x): y = 1",
        "for(x)in y: pass",
        "match(x):\n  case y: pass",
        "del(x)",
        "import x",
        "from x import y",
        "'''docstring'''",
        "with f(x) as y: pass",
        "type X = int",
    ],
)
def test_what_may_bind_another_name_is_not_put_off(statement):
    assert cuts(f"{statement}\ndef f(): pass\n")[0].binds is None


@pytest.mark.parametrize(
    ("definition", "binds"),
    [
        ("def f(a=(b := 1)): pass", None),
        ("@d(b := 1)\ndef f(): pass", None),
        ("@(lambda: 0)\ndef f(a=(b := 1)): pass", None),
        ("class C(b := object): pass", None),
        ("def f(a: int = 1) -> 'x: y':\n  return (b := a)", ("f",)),
        ("def f():\n  global a, b\n  a = 1", ("a", "b", "f")),
        ("def f():\n  global a, \\\n  b\n  a = 1", ("a", "b", "f")),
        ("def f(): global a; a = 1", ("a", "f")),
        ("def f():\n  global f\n  f = 1", None),
        ("class C:\n  def m(self):\n    if 1: global a; a = 1", ("C", "a")),
        ("def f():\n  'global things'\n  # global a\n  return 1", ("f",)),
    ],
)
def test_a_definition_tells_every_name_of_the_module_that_it_binds(definition, binds):
    assert cuts(f"{definition}\nx = 1\n")[0].binds == binds


def test_clauses_belong_to_their_statement_and_other_statements_stay_together():
    text = """\
        import a
        if a:
            b = 1
        elif b:
            b = 2
        else:
            b = 3
        try:
            import c
        except ImportError:
            c = None
        finally:
            pass
        def f(): pass
        import d
    """
    assert cut(text) == [
        ("import a", "", None),
        ("def f(): pass", "f", ("f",)),
        ("import d", "", None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x = '''\ndef g(): pass\n'''\n",
        "x = (\ndef_,\n@ b)\n",
        "x = f'''{a['b']}\ndef g(): pass\n'''\n",
        "x = f'{a['b']}' + '''\ndef g(): pass\n'''\n",
        "x = rf'''\\{a!r:{'''w'''}}\ndef g(): pass\n'''\n",
        "x = 1 + \\\ny.z()\n",
        "x = r'\\\\' + '''\ny.z()\n'''\n",
        "x = 'it\\'s' # don't\n",
        "if'a'in'b': pass\n",
    ],
)
def test_strings_brackets_and_continued_lines_are_not_cut(text):
    last = "def f(): pass\n"
    assert [one.start for one in cuts(text + last)] == [0, len(text)]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(ending):
    text = ending.join(["import a", "", "def f():", "  pass", "# comment", "x = 1", ""])
    assert [one.name for one in cuts(text)] == ["", "f", ""]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n# nothing\n",
        "x = 1\n\fdef f(): pass\n",
        "def f(): pass\nx = '\0'\n",
        "def f(): pass\nx = 1  # migrate-pallas: skip\n",
        "def f(): pass\nx = (1\ndef g(): pass\n",
        "def f(): pass\nx = 1)\ndef g(): pass\n",
        "def f(): pass\nx = 'a\ndef g(): pass\n",
        "def f(): pass\nx = f'{a'\ndef g(): pass\n",
        "def f(): pass\n\\\n  x = 1\n",
        "@d\nx = 1\ndef f(): pass\n",
        "def f(): pass\n@d\n",
    ],
)
def test_a_text_that_a_scan_does_not_tell_exactly_stays_whole(text):
    assert [(one.start, one.binds) for one in cuts(text)] == [(0, None)]


def test_strings_and_comments_are_told():
    text = """x = 'a' + f"{b['c']}" # d\ny = if"e" '''f\n# g'''\n"""
    found = [text[first:last] for first, last in string_spans(text, 0, len(text))]
    assert found == ["'a'", """"{b['c']}\"""", "# d", '"e"', "'''f\n# g'''"]
