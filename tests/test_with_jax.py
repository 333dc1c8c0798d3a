"""Programs that raise on a CPU, before and after they are migrated, run by the installed JAX."""

from __future__ import annotations

import os
from textwrap import dedent, indent
from typing import Any

import pytest

os.environ["JAX_PLATFORMS"] = (
    "cpu"  # before JAX is imported: these tests are about hosts without a TPU
)
jax = pytest.importorskip("jax", minversion="0.10.2", reason="JAX 0.10.2 needs Python 3.11")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402

from migrate_pallas.pipeline import examine, proven  # noqa: E402
from migrate_pallas.settings import CPU, GATE, INTERPRET, REMOVE, Settings  # noqa: E402

NUMBERS = np.arange(8 * 128, dtype=np.float32).reshape(8, 128)
HEAD = """
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

SCRATCH = pltpu.VMEM((8, 128), jnp.float32)
SHARED = True
"""

# How `body`, which takes a tile of scratch memory, is run with axes; `result` is what it returns.
SHAPES = {
    "direct": 'result = pl.run_scoped(body, SCRATCH, collective_axes="core")',
    "partial": 'result = functools.partial(pl.run_scoped, body, collective_axes="core")(SCRATCH)',
    "bound": """
        scoped = functools.partial(pl.run_scoped, collective_axes=("core", "subcore"))
        result = scoped(body, SCRATCH)
        """,
    "decorator": """
        @functools.partial(pl.run_scoped, tile=SCRATCH, collective_axes="core")
        def result(tile):
            return body(tile)
        """,
    "with_scoped": """
        @pl.with_scoped(SCRATCH, collective_axes=("core",))
        def scoped(tile):
            return body(tile)

        result = scoped()
        """,
    "alias": """
        call = pl.run_scoped
        result = call(body, SCRATCH, collective_axes="core")
        """,
    "dict splat": 'result = pl.run_scoped(body, **{"tile": SCRATCH, "collective_axes": "core"})',
    "dict": """
        options = dict(collective_axes="core")
        result = pl.run_scoped(body, SCRATCH, **options)
        """,
    "None": "result = pl.run_scoped(body, SCRATCH, collective_axes=None)",
    "conditional": 'result = pl.run_scoped(body, SCRATCH, collective_axes="core" if SHARED else None)',
}

# Where that stands, and the error that it raises there.
PLAIN_JIT = (
    """
    @jax.jit
    def run(x):
        def body(tile):
            tile[...] = x + 1
            return tile[...]

    {shape}
        return result
    """,
    ValueError("run_scoped lowering outside of Pallas does not support collective_axes."),
)
RUN_STATE = (
    """
    @jax.jit
    def run(x):
        def add_one(refs):
            kernel(*refs)

        return pl.run_state(add_one)((x, jnp.zeros_like(x)))[1]


    def kernel(x_ref, o_ref):
        def body(tile):
            tile[...] = x_ref[...] + 1
            o_ref[...] = tile[...]

    {shape}
    """,
    NotImplementedError("run_scoped discharge does not support collective_axes yet."),
)
PALLAS_CALL = """
    def run(x):
        return pl.pallas_call(kernel, out_shape=x{interpret})(x)


    def kernel(x_ref, o_ref):
        def body(tile):
            tile[...] = x_ref[...] + 1
            o_ref[...] = tile[...]

    {{shape}}
    """
CONTEXTS = {
    "plain jit": PLAIN_JIT,
    "run_state": RUN_STATE,
    "generic interpreter": (
        PALLAS_CALL.format(interpret=", interpret=True"),
        NotImplementedError("run_scoped interpret rule does not support collective axes"),
    ),
    "simulator": (
        PALLAS_CALL.format(interpret=", interpret=pltpu.InterpretParams()"),
        NotImplementedError("run_scoped_p with collective axes is not supported"),
    ),
    "not interpreted": (
        PALLAS_CALL.format(interpret=""),
        ValueError("Only interpret mode is supported on CPU backend."),
    ),
}

NOT_INTERPRETED = ValueError("Only interpret mode is supported on CPU backend.")
NO_TPU = ValueError("Unsupported TPU device kind: cpu")
ADD_ONE = """
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1


    """
# Entry points without axes, and what `run(x)` raises; each gives `x + 1` once it is migrated.
ENTRY_POINTS = {
    "direct": (
        ADD_ONE
        + """
    def run(x):
        return pl.pallas_call(kernel, out_shape=x)(x)
    """,
        NOT_INTERPRETED,
    ),
    "interpret=None": (
        ADD_ONE
        + """
    def run(x):
        return pl.pallas_call(kernel, out_shape=x, interpret=None or False)(x)
    """,
        NOT_INTERPRETED,
    ),
    "parameter": (
        ADD_ONE
        + """
    def run(x, interpret=False):
        return pl.pallas_call(kernel, out_shape=x, interpret=interpret)(x)
    """,
        NOT_INTERPRETED,
    ),
    "partial": (
        ADD_ONE
        + """
    def run(x):
        call = functools.partial(pl.pallas_call, kernel)
        return call(out_shape=x)(x)
    """,
        NOT_INTERPRETED,
    ),
    "alias": (
        ADD_ONE
        + """
    call = pl.pallas_call


    def run(x):
        return call(kernel, out_shape=x)(x)
    """,
        NOT_INTERPRETED,
    ),
    "splat": (
        ADD_ONE
        + """
    def run(x, **options):
        return pl.pallas_call(kernel, out_shape=x, **options)(x)
    """,
        NOT_INTERPRETED,
    ),
    "decorator": (
        """
    def run(x):
        @functools.partial(pl.pallas_call, out_shape=x)
        def add_one(x_ref, o_ref):
            o_ref[...] = x_ref[...] + 1

        return add_one(x)
    """,
        NOT_INTERPRETED,
    ),
    "traced size": (
        """
    def kernel(n_ref, x_ref, o_ref):
        pltpu.sync_copy(x_ref.at[pl.ds(0, n_ref[0])], o_ref.at[pl.ds(0, n_ref[0])])
        o_ref[...] = o_ref[...] + 1


    def run(x):
        smem, vmem = (pl.BlockSpec(memory_space=space) for space in (pltpu.SMEM, pltpu.VMEM))
        call = pl.pallas_call(kernel, out_shape=x, in_specs=[smem, vmem])
        return call(jnp.array([8], jnp.int32), x)
    """,
        NOT_INTERPRETED,
    ),
    "random numbers": (
        """
    def kernel(x_ref, o_ref):
        pltpu.prng_seed(0)
        o_ref[...] = x_ref[...] + 1


    def run(x):
        return pl.pallas_call(kernel, out_shape=x, interpret=True)(x)
    """,
        NotImplementedError(
            "MLIR translation rule for primitive 'prng_seed' not found for platform cpu"
        ),
    ),
    "figures of a TPU": (
        """
    def kernel(x_ref, o_ref):
        assert pltpu.get_tpu_info().num_lanes == 128
        o_ref[...] = x_ref[...] + 1


    def run(x):
        return pl.pallas_call(kernel, out_shape=x, interpret=True)(x)
    """,
        NO_TPU,
    ),
    "pipeline": (
        """
    def add_one(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1


    def kernel(x_ref, o_ref):
        block = pl.BlockSpec((4, 128), lambda i: (i, 0))
        pltpu.emit_pipeline(add_one, grid=(2,), in_specs=[block], out_specs=[block])(x_ref, o_ref)


    def run(x):
        anywhere = pl.BlockSpec(memory_space=pl.ANY)
        call = pl.pallas_call(
            kernel, out_shape=x, in_specs=[anywhere], out_specs=anywhere, interpret=True
        )
        return call(x)
    """,
        NO_TPU,
    ),
    "pl.kernel": (
        """
    def run(x):
        mesh = pltpu.create_tensorcore_mesh("core", num_cores=1)

        @functools.partial(pl.kernel, out_type=x, mesh=mesh, scratch_types=[SCRATCH])
        def add_one(x_ref, o_ref, tile):
            pltpu.sync_copy(x_ref, tile)
            tile[...] = tile[...] + 1
            pltpu.sync_copy(tile, o_ref)

        return add_one(x)
    """,
        NOT_INTERPRETED,
    ),
}


MIGRATIONS = {
    f"{to}, {strategy}": Settings(to=to, strategy=strategy)
    for to in (INTERPRET, CPU)
    for strategy in (REMOVE, GATE)
}
each_context = pytest.mark.parametrize("context", CONTEXTS)
each_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(autouse=True)
def fresh_simulator():
    """Let no test start from the simulator state that another left behind."""
    yield
    pltpu.reset_tpu_interpret_mode_state()


def program(context: str, shape: str) -> str:
    """The source of a module whose `run(x)` is `x + 1`, but for what it raises."""
    text, _ = CONTEXTS[context]
    inside = indent(dedent(SHAPES[shape]).strip("\n"), "    ")
    return HEAD + "\n\n" + dedent(text).strip("\n").replace("{shape}", inside) + "\n"


def run(source: str) -> np.ndarray:
    """What `run` of the module `source` makes of the numbers."""
    module: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, "<program>", "exec", dont_inherit=True), module)
    return np.asarray(module["run"](jnp.asarray(NUMBERS)))


def migrated(source: str, settings: Settings) -> str:
    examined = examine(source, settings)
    return proven(examined, examined.changes, settings)


def assert_raises(source: str, error: Exception) -> None:
    """The program raises an error of that type and text; JAX may add advice and lines about tracebacks to it."""
    with pytest.raises(type(error)) as raised:
        run(source)
    assert type(raised.value) is type(error)
    assert str(raised.value).startswith(str(error))


@each_shape
@each_context
def test_before_migration_a_program_raises_the_error_of_its_context(context, shape):
    _, error = CONTEXTS[context]
    assert_raises(program(context, shape), error)


@pytest.mark.parametrize("options", [f"{INTERPRET}, {REMOVE}", f"{CPU}, {GATE}"])
@each_shape
@each_context
def test_after_migration_it_gives_the_right_numbers(context, shape, options):
    result = run(migrated(program(context, shape), MIGRATIONS[options]))
    np.testing.assert_array_equal(result, NUMBERS + 1)


@pytest.mark.parametrize("options", [f"{INTERPRET}, {GATE}", f"{CPU}, {REMOVE}"])
@each_context
def test_target_and_strategy_may_be_combined_otherwise(context, options):
    result = run(migrated(program(context, "direct"), MIGRATIONS[options]))
    np.testing.assert_array_equal(result, NUMBERS + 1)


def entry_point_program(entry_point: str) -> str:
    text, _ = ENTRY_POINTS[entry_point]
    return HEAD + "\n\n" + dedent(text).strip("\n") + "\n"


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_before_migration_an_entry_point_raises(entry_point):
    _, error = ENTRY_POINTS[entry_point]
    assert_raises(entry_point_program(entry_point), error)


@pytest.mark.parametrize("options", MIGRATIONS)
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_after_migration_an_entry_point_is_interpreted(entry_point, options):
    result = run(migrated(entry_point_program(entry_point), MIGRATIONS[options]))
    np.testing.assert_array_equal(result, NUMBERS + 1)
