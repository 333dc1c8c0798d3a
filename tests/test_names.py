"""What names refer to: every form of import, every way to bind a name anew, partials and aliases."""

from __future__ import annotations

from textwrap import dedent

import pytest
from fissix.pytree import Leaf

from migrate_pallas.calls import Call
from migrate_pallas.kinds import calls_in
from migrate_pallas.names import Names
from migrate_pallas.parts import in_parts
from migrate_pallas.targets import site_of

RUN_SCOPED = "jax.experimental.pallas.run_scoped"
PL = "from jax.experimental import pallas as pl\n"
FUNCTION = "from jax.experimental.pallas import run_scoped\n"


def read(source: str) -> tuple[Names, list[Call]]:
    """The names of `source`, and its calls that are handed HERE."""
    tree = in_parts(dedent(source))
    calls = [
        call
        for call in calls_in(tree)
        for item in call.brackets.items
        if isinstance(item.value, Leaf) and item.value.value == "HERE"
    ]
    assert calls
    return Names(tree), calls


def paths(source: str) -> list[str]:
    """What each call with HERE calls, in order; '' where that can't be told."""
    names, calls = read(source)
    return [names.callee(call).path for call in calls]


def targets(source: str) -> list[str]:
    """The target to which each call with HERE hands it; '' where it is none."""
    names, calls = read(source)
    return [site.target if (site := site_of(call, names)) else "" for call in calls]


@pytest.mark.parametrize(
    "statement, callee",
    [
        ("import jax.experimental.pallas as pl", "pl.run_scoped"),
        ("import jax.experimental.pallas", "jax.experimental.pallas.run_scoped"),
        ("import jax", "jax.experimental.pallas.run_scoped"),
        ("import jax as j", "j.experimental.pallas.run_scoped"),
        ("import os, jax.experimental.pallas as pl, sys", "pl.run_scoped"),
        ("from jax import experimental", "experimental.pallas.run_scoped"),
        ("from jax import experimental as exp", "exp.pallas.run_scoped"),
        ("from jax.experimental import pallas", "pallas.run_scoped"),
        ("from jax.experimental import pallas as pl", "pl.run_scoped"),
        ("from jax.experimental import (pjit, pallas as pl,)", "pl.run_scoped"),
        ("from jax.experimental.pallas import run_scoped", "run_scoped"),
        ("from jax.experimental.pallas import run_scoped as rs", "rs"),
        ("from jax.experimental.pallas import *", "run_scoped"),
        ("import jax . experimental . pallas as pl", "pl . run_scoped"),
        ("from jax.experimental \\\n import pallas as pl", "pl.run_scoped"),
        (
            "import importlib\npl = importlib.import_module('jax.experimental.pallas')",
            "pl.run_scoped",
        ),
        (
            "from importlib import import_module as load\npl = load('jax.experimental.pallas')",
            "pl.run_scoped",
        ),
        (
            "import importlib\npl = importlib.import_module(name='jax.experimental' '.pallas')",
            "pl.run_scoped",
        ),
        (
            "try:\n    from jax.experimental import pallas as pl\nexcept ImportError:\n    pl = None",
            "pl.run_scoped",
        ),
        (
            "pl = None\ntry:\n    from jax.experimental import pallas as pl\nexcept ImportError:\n    pass",
            "pl.run_scoped",
        ),
        (
            "from mine import pl\nfrom jax.experimental import pallas as pl",
            "pl.run_scoped",
        ),
        (
            "from jax.experimental import pallas as pl\nif x:\n    from mine import pl",
            "pl.run_scoped",
        ),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jax.experimental import pallas as pl",
            "pl.run_scoped",
        ),
        (
            "try:\n    from mine import pl\nexcept ImportError:\n    from jax.experimental import pallas as pl",
            "pl.run_scoped",
        ),
        (
            "if True:\n    from jax.experimental import pallas as pl\nelse:\n    pl = None",
            "pl.run_scoped",
        ),
    ],
)
def test_a_target_is_found_through_every_form_of_import(statement, callee):
    assert paths(f"{statement}\n{callee}(HERE)\n") == [RUN_SCOPED]
    assert paths(f"{statement}\ndef f():\n    {callee}(HERE)\n") == [RUN_SCOPED]


def test_the_internal_path_is_a_target():
    source = "from jax._src.pallas import primitives\nprimitives.run_scoped(HERE)\n"
    assert paths(source) == ["jax._src.pallas.primitives.run_scoped"]
    assert targets(source) == ["run_scoped"]


@pytest.mark.parametrize(
    "source",
    [
        "from mine import run_scoped\nrun_scoped(HERE)\n",
        "from mine.pallas import run_scoped\nrun_scoped(HERE)\n",
        "from .pallas import run_scoped\nrun_scoped(HERE)\n",
        "from . import pallas as pl\npl.run_scoped(HERE)\n",
        "from mine import *\nrun_scoped(HERE)\n",
        "run_scoped(HERE)\n",
        "pl.run_scoped(HERE)\n",
        "import importlib\npl = importlib.import_module(name)\npl.run_scoped(HERE)\n",
        "import importlib\npl = importlib.import_module('.pallas', 'mine')\npl.run_scoped(HERE)\n",
        PL + "from mine import pl\npl.run_scoped(HERE)\n",
        PL + "try:\n    from mine import pl\nexcept ImportError:\n    pass\npl.run_scoped(HERE)\n",
        PL + "(await pl.run_scoped)(HERE)\n",
        PL + "pl.nd_loop(HERE)\n",
        PL + "x.pl.run_scoped(HERE)\n",
        PL + "pl.run_scoped.__wrapped__(HERE)\n",
        PL + "pl[0].run_scoped(HERE)\n",
        PL + "pl.run_scoped(1)(HERE)\n",
        "from jax.experimental.pallas_fork import run_scoped\nrun_scoped(HERE)\n",
    ],
)
def test_what_is_not_imported_from_pallas_is_no_target(source):
    assert targets(source) == [""]


def test_a_function_s_own_import_is_not_seen_outside_it():
    source = f"def f():\n    {FUNCTION}    run_scoped(HERE)\nrun_scoped(HERE)\n"
    assert targets(source) == ["run_scoped", ""]


@pytest.mark.parametrize(
    "body",
    [
        "def f(run_scoped): {}",
        "def f(a, /, *, run_scoped=None): {}",
        "def f(*run_scoped): {}",
        "def f(**run_scoped): {}",
        "def f(run_scoped: int): {}",
        "f = lambda run_scoped: {}",
        "f = lambda *, run_scoped: {}",
        "def f():\n    run_scoped = g()\n    {}",
        "def f():\n    {}\n    run_scoped = g()",
        "def f():\n    run_scoped: object = g()\n    {}",
        "def f():\n    run_scoped += 1\n    {}",
        "def f():\n    run_scoped, b = g()\n    {}",
        "def f():\n    [a, *run_scoped] = g()\n    {}",
        "def f():\n    for run_scoped in g(): {}",
        "def f():\n    for a, (run_scoped, b) in g(): {}",
        "async def f():\n    async for run_scoped in g(): {}",
        "def f():\n    with g() as run_scoped: {}",
        "def f():\n    with g() as (a, run_scoped): {}",
        "def f():\n    with (g() as a, h() as run_scoped): {}",
        "def f():\n    try: pass\n    except E as run_scoped: {}",
        "def f():\n    try: pass\n    except* E as run_scoped: {}",
        "def f():\n    del run_scoped\n    {}",
        "def f():\n    if (run_scoped := g()): {}",
        "def f():\n    g([run_scoped := x for x in y])\n    {}",
        "def f():\n    import run_scoped\n    {}",
        "def f():\n    from mine import a as run_scoped\n    {}",
        "def f():\n    def run_scoped(): pass\n    {}",
        "def f():\n    class run_scoped: pass\n    {}",
        "def f():\n    match x:\n        case run_scoped: {}",
        "def f():\n    match x:\n        case [1, *run_scoped]: {}",
        "def f():\n    match x:\n        case {{'a': 1, **run_scoped}}: {}",
        "def f():\n    match x:\n        case A(b=run_scoped): {}",
        "def f():\n    match x:\n        case 1 | 2 as run_scoped: {}",
        "def f[run_scoped](): {}",
        "def f[*run_scoped](): {}",
        "def f[**run_scoped](): {}",
        "def f():\n    type run_scoped = int\n    {}",
        "[{} for run_scoped in g()]",
        "{{{} for a in b for run_scoped in g()}}",
        "{{1: {} for a, run_scoped in g()}}",
        "({} for run_scoped in g())",
        "[run_scoped for run_scoped in g() if {}]",
        "class A:\n    run_scoped = g()\n    {}",
        "def outer():\n    run_scoped = g()\n    def f():\n        {}",
        "def outer(run_scoped):\n    f = lambda: {}",
        "def outer():\n    def f():\n        nonlocal run_scoped\n        run_scoped = g()\n    run_scoped = 1\n    {}",
        "def outer():\n    def f():\n        nonlocal run_scoped\n        run_scoped = 1\n"
        "    from jax.experimental.pallas import run_scoped\n    {}",
        "def f():\n    global run_scoped\n    run_scoped = g()\n{}",
        "def f():\n    run_scoped: object\n    {}",
        "class A[run_scoped]:\n    {}",
        "class A[run_scoped]:\n    def f(self): {}",
    ],
)
def test_a_name_that_shadows_an_import_is_no_target(body):
    assert targets(FUNCTION + body.format("run_scoped(HERE)") + "\n") == [""]


@pytest.mark.parametrize(
    "body",
    [
        "def f(a=run_scoped(HERE), *, run_scoped=1): pass",
        "def f(run_scoped: run_scoped(HERE)): pass",
        "def f(run_scoped) -> run_scoped(HERE): pass",
        "f = lambda run_scoped=run_scoped(HERE): 1",
        "@run_scoped(HERE)\ndef f(run_scoped): pass",
        "[a for run_scoped in run_scoped(HERE)]",
        "[a for run_scoped in g(run_scoped(HERE))]",
        "[a for run_scoped in [b for b in run_scoped(HERE)]]",
        "def f():\n    [run_scoped for run_scoped in g()]\n    run_scoped(HERE)",
        "class A:\n    run_scoped = g()\n    def method(self):\n        run_scoped(HERE)",
        "class A:\n    run_scoped = g()\n    f = lambda self: run_scoped(HERE)",
        "class A:\n    run_scoped = g()\n    x = [run_scoped(HERE) for a in b]",
        "class A(run_scoped(HERE)):\n    run_scoped = 1",
        "def f():\n    run_scoped = g()\nrun_scoped(HERE)",
        "def f(run_scoped):\n    def h():\n        global run_scoped\n        run_scoped(HERE)",
        "def f(run_scoped):\n    def h():\n        global run_scoped\n        lambda: run_scoped(HERE)",
        "class A[T]:\n    def f(self): run_scoped(HERE)",
        "async def f():\n    await run_scoped(HERE)",
        "def f():\n    x.run_scoped = g()\n    run_scoped(HERE)",
        "def f():\n    x[run_scoped] = g()\n    run_scoped(HERE)",
        "def f():\n    g(run_scoped=1)\n    run_scoped(HERE)",
        "def f():\n    run_scoped: object\n    def h():\n        pass\nrun_scoped(HERE)",
        "def f():\n    match x:\n        case A.run_scoped: run_scoped(HERE)",
        "def f():\n    match x:\n        case run_scoped.A: run_scoped(HERE)",
        "def f():\n    match x:\n        case run_scoped(a=1): run_scoped(HERE)",
        "def f():\n    match x:\n        case A(run_scoped=1): run_scoped(HERE)",
        "def f[T: run_scoped](): run_scoped(HERE)",
        "def f():\n    import run_scoped.b as c\n    run_scoped(HERE)",
        "def f():\n    for x.run_scoped in g(): run_scoped(HERE)",
        "def f():\n    with g() as x[run_scoped]: run_scoped(HERE)",
    ],
)
def test_a_name_that_only_looks_shadowed_is_a_target(body):
    assert targets(FUNCTION + body + "\n") == ["run_scoped"]


def test_a_walrus_in_a_comprehension_binds_around_it():
    source = (
        FUNCTION
        + "def f():\n    [(run_scoped := a) for a in b]\n    run_scoped(HERE)\nrun_scoped(HERE)\n"
    )
    assert targets(source) == ["", "run_scoped"]


def test_an_import_bound_again_at_module_level_is_no_target():
    assert targets(FUNCTION + "run_scoped = mine\nrun_scoped(HERE)\n") == [""]


@pytest.mark.parametrize(
    "alias",
    [
        "call = pl.run_scoped",
        "call: object = pl.run_scoped",
        "call = (pl.run_scoped)",
        "other = call = pl.run_scoped",
        "other = pl.run_scoped\ncall = other",
        "x, call = 1, pl.run_scoped",
        "(call := pl.run_scoped)",
        "run = pl\ncall = run.run_scoped",
        "experimental_pallas = pl\npl2 = experimental_pallas\ncall = pl2.run_scoped",
    ],
)
def test_a_name_assigned_once_is_an_alias(alias):
    assert targets(f"{PL}{alias}\ncall(HERE)\n") == ["run_scoped"]
    assert targets(f"{PL}{alias}\ndef f():\n    call(HERE)\n") == ["run_scoped"]


@pytest.mark.parametrize(
    "alias",
    [
        "call = pl.run_scoped\ncall = mine",
        "call = pl.run_scoped\ndel call",
        "call = pl.run_scoped\ncall += 1",
        "call = pl.run_scoped if x else mine",
        "call = call",
        "a = b\nb = a\ncall = a",
        "x, call = pl.run_scoped",
        "*call, x = pl.run_scoped, 1",
        "call = [pl.run_scoped]",
        "call = pl.run_scoped\nfor call in x: pass",
    ],
)
def test_a_name_of_more_than_one_meaning_is_no_alias(alias):
    assert targets(f"{PL}{alias}\ncall(HERE)\n") == [""]


@pytest.mark.parametrize(
    "statement, partial",
    [
        ("import functools", "functools.partial"),
        ("import functools as ft", "ft.partial"),
        ("from functools import partial", "partial"),
        ("from functools import partial as bind", "bind"),
        ("from functools import *\nfrom functools import partial", "partial"),
        ("import functools\nbind = functools.partial", "bind"),
    ],
)
def test_partials_are_seen_through_in_every_spelling(statement, partial):
    head = f"{PL}{statement}\n"
    assert targets(f"{head}{partial}(pl.run_scoped, x=HERE)\n") == ["run_scoped"]
    assert targets(f"{head}call = {partial}(pl.run_scoped, x=1)\ncall(HERE)\n") == ["run_scoped"]
    assert targets(f"{head}{partial}(pl.run_scoped, x=1)(HERE)\n") == ["run_scoped"]
    assert targets(f"{head}@{partial}(pl.run_scoped, x=HERE)\ndef f(a): pass\n") == ["run_scoped"]
    twice = f"{head}{partial}({partial}(pl.run_scoped, x=1), y=HERE)\n"
    assert targets(twice) == ["run_scoped"]


@pytest.mark.parametrize(
    "source",
    [
        "def partial(f, **kw): return mine\npartial(pl.run_scoped, x=HERE)\n",
        "from mine import partial\npartial(pl.run_scoped, x=HERE)\n",
        "import functools\nfunctools.partialmethod(pl.run_scoped, x=HERE)\n",
        "import functools\nfunctools.partial(*args, x=HERE)\n",
        "import functools\nfunctools.partial(mine, pl.run_scoped, x=HERE)\n",
        "import functools\nfunctools.partial(pl.run_scoped, x=1)(2)(HERE)\n",
    ],
)
def test_what_is_no_partial_of_a_target_is_no_site(source):
    assert targets(PL + source) == [""]


def test_the_partials_between_a_target_and_its_call_are_told_innermost_first():
    source = f"""
        import functools
        {PL}
        one = functools.partial(pl.run_scoped, first=1)
        two = functools.partial(one, second=2)
        two(HERE)
        """
    names, (call,) = read(source.replace("        ", ""))
    through = names.callee(call).through
    assert [str(one.brackets.items[-1].first).strip() for one in through] == ["first=1", "second=2"]


def test_uses_are_those_of_the_same_binding():
    source = "kw = {}\nf(**kw)\ndef g(kw): return kw\ndef h(): return kw\nx.kw\nf(kw=1)\n"
    tree = in_parts(source)
    names = Names(tree)
    first = next(leaf for leaf in tree.leaves() if leaf.value == "kw")
    assert sorted(leaf.lineno for leaf in names.uses(first)) == [2, 4]


@pytest.mark.parametrize(
    "source, at_import",
    [
        ("f(HERE)", True),
        ("class A:\n    f(HERE)", True),
        ("class A:\n    class B:\n        x = [f(HERE) for a in b]", True),
        ("if x:\n    f(HERE)", True),
        ("@f(HERE)\ndef g(): pass", True),
        ("def g(a=f(HERE)): pass", True),
        ("def g(a: f(HERE)): pass", True),
        ("g = lambda a=f(HERE): 1", True),
        ("[f(HERE) for a in b]", True),
        ("def g():\n    f(HERE)", False),
        ("async def g():\n    f(HERE)", False),
        ("class A:\n    def g(self):\n        f(HERE)", False),
        ("g = lambda: f(HERE)", False),
        ("def g():\n    @f(HERE)\n    def h(): pass", False),
        ("def g():\n    class A:\n        f(HERE)", False),
        ('if __name__ == "__main__":\n    f(HERE)', False),
    ],
)
def test_what_runs_when_the_module_is_imported(source, at_import):
    names, (call,) = read(source + "\n")
    assert names.runs_at_import(call.trailer) is at_import
