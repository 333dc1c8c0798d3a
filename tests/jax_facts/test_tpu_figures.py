"""A TPU's figures on a host without one: who asks for them, and what stands in for them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

from .kernels import INTERPRETERS, RELEASE, abstract_tpu, call, tensor_cores

V6E, V5E = abstract_tpu("TPU v6 lite"), abstract_tpu("TPU v5 lite")

NO_TPU = "Unsupported TPU device kind: cpu"
# JAX 0.12 adds what a user can do about it.
if RELEASE >= (0, 12):
    NO_TPU += (
        ". If you are not running on a TPU device, you need to wrap your code in a"
        " `jax.sharding.use_abstract_mesh` context manager whose `AbstractMesh` argument specifies"
        " the exact TPU version you intend to target."
    )


def scalar_subcores():
    return plsc.ScalarSubcoreMesh(axis_name="core")


def scalar_subcores_of_a_given_number():
    return plsc.ScalarSubcoreMesh(axis_name="core", num_cores=1)


def vector_subcores():
    return plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore")


def vector_subcores_of_a_given_number():
    return plsc.VectorSubcoreMesh(
        core_axis_name="core", subcore_axis_name="subcore", num_cores=1, num_subcores=16
    )


ASKS_FOR_SPARSE_CORES = [
    plsc.get_sparse_core_info,
    scalar_subcores,
    scalar_subcores_of_a_given_number,
    vector_subcores,
    vector_subcores_of_a_given_number,
]


@pytest.mark.parametrize("ask", [pltpu.get_tpu_info, *ASKS_FOR_SPARSE_CORES])
def test_asking_for_figures_raises_on_cpu(ask):
    with pytest.raises(ValueError) as caught:
        ask()
    assert str(caught.value) == NO_TPU


@pytest.mark.parametrize("ask", [pltpu.get_tpu_info, *ASKS_FOR_SPARSE_CORES])
def test_asking_for_figures_is_answered_under_an_abstract_v6e(ask):
    with jax.sharding.use_abstract_mesh(V6E):
        assert ask() is not None


@pytest.mark.parametrize("ask", ASKS_FOR_SPARSE_CORES)
def test_a_v5e_stands_in_for_nothing_that_needs_sparse_cores(ask):
    with (
        jax.sharding.use_abstract_mesh(V5E),
        pytest.raises(RuntimeError, match=r"^The current TPU does not have SparseCores$"),
    ):
        ask()


def test_figures_of_a_named_chip_need_no_tpu():
    info = pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V6E, 1)
    with jax.sharding.use_abstract_mesh(V6E):
        assert info == pltpu.get_tpu_info()


def test_v6e_has_sparse_cores_and_v5e_none():
    assert pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V6E, 1).sparse_core is not None
    assert pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V5E, 1).sparse_core is None


@pytest.mark.parametrize("chip", pltpu.ChipVersion)
def test_every_chip_has_figures_for_one_core(chip):
    assert pltpu.get_tpu_info_for_chip(chip, 1).chip_version is chip


def test_the_device_kind_that_stands_in_for_v6e_is_a_tpu_to_jax():
    assert not pltpu.is_tpu_device()
    with jax.sharding.use_abstract_mesh(V6E):
        assert pltpu.is_tpu_device()
        assert pltpu.get_tpu_info().chip_version is pltpu.ChipVersion.TPU_V6E


def tensor_cores_by_the_older_name(**num_cores):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return pltpu.create_tensorcore_mesh("core", **num_cores)


@pytest.mark.parametrize("make", [tensor_cores, tensor_cores_by_the_older_name])
def test_a_tensor_core_mesh_needs_num_cores_without_a_tpu(make):
    with pytest.raises(AttributeError) as caught:
        make()
    assert str(caught.value) == ""
    assert dict(make(num_cores=1).shape) == {"core": 1}
    with jax.sharding.use_abstract_mesh(V6E):
        assert dict(make().shape) == {"core": 1}


def pipeline():
    def add_one(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1

    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return pltpu.emit_pipeline(add_one, grid=(2,), in_specs=[spec], out_specs=[spec])


def under_no_mesh(x_ref, o_ref):
    pipeline()(x_ref, o_ref)


def made_and_called_under_the_mesh(x_ref, o_ref):
    with jax.sharding.use_abstract_mesh(V6E):
        pipeline()(x_ref, o_ref)


def called_under_the_mesh(x_ref, o_ref):
    made = pipeline()
    with jax.sharding.use_abstract_mesh(V6E):
        made(x_ref, o_ref)


def made_under_the_mesh(x_ref, o_ref):
    with jax.sharding.use_abstract_mesh(V6E):
        made = pipeline()
    made(x_ref, o_ref)


TWO_BLOCKS = jnp.arange(16.0 * 128).reshape(16, 128)


def pipelined(kernel, interpret):
    whole = pl.BlockSpec(memory_space=pl.ANY)
    return call(
        kernel,
        interpret,
        jax.ShapeDtypeStruct((16, 128), jnp.float32),
        in_specs=[whole],
        out_specs=whole,
    )


in_both = pytest.mark.parametrize("interpret", INTERPRETERS.values(), ids=INTERPRETERS.keys())


@in_both
@pytest.mark.parametrize("kernel", [under_no_mesh, made_under_the_mesh])
def test_calling_a_pipeline_raises_outside_the_mesh(kernel, interpret):
    with pytest.raises(ValueError) as caught:
        pipelined(kernel, interpret)(TWO_BLOCKS)
    assert str(caught.value) == NO_TPU


@in_both
@pytest.mark.parametrize("kernel", [called_under_the_mesh, made_and_called_under_the_mesh])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_pipeline_called_under_the_mesh_computes_what_it_means(kernel, interpret, wrap):
    result = wrap(pipelined(kernel, interpret))(TWO_BLOCKS)
    np.testing.assert_array_equal(result, TWO_BLOCKS + 1)


@in_both
def test_the_mesh_may_also_stand_around_the_entry_point(interpret):
    with jax.sharding.use_abstract_mesh(V6E):
        result = pipelined(under_no_mesh, interpret)(TWO_BLOCKS)
    np.testing.assert_array_equal(result, TWO_BLOCKS + 1)
