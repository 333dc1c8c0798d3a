"""The checker: right results pass, every kind of damage is refused.

A `changes` list names each accepted change by its code and the words of the original that it stands at.
"""

from __future__ import annotations

import ast
import re
import sys
import time
from pathlib import Path

import pytest

from migrate_pallas import checker
from migrate_pallas.checker import Accepted, Permit, Refused, prove

FIXTURES = Path(__file__).parent.parent / "fixtures"
GATE = '''def on_tpu() -> bool:
    """Whether JAX runs on TPU by default."""
    return jax.default_backend() == "tpu"
'''
SIM = 'pltpu.InterpretParams(dma_execution_mode="eager", out_of_bounds_reads="uninitialized")'
OLD_SIM = 'pltpu.InterpretParams(dma_execution_mode="eager")'  # before JAX 0.7.0
CPU = 'jax.default_backend() == "cpu"'
GATED = " if on_tpu() else ()"
HEAD = """import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.tpu import TensorCoreMesh as Mesh, emit_pipeline as emit
"""
EDITED = {"MP101": "collective_axes", "MP102": "collective_axes", "MP110": "interpret"}


def accepted(before: str, *changes: str) -> list[Accepted]:
    """One change for each "CODE words": where `words` stand in the original; the n-th of them after "#n"."""
    found = []
    for change in changes:
        code, _, words = change.partition(" ")
        words, _, number = words.partition("#")
        places = [
            m.start()
            for m in re.finditer(re.escape(words or EDITED[code]), before.lstrip("\ufeff"))
        ]
        place = places[int(number or 0)]
        lines = re.split(r"\r\n|\r|\n", before.lstrip("\ufeff")[:place])
        found.append(Accepted(code, len(lines), len(lines[-1])))
    return found


def gated(text: str) -> str:
    """`text` with the gate defined after its imports."""
    return text.replace(HEAD, f"{HEAD}\n\n{GATE}", 1)


def managers(platform: str = ', platform="tpu"') -> list[str]:
    """The context manager that gives figures, always and where there is no TPU."""
    gated = "    if on_tpu():\n        yield\n        return\n"
    text = f'''@contextlib.contextmanager
def tpu_figures():
    """Where there is no TPU, what asks for its figures sees one core of a TPU v6 lite."""
    GATED
    device = jax.sharding.AbstractDevice(device_kind="TPU v6 lite", num_cores=1{platform})
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):
        yield
'''
    return [text.replace("    GATED\n", guard) for guard in ("", gated)]


def with_manager(text: str, manager: str) -> str:
    """`text` with what it and `manager` call defined after its imports."""
    parts = [
        GATE * ("on_tpu()" in manager + text),
        manager * ("tpu_figures()" in text),
    ]
    definitions = "\n\n".join(part for part in parts if part)
    added = "import contextlib\n" * ("tpu_figures()" in text)
    return text.replace(HEAD, f"{HEAD}{added}\n\n{definitions}", 1) if definitions else text


# -- right results --


def kernel(call: str) -> str:
    return f"{HEAD}\n\ndef kernel(x_ref, o_ref, axes=None, kw=None, flag=False):\n    {call}\n"


def check(before: str, after: str, *changes: str, permit: Permit | None = None) -> None:
    prove(before, after, accepted(before, *changes), permit or Permit())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('f(a, collective_axes="x")', "f(a)"),
        ('f(collective_axes="x", a=1)', "f(a=1)"),
        ('f(collective_axes="x")', "f()"),
        ('f(a, collective_axes="x",)', "f(a,)"),
        ('f(a, collective_axes="x", b=1)', "f(a, b=1)"),
        ('f(a, collective_axes = ("x", "y"))', "f(a)"),
        ("f(a, collective_axes=lambda a, b: axes, b=1)", "f(a, b=1)"),
        ('f(a, **{"collective_axes": axes})', "f(a)"),
        ('f(a, **{"collective_axes": axes})', "f(a, **{})"),
        ("f(a, **dict(collective_axes=axes), b=1)", "f(a, b=1)"),
        ('f(a, **{"collective_axes": (axes), "b": 1})', 'f(a, **{"b": 1})'),
        ('f(a, **dict(b=1, collective_axes="x"))', "f(a, **dict(b=1))"),
        ('kw = {"collective_axes": axes}', "kw = {}"),
        ("kw = dict(collective_axes=axes, b=1)", "kw = dict(b=1)"),
        ('f(\n        a,\n        collective_axes="x",\n    )', "f(\n        a,\n    )"),
        ('f(\n        a,\n        collective_axes="x"\n    )', "f(\n        a\n    )"),
        (
            'f(\n        a,  # a\n        collective_axes="x"  # gone\n    )',
            "f(\n        a  # a\n    )",
        ),
        (
            'f(\n        a,\n        # stays\n        collective_axes="x",  # gone\n        # too\n        b=1,\n    )',
            "f(\n        a,\n        # stays\n        # too\n        b=1,\n    )",
        ),
        ('f(a, \\\n        collective_axes="x")', "f(a)"),
        ("f(\n        collective_axes=(\n            1,  # gone\n        ),\n    )", "f()"),
        (
            '@partial(f, a, collective_axes="x")\n    def _(b): ...',
            "@partial(f, a)\n    def _(b): ...",
        ),
        ('y = "é", f(a, collective_axes="x"), "ü"', 'y = "é", f(a), "ü"'),
    ],
)
def test_a_removed_argument_or_entry_passes(before: str, after: str) -> None:
    check(kernel(before), kernel(after), "MP101")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("axes", "axes if on_tpu() else ()"),
        ('"x"', '"x" if on_tpu() else ()'),
        ("a if c else b", "(a if c else b) if on_tpu() else ()"),
        ("(a if c else b)", "(a if c else b) if on_tpu() else ()"),
        ("lambda: axes", "(lambda: axes) if on_tpu() else ()"),
        ("(y := axes)", "(y := axes) if on_tpu() else ()"),
        ("a or b", "a or b if on_tpu() else ()"),
        ("(\n        a,  # first\n    )", "(\n        a,  # first\n    ) if on_tpu() else ()"),
        ("a if c else None", "(a if c else ()) if on_tpu() else ()"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        "f(a, collective_axes={})",
        'f(**{{"collective_axes": {}, "b": 1}})',
        "kw = dict(collective_axes={})",
    ],
)
def test_a_gated_value_passes(before: str, after: str, place: str) -> None:
    check(kernel(place.format(before)), gated(kernel(place.format(after))), "MP101")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("None", "()"),
        ("(None)", "()"),
        ("a if c else None", "a if c else ()"),
        ("None if c else a", "() if c else a"),
        ("(a if c else None)", "(a if c else ())"),
        (
            "a if b else None if c else (d if e else None)",
            "a if b else () if c else (d if e else ())",
        ),
    ],
)
@pytest.mark.parametrize("code", ["MP101", "MP102"])
def test_none_that_became_empty_passes(before: str, after: str, code: str) -> None:
    place = "f(a, collective_axes={})"
    check(kernel(place.format(before)), kernel(place.format(after)), code)


ABSENT = [
    "True",
    "not on_tpu()",
    CPU,
    SIM,
    f"{SIM} if not on_tpu() else False",
    f"{SIM} if {CPU} else False",
]


def called(value: str) -> str:
    """A call with this `interpret`, with the gate if that is used."""
    text = kernel(f"pl.pallas_call(k, grid=1{value and ', interpret='}{value})(x)")
    return gated(text) if "on_tpu()" in value else text


@pytest.mark.parametrize("after", ABSENT)
@pytest.mark.parametrize("before", ["", "False", "None"])
def test_every_row_of_interpret_absent_or_false_passes(before: str, after: str) -> None:
    check(called(before), called(after), "MP110 " + ("interpret" if before else "pl.pallas_call"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("True", SIM),
        ("flag", "True"),
        ("jax.default_backend() != 'tpu'", f"{SIM} if jax.default_backend() != 'tpu' else False"),
        ("flag", "flag or True"),
        ("cfg.flag", "cfg.flag or not on_tpu()"),
        ("cfg.flag", f"cfg.flag or {CPU}"),
        ("cfg.flag", f"cfg.flag if isinstance(cfg.flag, pltpu.InterpretParams) else {SIM}"),
        (
            "x",
            f"x if isinstance(x, pltpu.InterpretParams) else {SIM} if x or not on_tpu() else False",
        ),
        ("a if b else c", "(a if b else c) or True"),
        ("lambda: 1", "(lambda: 1) or True"),
        ("a or (b)", f"a or (b) or {CPU}"),
        ("not a", "not a or True"),
        ("a and b", "(a and b) or True"),
        ("x", OLD_SIM),
        ("x", f"x if isinstance(x, pltpu.InterpretParams) else {OLD_SIM}"),
    ],
)
def test_every_row_of_interpret_passes(before: str, after: str) -> None:
    check(called(before), called(after), "MP110")


@pytest.mark.parametrize("new", ["True", "not on_tpu()", CPU])
def test_interpret_in_a_splat_passes(new: str) -> None:
    after = kernel(f'pl.pallas_call(k, **{{**kw, "interpret": kw.get("interpret") or {new}}})')
    before = kernel("pl.pallas_call(k, **kw)")
    check(before, gated(after) if "on_tpu" in new else after, "MP110 **kw")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(interpret=True)"),
        ("f(a, )", "f(a, interpret=True, )"),
        (
            "f(\n        a,\n        b,\n    )",
            "f(\n        a,\n        b,\n        interpret=True,\n    )",
        ),
        ("f(\n        a  # a\n    )", "f(\n        a,  # a\n        interpret=True\n    )"),
        (
            "f(\n        a,  # a\n        # end\n    )",
            "f(\n        a,  # a\n        interpret=True,\n        # end\n    )",
        ),
        ("f(a)(b)", "f(a, interpret=True)(b)"),
    ],
)
def test_an_added_argument_passes(before: str, after: str) -> None:
    check(kernel(before), kernel(after), "MP110 f(")


FIGURES = "pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V6E, 1)"


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("pltpu.get_tpu_info().x", f"{FIGURES}.x", "MP120 pltpu.get_tpu_info"),
        (
            "pltpu.get_tpu_info().x",
            f"(pltpu.get_tpu_info() if on_tpu() else {FIGURES}).x",
            "MP120 pltpu.get_tpu_info",
        ),
        ("f(pltpu.get_tpu_info())", f"f({FIGURES})", "MP120 pltpu.get_tpu_info"),
        ("y = get_info()", f"y = {FIGURES}", "MP120 get_info"),
        ("y = i.get_tpu_info()", f"y = {FIGURES}", "MP120 i.get_tpu_info"),
        ("'6' in jax.devices()[0].device_kind", "'6' in 'TPU v6 lite'", "MP121 jax.devices"),
        (
            "jax.devices()[0].device_kind.lower()",
            '(jax.devices()[0].device_kind if on_tpu() else "TPU v6 lite").lower()',
            "MP121 jax.devices",
        ),
        (
            "pltpu.create_tensorcore_mesh('x')",
            "pltpu.create_tensorcore_mesh('x', num_cores=1)",
            "MP130 pltpu.create",
        ),
    ],
)
def test_figures_pass(before: str, after: str, change: str) -> None:
    result = kernel(after)
    check(kernel(before), gated(result) if "on_tpu" in after else result, change)


ON_CPU = "jax.default_backend() == 'cpu'"


def guarded(guard: str) -> str:
    return f"from unittest import skipIf as skip\n{guard}\ndef test(): ...\n"


@pytest.mark.parametrize(
    ("guard", "before", "after"),
    [
        ("@unittest.skipIf({}, '')", ON_CPU, "False"),
        ("@pytest.mark.skipif({}, reason='')", ON_CPU, "False"),
        ("@pytest.mark.skipif(condition={}, reason='')", f"({ON_CPU})", "(False)"),
        ("@unittest.skipUnless({}, '')", ON_CPU, "True"),
        ("@skip({}, '')", f"not {ON_CPU}", "not True"),
        ("@unittest.skipIf({}, '')", f"{ON_CPU} or d", "False or d"),
        ("@unittest.skipUnless({}, '')", f"d and ({ON_CPU}) and d", "d and (True) and d"),
        ("if d: ...\nelif {}: raise SkipTest", ON_CPU, "False"),
        ("if {}: raise SkipTest", f"not {ON_CPU} or d", "not True or d"),
    ],
)
def test_a_condition_that_no_longer_skips_passes(guard: str, before: str, after: str) -> None:
    was, now = (guarded(guard.format(condition)) for condition in (before, after))
    check(was, now, f"MP207 {before}")
    refusal(was, now, "MP207 test")
    inverted = {"False": "True", "True": "False"}
    word = "False" if "False" in after else "True"
    refusal(was, now.replace(word, inverted[word]), f"MP207 {before}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("@other(a, b)", "@other(False, b)"),
        ("@unittest.skipIf(a, b)", "@unittest.skipIf(a, False)"),
        ("@unittest.skipIf(a or b, c)", "@unittest.skipIf(False or d, c)"),
        ("@unittest.skipIf(a or b, c)", "@unittest.skipIf(False and b, c)"),
        ("@unittest.skipIf((a := b), c)", "@unittest.skipIf(False, c)"),
        ("@unittest.skipIf(a == b, c)", "@unittest.skipIf(a == False, c)"),
        ("@unittest.skipIf(True, c)", "@unittest.skipIf(False, c)"),
        ("while a: ...", "while False: ..."),
        ("if (a  # why\n): ...", "if False: ..."),
    ],
)
def test_a_condition_that_became_anything_else_is_refused(before: str, after: str) -> None:
    for place in ("(", "if", "a", "b"):
        if place in guarded(before):
            refusal(guarded(before), guarded(after), f"MP207 {place}")
            refusal(guarded(before), guarded(after), f"MP207 {place}#-1")


@pytest.mark.parametrize("platform", ["", ', platform="tpu"'])
@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("m()", "m(num_cores=1)", "MP130 m("),
        ("m('x')", "m('x', num_cores=None if on_tpu() else 1)", "MP130 m("),
        (
            "pltpu.emit_pipeline(f, grid=1)(a)",
            "tpu_figures()(pltpu.emit_pipeline(f, grid=1))(a)",
            "MP130 pltpu.emit",
        ),
        ("y = emit(f, grid=1)", "y = tpu_figures()(emit(f, grid=1))", "MP130 emit("),
        ("y = Mesh('x')", "y = tpu_figures()(Mesh)('x')", "MP130 Mesh("),
        (
            "y = plsc.VectorSubcoreMesh(a='x')",
            "y = tpu_figures()(plsc.VectorSubcoreMesh)(a='x')",
            "MP130 plsc.",
        ),
        (
            "pltpu.emit_pipeline(\n        f,  # first\n        a,\n    )(a)",
            "tpu_figures()(pltpu.emit_pipeline(\n        f,  # first\n        a,\n    ))(a)",
            "MP130 pltpu.emit",
        ),
    ],
)
def test_figures_of_a_chip_pass(before: str, after: str, change: str, platform: str) -> None:
    for manager in managers(platform):
        guarded = manager if "tpu_figures" in after else ""
        check(kernel(before), with_manager(kernel(after), guarded), change)


def test_a_change_in_what_is_handed_to_the_manager_passes() -> None:
    before = kernel('emit(lambda: f(b, collective_axes="y"), grid=1)(a)')
    after = kernel(f'tpu_figures()(emit(lambda: f(b, collective_axes="y"{GATED}), grid=1))(a)')
    check(before, with_manager(after, managers()[1]), "MP101", "MP130 emit(")


def test_the_manager_passes_as_the_module_spells_its_names() -> None:
    before = f"contextlib = tpu_figures = 1\n{kernel('emit(f)(a)')}"
    after = f"contextlib = tpu_figures = 1\n{kernel('_tpu_figures_2()(emit(f))(a)')}"
    manager = managers()[0].replace("@contextlib", "@_contextlib").replace("def ", "def _")
    manager = manager.replace("figures()", "figures_2()")
    added = f"import contextlib as _contextlib\n\n\n{manager}"
    check(before, after.replace(HEAD, HEAD + added), "MP130 emit(")


@pytest.mark.parametrize("name", ["tpu_figures", "_tpu_figures"])
def test_a_manager_that_is_there_passes(name: str) -> None:
    own = f"""import contextlib
{HEAD}

@contextlib.contextmanager
def {name}():
    with use_abstract_mesh(a):
        yield
"""
    before, after = (f"{own}{kernel(call)}" for call in ("emit(f)(a)", f"{name}()(emit(f))(a)"))
    check(before, after, "MP130 emit(")
    refusal(before.replace("use_", "no_"), after.replace("use_", "no_"), "MP130 emit(")


def test_several_changes_one_inside_the_other_pass() -> None:
    before = kernel(
        'f(lambda a: f(b, collective_axes="y"), pltpu.get_tpu_info(), collective_axes="x")'
    )
    after = kernel(
        f'f(lambda a: f(b, collective_axes="y"{GATED}), {FIGURES}, collective_axes="x"{GATED})'
    )
    check(
        before,
        gated(after),
        "MP101 collective_axes#0",
        "MP101 collective_axes#1",
        "MP120 pltpu.get_tpu_info",
    )


def test_a_change_inside_a_removed_argument_goes_with_it() -> None:
    before = kernel('f(collective_axes=f(collective_axes="x"))')
    check(before, kernel("f()"), "MP101 collective_axes#0", "MP101 collective_axes#1")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\n", "\r\n"),
        ("\n", "\r"),
        ("    ", "\t"),
        ("    ", "  "),
        ("\n\ndef", "\n\f\ndef"),
        ("import jax\n", "\ufeffimport jax\n"),
    ],
)
def test_a_gate_passes_in_the_ways_of_the_file(before: str, after: str) -> None:
    source = kernel('pl.run_scoped(f, collective_axes="x")')
    result = gated(kernel('pl.run_scoped(f, collective_axes="x" if on_tpu() else ())'))
    if "def" in before:  # the form feed is at the kernel only
        result = after.join(result.rsplit(before, 1))
        source = source.replace(before, after)
    else:
        count = 1 if "import" in before else -1
        source, result = source.replace(before, after, count), result.replace(before, after, count)
    check(source, result, "MP101")


def test_a_file_without_final_newline_passes() -> None:
    source = kernel('pl.run_scoped(f, collective_axes="x")')
    result = gated(kernel('pl.run_scoped(f, collective_axes="x" if on_tpu() else ())'))
    check(source[:-1], result[:-1], "MP101")


USE = "\n\ndef k(axes):\n    pl.run_scoped(f, collective_axes=axes{})\n"


@pytest.mark.parametrize(
    ("head", "added", "tail"),
    [
        ("import jax", f"\n\n{GATE}", ""),
        ('"""Doc."""\nfrom __future__ import annotations\n', f"import jax\n\n\n{GATE}", ""),
        ("#!/usr/bin/env python\n# coding: utf-8\n", f"import jax\n\n\n{GATE}", ""),
        ("if TYPE_CHECKING:\n    import jax\n", f"import jax\n\n\n{GATE}", ""),
        ("import jax.numpy as jnp\n", f"import jax\n\n\n{GATE}", ""),
        ("jax = 1\n", f"import jax as _jax\n\n\n{GATE.replace('jax.d', '_jax.d')}", ""),
        ("import jax  # noqa\n\n", f"\n{GATE}\n\n", "# The tile.\nTILE = 8\n"),
        ("import jax.numpy\n", f"\n\n{GATE}", ""),
    ],
)
def test_a_gate_and_its_import_pass(head: str, added: str, tail: str) -> None:
    before = f"{head}\n{tail}{USE}" if not head.endswith("\n") else f"{head}{tail}{USE}"
    start = head if head.endswith("\n") else head + "\n"
    check(before.format(""), f"{start}{added}{tail}{USE}".format(GATED), "MP101")


def test_an_imported_gate_passes_under_another_name() -> None:
    permit = Permit("_on_tpu", ("my.backends", "on_tpu"))
    before = f"import jax\non_tpu = 1\n{USE}"
    after = f"import jax\nfrom my.backends import on_tpu as _on_tpu\non_tpu = 1\n{USE}"
    check(before.format(""), after.format(" if _on_tpu() else ()"), "MP101", permit=permit)


def test_a_gate_that_is_there_passes_wherever_it_stands() -> None:
    after = USE.format(GATED)
    check(
        USE.format("") + "\n\ndef on_tpu(x=1):\n    return x\n",
        after + "\n\ndef on_tpu(x=1):\n    return x\n",
        "MP101",
    )
    check("from a import on_tpu\n" + USE.format(""), "from a import on_tpu\n" + after, "MP101")


def test_an_import_of_pltpu_passes() -> None:
    before = "from jax.experimental import pallas as pl\n\n\ndef k():\n    pl.core_map(mesh)\n"
    added = "from jax.experimental.pallas import tpu as pltpu\n"
    after = before.replace("\n\n\n", f"\n{added}\n\n").replace("(mesh)", f"(mesh, interpret={SIM})")
    check(before, after, "MP110 pl.core_map")


def test_an_import_in_the_function_serves() -> None:
    before = "def k():\n    from jax.experimental.pallas import tpu as t\n    t.core_map(mesh)\n"
    after = before.replace("(mesh)", f"(mesh, interpret={SIM.replace('pltpu', 't')})")
    check(before, after, "MP110 t.core_map")


def test_nothing_changed_and_nothing_accepted_passes() -> None:
    check("", "")
    check(kernel("pass"), kernel("pass"))


def test_a_module_that_never_compiled_passes() -> None:
    check("return f(collective_axes=1)\n", "return f()\n", "MP101")


# -- damage --

SOURCE = f'''"""A module."""
from __future__ import annotations

import functools

{HEAD}
TILE = 1_000  # the tile


@functools.cache
def other(a, b=2):
    pl.nd_loop(a, collective_axes="x")
    if a == b:
        return [*a, "s", 1]
\f

async def kernel(x_ref, o_ref, axes):
    def body(acc):
        o_ref[...] = acc[...] 
        o_ref[0] = 1

    # All cores share it.
    pl.run_scoped(
        body,
        pltpu.VMEM((8, 128), 'f'),  # staging
        sem=pltpu.SemaphoreType.DMA,
        collective_axes=axes,  # shared
    )
    pl.pallas_call(body, grid=(1,),)(x_ref)
    shared = {{"sem": 1, "b": 2}}
    pl.run_scoped(body, **{{"collective_axes": axes, "sem": 1}})
'''
GATED_TEXT = (
    SOURCE.replace(HEAD, f"{HEAD}\n\n{GATE}\n", 1)
    .replace("collective_axes=axes,", "collective_axes=axes if on_tpu() else (),")
    .replace('"collective_axes": axes', '"collective_axes": axes if on_tpu() else ()')
    .replace("grid=(1,),)", "grid=(1,), interpret=not on_tpu(),)")
)
REMOVED_TEXT = (
    SOURCE.replace("        collective_axes=axes,  # shared\n", "")
    .replace('"collective_axes": axes, ', "")
    .replace("grid=(1,),)", "grid=(1,), interpret=True,)")
)
CHANGES = ("MP101 collective_axes=axes", "MP110 pl.pallas_call", 'MP101 "collective_axes"')

# What was done to the gated result, as (what is replaced, what by).
GATED_DAMAGE = {
    "a value gated with else None": (
        "axes if on_tpu() else (),  #",
        "axes if on_tpu() else None,  #",
    ),
    "the gate's polarity inverted": (
        "axes if on_tpu() else (),  #",
        "() if on_tpu() else axes,  #",
    ),
    "a negated gate": ("axes if on_tpu() else (),  #", "axes if not on_tpu() else (),  #"),
    "the gate not called": ("axes if on_tpu() else (),  #", "axes if on_tpu else (),  #"),
    "the value replaced": ("axes if on_tpu() else (),  #", "body if on_tpu() else (),  #"),
    "a lambda that swallows the gate": (
        "axes if on_tpu() else (),  #",
        "lambda: axes if on_tpu() else (),  #",
    ),
    "interpret with the gate's polarity inverted": ("interpret=not on_tpu()", "interpret=on_tpu()"),
    "interpret without the gate": ("interpret=not on_tpu()", "interpret=not x_ref"),
    "another call's axes gated": ('collective_axes="x"', 'collective_axes="x" if on_tpu() else ()'),
    "the gate used but not defined": (f"\n\n{GATE}\n", ""),
    "the gate defined twice": (GATE, f"{GATE}\n\n{GATE}"),
    "the gate defined with another body": ('== "tpu"\n', '== "cpu"\n'),
    "the gate defined with !=": ('() == "tpu"', '() != "tpu"'),
    "the gate defined without docstring": ('    """Whether JAX runs on TPU by default."""\n', ""),
    "the gate defined with a parameter": ("def on_tpu() ->", "def on_tpu(x=1) ->"),
    "the gate defined as a coroutine": ("def on_tpu()", "async def on_tpu()"),
    "the gate decorated": ("def on_tpu()", "@functools.cache\ndef on_tpu()"),
    "the gate with a comment": ("def on_tpu() -> bool:", "def on_tpu() -> bool:  # ours"),
    "the gate on one more line": (
        '    return jax.default_backend() == "tpu"',
        '\n    return jax.default_backend() == "tpu"',
    ),
    "the gate indented unlike the file": (GATE, GATE.replace("    ", "   ")),
    "the gate with other line endings": (GATE, GATE.replace("\n", "\r\n")),
    "the gate captured by a parameter": ("o_ref, axes):", "o_ref, axes, on_tpu):"),
    "the import of another module": (
        "import functools\n",
        "import functools\nimport os\n",
    ),
    "the import of a module twice": ("import functools\n", "import functools\nimport jax\n"),
    "an import that nothing uses": ("import functools\n", "import functools\nimport jax as _jax\n"),
    "an import before the docstring": (
        '"""A module."""\n',
        'import jax as _jax\n"""A module."""\n',
    ),
    "an import before from __future__": ("from __future__", "import jax as _jax\nfrom __future__"),
    "the gate before from __future__": ("from __future__", f"{GATE}\n\nfrom __future__"),
    "an import added in a function": ("    pl.pallas_call", "    import jax\n    pl.pallas_call"),
    "an import moved": (
        "import functools\n\nimport jax\n",
        "import jax\n\nimport functools\n",
    ),
}

# What was done to the result without the arguments.
REMOVED_DAMAGE = {
    "the neighbour's argument dropped": ("        sem=pltpu.SemaphoreType.DMA,\n", ""),
    "a positional argument dropped": ("        body,\n", ""),
    "the entry of another key dropped": ('"sem": 1, "b": 2', '"b": 2'),
    "a splat dropped whose dict was not empty": (', **{"sem": 1}', ""),
    "a neighbour's entry dropped": ('**{"sem": 1}', "**{}"),
    "a keyword renamed": ("sem=pltpu", "sems=pltpu"),
    "a dict key renamed": ('**{"sem"', '**{"sems"'),
    "the order of arguments changed": ("body, grid=(1,)", "grid=(1,), body"),
    "interpret in the wrong call": (
        "(1,), interpret=True,)(x_ref)",
        "(1,),)(x_ref, interpret=True)",
    ),
    "interpret in another call": ("interpret=True,)(x_ref)", ")(x_ref)\n    f(interpret=True)"),
    "interpret=False": ("interpret=True", "interpret=False"),
    "interpret=1": ("interpret=True", "interpret=1"),
    "another keyword in its place": ("interpret=True", "debug=True"),
    "another call's axes removed": (', collective_axes="x"', ""),
    "a comment lost": ("  # the tile", ""),
    "a comment before the argument lost": ("    # All cores share it.\n", ""),
    "the neighbour's comment lost": ("  # staging", ""),
    "a comment changed": ("# staging", "# Staging"),
    "a comment moved to its own line": ("'f'),  # staging\n", "'f'),\n        # staging\n"),
    "a comment moved to another line": (
        "'f'),  # staging\n        sem=pltpu.SemaphoreType.DMA,",
        "'f'),\n        sem=pltpu.SemaphoreType.DMA,  # staging",
    ),
    "a comment added": ("body,\n", "body,  # new\n"),
    "a comment added where the argument was": ("DMA,\n", "DMA,\n        # gone\n"),
    "a string touched": ('"s"', '"t"'),
    "the docstring changed": ("A module.", "A Module."),
    "a quote style changed": ("'f'", '"f"'),
    "a number's spelling changed": ("1_000", "1000"),
    "a number changed": ("[0] = 1", "[0] = 2"),
    "a string become bytes": ('"s"', 'b"s"'),
    "an operator changed": ("a == b", "a != b"),
    "parentheses added": ("a == b", "(a == b)"),
    "a star lost": ("[*a", "[a"),
    "a default changed": ("b=2", "b=3"),
    "a default lost": ("b=2", "b"),
    "a decorator lost": ("@functools.cache\n", ""),
    "async dropped": ("async def", "def"),
    "a statement dropped": ("        o_ref[0] = 1\n", ""),
    "a statement duplicated": ("        o_ref[0] = 1\n", "        o_ref[0] = 1\n" * 2),
    "a statement added at the end": ('**{"sem": 1})\n', '**{"sem": 1})\nprint()\n'),
    "a function renamed": ("def other", "def another"),
    "an indent changed": ("        o_ref[0]", "         o_ref[0]"),
    "an indent changed in brackets": ("        sem=pltpu", "      sem=pltpu"),
    "a block left": ("        return [", "    return ["),
    "one line's LF turned CRLF": ("TILE = 1_000  # the tile\n", "TILE = 1_000  # the tile\r\n"),
    "trailing whitespace dropped": ("acc[...] \n", "acc[...]\n"),
    "a final newline added": ('**{"sem": 1})\n', '**{"sem": 1})\n\n'),
    "the final newline dropped": ('**{"sem": 1})\n', '**{"sem": 1})'),
    "a blank line dropped": ("# the tile\n\n\n", "# the tile\n\n"),
    "a blank line added": ("import functools\n", "import functools\n\n"),
    "a form feed dropped": ("\f", ""),
    "a trailing comma lost in the changed call": ("interpret=True,)", "interpret=True)"),
    "a trailing comma lost in another call": ("(8, 128)", "(8, 128,)"),
    "a trailing comma changes a tuple": ("(1,)", "(1)"),
    "a byte order mark inserted": ('"""A module', '\ufeff"""A module'),
    "an alias changed": ("pallas as pl\n", "pallas as pal\n"),
    "a result that does not compile": ("return [", "return ("),
    "a name in the result that does not compile": ("x_ref, o_ref, axes):", "x_ref, x_ref, axes):"),
    "a line joined": ("        return", " return"),
    "an empty file": (REMOVED_TEXT, ""),
}


def test_the_texts_that_damage_is_done_to_pass() -> None:
    check(SOURCE, GATED_TEXT, *CHANGES)
    check(SOURCE, REMOVED_TEXT, *CHANGES)


def refusal(before: str, after: str, *changes: str, permit: Permit | None = None) -> Refused:
    with pytest.raises(Refused) as raised:
        check(before, after, *changes, permit=permit)
    assert 1 <= raised.value.line <= max(1, len(checker._lines(before)))
    assert raised.value.message
    return raised.value


@pytest.mark.parametrize("damage", GATED_DAMAGE)
def test_damage_to_a_gated_result_is_refused(damage: str) -> None:
    was, became = GATED_DAMAGE[damage]
    assert was in GATED_TEXT
    refusal(SOURCE, GATED_TEXT.replace(was, became, 1), *CHANGES)


@pytest.mark.parametrize("damage", REMOVED_DAMAGE)
def test_damage_to_a_result_with_arguments_removed_is_refused(damage: str) -> None:
    was, became = REMOVED_DAMAGE[damage]
    assert was in REMOVED_TEXT
    refusal(SOURCE, REMOVED_TEXT.replace(was, became, 1), *CHANGES)


@pytest.mark.parametrize("left_out", CHANGES)
def test_a_change_that_was_not_accepted_is_refused(left_out: str) -> None:
    changes = [change for change in CHANGES if change != left_out]
    assert "not accepted" in refusal(SOURCE, GATED_TEXT, *changes).message
    assert "not accepted" in refusal(SOURCE, REMOVED_TEXT, *changes).message


@pytest.mark.parametrize("change", ['MP101 collective_axes="x"', *CHANGES])
def test_an_accepted_change_that_was_not_made_is_refused(change: str) -> None:
    error = refusal(SOURCE, REMOVED_TEXT, *CHANGES, change)
    assert "not made" in error.message
    assert error.line == accepted(SOURCE, change)[0].line


def test_a_change_accepted_under_another_code_is_refused() -> None:
    refusal(SOURCE, REMOVED_TEXT, CHANGES[0].replace("MP101", "MP110"), *CHANGES[1:])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a, collective_axes=axes)", "f(a)"),
        ('f(a, **{"collective_axes": axes})', "f(a)"),
        ('kw = {"collective_axes": axes, "b": 1}', 'kw = {"b": 1}'),
    ],
)
def test_axes_that_go_where_they_may_only_be_gated_are_refused(before: str, after: str) -> None:
    check(kernel(before), kernel(after), "MP101")
    refusal(kernel(before), kernel(after), "MP101", permit=Permit(removes=False))


def test_a_wrong_argument_dropped_in_place_of_the_accepted_one_is_refused() -> None:
    refusal(kernel('f(a, b=1, collective_axes="x")'), kernel('f(a, collective_axes="x")'), "MP101")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("collective_axes=a if c else b", "collective_axes=a if c else b if on_tpu() else ()"),
        ("collective_axes=lambda: a", "collective_axes=lambda: a if on_tpu() else ()"),
        ("interpret=a if c else b", "interpret=a if c else b or True"),
        ("interpret=lambda: a", "interpret=lambda: a or True"),
        ("interpret=x", f"interpret=x if isinstance(y, pltpu.InterpretParams) else {SIM}"),
        (
            "interpret=x",
            f"interpret=x if isinstance(x, pltpu.InterpretParams) else {SIM} if y or {CPU} else False",
        ),
        ("interpret=x()", f"interpret=x() if isinstance(x(), pltpu.InterpretParams) else {SIM}"),
        ("interpret=x", "interpret=x and True"),
        ("interpret=x", "interpret=True or x"),
        ("interpret=x", f"interpret=x or {CPU.replace('cpu', 'tpu')}"),
        ("interpret=x", "interpret=pltpu.InterpretParams()"),
        ("interpret=x", f"interpret={SIM.replace('eager', 'on_wait')}"),
        ("interpret=x", f"interpret={SIM.replace('pltpu', 'pl')}"),
        ("interpret=x", f"interpret={SIM.replace('pltpu', 'kernel')}"),
        ("interpret=x", f"interpret={SIM.replace('pltpu', 'unbound')}"),
        ("interpret=x", "interpret=x or jaxx.default_backend() == 'cpu'"),
        ("interpret=True", "interpret=True or True"),
        ("interpret=pltpu.InterpretParams()", "interpret=True"),
        ("interpret=x", "interpret=False"),
        ("**kw", '**{"interpret": kw.get("interpret") or True, **kw}'),
        ("**kw", '**{**kw, "interpret": True}'),
        ("**kw", '**{**kw, "interpret": ks.get("interpret") or True}'),
        ("**kw", "**kw, interpret=True, **kw"),
        ("pltpu.get_tpu_info()", f"{FIGURES.replace('V6E', 'V5E')}"),
        ("pltpu.get_tpu_info()", f"{FIGURES.replace(', 1', ', 2')}"),
        ("pltpu.get_tpu_info()", f"{FIGURES} if on_tpu() else pltpu.get_tpu_info()"),
        ("pltpu.get_tpu_info().x", f"pltpu.get_tpu_info() if on_tpu() else {FIGURES}.x"),
        ("pltpu.other()", FIGURES),
        ("pltpu.get_tpu_info()", FIGURES.replace("pltpu", "pl")),
        ("a.device_kind", '"TPU v5 lite"'),
        ("a.platform", '"TPU v6 lite"'),
        ("a.device_kind.lower()", 'a.device_kind if on_tpu() else "TPU v6 lite".lower()'),
        ("m()", "m(num_cores=2)"),
        ("m()", "m(num_cores=1 if on_tpu() else None)"),
        ("m()", "m(num_cores=on_tpu())"),
        ("m()", "with_mesh(lambda: m())"),
        ("interpret=x", f"interpret={SIM.replace('InterpretParams', 'TPUInterpretParams')}"),
        ("interpret=x", "interpret=pltpu.InterpretParams(out_of_bounds_reads='uninitialized')"),
        ('f"{g(collective_axes=1)}"', 'f"{g()}"'),
        ("collective_axes=a", "collective_axes=a  if on_tpu() else (), b=1"),
        (
            "collective_axes=(\n        a,  # first\n    )",
            "collective_axes=(\n        a,\n    ) if on_tpu() else ()",
        ),
        ("collective_axes=(a,  b)", "collective_axes=(a, b) if on_tpu() else ()"),
        ("collective_axes='a'", 'collective_axes="a" if on_tpu() else ()'),
        ("collective_axes=axes or None", "collective_axes=axes or ()"),
        ("axes=None", "axes=()"),
    ],
)
def test_a_rewrite_of_another_form_is_refused(before: str, after: str) -> None:
    source = kernel(f"f({before})")
    result = kernel(f"f({after})")
    codes = ["MP101 ", "MP110 ", "MP120 ", "MP121 ", "MP130 "]
    for code in codes:
        refusal(source, gated(result) if "on_tpu" in after else result, code + "f(", permit=None)
        refusal(source, gated(result) if "on_tpu" in after else result, code + before[:5])


LOCALS = {
    "a parameter": "def k(axes, on_tpu):\n    {}",
    "an assignment": "def k(axes):\n    on_tpu = 1\n    {}",
    "an enclosing function's name": "def j(on_tpu):\n    def k(axes):\n        {}",
    "a loop": "def k(axes):\n    for on_tpu in axes:\n        {}",
    "a comprehension": "def k(axes):\n    [{} for on_tpu in axes]",
    "a lambda's parameter": "def k(axes):\n    lambda on_tpu: {}",
    "a walrus": "def k(axes):\n    (on_tpu := 1)\n    {}",
    "a walrus in a comprehension": "def k(axes):\n    [on_tpu := 1 for _ in axes]\n    {}",
    "a local import": "def k(axes):\n    from a import on_tpu\n    {}",
    "a with": "def k(axes):\n    with a as on_tpu:\n        {}",
    "an except": "def k(axes):\n    try: ...\n    except E as on_tpu:\n        {}",
    "a match": "def k(axes):\n    match axes:\n        case [*on_tpu]:\n            {}",
    "a local function": "def k(axes):\n    def on_tpu(): ...\n    {}",
    "a class's own name": "class K:\n    on_tpu = 1\n    {}",
    "a module variable": "on_tpu = 1\ndef k(axes):\n    {}",
    "a global": "def j():\n    global on_tpu\n    on_tpu = 1\ndef k(axes):\n    {}",
    "a later del": "def k(axes):\n    {}\ndel on_tpu",
}


@pytest.mark.parametrize("case", LOCALS)
def test_a_gate_that_means_something_else_is_refused(case: str) -> None:
    call = "f(collective_axes=axes{})"
    before, after = (
        f"{HEAD}\n\n{LOCALS[case].format(call.format(gate))}\n" for gate in ("", GATED)
    )
    refusal(before, gated(after), "MP101")


@pytest.mark.parametrize(
    "use",
    [
        "f(collective_axes=axes{})",
        "@f(collective_axes=axes{})\ndef k(): ...",
        "def k(x=f(collective_axes=axes{})): ...",
        "class K:\n    x = f(collective_axes=axes{})",
    ],
)
def test_a_gate_defined_after_its_use_at_import_is_refused(use: str) -> None:
    before = f"{HEAD}\n{use.format('')}\n"
    late = f"{HEAD}\n{use.format(GATED)}\n\n\n{GATE}"
    assert "at import" in refusal(before, late, "MP101").message
    check(before, f"{HEAD}\n\n{GATE}\n\n{use.format(GATED)}\n", "MP101")


def test_an_added_gate_that_nothing_uses_is_refused() -> None:
    before = kernel('f(collective_axes="x")')
    assert "uses" in refusal(before, gated(kernel("f()")), "MP101").message


@pytest.mark.parametrize(
    "head",
    [
        "",
        "if TYPE_CHECKING:\n    import jax\n",
        "if __name__ == '__main__':\n    import jax\n",
        "import jax.numpy as jnp\n",
        "from jax import jit as jax\n",
        "jax = 1\n",
        "def j():\n    import jax\n",
        "class J:\n    import jax\n",
    ],
)
def test_a_gate_whose_jax_is_not_bound_is_refused(head: str) -> None:
    after = f"{head}\n\n{GATE}{USE}".format(GATED)
    refusal(f"{head}{USE}".format(""), after, "MP101")


@pytest.mark.parametrize(
    "statement",
    [
        "from your.backends import on_tpu",
        "from my.backends import off_tpu as on_tpu",
        "from my.backends import on_tpu as gate",
        "from .my.backends import on_tpu",
        "import my.backends",
        GATE,
    ],
)
def test_a_gate_from_elsewhere_than_was_asked_is_refused(statement: str) -> None:
    permit = Permit("on_tpu", ("my.backends", "on_tpu"))
    before, after = (f"import jax\n{added}{USE}" for added in ("", f"{statement}\n"))
    refusal(before.format(""), after.format(GATED), "MP101", permit=permit)


@pytest.mark.parametrize("first", ["#!/usr/bin/env python\n", "# -*- coding: utf-8 -*-\n"])
def test_an_import_before_the_frame_of_the_file_is_refused(first: str) -> None:
    after = f"import jax\n{first}\n\n{GATE}{USE}".format(GATED)
    refusal(f"{first}{USE}".format(""), after, "MP101")


def test_an_import_before_a_comment_on_the_line_above_is_refused() -> None:
    before = f"import os  # noqa\n{USE}"
    after = f"import os\nimport jax  # noqa\n\n\n{GATE}{USE}"
    refusal(before.format(""), after.format(GATED), "MP101")


def test_an_import_on_the_line_of_another_statement_is_refused() -> None:
    refusal(
        f"import os;\n{USE}".format(""),
        f"import os; import jax\n\n\n{GATE}{USE}".format(GATED),
        "MP101",
    )


MANAGED = with_manager(kernel("y = tpu_figures()(emit(f, grid=1))(a)"), managers()[1])


@pytest.mark.parametrize(
    ("was", "became"),
    [
        ("tpu_figures()(emit(f, grid=1))(a)", "tpu_figures()(emit(f, grid=2))(a)"),
        ("tpu_figures()(emit(f, grid=1))(a)", "tpu_figures()(emit)(f, grid=1)(a)"),
        ("tpu_figures()(emit(f, grid=1))(a)", "tpu_figures()(emit(f, grid=1)(a))"),
        ("tpu_figures()(emit(f, grid=1))(a)", "tpu_figures(1)(emit(f, grid=1))(a)"),
        ("tpu_figures()(emit(f, grid=1))(a)", "tpu_figures(emit(f, grid=1))(a)"),
        ("tpu_figures()(emit(f, grid=1))(a)", "tpu_figures()(emit(f, grid=1), a)(a)"),
        ("tpu_figures()(emit(f, grid=1))(a)", "figures()(emit(f, grid=1))(a)"),
        ("tpu_figures()(emit(f, grid=1))(a)", "kernel()(emit(f, grid=1))(a)"),
        ("emit_pipeline as emit", "other as emit"),
        ("tpu_figures()(emit(f, grid=1))(a)", "emit(f, grid=1)(a)"),
        (managers()[1], ""),
        (managers()[1], managers()[1] * 2),
        (GATE, ""),
        ("import contextlib\n", ""),
        ("import contextlib\n", "import contextlib as _contextlib\n"),
        ("import contextlib\n", "import functools as contextlib\n"),
        ("@contextlib.contextmanager\n", ""),
        ("@contextlib.contextmanager\n", "@contextlib.asynccontextmanager\n"),
        ("@contextlib.contextmanager\n", "@contextlib.contextmanager\n@jax.jit\n"),
        ("def tpu_figures()", "def tpu_figures(x=1)"),
        ("def tpu_figures()", "async def tpu_figures()"),
        ("if on_tpu():", "if not on_tpu():"),
        ("        return\n", ""),
        ("        yield\n        return\n", "        return\n"),
        ('"TPU v6 lite"', '"TPU v5 lite"'),
        ("num_cores=1,", "num_cores=2,"),
        ('platform="tpu"', 'platform="cpu"'),
        ("((), (), abstract_device", "((1,), (), abstract_device"),
        ("        yield\n\n\ndef kernel", "        yield 1\n\n\ndef kernel"),
        ("        yield\n\n\ndef kernel", "        yield\n        yield\n\n\ndef kernel"),
        ("with jax.sharding", "with pl.sharding"),
        ("    device =", "\n    device ="),
        ("    device =", "    # ours\n    device ="),
        ("        yield\n        return\n", "      yield\n      return\n"),
    ],
)
def test_damage_to_a_manager_and_its_use_is_refused(was: str, became: str) -> None:
    before = kernel("y = emit(f, grid=1)(a)")
    check(before, MANAGED, "MP130 emit(")
    assert was in MANAGED
    refusal(before, MANAGED.replace(was, became, 1), "MP130 emit(")


@pytest.mark.parametrize("manager", managers())
def test_a_manager_and_its_gate_stand_before_their_use_at_import(manager: str) -> None:
    before = f"{HEAD}\nMESH = Mesh('x')\n"
    after = with_manager(before.replace("Mesh(", "tpu_figures()(Mesh)("), manager)
    check(before, after, "MP130 Mesh(")
    gate = f"{GATE}\n\n" * ("on_tpu()" in manager)
    late = after.replace(manager, "").replace(gate, "").rstrip("\n")
    assert "at import" in refusal(before, f"{late}\n\n\n{gate}{manager}", "MP130 Mesh(").message
    if gate:
        late = after.replace(gate, "") + f"\n\n{GATE}"
        assert "at import" in refusal(before, late, "MP130 Mesh(").message


def test_a_message_says_what_and_where() -> None:
    was, became = REMOVED_DAMAGE["a default changed"]
    error = refusal(SOURCE, REMOVED_TEXT.replace(was, became), *CHANGES)
    assert str(error) == "line 15: 2 became 3"


# -- sources that the running Python cannot parse --

# No Python parses this; it stands for the syntax of one that is newer than the one that runs.
NEWER = """
@decorated
class K[T](Base):
    'A docstring.'

    @staticmethod
    async def method[*Ts](self):
        try:
            later later
        except E:
            pass
        else:
            if self: return 1
            elif self:
                for i in self: pass
            else: pass
        finally:
            match self:
                case [1]:
                    pass
        with (
            a as b,  # held
        ): later later
"""
NEWER_CHANGES = ("MP101 collective_axes=axes", "MP110 pl.pallas_call")
NEWER_SOURCE = f"""{HEAD}{NEWER}

@pl.kernel(grid=1)
def kernel[T](x):
    later later
    pl.run_scoped(
        x,  # stays
        collective_axes=axes,
    )
    return pl.pallas_call(x)
"""
NEWER_GATED = (
    gated(NEWER_SOURCE)
    .replace("=axes", "=axes if on_tpu() else ()")
    .replace("call(x)", "call(x, interpret=not on_tpu())")
)
NEWER_REMOVED = NEWER_SOURCE.replace("        collective_axes=axes,\n", "").replace(
    "call(x)", "call(x, interpret=True)"
)


@pytest.mark.parametrize("after", [NEWER_GATED, NEWER_REMOVED], ids=["gated", "removed"])
def test_a_source_of_a_newer_python_passes(after: str) -> None:
    check(NEWER_SOURCE, after, *NEWER_CHANGES)


@pytest.mark.parametrize(
    ("was", "became"),
    [
        ("later later", "later sooner"),
        ("# held", "# Held"),
        ("# stays", ""),
        ("        x,  # stays\n", ""),
        ("if on_tpu() else ()", "if on_tpu() else None"),
        (GATE, ""),
        (GATE, GATE.replace('tpu"', 'cpu"')),
        ("kernel[T](x)", "kernel[T](x, on_tpu)"),
        ("kernel[T](x)", "kernel[T](y)"),
        ("interpret=not on_tpu()", "interpret=True, b=1"),
        ("    later later\n    pl", "    pl"),
        ("    return", "    pass\n    return"),
        ("@pl.kernel(grid=1)\n", ""),
        ("return pl", "yield pl"),
        ("grid=1", "grid=2"),
    ],
)
def test_damage_to_a_source_of_a_newer_python_is_refused(was: str, became: str) -> None:
    assert was in NEWER_GATED
    refusal(NEWER_SOURCE, NEWER_GATED.replace(was, became, 1), *NEWER_CHANGES)


def test_a_gate_name_that_stands_for_anything_else_is_refused_in_a_newer_python() -> None:
    added = "    on_tpu = 1\n    return"
    before, after = (text.replace("    return", added) for text in (NEWER_SOURCE, NEWER_GATED))
    refusal(before, after, *NEWER_CHANGES)


def test_a_changed_line_of_a_newer_python_is_refused() -> None:
    before = "later later(collective_axes=1)\n"
    assert "cannot parse" in refusal(before, "later later()\n", "MP101").message


def test_a_text_without_tokens_is_refused() -> None:
    refusal("f((collective_axes=1)\n", "f(()\n", "MP101")


# -- the rest --


def candidates(text: str) -> list[tuple[int, int, str]]:
    """Every keyword and entry `collective_axes`: where it stands, and what it is in what."""
    found = []
    for node in ast.walk(ast.parse(text)):
        pairs: list[tuple[ast.AST, ast.AST]] = []
        if isinstance(node, ast.Call):
            pairs = [(word, word.value) for word in node.keywords if word.arg == "collective_axes"]
        elif isinstance(node, ast.Dict):
            named = zip(node.keys, node.values, strict=True)
            pairs = [
                (k, v)
                for k, v in named
                if isinstance(k, ast.Constant) and k.value == "collective_axes"
            ]
        owner = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        found += [
            (place.lineno, place.col_offset, f"{owner} {ast.unparse(value)}")
            for place, value in pairs
        ]
    return sorted(found)


def gated_in(before: str, after: str) -> list[Accepted]:
    """What differs between two texts that have the same keywords and entries."""
    pairs = zip(candidates(before), candidates(after), strict=True)
    return [Accepted("MP101", *old[:2]) for old, new in pairs if old[2] != new[2]]


GATED_FIXTURES = sorted(
    path.parent for rule in ("MP101", "MP102") for path in FIXTURES.glob(f"{rule}/*/after.cpu.py")
)


@pytest.mark.parametrize("case", GATED_FIXTURES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_gated_fixtures_pass(case: Path) -> None:
    encoding = "latin-1" if case.name == "bytes-latin-1" else "utf-8-sig"
    before, after = (
        (case / name).read_bytes().decode(encoding) for name in ("before.py", "after.cpu.py")
    )
    options = (case / "options.txt").read_text() if (case / "options.txt").exists() else ""
    source = re.search(r"--gate-import=([\w.]+):(\w+)", options)
    defined = re.search(r"^def (\w+)\(\) -> bool:$", after, re.MULTILINE)
    asked = re.search(r"--gate=(\w+)", options)
    name = next((found.group(1) for found in (defined, asked) if found), "on_tpu")
    permit = Permit(name, (source[1], source[2]) if source else None)
    prove(before, after, gated_in(before, after), permit)


def test_it_imports_nothing_of_the_package() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {getattr(node, "module", None) or node.names[0].name for node in imports}
    assert {module.split(".")[0] for module in modules} <= sys.stdlib_module_names
    assert all(not getattr(node, "level", 0) for node in imports)


def test_code_nested_too_deeply_to_parse_is_refused() -> None:
    deep = "-" * 20_000 + "1"
    refusal(f"x = {deep}\nf(collective_axes=1)\n", f"x = {deep}\nf(1)\n", "MP101")


def test_time_grows_with_the_size_of_the_file_alone() -> None:
    body = kernel('pl.run_scoped(x_ref, o_ref, collective_axes="x")').replace(HEAD, "")
    lengths, seconds = (200, 1600), []
    for length in lengths:
        before = HEAD + body * length
        after = before.replace('"x"', '"x" if on_tpu() else ()')
        changes = accepted(before, "MP101")
        lines = [n for n, line in enumerate(before.split("\n"), 1) if "collective" in line]
        changes = [Accepted("MP101", line, changes[0].column) for line in lines]
        began = time.process_time()
        prove(before, gated(after), changes, Permit())
        seconds.append(time.process_time() - began)
    assert seconds[1] < 4 * seconds[0] * lengths[1] / lengths[0]
