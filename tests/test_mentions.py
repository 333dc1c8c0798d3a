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
    def has_options(a=1, *, b=2): return on_tpu()
    def needs_one(a, b=(1,)): return on_tpu()
    async def waits(): return on_tpu()
    class Asked: tpu = on_tpu()
    def asks(): return has_options()
    def asks_with_one(): return needs_one(1)
    def asks_otherwise(): return waits(), Asked()
"""


def test_functions_without_required_parameters_answer_for_others():
    direct = ["on_tpu"]
    assert found(ANSWERS, "default_backend") == direct
    users = ["on_tpu", "has_options", "needs_one", "waits", "Asked", "asks"]
    assert found(ANSWERS, "default_backend", answers=True) == users


def test_of_those_that_name_it_only_such_count_as_say_what_stands_beside():
    text = """\
        WORD = "tpu"
        backend = jax.default_backend()
        def says(): return jax.default_backend() == "tpu"
        def means(): return jax.default_backend() == WORD
        def does_neither(): return jax.default_backend()
        def asks_another(): return backend
    """
    expected = ["says", "means", "asks_another"]
    assert found(text, "default_backend", beside=("tpu", "TPU")) == expected


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
