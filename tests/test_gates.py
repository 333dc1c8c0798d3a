"""The gate: under which name, of what form, where it goes, and what is imported for it."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migrate_pallas.gates import TPU_MODULE, module_name
from migrate_pallas.kinds import calls_in
from migrate_pallas.names import Names
from migrate_pallas.parts import in_parts
from migrate_pallas.pipeline import examine, migrated
from migrate_pallas.settings import CPU, GATE, Settings

AXES = ("MP101", "MP102", "MP204", "MP208")
SETTINGS = Settings(to=CPU, strategy=GATE, select=AXES)
SITE = """

def kernel(body, ref):
    pl.run_scoped(body, ref, collective_axes="x")
"""
PL = "from jax.experimental import pallas as pl\n"
GATE_DEFINITION = '''def on_tpu() -> bool:
    """Whether JAX runs on TPU by default: kernels take their TPU path only there."""
    return jax.default_backend() == "tpu"
'''


def gated(source: str, settings: Settings = SETTINGS) -> str:
    """`source`, migrated."""
    examined = examine(source, settings)
    return migrated(examined, examined.changes)


def findings(source: str, settings: Settings = SETTINGS) -> list[str]:
    return [found.code for found in examine(source, settings).findings]


def gate_called(source: str) -> str:
    """The name of the gate that the one site of `source` is given, '' for none."""
    _, _, after = gated(source).partition('collective_axes="x" if ')
    return after.partition("()")[0]


# -- the name --


@pytest.mark.parametrize(
    "before",
    [
        'def on_tpu(): return jax.default_backend() == "tpu"',
        'def on_tpu() -> bool:\n    return jax.devices()[0].platform == "tpu"',
        'def on_tpu(device=None): return jax.default_backend() == "tpu"',
        'def on_tpu(*args, **kwargs): return jax.default_backend() == "tpu"',
        'def on_tpu(*, quiet=True): return jax.default_backend() == "tpu"',
        'import functools\n@functools.cache\ndef on_tpu(): return jax.default_backend() == "tpu"',
        "from my_project import on_tpu",
        "from my_project import is_tpu as on_tpu",
        "try:\n    from my_project import on_tpu\nexcept ImportError:\n"
        '    def on_tpu(): return jax.default_backend() == "tpu"',
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    from my_project import on_tpu",
        'def on_tpu(): return jax.default_backend() == "tpu"\n'
        'def on_tpu(): return jax.devices()[0].platform == "tpu"',
    ],
)
def test_a_gate_that_is_there_is_used_as_it_stands(before):
    source = f"import jax\n{PL}{before}\n{SITE}"
    assert gate_called(source) == "on_tpu"
    assert gated(source).replace(" if on_tpu() else ()", "") == source
    assert gated(gated(source)) == gated(source)


@pytest.mark.parametrize(
    "before",
    [
        'on_tpu = jax.default_backend() == "tpu"',
        "on_tpu = my_gate",
        "def on_tpu(function): return function",
        "def on_tpu(first, second=1): return True",
        "def on_tpu(*, needed): return True",
        "def on_tpu(): return True",
        'def on_tpu(): return jax.default_backend() == "cpu"',
        'def on_tpu(): return jax.default_backend() != "tpu"',
        'def on_tpu(): return os.environ["TPU"]',
        'async def on_tpu(): return jax.default_backend() == "tpu"',
        "class on_tpu: pass",
        "def other(on_tpu): pass",
        "def other():\n    on_tpu = 1",
        "for on_tpu in (): pass",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from my_project import on_tpu",
        'def on_tpu(): return jax.default_backend() == "tpu"\non_tpu = 1',
        'if x:\n    def on_tpu(): return jax.default_backend() == "tpu"',
        'if __name__ == "__main__":\n    from my_project import on_tpu',
        "import on_tpu",
        "import my_project.on_tpu as on_tpu",
        "from jax.experimental import pallas as on_tpu",
        "from my_project import *\ndef other(): return on_tpu()",
        "on_tpu: bool",
    ],
)
def test_a_name_that_is_bound_to_anything_else_is_not_taken(before):
    source = f"import jax\n{PL}{before}\n{SITE}"
    assert gate_called(source) == "_on_tpu"
    assert "def _on_tpu() -> bool:" in gated(source)


def test_the_first_free_name_is_taken():
    taken = "on_tpu = _on_tpu = _on_tpu_2 = 1"
    assert gate_called(f"import jax\n{PL}{taken}\n{SITE}") == "_on_tpu_3"


def test_a_gate_of_another_name_can_be_asked_for():
    settings = Settings(to=CPU, strategy=GATE, select=AXES, gate="use_tpu")
    result = gated(f"import jax\n{PL}{SITE}", settings)
    assert 'collective_axes="x" if use_tpu() else ()' in result
    assert "def use_tpu() -> bool:" in result


def test_an_imported_gate_is_imported_and_not_defined():
    settings = Settings(
        to=CPU, strategy=GATE, select=AXES, gate="tpu", gate_import=("mine.backend", "tpu")
    )
    result = gated(PL + SITE, settings)
    assert result.startswith(f"{PL}from mine.backend import tpu\n")
    assert 'collective_axes="x" if tpu() else ()' in result
    assert "def tpu" not in result
    assert "import jax\n" not in result


def test_an_imported_gate_whose_name_is_taken_is_imported_under_another():
    settings = Settings(to=CPU, strategy=GATE, select=AXES, gate="tpu", gate_import=("mine", "tpu"))
    result = gated(f"{PL}tpu = 1\n{SITE}", settings)
    assert "from mine import tpu as _tpu\n" in result
    assert 'collective_axes="x" if _tpu() else ()' in result


# -- the place --


@pytest.mark.parametrize(
    "head, tail",
    [
        (f"import jax\n{PL}", ""),
        (f'"""Docstring."""\n\nfrom __future__ import annotations\n\nimport jax\n{PL}', ""),
        (f"#!/usr/bin/env python\n# Copyright.\nimport jax\n{PL}", ""),
        (f"import jax\n{PL}import os; import sys\n", ""),
        (f"import jax\n{PL}try:\n    import numpy\nexcept ImportError:\n    numpy = None\n", ""),
        (f"import jax\n{PL}if x:\n    import numpy\n", ""),
        (f"import jax\n{PL}from a import (\n    b,\n    c,\n)  # why\n", ""),
        (f"import jax\n{PL}", "\n\nX = 1\n"),
    ],
)
def test_the_gate_follows_the_last_import_with_two_blank_lines_around_it(head, tail):
    result = gated(head + tail + SITE)
    definition = GATE_DEFINITION
    assert result.startswith(f"{head}\n\n{definition}\n\n")
    assert not result.startswith(f"{head}\n\n{definition}\n\n\n")


def test_the_gate_stands_before_its_first_use_at_import():
    source = f"import jax\n{PL}{SITE}\n\nkernel(body, ref)\nimport os\n"
    result = gated(source)
    assert result.index("def on_tpu") < result.index("\nkernel(body, ref)")


@pytest.mark.parametrize(
    "use",
    [
        "kernel(body, ref)",
        "list(map(kernel, bodies))",
        "class A:\n    made = kernel(body, ref)",
        "def other(made=kernel(body, ref)): pass",
        "@register\ndef other(): kernel(body, ref)",
        "@register\nclass Other:\n    def run(self): kernel(body, ref)",
        "def other(): pass\ndef other(): kernel(body, ref)\nother()",
    ],
)
def test_the_gate_and_jax_are_bound_before_what_may_run_at_import(use):
    source = f"{PL}from my_project import register\n{SITE}\n\n{use}\nimport jax\n"
    result = gated(source)
    assert result.startswith(f"{PL}from my_project import register\nimport jax\n\n\ndef on_tpu")


@pytest.mark.parametrize("decorator", ["jax.jit", "functools.cache", "staticmethod", "register"])
def test_a_decorator_is_feared_to_call_unless_it_is_known_not_to(decorator):
    source = f"import functools\nimport jax\n{PL}from my_project import register\n\n\n@{decorator}{SITE[1:]}import os\n"
    result = gated(source)
    assert (result.index("def on_tpu") < result.index("import os")) == (decorator == "register")


@pytest.mark.parametrize("indent", ["  ", "    ", "\t", "        "])
def test_the_gate_is_indented_as_the_file_is(indent):
    source = f"import jax\n{PL}\n\ndef f(body, ref):\n{indent}pl.run_scoped(body, ref, collective_axes='x')\n"
    assert f'\n{indent}return jax.default_backend() == "tpu"\n' in gated(source)


def test_the_gate_has_the_file_s_line_endings():
    source = f"import jax\n{PL}{SITE}".replace("\n", "\r\n")
    result = gated(source)
    assert result.count("\n") == result.count("\r\n")
    assert result.replace("\r\n", "\n") == gated(source.replace("\r\n", "\n"))


def test_a_file_without_a_last_newline_stays_without_one():
    assert not gated(f"import jax\n{PL}{SITE}".rstrip("\n")).endswith("\n")


# -- the import of jax --


@pytest.mark.parametrize(
    "head, name, added",
    [
        ("import jax\n", "jax", ""),
        ("import jax.numpy\n", "jax", ""),
        ("import jax, os\n", "jax", ""),
        ("import jax.numpy as jnp\n", "jax", "import jax\n"),
        ("from jax import numpy as jnp\n", "jax", "import jax\n"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jax\n",
            "jax",
            "import jax\n",
        ),
        ("def g():\n    import jax\n", "jax", "import jax\n"),
        ("jax = None\n", "_jax", "import jax as _jax\n"),
        ("import jax\ndel jax\n", "_jax", "import jax as _jax\n"),
        ("import jax\njax = None\n", "_jax", "import jax as _jax\n"),
        ("try:\n    import jax\nexcept ImportError:\n    jax = None\n", "jax", ""),
        ("if x:\n    import jax\n", "jax", "import jax\n"),
        ("if __name__ == '__main__':\n    import jax\n", "jax", "import jax\n"),
        ("def g():\n    global jax\n    import jax\n", "jax", "import jax\n"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import jax\n",
            "jax",
            "",
        ),
    ],
)
def test_jax_is_imported_where_it_is_not_bound_at_run_time(head, name, added):
    source = head + PL + SITE
    result = gated(source)
    assert f'return {name}.default_backend() == "tpu"' in result
    lines = [line for line in result.splitlines(True) if line.startswith("import jax")]
    assert lines == [line for line in head.splitlines(True) if line.startswith("import jax")] + (
        [added] if added else []
    )


@pytest.mark.parametrize(
    "head, at, text, statement",
    [
        ("from jax.experimental.pallas import tpu as pltpu", "module", "pltpu", ""),
        ("from jax.experimental.pallas import tpu", "module", "tpu", ""),
        ("import jax.experimental.pallas.tpu as t", "module", "t", ""),
        ("import os", "module", "pltpu", "from jax.experimental.pallas import tpu as pltpu"),
        ("pltpu = None", "module", "_pltpu", "from jax.experimental.pallas import tpu as _pltpu"),
        (
            "def g():\n    from jax.experimental.pallas import tpu as pltpu",
            "module",
            "pltpu",
            "from jax.experimental.pallas import tpu as pltpu",
        ),
        ("from jax.experimental.pallas import tpu as pltpu", "function", "pltpu", ""),
        (
            "from jax.experimental.pallas import tpu as pltpu\ndef g(pltpu): pass",
            "function",
            "pltpu",
            "",
        ),
    ],
)
def test_a_module_is_written_under_the_name_that_is_seen(head, at, text, statement):
    tree = in_parts(f"{head}\nhere(1)\ndef f():\n    here(2)\n")
    calls = [call for call in calls_in(tree) if str(call.power).strip().startswith("here")]
    node = calls[at == "function"].trailer
    spelled = module_name(TPU_MODULE, node, Names(tree))
    assert spelled.text == text
    assert [need.statement for need in spelled.needs] == ([statement] if statement else [])


# -- code that runs at import --


@pytest.mark.parametrize(
    "site",
    [
        "pl.run_scoped(body, collective_axes='x')",
        "class A:\n    run = functools.partial(pl.run_scoped, collective_axes='x')",
        "@pl.with_scoped(ref, collective_axes='x')\ndef body(ref): pass",
        "def f(run=functools.partial(pl.run_scoped, collective_axes='x')): pass",
    ],
)
def test_no_gate_is_written_in_code_that_runs_at_import_unless_asked_for(site):
    source = f"import functools\nimport jax\n{PL}\n\n{site}\n"
    assert gated(source) == source
    assert findings(source) == ["MP208"]
    asked = Settings(to=CPU, strategy=GATE, select=AXES, gate_at_import=True)
    assert "collective_axes='x' if on_tpu() else ()" in gated(source, asked)
    assert findings(source, asked) == []


def test_a_gate_that_is_defined_after_a_site_at_import_is_not_called_there():
    source = dedent(
        f"""
        import jax
        {PL.strip()}

        pl.run_scoped(body, collective_axes='x')

        def on_tpu(): return jax.default_backend() == "tpu"
        """
    )
    asked = Settings(to=CPU, strategy=GATE, select=AXES, gate_at_import=True)
    assert gated(source, asked) == source
    assert findings(source, asked) == ["MP208"]
