"""What kind of value an expression in a kernel is: known while it is traced, traced itself, or a Ref."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from migrate_pallas.kinds import calls_in
from migrate_pallas.module import Module
from migrate_pallas.parsing import parse
from migrate_pallas.parts import in_parts
from migrate_pallas.roles import Role, Roles, parameters
from migrate_pallas.settings import Settings
from migrate_pallas.targets import ENTRY_POINTS, kernel_of

STATIC, REF, UNKNOWN, TRACED = Role.STATIC, Role.REF, Role.UNKNOWN, Role.TRACED

IMPORTS = """
import functools
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
ROWS = 8
"""


def probed(source: str) -> list[Role]:
    """The role of each argument of `probe(...)`, in order, in the kernel of the one entry point of `source`."""
    text = IMPORTS + dedent(source)
    module = Module(text, in_parts(text), Settings())
    sites = [module.site(call) for call in calls_in(module.tree)]
    (kernel,) = [kernel_of(site) for site in sites if site and site.target in ENTRY_POINTS]
    meaning = module.names.meaning(kernel)
    definitions = module.functions.definitions(kernel)
    roles = Roles(module.names, module.functions, [(d, meaning) for d in definitions])
    return [
        roles.role(call.positional(0))
        for call in calls_in(module.tree)
        if str(call.power.children[0]).strip() == "probe"
    ]


def probed_in_kernel(body: str) -> list[Role]:
    """The roles in a kernel with Refs x_ref and o_ref, a bound `size`, and a `width` of the function around it."""
    return probed(
        "def call(x, width):\n"
        "    def kernel(x_ref, o_ref, *, size):\n"
        f"{indent(dedent(body).strip(), ' ' * 8)}\n"
        "    pl.pallas_call(functools.partial(kernel, size=x.size), out_shape=x)(x)\n"
    )


@pytest.mark.parametrize(
    "expression, role",
    [
        ("x_ref", REF),
        ("(x_ref)", REF),
        ("x_ref.at[0]", REF),
        ("x_ref.at[pl.ds(0, 8)]", REF),
        ("x_ref.at[0].at[1]", REF),
        ("x_ref.reshape(8, 128)", REF),
        ("x_ref.at[0].bitcast(jnp.int32)", REF),
        ("x_ref[...]", TRACED),
        ("x_ref[0] + 1", TRACED),
        ("-x_ref[0]", TRACED),
        ("not x_ref[0]", TRACED),
        ("x_ref.at[0][1]", TRACED),
        ("x_ref.reshape(8, 128)[0]", TRACED),
        ("x_ref[...].reshape(8, 128)", TRACED),
        ("x_ref[0] if size else 3", TRACED),
        ("(size, x_ref[0])", TRACED),
        ("x_ref.shape", STATIC),
        ("x_ref.shape[0] // 2", STATIC),
        ("x_ref.at[0].shape[0]", STATIC),
        ("x_ref[0].shape[0]", STATIC),
        ("x_ref.dtype", STATIC),
        ("x_ref.ndim", STATIC),
        ("len(x_ref.shape)", STATIC),
        ("8", STATIC),
        ("'rows'", STATIC),
        ("size", STATIC),
        ("size // 2 + 1", STATIC),
        ("width", STATIC),
        ("ROWS", STATIC),
        ("min(size, 8)", STATIC),
        ("min(x_ref[0], 8)", TRACED),
        ("range(size)", STATIC),
        ("range(pl.program_id(0))", TRACED),
        ("pl.program_id(0)", TRACED),
        ("pl.program_id(0) * 8", TRACED),
        ("pl.num_programs(0)", STATIC),
        ("jax.lax.axis_index('x')", TRACED),
        ("pl.cdiv(size, 8)", STATIC),
        ("pl.cdiv(x_ref[0], 8)", TRACED),
        ("pl.multiple_of(size, 8)", STATIC),
        ("pl.multiple_of(pl.program_id(0), 8)", TRACED),
        ("jnp.sum(x_ref[...])", TRACED),
        ("jnp.zeros((8, 128))", TRACED),
        ("jnp.dtype('int8')", STATIC),
        ("lambda: x_ref[0]", STATIC),
        ("elsewhere(size)", STATIC),
        ("elsewhere(x_ref[0])", TRACED),
    ],
)
def test_the_role_of_an_expression(expression, role):
    assert probed_in_kernel(f"probe({expression})") == [role]


@pytest.mark.parametrize(
    "body, roles",
    [
        ("n = x_ref[0]\nm = n + 1\nprobe(m)", [TRACED]),
        ("n = size\nm = n + 1\nprobe(m)", [STATIC]),
        ("view = x_ref.at[0]\nprobe(view)", [REF]),
        ("n = size\nif width:\n    n = x_ref[0]\nprobe(n)", [TRACED]),
        ("rows, columns = x_ref.shape\nprobe(rows)", [STATIC]),
        ("first, second = x_ref[0], 1\nprobe(first)", [TRACED]),
        ("for i in range(8):\n    probe(i)", [STATIC]),
        ("for i in range(x_ref[0]):\n    probe(i)", [TRACED]),
        ("for view in (x_ref, o_ref):\n    probe(view)", [REF]),
        ("[probe(i) for i in range(8)]", [STATIC]),
        ("if (n := x_ref[0]):\n    probe(n)", [TRACED]),
    ],
)
def test_names_have_the_role_of_what_they_are_bound_to(body, roles):
    assert probed_in_kernel(body) == roles


@pytest.mark.parametrize(
    "body, roles",
    [
        ("jax.lax.fori_loop(0, 8, lambda i, c: probe(i), 0)", [TRACED]),
        ("def step(i, c):\n    probe(i)\njax.lax.fori_loop(0, 8, step, 0)", [TRACED]),
        ("@pl.when(size > 0)\ndef _():\n    probe(size)", [STATIC]),
        ("@pl.loop(0, 8)\ndef _(i):\n    probe(i)", [TRACED]),
        ("def body(acc):\n    probe(acc)\npl.run_scoped(body, pltpu.VMEM((8,), int))", [REF]),
        ("@functools.partial(pl.run_scoped, acc=1)\ndef _(acc):\n    probe(acc)", [REF]),
        ("def body(a_ref):\n    probe(a_ref)\npltpu.emit_pipeline(body, grid=(8,))(x_ref)", [REF]),
        ("jax.lax.cond(x_ref[0] > 0, lambda n: probe(n), lambda n: probe(n), size)", [TRACED] * 2),
        (
            "def body(n, acc):\n    probe(n)\n    probe(acc)\n"
            "pl.run_scoped(functools.partial(body, size), 1)",
            [STATIC, REF],
        ),
        ("def later(n):\n    probe(n)\nelsewhere(later)", [UNKNOWN]),
        ("def later(n=8):\n    probe(n)\nelsewhere(later)", [STATIC]),
    ],
)
def test_functions_that_are_handed_on_get_what_their_caller_calls_them_with(body, roles):
    assert probed_in_kernel(body) == roles


HELPERS = """
def leaf(ref, n, *rest, scale=1, **options):
    probe(ref), probe(n), probe(scale), probe(rest), probe(rest[0])

def branch(ref, n):
    leaf(ref.at[0], n + 1)

def first(ref):
    return ref[0]

def rows(ref):
    return ref.shape[0]

def kernel(x_ref, o_ref):
    {body}

pl.pallas_call(kernel, out_shape=1)(1)
"""


@pytest.mark.parametrize(
    "body, roles",
    [
        ("leaf(x_ref, 8)", [REF, STATIC, STATIC, STATIC, STATIC]),
        ("leaf(x_ref, x_ref[0])", [REF, TRACED, STATIC, STATIC, STATIC]),
        ("leaf(n=x_ref[0], ref=x_ref)", [REF, TRACED, STATIC, STATIC, STATIC]),
        ("leaf(x_ref, 8, scale=x_ref[0])", [REF, STATIC, TRACED, STATIC, STATIC]),
        ("leaf(x_ref, 8, o_ref)", [REF, STATIC, STATIC, REF, REF]),
        ("branch(x_ref, 8)", [REF, STATIC, STATIC, STATIC, STATIC]),
        ("branch(x_ref, pl.program_id(0))", [REF, TRACED, STATIC, STATIC, STATIC]),
        ("functools.partial(leaf, x_ref)(x_ref[0])", [REF, TRACED, STATIC, STATIC, STATIC]),
        ("leaf(x_ref, 1); leaf(x_ref, x_ref[0])", [REF, TRACED, STATIC, STATIC, STATIC]),
        ("leaf(x_ref, first(x_ref))", [REF, TRACED, STATIC, STATIC, STATIC]),
        ("leaf(x_ref, rows(x_ref))", [REF, STATIC, STATIC, STATIC, STATIC]),
    ],
)
def test_functions_of_the_module_get_what_the_kernel_passes(body, roles):
    assert probed(HELPERS.format(body=body)) == roles


@pytest.mark.parametrize(
    "kernel, signature, roles",
    [
        ("kernel", "a, b", [REF, REF]),
        ("kernel", "*refs, b=1", [REF, STATIC]),
        ("functools.partial(kernel, 8)", "a, b", [STATIC, REF]),
        ("functools.partial(kernel, b=8)", "a, b", [REF, STATIC]),
        ("functools.partial(functools.partial(kernel, 8), 8)", "a, b", [STATIC, STATIC]),
        ("functools.partial(kernel, **options)", "a, *, b", [REF, STATIC]),
        ("lambda a, b: kernel(a, 8)", "a, b", [REF, STATIC]),
    ],
)
def test_parameters_of_a_kernel_are_refs_unless_they_are_bound(kernel, signature, roles):
    first = signature.partition(",")[0].strip("* ")
    assert (
        probed(f"""
            def kernel({signature}):
                probe({first}), probe(b)
            def call(x, **options):
                pl.pallas_call({kernel}, out_shape=x)(x)
        """)
        == roles
    )


def test_a_recursive_function_comes_to_an_end():
    assert probed_in_kernel(
        "def halve(n):\n    probe(n)\n    return halve(n // 2)\nhalve(size); halve(x_ref[0])"
    ) == [TRACED]


@pytest.mark.parametrize(
    "signature, found",
    [
        ("", []),
        ("a", [("a", "", False, False)]),
        ("a, b=1", [("a", "", False, False), ("b", "", False, True)]),
        ("a, /, b", [("a", "", False, False), ("b", "", False, False)]),
        ("a: int, b: int = SIZE.rows", [("a", "", False, False), ("b", "", False, True)]),
        ("*refs", [("refs", "*", False, False)]),
        ("*refs, n", [("refs", "*", False, False), ("n", "", True, False)]),
        ("a, *, n=a", [("a", "", False, False), ("n", "", True, True)]),
        ("a, **kw", [("a", "", False, False), ("kw", "**", False, False)]),
        ("*refs: int, **kw: int", [("refs", "*", False, False), ("kw", "**", False, False)]),
    ],
)
def test_parameters_of_a_function(signature, found):
    definition = parse(f"def f({signature}): pass\n").children[0]
    assert [
        (p.leaf.value, p.star, p.keyword_only, p.optional) for p in parameters(definition)
    ] == found


@pytest.mark.parametrize(
    "signature, names",
    [("", []), ("a", ["a"]), ("a, b=c", ["a", "b"]), ("*a", ["a"]), ("a, *, b", ["a", "b"])],
)
def test_parameters_of_a_lambda(signature, names):
    definition = parse(f"f = lambda {signature}: 0\n").children[0].children[0].children[2]
    assert [p.leaf.value for p in parameters(definition)] == names
