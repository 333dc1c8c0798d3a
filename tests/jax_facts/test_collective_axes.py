"""`collective_axes` of `run_scoped` and `with_scoped`: who accepts it, and what refusals say."""

import ast
import inspect
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

from .kernels import NUMBERS, SIMULATOR, abstract_tpu, call

SCRATCH = pltpu.VMEM((8, 128), jnp.float32)


def through_run_scoped(x_ref, o_ref, **axes):
    def add_one(scratch_ref):
        scratch_ref[...] = x_ref[...] + 1
        o_ref[...] = scratch_ref[...]

    pl.run_scoped(add_one, SCRATCH, **axes)


def through_with_scoped(x_ref, o_ref, **axes):
    @pl.with_scoped(SCRATCH, **axes)
    def add_one(scratch_ref):
        scratch_ref[...] = x_ref[...] + 1
        o_ref[...] = scratch_ref[...]

    add_one()


def in_plain_jit(scope, **axes):
    """The scope's value is returned: nothing here but `run_scoped` touches a Ref."""

    def add_one(x):
        def body(scratch_ref):
            scratch_ref[...] = x + 1
            return scratch_ref[...]

        if scope is through_run_scoped:
            return pl.run_scoped(body, SCRATCH, **axes)
        return pl.with_scoped(SCRATCH, **axes)(body)()

    return jax.jit(add_one)(NUMBERS)


def in_run_state(scope, **axes):
    @jax.jit
    def add_one(x):
        return pl.run_state(lambda refs: scope(*refs, **axes))((x, jnp.zeros_like(x)))[1]

    return add_one(NUMBERS)


def on_refs_in_jit(scope, **axes):
    @jax.jit
    def add_one(x):
        x_ref, o_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
        scope(x_ref, o_ref, **axes)
        return o_ref[...]

    return add_one(NUMBERS)


def in_kernel(interpret):
    def run(scope, **axes):
        return call(lambda *refs: scope(*refs, **axes), interpret)(NUMBERS)

    return run


def lowered_for_tpu(scope, **axes):
    kernel = jax.jit(call(lambda *refs: scope(*refs, **axes), False))
    with jax.sharding.use_abstract_mesh(abstract_tpu("TPU v6 lite")):
        kernel.trace(NUMBERS).lower(lowering_platforms=("tpu",))
    return NUMBERS + 1


REFUSALS = {
    "plain jit": (
        in_plain_jit,
        ValueError,
        "run_scoped lowering outside of Pallas does not support collective_axes.",
    ),
    "run_state": (
        in_run_state,
        NotImplementedError,
        "run_scoped discharge does not support collective_axes yet.",
    ),
    "jit of a function that makes Refs": (
        on_refs_in_jit,
        NotImplementedError,
        "run_scoped discharge does not support collective_axes yet.",
    ),
    "interpret=True": (
        in_kernel(True),
        NotImplementedError,
        "run_scoped interpret rule does not support collective axes",
    ),
    "InterpretParams()": (
        in_kernel(pltpu.InterpretParams()),
        NotImplementedError,
        "run_scoped_p with collective axes is not supported",
    ),
    "the simulator as we write it": (
        in_kernel(SIMULATOR),
        NotImplementedError,
        "run_scoped_p with collective axes is not supported",
    ),
    "native TPU": (
        lowered_for_tpu,
        NotImplementedError,
        "run_scoped lowering does not support collective axes",
    ),
}

everywhere = pytest.mark.parametrize(
    ("run", "error", "text"), REFUSALS.values(), ids=REFUSALS.keys()
)
both_scopes = pytest.mark.parametrize("scope", [through_run_scoped, through_with_scoped])


@both_scopes
@everywhere
@pytest.mark.parametrize("axes", ["i", ("i",), None, (None,)], ids=repr)
def test_an_axis_or_none_is_refused_with_the_text_of_the_table(scope, run, error, text, axes):
    with pytest.raises(error) as caught:
        run(scope, collective_axes=axes)
    assert str(caught.value) == text


@both_scopes
@everywhere
@pytest.mark.parametrize("axes", [{}, {"collective_axes": ()}], ids=repr)
def test_no_axes_and_the_empty_tuple_are_accepted(scope, run, error, text, axes):
    np.testing.assert_array_equal(run(scope, **axes), NUMBERS + 1)


@pytest.mark.parametrize("target", [pl.run_scoped, pl.with_scoped])
def test_the_parameter_is_keyword_only_and_empty_by_default(target):
    parameter = inspect.signature(target).parameters["collective_axes"]
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert parameter.default == ()


@pytest.mark.parametrize(("written", "kept"), [(None, (None,)), ("i", ("i",)), ((), ())])
def test_a_value_that_is_no_tuple_is_wrapped_in_one(written, kept):
    def body(x):
        return pl.run_scoped(lambda ref: x, SCRATCH, collective_axes=written)

    (scope,) = jax.make_jaxpr(body)(NUMBERS).eqns
    assert scope.params["collective_axes"] == kept


def test_a_run_scoped_without_effect_is_dropped_and_raises_nothing():
    @jax.jit
    def add_one(x):
        def body(scratch_ref):
            scratch_ref[...] = x

        pl.run_scoped(body, SCRATCH, collective_axes="i")
        return x + 1

    np.testing.assert_array_equal(add_one(NUMBERS), NUMBERS + 1)


def gpu_kernel(interpret=False, **axes):
    def body(x_ref, o_ref):
        def add_one(scratch_ref):
            scratch_ref[...] = x_ref[...] + 1
            o_ref[...] = scratch_ref[...]

        pl.run_scoped(add_one, plgpu.SMEM((128,), jnp.float32), **axes)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
        num_threads=1,
        thread_name="warpgroup",
        interpret=interpret,
    )


def test_mosaic_gpu_accepts_axes_and_requires_them_natively():
    def lower(**axes):
        kernel = jax.jit(gpu_kernel(**axes))
        return kernel.trace(jnp.ones(128)).lower(lowering_platforms=("cuda",))

    assert "mosaic_gpu" in lower(collective_axes="warpgroup").as_text()
    with pytest.raises(NotImplementedError, match="add collective_axes=warpgroup"):
        lower(collective_axes=())


def test_mosaic_gpu_accepts_axes_and_requires_them_in_its_interpreter():
    def run(**axes):
        return gpu_kernel(InterpretGPUParams(), **axes)(jnp.ones(128))

    np.testing.assert_array_equal(run(collective_axes="warpgroup"), np.full(128, 2.0))
    with pytest.raises(ValueError, match="must have the thread axis in its collective axes"):
        run(collective_axes=())


def names_with_the_parameter(module):
    for name in dir(module):
        try:
            parameters = inspect.signature(getattr(module, name)).parameters
        except (TypeError, ValueError):
            continue
        if "collective_axes" in parameters:
            yield name


def test_many_mosaic_gpu_callables_have_a_parameter_of_the_same_name():
    assert set(names_with_the_parameter(plgpu)) >= {
        "BlockSpec",
        "ClusterBarrier",
        "copy_gmem_to_smem",
        "multimem_load_reduce",
        "multimem_store",
        "nd_loop",
        "semaphore_signal_multicast",
    }


def test_outside_mosaic_gpu_only_the_two_targets_have_it():
    assert set(names_with_the_parameter(pl)) == {"run_scoped", "with_scoped"}
    assert not set(names_with_the_parameter(pltpu)) | set(names_with_the_parameter(plsc))


def test_no_tpu_kernel_inside_jax_passes_axes():
    package = pathlib.Path(jax.__file__).parent
    sources = [
        *package.glob("experimental/pallas/ops/tpu/**/*.py"),
        *package.glob("_src/pallas/mosaic/*.py"),
    ]
    assert len(sources) > 20
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                assert "collective_axes" not in {word.arg for word in node.keywords}, source
