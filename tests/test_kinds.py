"""For which hardware a site is written: the nearest evidence decides."""

from __future__ import annotations

from textwrap import dedent

import pytest

from migrate_pallas.kinds import Kind, calls_in, evidence_of_path
from migrate_pallas.module import Module
from migrate_pallas.parts import in_parts
from migrate_pallas.settings import Settings

PL = "from jax.experimental import pallas as pl\n"
TPU = "from jax.experimental.pallas import tpu as pltpu\n"
GPU = "from jax.experimental.pallas import mosaic_gpu as plgpu\n"
SC = "from jax.experimental.pallas import tpu_sc as plsc\n"
TRITON = "from jax.experimental.pallas import triton as plt\n"
SITE = "def f(body, ref):\n    pl.run_scoped(body, ref)\n"


def kinds(source: str, target: str = "run_scoped") -> list[Kind]:
    """The kind of each site of `target` in `source`, in order."""
    text = dedent(source)
    module = Module(text, in_parts(text), Settings())
    sites = (module.site(call) for call in calls_in(module.tree))
    return [module.kinds.kind(site) for site in sites if site and site.target == target]


@pytest.mark.parametrize(
    "path, evidence",
    [
        ("jax.experimental.pallas.tpu.VMEM", {"TPU"}),
        ("jax.experimental.pallas.tpu_sc", {"TPU"}),
        ("jax._src.pallas.mosaic.core", {"TPU"}),
        ("jax.experimental.pallas.ops.tpu.flash_attention", {"TPU"}),
        ("jax.experimental.pallas.mosaic_gpu.SMEM", {"GPU"}),
        ("jax.experimental.pallas.triton", {"GPU"}),
        ("jax._src.pallas.mosaic_gpu.core", {"GPU"}),
        ("jax.experimental.mosaic.gpu.core", {"GPU"}),
        ("jax.experimental.pallas.run_scoped", set()),
        ("jax.experimental.pallas.tpu.InterpretParams", set()),  # which MP110 may have written
        ("jax.tpu", set()),
        ("mine.tpu", set()),
        ("tpu", set()),
        ("", set()),
    ],
)
def test_the_hardware_that_a_path_names(path, evidence):
    assert evidence_of_path(path) == evidence


@pytest.mark.parametrize(
    "imports, kind",
    [
        ("", Kind.PORTABLE),
        (TPU, Kind.TPU),
        (SC, Kind.TPU),
        (GPU, Kind.GPU),
        (TRITON, Kind.GPU),
        (TPU + GPU, Kind.MIXED),
        (TPU + TRITON, Kind.MIXED),
        ("import jax.experimental.pallas.tpu\n", Kind.TPU),
        ("import jax.experimental.pallas.mosaic_gpu as plgpu\n", Kind.GPU),
        ("from jax.experimental.pallas.tpu import VMEM\n", Kind.TPU),
        ("def g():\n    from jax.experimental.pallas import tpu as pltpu\n", Kind.TPU),
        (TPU + "def g():\n    from jax.experimental.pallas import mosaic_gpu\n", Kind.TPU),
    ],
)
def test_imports_decide_where_nothing_nearer_does(imports, kind):
    assert kinds(PL + imports + SITE) == [kind]


@pytest.mark.parametrize(
    "argument, kind", [("pltpu.VMEM(s, d)", Kind.TPU), ("plgpu.SMEM(s, d)", Kind.GPU)]
)
@pytest.mark.parametrize(
    "site",
    [
        "def f(body):\n    pl.run_scoped(body, {})\n",
        "def f(body):\n    pl.run_scoped(body, x={})\n",
        "def f(body):\n    pl.run_scoped(body, *[{}])\n",
        "def f(body):\n    pl.run_scoped(body, **{{'x': {}}})\n",
        "def f(body):\n    x = {}\n    pl.run_scoped(body, x)\n",
        "def f(body):\n    x = dict(y={})\n    z = x\n    pl.run_scoped(body, **z)\n",
        "import functools\ndef f(body):\n    functools.partial(pl.run_scoped, x={})(body)\n",
        "def f():\n    def body(r): plgpu.commit_smem(); pltpu.roll(r)\n    pl.run_scoped(body, {})\n",
    ],
)
def test_the_call_s_own_arguments_decide_first(site, argument, kind):
    found = kinds(PL + TPU + GPU + site.format(argument))
    assert set(found) == {kind}


@pytest.mark.parametrize(
    "line, kind", [("pltpu.roll(r)", Kind.TPU), ("plgpu.commit_smem()", Kind.GPU)]
)
@pytest.mark.parametrize(
    "site",
    [
        "def f():\n    def body(r): {}\n    pl.run_scoped(body, s)\n",
        "def f():\n    pl.run_scoped(lambda r: {}, s)\n",
        "import functools\ndef body(a, r): {}\ndef f():\n    pl.run_scoped(functools.partial(body, 1), s)\n",
        "def g(r): {}\ndef body(r): g(r)\ndef f():\n    pl.run_scoped(body, s)\n",
        "import functools\ndef f():\n    @functools.partial(pl.run_scoped, r=s)\n    def _(r): {}\n",
        "def f(x):\n    def a(r): {}\n    def b(r): pass\n    pl.run_scoped(a if x else b, s)\n",
    ],
)
def test_the_kernel_decides_before_the_imports(site, line, kind):
    assert kinds(PL + TPU + GPU + site.format(line)) == [kind]


@pytest.mark.parametrize(
    "line, kind", [("pltpu.roll(r)", Kind.TPU), ("plgpu.commit_smem()", Kind.GPU)]
)
def test_the_enclosing_function_decides_before_the_imports(line, kind):
    source = f"def f(body, s, r):\n    {line}\n    pl.run_scoped(body, s)\n"
    assert kinds(PL + TPU + GPU + source) == [kind]


@pytest.mark.parametrize(
    "entry, kind",
    [
        ("pl.pallas_call(kernel, compiler_params=pltpu.CompilerParams())", Kind.TPU),
        ("pl.pallas_call(kernel, compiler_params=plgpu.CompilerParams())", Kind.GPU),
        ("pl.pallas_call(kernel, backend='mosaic_gpu')", Kind.GPU),
        ("pl.pallas_call(kernel, backend='triton')", Kind.GPU),
        ("pl.pallas_call(kernel, compiler_params=dict(mosaic=dict()))", Kind.TPU),
        ("pl.pallas_call(other)", Kind.MIXED),
        ("plgpu.kernel(kernel, out_shape=x)", Kind.GPU),
    ],
)
def test_the_entry_point_that_reaches_a_function_decides(entry, kind):
    source = f"def kernel(body, s):\n    pl.run_scoped(body, s)\ndef other(r): pass\ndef run(x):\n    {entry}(x)\n"
    assert kinds(PL + TPU + GPU + source) == [kind]


def test_each_site_has_its_own_kind():
    source = (
        "def f(body):\n"
        "    pl.run_scoped(body, pltpu.VMEM(s, d))\n"
        "def g(body):\n"
        "    pl.run_scoped(body, plgpu.SMEM(s, d))\n"
        "def h(body, s):\n"
        "    pl.run_scoped(body, s)\n"
    )
    assert kinds(PL + TPU + GPU + source) == [Kind.TPU, Kind.GPU, Kind.MIXED]


def test_a_local_name_that_shadows_a_module_is_no_evidence():
    source = "def f(body, plgpu):\n    pl.run_scoped(body, plgpu.SMEM(s, d))\n"
    assert kinds(PL + TPU + source) == [Kind.TPU]


def test_entry_points_have_kinds_too():
    source = "def f(x):\n    pl.pallas_call(kernel, out_shape=x)(x)\n"
    assert kinds(PL + source, "pallas_call") == [Kind.PORTABLE]
    assert kinds(PL + TPU + source, "pallas_call") == [Kind.TPU]
    assert kinds(PL + GPU + source, "pallas_call") == [Kind.GPU]


def test_jax_s_own_definition_of_a_target_is_of_no_one_kind():
    source = "from jax._src.pallas import primitives\ndef with_scoped(f, t):\n    primitives.run_scoped(f, t)\n"
    assert kinds(TPU + source) == [Kind.MIXED]
