"""What is left unparsed would change nothing: modules in which it is hard to tell what depends on what."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from migrate_pallas.pipeline import Examined, examine, migrated
from migrate_pallas.settings import CPU, GATE, Settings

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from exhaustive import without_shortcuts

HEAD = """\
import functools, jax, pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu, tpu as pltpu
"""
SKIPS = """
@pytest.mark.skipif(not is_hw(), reason="slow")
def test_a(): pass
"""

# Each with a code that must come out.
MODULES = {
    "a module that a function imports for all": (
        """
        def setup():
            global plt
            from jax.experimental.pallas import tpu as plt
        def kernel(x_ref):
            pl.run_scoped(b, plt.VMEM((8,)), collective_axes="x")
        """,
        "MP101",
    ),
    "a target that a function names for all": (
        "def use(go): return go(h)\ndef setup():\n    global h\n    h = pl.run_scoped\n",
        "MP203",
    ),
    "an alias through a partial": (
        "def use(go): return go(scoped)\nscoped = functools.partial(pl.run_scoped, 1)\n",
        "MP203",
    ),
    "evidence through a partial": (
        """
        space = functools.partial(pltpu.VMEM, (8,))
        def helper(x): return space(x)
        def kernel(x_ref, o_ref): helper(1)
        def f(x): return pl.pallas_call(kernel, out_shape=1)(x)
        """,
        "MP110",
    ),
    "a function with type parameters answers": (
        'def is_hw[T: (int, str)]() -> bool: return jax.default_backend() == "tpu"\n' + SKIPS,
        "MP207",
    ),
    "a function over continued lines answers": (
        'def \\\n is_hw \\\n (): return jax.default_backend() == "tpu"\n' + SKIPS,
        "MP207",
    ),
    "a function with a string for an annotation answers": (
        'def is_hw(x: "a, b" = 1): return jax.default_backend() == "tpu"\n' + SKIPS,
        "MP207",
    ),
    "a function that gets its argument from a partial answers": (
        'def is_on(x): return jax.default_backend() == "tpu"\nis_hw = functools.partial(is_on, 1)\n'
        + SKIPS,
        "MP207",
    ),
    "a gate by another path": (
        "import my.lib as lib\non_tpu = lib.has_device\n"
        "def test_a():\n    if not on_tpu(): pytest.skip('no')\n",
        "MP207",
    ),
    "a gate as an attribute": (
        "import my.lib as lib\ndef test_a(self):\n    if not lib.on_tpu(): pytest.skip('no')\n",
        "MP207",
    ),
    "a platform that a function names for all": (
        """
        def setup(x):
            global PLATFORM
            PLATFORM = "tpu"
        def test_a(self):
            if jax.default_backend() != PLATFORM: pytest.skip("no")
        """,
        "MP207",
    ),
    "a platform by its first letter": (
        "def test_a(x):\n    if not jax.default_backend().startswith('t'): pytest.skip('no')\n",
        "MP207",
    ),
    "a platform that is written in pieces": (
        "def test_a(x):\n    if jax.default_backend() != 't' 'pu': pytest.skip('no')\n",
        "MP207",
    ),
    "a platform that is asked for by a string": (
        "def test_a(x):\n    if getattr(jax.devices()[0], 'platform') != 'tpu': pytest.skip('no')\n",
        "MP207",
    ),
    "a comment above a call": ("# look\nprint(pl.pallas_call)\n", ""),
    "a name with a combining mark": (
        "def kern\u0301(x_ref, o_ref):\n    plgpu.wgmma(x_ref)\n"
        "def f(x): return pl.pallas_call(kern\u0301, out_shape=x)(x)\n",
        "MP204",
    ),
    "a form feed in an import": (
        "from jax.experimental.pallas import\f*\ndef f(q): run_scoped(b, collective_axes='x')\n",
        "MP204",
    ),
    "a module by a string": (
        "import importlib\nimportlib.import_module('jax.experimental.pallas.ops.tpu.flash_attention')(1)\n",
        "MP213",
    ),
    "a declaration before a function of that name": (
        "kernel: object\ndef f(x): return pl.pallas_call(kernel, out_shape=x)(x)\n"
        "def kernel(x_ref, o_ref): plgpu.wgmma(x_ref)\n",
        "MP204",
    ),
    "two functions of one name": (
        "def f(x): return pl.pallas_call(kernel, out_shape=x)(x)\n"
        "def kernel(x_ref, o_ref): plgpu.wgmma(x_ref)\ndef kernel(x_ref, o_ref): pass\n",
        "MP204",
    ),
    "changes in code that runs at import, through others": (
        """
        def calls(x): return launch(x)
        RESULT = calls(1)
        def launch(x): return pl.pallas_call(kernel, out_shape=x)(x)
        """,
        "MP110",
    ),
    "a function that takes its own place": (
        'def is_hw():\n    global is_hw\n    is_hw = lambda: True\n    return jax.default_backend() == "tpu"\n'
        + SKIPS,
        "",
    ),
    "a module that a function imports twice for all, and another for want of it": (
        """
        def setup():
            global pp
            from jax.experimental.pallas import tpu as pp
            from jax.experimental.pallas import tpu as pp
        X = pp.get_tpu_info()
        try:
            from my import pp
        except ImportError:
            pp = None
        """,
        "",
    ),
    "a module by a string in pieces": (
        "import importlib\nimportlib.import_module('jax.experimental.pallas.ops.tpu.' 'gmm')(1)\n",
        "MP213",
    ),
    "names that are assigned themselves": (
        "b = b\ndef test_a():\n    if jax.default_backend() != 'tpu' or x != b: pytest.skip('no')\n",
        "MP207",
    ),
}


def said(examined: Examined) -> tuple[object, ...]:
    return examined.changes, examined.findings, examined.kernels


@pytest.mark.parametrize(("module", "code"), MODULES.values(), ids=MODULES)
@pytest.mark.parametrize(
    "settings",
    [Settings(), Settings(to=CPU, strategy=GATE, unguard=True, gate_at_import=True)],
    ids=["interpret", "cpu"],
)
def test_all_of_it_is_found_as_in_a_whole_tree(module, code, settings):
    text = HEAD + dedent(module)
    usual = examine(text, settings)
    result = migrated(usual, usual.changes)
    with without_shortcuts():
        whole = examine(text, settings)
        assert migrated(whole, whole.changes) == result
    assert said(usual) == said(whole)
    codes = {one.code for one in (*usual.changes, *usual.findings)}
    assert code in codes if code else not codes
