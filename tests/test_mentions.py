"""In which parts something may be named: never one too few, and few too many."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migrate_pallas.mentions import leading_to
from migrate_pallas.module import Module
from migrate_pallas.parts import in_parts
from migrate_pallas.settings import Settings


def module_of(text: str, **settings) -> Module:
    text = dedent(text)
    return Module(text, in_parts(text), Settings(**settings))


def found(text: str, *words: str, wrappers=(), **options) -> list[str]:
    """The names of the functions that may name one of the words."""
    parts = module_of(text, wrappers=wrappers).mentions.of(*words, **options)
    return [part.name for part in parts if part.name]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("from jax.experimental import pallas as pl", "pl.kernel(f)"),
        ("from jax.experimental import pallas as pl", "pl. \\\n  kernel(f)"),
        ("from jax.experimental import pallas as pl", "(pl.\n  kernel)(f)"),
        (
            "from jax.experimental import pallas as pl",
            "(pl.  # of Pallas\n  # for TPU\n  kernel)(f)",
        ),
        ("from jax.experimental.pallas import kernel", "kernel(f)"),
        ("from jax.experimental.pallas import kernel as k", "k(f)"),
        ("from jax.experimental.pallas import *", "kernel(f)"),
        ("from jax.experimental.pallas import (\n  a,  # (\n  kernel as k)", "k(f)"),
        ("", "from jax.experimental.pallas import kernel\n  kernel(f)"),
        ("import functools\nk = functools.partial(pl.kernel, f)", "k()"),
        ("k = pl.kernel\nl = k\nm = l", "m(f)"),
        ("def setter():\n  global k\n  k = pl.kernel", "k(f)"),
        ("if a:\n  k = pl.kernel", "k(f)"),
        ("(k := pl.kernel)", "k(f)"),
        ("", "getattr(pl, 'kernel')(f)"),
    ],
)
def test_a_name_is_found_however_it_got_there(head, body):
    assert "asks" in found(
        f"{head}\ndef other(kernel): return kernel\ndef asks():\n  {body}\n", "kernel"
    )


@pytest.mark.parametrize(
    "body",
    [
        "kernel(f)",
        "return mykernel.kernels",
        "'''calls pl.kernel'''",
        "pass  # pl.kernel",
        "'kernel'",
        "return 1  # of a .x\n  # and\n  kernel = 1",
    ],
)
def test_a_mere_word_is_no_name(body):
    assert found(f"import jax\ndef asks(kernel):\n  {body}\n", "kernel") == []


def test_a_wrapper_means_what_it_wraps():
    text = "from my import launch\ndef asks(): launch(f)\n"
    assert found(text, "kernel") == []
    wrappers = (("my.launch", "jax.experimental.pallas.kernel"),)
    assert found(text, "kernel", wrappers=wrappers) == ["asks"]


ANSWERS = """\
    import jax
    def on_tpu(): return jax.default_backend() == "tpu"
    def has(a, b=(1,)): return on_tpu()
    bound = functools.partial(has, 1)
    def asks(): return bound()
    def other(): return 1
"""


def test_functions_may_answer_for_what_they_name():
    assert found(ANSWERS, "default_backend") == ["on_tpu"]
    assert found(ANSWERS, "default_backend", answers=True) == ["on_tpu", "has", "asks"]


def test_a_name_may_be_meant_whatever_it_is_bound_to():
    text = """\
        import my.lib as lib
        has_tpu = lib.first
        def asks(): return has_tpu()
        def asks_for_all(): return lib.has_tpu()
        def other(lib): return lib.second()
    """
    assert found(text, "platform", aliases=("has_tpu",)) == ["asks", "asks_for_all"]


def test_a_text_without_any_is_not_cut():
    module = module_of("import jax\ndef kernel(): pass\n")
    assert module.mentions.of("kernel") == []
    assert "parts" not in vars(module.tree)


def test_what_leads_to_a_place_is_found_through_names():
    text = dedent("""\
        import jax
        def changed(): pass
        def calls(): return changed()
        def calls_that(): return calls()
        table = {"a": calls}
        def reads(): return table
        def says(): return "changed", jax.calls
        def other(): pass
    """)
    module = module_of(text)
    parts = leading_to(module.names, [text.index("pass")])
    names = [part.name or part.binds for part in parts]
    assert names == ["changed", "calls", "calls_that", ("table",), "reads"]
