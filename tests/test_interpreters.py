"""Every row of the interpreter table, measured on the installed JAX under both interpreters.

A row has one small kernel here, under the same key, which compares what the kernel computed with
what the operation means. An interpreter serves a row if its kernel raises nothing. Kernels for
several devices, and kernels that might hang, run in a Python of their own:
``python tests/test_interpreters.py KEY INTERPRETER``.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

# Before JAX is imported: these tests are about hosts without a TPU.
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

RELEASE = jax.__version_info__[:2]
INTERPRETERS = {
    "generic": True,
    "simulator": pltpu.InterpretParams(
        dma_execution_mode="eager", out_of_bounds_reads="uninitialized"
    ),
}

BLOCK = jax.ShapeDtypeStruct((8, 128), jnp.float32)
BLOCK_OF_INTS = jax.ShapeDtypeStruct((8, 128), jnp.int32)
NUMBERS = np.arange(8 * 128, dtype=np.float32).reshape(8, 128)
INTS = np.arange(8 * 128, dtype=np.int32).reshape(8, 128)
VMEM = pltpu.VMEM((8, 128), jnp.float32)
WHOLE = pl.BlockSpec(memory_space=pl.ANY)
ROWS = pl.BlockSpec((8, 128), lambda i: (i, 0))


@dataclass(frozen=True)
class Kernel:
    """What is run for a row: ``check`` raises where an interpreter does not do the row right."""

    check: Callable[[object], None]
    devices: int = 1
    own_process: bool = False


KERNELS: dict[str, Kernel] = {}


def kernel_for(key: str, **how):
    def register(check):
        assert key not in KERNELS, key
        KERNELS[key] = Kernel(check, **how)
        return check

    return register


def call(body, interpret, *arguments, out_shape=BLOCK, **parameters):
    return pl.pallas_call(body, out_shape=out_shape, interpret=interpret, **parameters)(*arguments)


def equal(actual, expected):
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


# Random bits.


@kernel_for("prng_seed")
def _(interpret):
    def body(x_ref, o_ref):
        pltpu.prng_seed(7)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


def assert_varied(numbers):
    assert np.unique(np.asarray(numbers)).size > 100


@kernel_for("prng_random_bits")
def _(interpret):
    def body(o_ref):
        pltpu.prng_seed(7)
        o_ref[...] = pltpu.prng_random_bits((8, 128))

    assert_varied(call(body, interpret, out_shape=BLOCK_OF_INTS))


@kernel_for("prng_random_bits.zeros")
def _(interpret):
    def body(o_ref):
        o_ref[...] = pltpu.prng_random_bits((8, 128))

    equal(call(body, interpret, out_shape=BLOCK_OF_INTS), jnp.zeros((8,128)))


@kernel_for("stateful_bits")
def _(interpret):
    def body(o_ref):
        pltpu.prng_seed(7)
        o_ref[...] = pltpu.stateful_bits((8, 128))

    out = jax.ShapeDtypeStruct((8, 128), jnp.uint32)
    assert_varied(call(body, interpret, out_shape=out))


@kernel_for("stateful_uniform")
def _(interpret):
    def body(o_ref):
        pltpu.prng_seed(7)
        o_ref[...] = pltpu.stateful_uniform((8, 128))

    assert_varied(call(body, interpret))


@kernel_for("stateful_normal")
def _(interpret):
    def body(o_ref):
        pltpu.prng_seed(7)
        o_ref[...] = pltpu.stateful_normal((8, 128))

    assert_varied(call(body, interpret))


@kernel_for("stateful_bernoulli")
def _(interpret):
    def body(o_ref):
        pltpu.prng_seed(7)
        o_ref[...] = pltpu.stateful_bernoulli(0.5, (8, 128)).astype(jnp.int32)

    assert set(np.unique(call(body, interpret, out_shape=BLOCK_OF_INTS))) == {0, 1}


@kernel_for("to_pallas_key")
def _(interpret):
    def body(key_ref, o_ref):
        o_ref[...] = jax.random.uniform(key_ref[...], (8, 128))

    key = pltpu.to_pallas_key(jax.random.key(3))
    assert_varied(
        call(body, interpret, key, in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)])
    )


@kernel_for("jax_random")
def _(interpret):
    def body(key_ref, o_ref):
        key = jax.random.wrap_key_data(key_ref[0, :], impl="threefry2x32")
        o_ref[...] = jax.random.uniform(key, (8, 128))

    key = jax.random.key_data(jax.random.key(3)).reshape(1, 2)
    equal(call(body, interpret, key), jax.random.uniform(jax.random.key(3), (8, 128)))


@kernel_for("sample_block")
def _(interpret):
    def body(key_ref, o_ref):
        key = jax.random.wrap_key_data(key_ref[0, :], impl="threefry2x32")
        o_ref[...] = pltpu.sample_block(
            jax.random.uniform, key, block_size=(8, 128), tile_size=(8, 128),
            total_size=(8, 128), block_index=(0, 0),
        )

    key = jax.random.key_data(jax.random.key(3)).reshape(1, 2)
    assert_varied(call(body, interpret, key))


# Bits, packing and rounding.


@kernel_for("stochastic_round")
def _(interpret):
    def body(x_ref, bits_ref, o_ref):
        o_ref[...] = pltpu.stochastic_round(
            x_ref[...], bits_ref[...], target_dtype=jnp.bfloat16
        )

    exact = jnp.ones((8, 128), jnp.float32)
    out = jax.ShapeDtypeStruct((8, 128), jnp.bfloat16)
    equal(call(body, interpret, exact, jnp.zeros((8, 128), jnp.uint32), out_shape=out), exact)


@kernel_for("pack_elementwise")
def _(interpret):
    def body(x_ref, y_ref, o_ref):
        o_ref[...] = pltpu.pack_elementwise([x_ref[...], y_ref[...]], packed_dtype=jnp.bfloat16)

    x, y = jnp.full((8, 128), 1.0), jnp.full((8, 128), 2.0)
    out = jax.ShapeDtypeStruct((8, 128), jnp.uint32)
    packed = call(body, interpret, x, y, out_shape=out)
    equal(packed, np.full((8, 128), 0x4000_3F80, np.uint32))


@kernel_for("unpack_elementwise")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.unpack_elementwise(
            x_ref[...], index=1, packed_dtype=jnp.bfloat16, unpacked_dtype=jnp.float32
        )

    packed = jnp.full((8, 128), 0x4000_3F80, jnp.uint32)
    equal(call(body, interpret, packed), np.full((8, 128), 2.0))


@kernel_for("bitcast")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.bitcast(x_ref[...], jnp.int32)

    expected = NUMBERS.view(np.int32)
    equal(call(body, interpret, NUMBERS, out_shape=BLOCK_OF_INTS), expected)


@kernel_for("bitcast.narrow")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.bitcast(x_ref[...], jnp.int16)

    out = jax.ShapeDtypeStruct((16, 128), jnp.int16)
    halves = INTS.view(np.int16).reshape(8, 128, 2)
    expected = halves.transpose(0, 2, 1).reshape(16, 128)
    equal(call(body, interpret, INTS, out_shape=out), expected)


@kernel_for("roll")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.roll(x_ref[...], 3, axis=1)

    equal(call(body, interpret, NUMBERS), np.roll(NUMBERS, 3, axis=1))


@kernel_for("roll.strided")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.roll(x_ref[...], 3, axis=1, stride=2, stride_axis=0)

    expected = [np.roll(row, 3 + 2 * i) for i, row in enumerate(NUMBERS)]
    equal(call(body, interpret, NUMBERS), expected)


@kernel_for("einshape")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.einshape("a(bc)->(ba)c", x_ref[...], b=2)

    out = jax.ShapeDtypeStruct((16, 64), jnp.float32)
    expected = NUMBERS.reshape(8, 2, 64).transpose(1, 0, 2).reshape(16, 64)
    equal(call(body, interpret, NUMBERS, out_shape=out), expected)


@kernel_for("reciprocal")
def _(interpret):
    reciprocal = getattr(pltpu, "reciprocal", None) or pl.reciprocal

    def body(x_ref, o_ref):
        o_ref[...] = reciprocal(x_ref[...] + 1)

    np.testing.assert_allclose(call(body, interpret, NUMBERS), 1 / (NUMBERS + 1), rtol=1e-6)


@kernel_for("reciprocal.approx")
def _(interpret):
    reciprocal = getattr(pltpu, "reciprocal", None) or pl.reciprocal

    def body(x_ref, o_ref):
        o_ref[...] = reciprocal(x_ref[...] + 1, approx=True)

    np.testing.assert_allclose(call(body, interpret, NUMBERS), 1 / (NUMBERS + 1), rtol=1e-2)


@kernel_for("multiple_of")
def _(interpret):
    def body(x_ref, o_ref):
        start = pl.multiple_of(pl.program_id(0) * 8, 8)
        o_ref[...] = x_ref[pl.ds(start, 8), :]

    equal(call(body, interpret, NUMBERS, grid=(1,)), NUMBERS)


@kernel_for("broadcast_to")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pl.broadcast_to(x_ref[0, :], (8, 128))

    equal(call(body, interpret, NUMBERS), np.broadcast_to(NUMBERS[0], (8, 128)))


# Loads, stores and views of Refs.


@kernel_for("static_slice")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[0:4, :] = x_ref.at[pl.ds(4, 4)][...]
        o_ref[4:8, :] = x_ref[pl.ds(0, 4), :]

    equal(call(body, interpret, NUMBERS), np.roll(NUMBERS, 4, axis=0))


@kernel_for("traced_start")
def _(interpret):
    def body(n_ref, x_ref, o_ref):
        n = n_ref[0]
        o_ref[pl.ds(n, 4), :] = x_ref.at[pl.ds(4 - n, 4)][...]
        o_ref[pl.ds(4 - n, 4), :] = x_ref[pl.ds(n, 4), :]

    n = jnp.array([4], jnp.int32)
    smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    whole = pl.BlockSpec((8, 128), lambda: (0, 0))
    equal(
        call(body, interpret, n, NUMBERS, in_specs=[smem, whole]), np.roll(NUMBERS, 4, axis=0)
    )


def copy_traced_rows(n_ref, x_ref, o_ref, semaphore):
    n = n_ref[0]
    copy = pltpu.make_async_copy(x_ref.at[pl.ds(0, n)], o_ref.at[pl.ds(0, n)], semaphore)
    copy.start()
    copy.wait()


@kernel_for("traced_size")
def _(interpret):
    n = jnp.array([5], jnp.int32)
    smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    out = call(
        copy_traced_rows, interpret, n, NUMBERS, in_specs=[smem, WHOLE], out_specs=WHOLE,
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )
    equal(out[:5], NUMBERS[:5])


@kernel_for("strided_access")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[pl.ds(0, 4, stride=2), :] = x_ref[pl.ds(1, 4, stride=2), :]
        o_ref[pl.ds(1, 4, stride=2), :] = x_ref[pl.ds(0, 4, stride=2), :]

    swapped = NUMBERS.reshape(4, 2, 128)[:, ::-1].reshape(8, 128)
    equal(call(body, interpret, NUMBERS), swapped)


@kernel_for("integer_array_index")
def _(interpret):
    def body(i_ref, x_ref, o_ref):
        o_ref[...] = x_ref[i_ref[...], :]

    order = jnp.arange(8, dtype=jnp.int32)[::-1]
    equal(call(body, interpret, order, NUMBERS), NUMBERS[::-1])


@kernel_for("masked_load")
def _(interpret):
    def body(x_ref, o_ref):
        mask = x_ref[...] < 512
        o_ref[...] = jnp.where(mask, pltpu.load(x_ref, mask=mask), 0)

    equal(call(body, interpret, NUMBERS), np.where(NUMBERS < 512, NUMBERS, 0))


@kernel_for("load")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.load(x_ref.at[...])

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("store")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)
        pltpu.store(o_ref, x_ref[...], mask=x_ref[...] < 512)

    equal(call(body, interpret, NUMBERS), np.where(NUMBERS < 512, NUMBERS, 0))


@kernel_for("store.slice")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)
        pltpu.store(o_ref.at[0:4, :], x_ref[0:4, :], mask=x_ref[0:4, :] < 128)

    equal(call(body, interpret, NUMBERS), np.where(NUMBERS < 128, NUMBERS, 0))


@kernel_for("smem_scalars")
def _(interpret):
    def body(s_ref, x_ref, o_ref, count_ref):
        count_ref[0] = s_ref[1] + 1
        o_ref[...] = x_ref[...] + count_ref[0]

    s = jnp.array([5, 6], jnp.int32)
    out = call(
        body, interpret, s, INTS, out_shape=BLOCK_OF_INTS,
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pltpu.VMEM)],
        scratch_shapes=[pltpu.SMEM((1,), jnp.int32)],
    )
    equal(out, INTS + 7)


@kernel_for("ref_reshape")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref.reshape(4, 2, 128)[:, 1, :]

    out = jax.ShapeDtypeStruct((4, 128), jnp.float32)
    equal(call(body, interpret, NUMBERS, out_shape=out), NUMBERS[1::2])


@kernel_for("ref_bitcast")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref.bitcast(jnp.int32)[...]

    expected = NUMBERS.view(np.int32)
    equal(call(body, interpret, NUMBERS, out_shape=BLOCK_OF_INTS), expected)


@kernel_for("store_through_reshape")
def _(interpret):
    def body(x_ref, o_ref):
        view = o_ref.reshape(4, 2, 128)
        view[:, 0, :] = x_ref[4:8, :]
        view[:, 1, :] = x_ref[0:4, :]

    x = NUMBERS
    expected = np.stack([x[4:], x[:4]], axis=1).reshape(8, 128)
    equal(call(body, interpret, NUMBERS), expected)


@kernel_for("store_through_bitcast")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref.bitcast(jnp.float32)[...] = x_ref[...]

    expected = NUMBERS.view(np.int32)
    equal(call(body, interpret, NUMBERS, out_shape=BLOCK_OF_INTS), expected)


@kernel_for("dma_through_reshape")
def _(interpret):
    def body(x_ref, o_ref, semaphore):
        pltpu.async_copy(x_ref.reshape(4, 2, 128), o_ref, semaphore).wait()

    out = jax.ShapeDtypeStruct((4, 2, 128), jnp.float32)
    copied = call(
        body, interpret, NUMBERS, out_shape=out, in_specs=[WHOLE], out_specs=WHOLE,
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )
    equal(copied, NUMBERS.reshape(4, 2, 128))


@kernel_for("dma_through_bitcast")
def _(interpret):
    def body(x_ref, o_ref, semaphore):
        pltpu.async_copy(x_ref.bitcast(jnp.int32), o_ref, semaphore).wait()

    copied = call(
        body, interpret, NUMBERS, out_shape=BLOCK_OF_INTS, in_specs=[WHOLE], out_specs=WHOLE,
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )
    equal(copied, NUMBERS.view(np.int32))


@kernel_for("ref_transpose")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref.transpose(1, 0)[...]

    out = jax.ShapeDtypeStruct((128, 8), jnp.float32)
    equal(call(body, interpret, NUMBERS, out_shape=out), NUMBERS.T)


@kernel_for("select_ref")
def _(interpret):
    def body(n_ref, x_ref, y_ref, o_ref, semaphore):
        pltpu.async_copy(pl.select_ref(n_ref[0], x_ref, y_ref), o_ref, semaphore).wait()

    copied = call(
        body, interpret, jnp.array([1], jnp.int32), NUMBERS, -NUMBERS,
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), WHOLE, WHOLE], out_specs=WHOLE,
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )
    equal(copied, -NUMBERS)


@kernel_for("touch")
def _(interpret):
    def body(x_ref, o_ref):
        pltpu.touch(x_ref)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("annotate")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.annotate(x_ref, no_store=True)[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("has_memory_space")
def _(interpret):
    def body(x_ref, o_ref):
        @pl.when(pltpu.has_memory_space(x_ref, pltpu.HBM))
        def _():
            pltpu.sync_copy(x_ref, o_ref)

    equal(call(body, interpret, NUMBERS, in_specs=[WHOLE], out_specs=WHOLE), NUMBERS)


# Scopes, copies and semaphores of one device.


@kernel_for("run_scoped")
def _(interpret):
    def body(x_ref, o_ref):
        def add_one(scratch_ref, semaphore):
            scratch_ref[...] = x_ref[...] + 1
            o_ref[...] = scratch_ref[...]

        pl.run_scoped(add_one, VMEM, pltpu.SemaphoreType.DMA)

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("with_scoped")
def _(interpret):
    def body(x_ref, o_ref):
        @pl.with_scoped(VMEM)
        def add_one(scratch_ref):
            scratch_ref[...] = x_ref[...] + 1
            o_ref[...] = scratch_ref[...]

        add_one()

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("run_scoped.value")
def _(interpret):
    def body(x_ref, o_ref):
        def add_one(scratch_ref):
            scratch_ref[...] = x_ref[...] + 1
            return scratch_ref[...]

        o_ref[...] = pl.run_scoped(add_one, VMEM)

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("run_scoped.hbm")
def _(interpret):
    def body(x_ref, o_ref):
        def twice(scratch_ref):
            pltpu.sync_copy(x_ref, scratch_ref)
            pltpu.sync_copy(scratch_ref, o_ref)

        pl.run_scoped(twice, pltpu.HBM((8, 128), jnp.float32))

    equal(call(body, interpret, NUMBERS, in_specs=[WHOLE], out_specs=WHOLE), NUMBERS)


@kernel_for("scratch.hbm")
def _(interpret):
    def body(x_ref, o_ref, scratch_ref):
        pltpu.sync_copy(x_ref, scratch_ref)
        pltpu.sync_copy(scratch_ref, o_ref)

    equal(call(body, interpret, NUMBERS, in_specs=[WHOLE], out_specs=WHOLE, scratch_shapes=[pltpu.HBM((8, 128), jnp.float32)]), NUMBERS)


@kernel_for("empty_ref_like")
def _(interpret):
    def body(x_ref, o_ref):
        scratch_ref = pl.empty_ref_like(pltpu.VMEM((8, 128), jnp.float32))
        scratch_ref[...] = x_ref[...] + 1
        o_ref[...] = scratch_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("hbm_load")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS, in_specs=[WHOLE]), NUMBERS)


@kernel_for("sync_copy")
def _(interpret):
    equal(
        call(pltpu.sync_copy, interpret, NUMBERS, in_specs=[WHOLE], out_specs=WHOLE), NUMBERS
    )


@kernel_for("sync_copy.add")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = jnp.ones_like(o_ref)
        pltpu.sync_copy(x_ref, o_ref, add=True)

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("async_copy")
def _(interpret):
    def body(x_ref, o_ref, semaphores):
        pltpu.async_copy(x_ref.at[0:4], o_ref.at[4:8], semaphores.at[0]).wait()
        copy = pltpu.make_async_copy(x_ref.at[4:8], o_ref.at[0:4], semaphores.at[1])
        copy.start()
        copy.wait()

    copied = call(
        body, interpret, NUMBERS, in_specs=[WHOLE], out_specs=WHOLE,
        scratch_shapes=[pltpu.SemaphoreType.DMA((2,))],
    )
    equal(copied, np.roll(NUMBERS, 4, axis=0))


@kernel_for("semaphore")
def _(interpret):
    def body(x_ref, o_ref, semaphore):
        pl.semaphore_signal(semaphore, 2)
        pl.semaphore_wait(semaphore, 2)
        o_ref[...] = x_ref[...]

    scratch = [pltpu.SemaphoreType.REGULAR]
    equal(call(body, interpret, NUMBERS, scratch_shapes=scratch), NUMBERS)


@kernel_for("semaphore_read")
def _(interpret):
    def body(x_ref, o_ref, semaphore):
        pl.semaphore_signal(semaphore, 2)
        o_ref[...] = x_ref[...] + pl.semaphore_read(semaphore)
        pl.semaphore_wait(semaphore, 2)

    scratch = [pltpu.SemaphoreType.REGULAR]
    out = call(body, interpret, INTS, scratch_shapes=scratch, out_shape=BLOCK_OF_INTS)
    equal(out, INTS + 2)


@kernel_for("semaphore_wait.decrement")
def _(interpret):
    def body(x_ref, o_ref, semaphore):
        pl.semaphore_signal(semaphore, 2)
        pl.semaphore_wait(semaphore, 2, decrement=False)
        pl.semaphore_wait(semaphore, 2)
        o_ref[...] = x_ref[...]

    scratch = [pltpu.SemaphoreType.REGULAR]
    equal(call(body, interpret, NUMBERS, scratch_shapes=scratch), NUMBERS)


@kernel_for("get_global")
def _(interpret):
    def body(x_ref, o_ref):
        semaphore = pl.get_global(pltpu.SemaphoreType.REGULAR)
        pl.semaphore_signal(semaphore, 1)
        pl.semaphore_wait(semaphore, 1)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("delay")
def _(interpret):
    def body(x_ref, o_ref):
        pl.delay(100)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("debug_print")
def _(interpret):
    def body(x_ref, o_ref):
        pl.debug_print("row {}", x_ref[0, 0])
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("debug_check")
def _(interpret):
    def body(x_ref, o_ref):
        pl.debug_check(x_ref[0, 0] == 0, "starts at zero")
        o_ref[...] = x_ref[...]

    with pl.enable_debug_checks(True):
        equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("trace_value")
def _(interpret):
    def body(x_ref, o_ref):
        pltpu.trace_value("first", x_ref[0, 0])
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("named_scope")
def _(interpret):
    def body(x_ref, o_ref):
        with jax.named_scope("add"):
            o_ref[...] = x_ref[...] + 1

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("with_memory_space_constraint")
def _(interpret):
    def body(x_ref, o_ref):
        pltpu.sync_copy(x_ref, o_ref)

    @jax.jit
    def run(x):
        x = pltpu.with_memory_space_constraint(x, pltpu.HBM)
        return call(body, interpret, x, in_specs=[WHOLE], out_specs=WHOLE)

    equal(run(NUMBERS), NUMBERS)


@kernel_for("with_memory_space_constraint.vmem")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    @jax.jit
    def run(x):
        x = pltpu.with_memory_space_constraint(x, pltpu.VMEM)
        return call(body, interpret, x, in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)])

    equal(run(NUMBERS), NUMBERS)


# The matrix unit.


@kernel_for("matmul_explicit")
def _(interpret):
    def body(x_ref, y_ref, o_ref, acc_ref):
        pltpu.matmul_push_rhs(y_ref[...], 0, 0)
        pltpu.matmul_acc_lhs(acc_ref, x_ref[...], load_staged_rhs=0)
        o_ref[...] = pltpu.matmul_pop(acc_ref)

    ones = jnp.ones((256, 256), jnp.bfloat16)
    out = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    with abstract_tpu(): acc = pltpu.ACC(0)((256, 256), jnp.float32) if RELEASE >= (0, 12) else pltpu.VMEM((256, 256), jnp.float32)
    equal(call(body, interpret, ones, ones, out_shape=out, scratch_shapes=[acc]), np.full((256, 256), 256.0))


@kernel_for("matmul_fifo")
def _(interpret):
    def body(x_ref, y_ref, o_ref):
        pltpu.matmul_push_rhs(y_ref[...], 0, 0)
        pltpu.matmul_lhs_fifo(x_ref[...], 0, load_staged_rhs=0)
        o_ref[...] = pltpu.matmul_pop_fifo((256, 256), jnp.float32, 0)

    ones = jnp.ones((256, 256), jnp.bfloat16)
    out = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    equal(call(body, interpret, ones, ones, out_shape=out), np.full((256, 256), 256.0))


@kernel_for("dot")
def _(interpret):
    def body(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    y = jnp.eye(128)
    equal(call(body, interpret, NUMBERS, y), NUMBERS)


@kernel_for("conv")
def _(interpret):
    def body(x_ref, w_ref, o_ref):
        o_ref[...] = pltpu.conv(x_ref[...], w_ref[...], dimension_numbers=("NHWC", "HWIO", "NHWC"))

    x = jnp.ones((1, 4, 4, 128))
    w = jnp.ones((2, 2, 128, 128))
    out = jax.ShapeDtypeStruct((1, 3, 3, 128), jnp.float32)
    equal(call(body, interpret, x, w, out_shape=out), np.full((1, 3, 3, 128), 512.0))


@kernel_for("split_bits")
def _(interpret):
    def body(x_ref, o_ref):
        low, high = pltpu.split_bits(x_ref[...], bitwidths=(4, 4))
        o_ref[...] = pltpu.join_bits([low, high]).astype(jnp.int32)

    x = INTS.astype(jnp.uint8)
    equal(call(body, interpret, x, out_shape=BLOCK_OF_INTS), x.astype(jnp.int32))


@kernel_for("pack_fp6")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.unpack_fp6(*pltpu.pack_fp6(x_ref[...])).astype(jnp.int32)

    x = (INTS % 64).astype(jnp.uint8)
    equal(call(body, interpret, x, out_shape=BLOCK_OF_INTS), x.astype(jnp.int32))


# Grids, block specifications and scalar prefetch.


@kernel_for("program_id")
def _(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] + pl.program_id(0) * 10 + pl.num_programs(0)

    x = jnp.concatenate([INTS, INTS])
    out = jax.ShapeDtypeStruct((16, 128), jnp.int32)
    result = call(body, interpret, x, out_shape=out, grid=(2,), in_specs=[ROWS], out_specs=ROWS)
    equal(result, np.concatenate([INTS + 2, INTS + 12]))


@kernel_for("grid_accumulate")
def _(interpret):
    def body(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    x = jnp.concatenate([NUMBERS, NUMBERS])
    out_spec = pl.BlockSpec((8, 128), lambda i: (0, 0))
    equal(call(body, interpret, x, grid=(2,), in_specs=[ROWS], out_specs=out_spec), 2 * NUMBERS)


@kernel_for("scratch_state")
def _(interpret):
    def body(x_ref, o_ref, total_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            total_ref[...] = jnp.zeros_like(total_ref)

        total_ref[...] += x_ref[...]
        o_ref[...] = total_ref[...]

    x = jnp.concatenate([NUMBERS, NUMBERS])
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    result = call(
        body, interpret, x, out_shape=out, grid=(2,), in_specs=[ROWS], out_specs=ROWS,
        scratch_shapes=[VMEM],
    )
    equal(result, np.concatenate([NUMBERS, 2 * NUMBERS]))


@kernel_for("loops")
def _(interpret):
    def body(x_ref, o_ref):
        def row(i, total):
            o_ref[pl.ds(i, 1), :] = x_ref[pl.ds(i, 1), :] + i.astype(jnp.float32)
            return total + 1

        done = jax.lax.fori_loop(0, 8, row, 0)
        _, done = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + 1), (0, done))
        o_ref[0, :] = o_ref[0, :] + done.astype(jnp.float32)

    expected = NUMBERS + np.arange(8.0)[:, None]
    expected[0] += 11
    equal(call(body, interpret, NUMBERS), expected)


@kernel_for("loop")
def _(interpret):
    def body(x_ref, o_ref):
        @pl.loop(0, 8)
        def _(i):
            o_ref[pl.ds(i, 1), :] = x_ref[pl.ds(i, 1), :] + 1

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("dimension_semantics")
def _(interpret):
    x = jnp.concatenate([NUMBERS, NUMBERS])
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    result = call(
        add_one, interpret, x, out_shape=out, grid=(2,), in_specs=[ROWS], out_specs=ROWS,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )
    equal(result, x + 1)


def add_one(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


@kernel_for("vmap")
def _(interpret):
    pair = jnp.stack([NUMBERS, -NUMBERS])
    equal(jax.vmap(lambda x: call(add_one, interpret, x))(pair), pair + 1)


@kernel_for("vmap.dimension_semantics")
def _(interpret):
    def run(x):
        return call(
            add_one, interpret, x, grid=(1,), in_specs=[ROWS], out_specs=ROWS,
            compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        )

    pair = jnp.stack([NUMBERS, -NUMBERS])
    equal(jax.vmap(run)(pair), pair + 1)


@kernel_for("checkpoint_grad")
def _(interpret):
    @jax.custom_vjp
    def f(x):
        return call(add_one, interpret, x)

    f.defvjp(lambda x: (f(x), None), lambda _, g: (call(add_one, interpret, g),))
    equal(jax.grad(lambda x: jax.checkpoint(f)(x).sum())(NUMBERS), np.full((8, 128), 2.0))


@kernel_for("jvp")
def _(interpret):
    _, tangent = jax.jvp(lambda x: call(add_one, interpret, x), (NUMBERS,), (NUMBERS,))
    equal(tangent, NUMBERS)


@kernel_for("dynamic_grid")
def _(interpret):
    @jax.jit
    def run(n, x):
        out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
        return call(add_one, interpret, x, out_shape=out, grid=(n,), in_specs=[ROWS], out_specs=ROWS)

    x = jnp.concatenate([NUMBERS, NUMBERS])
    equal(run(2, x), x + 1)


@kernel_for("ragged_last_block")
def _(interpret):
    x = jnp.arange(12.0 * 128).reshape(12, 128)
    out = jax.ShapeDtypeStruct((12, 128), jnp.float32)
    equal(call(add_one, interpret, x, out_shape=out, grid=(2,), in_specs=[ROWS], out_specs=ROWS), x + 1)


@kernel_for("block.squeezed")
def _(interpret):
    x = jnp.stack([NUMBERS, -NUMBERS])
    spec = pl.BlockSpec((pl.Squeezed(), 8, 128), lambda i: (i, 0, 0))
    out = jax.ShapeDtypeStruct((2, 8, 128), jnp.float32)
    equal(call(add_one, interpret, x, out_shape=out, grid=(2,), in_specs=[spec], out_specs=spec), x + 1)


@kernel_for("block.element")
def _(interpret):
    x = jnp.concatenate([NUMBERS, NUMBERS])
    spec = pl.BlockSpec((pl.Element(8), pl.Element(128)), lambda i: (4 * i, 0))
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    result = call(add_one, interpret, x, out_shape=out, grid=(2,), in_specs=[spec], out_specs=ROWS)
    equal(result, np.concatenate([x[0:8], x[4:12]]) + 1)


@kernel_for("block.element.padding")
def _(interpret):
    spec = pl.BlockSpec((pl.Element(8, (4, 0)), pl.Element(128)), lambda i: (8 * i, 0))
    result = call(add_one, interpret, NUMBERS, grid=(1,), in_specs=[spec], out_specs=ROWS)
    equal(result[4:], NUMBERS[:4] + 1)


@kernel_for("block.bounded_slice")
def _(interpret):
    x = jnp.concatenate([NUMBERS, NUMBERS])
    spec = pl.BlockSpec((pl.BoundedSlice(8), 128), lambda i: (pl.ds(8 * i, 8), 0))
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    equal(call(add_one, interpret, x, out_shape=out, grid=(2,), in_specs=[spec], out_specs=spec), x + 1)


@kernel_for("block.buffered")
def _(interpret):
    x = jnp.concatenate([NUMBERS, NUMBERS])
    spec = pl.BlockSpec((8, 128), lambda i: (i, 0), pipeline_mode=pl.Buffered(3))
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    equal(call(add_one, interpret, x, out_shape=out, grid=(2,), in_specs=[spec], out_specs=ROWS), x + 1)


@kernel_for("block.revisited")
def _(interpret):
    def body(x_ref, o_ref):
        @pl.when(pl.program_id(0) < 2)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    x = jnp.concatenate([NUMBERS] * 4)
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    spec = pl.BlockSpec(
        (8, 128), lambda i: (i % 2, 0),
        pipeline_mode=pl.Buffered(2, revisit=pl.RevisitMode.ANY),
    )
    result = call(body, interpret, x, out_shape=out, grid=(4,), in_specs=[ROWS], out_specs=spec)
    equal(result, np.concatenate([2 * NUMBERS] * 2))


def prefetched(body, interpret, scalars, *arguments, steps=2, rows=8, spec=ROWS, **parameters):
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(steps,), in_specs=[spec] * len(arguments), out_specs=ROWS
    )
    out = jax.ShapeDtypeStruct((rows, 128), arguments[0].dtype)
    return call(body, interpret, scalars, *arguments, out_shape=out, grid_spec=grid_spec, **parameters)


@kernel_for("scalar_prefetch")
def _(interpret):
    def body(order_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] + order_ref[pl.program_id(0)].astype(jnp.float32)

    x = jnp.concatenate([NUMBERS, -NUMBERS])
    spec = pl.BlockSpec((8, 128), lambda i, order_ref: (order_ref[i], 0))
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(2,), in_specs=[spec],
        out_specs=pl.BlockSpec((8, 128), lambda i, order_ref: (i, 0)),
    )
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    result = call(
        body, interpret, jnp.array([1, 0], jnp.int32), x, out_shape=out, grid_spec=grid_spec
    )
    equal(result, np.concatenate([1 - NUMBERS, NUMBERS]))


@kernel_for("scalar_prefetch.state")
def _(interpret):
    def body(count_ref, x_ref, o_ref):
        count_ref[0] += 1
        o_ref[...] = x_ref[...] + count_ref[0]

    row = pl.BlockSpec((8, 128), lambda i, count_ref: (i, 0))
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(2,), in_specs=[row], out_specs=row
    )
    x = jnp.concatenate([INTS, INTS])
    out = jax.ShapeDtypeStruct((16, 128), jnp.int32)
    result = call(body, interpret, jnp.array([10], jnp.int32), x, out_shape=out, grid_spec=grid_spec)
    equal(result, np.concatenate([INTS + 11, INTS + 12]))


@kernel_for("prefetch_traced_size")
def _(interpret):
    def body(n_ref, x_ref, o_ref, semaphore):
        n = n_ref[0]
        pltpu.async_copy(x_ref.at[pl.ds(0, n)], o_ref.at[pl.ds(0, n)], semaphore).wait()

    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(1,), in_specs=[WHOLE], out_specs=WHOLE,
        scratch_shapes=[pltpu.SemaphoreType.DMA],
    )
    out = call(body, interpret, jnp.array([5], jnp.int32), NUMBERS, grid_spec=grid_spec)
    equal(out[:5], NUMBERS[:5])


@kernel_for("block.indirect")
def _(interpret):
    def body(order_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]

    spec = pl.BlockSpec((pl.Indirect(8), 128), lambda i, order_ref: (order_ref[...], 0))
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(1,), in_specs=[spec],
        out_specs=pl.BlockSpec((8, 128), lambda i, order_ref: (0, 0)),
    )
    order = jnp.arange(8, dtype=jnp.int32)[::-1]
    equal(call(body, interpret, order, NUMBERS, grid_spec=grid_spec), NUMBERS[::-1])


# Inputs that are also outputs.


@kernel_for("alias.read_then_write")
def _(interpret):
    equal(call(add_one, interpret, NUMBERS, input_output_aliases={0: 0}), NUMBERS + 1)


@kernel_for("alias.grid")
def _(interpret):
    x = jnp.concatenate([NUMBERS, NUMBERS])
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    result = call(
        add_one, interpret, x, out_shape=out, grid=(2,), in_specs=[ROWS], out_specs=ROWS,
        input_output_aliases={0: 0},
    )
    equal(result, x + 1)


@kernel_for("alias.partial_write")
def _(interpret):
    def body(x_ref, o_ref):
        del x_ref
        pltpu.sync_copy(o_ref.at[0:4], o_ref.at[4:8])

    result = call(
        body, interpret, NUMBERS, in_specs=[WHOLE], out_specs=WHOLE, input_output_aliases={0: 0}
    )
    equal(result, np.concatenate([NUMBERS[:4], NUMBERS[:4]]))


@kernel_for("alias.input_written")
def _(interpret):
    def body(x_ref, y_ref, o_ref):
        del o_ref
        pltpu.sync_copy(y_ref.at[0:4], x_ref.at[4:8])

    result = call(
        body, interpret, NUMBERS, -NUMBERS, in_specs=[WHOLE] * 2, out_specs=WHOLE,
        input_output_aliases={0: 0},
    )
    equal(result, np.concatenate([NUMBERS[:4], -NUMBERS[:4]]))


@kernel_for("alias.read_after_write")
def _(interpret):
    def body(x_ref, y_ref, o_ref, seen_ref):
        pltpu.sync_copy(y_ref, o_ref)
        pltpu.sync_copy(x_ref, seen_ref)

    _, seen = call(
        body, interpret, NUMBERS, -NUMBERS, out_shape=(BLOCK, BLOCK), in_specs=[WHOLE] * 2,
        out_specs=(WHOLE, WHOLE), input_output_aliases={0: 0},
    )
    equal(seen, -NUMBERS)


@kernel_for("alias.both_written")
def _(interpret):
    def body(x_ref, y_ref, o_ref):
        pltpu.sync_copy(y_ref.at[0:4], x_ref.at[4:8])
        pltpu.sync_copy(y_ref.at[4:8], o_ref.at[0:4])

    result = call(
        body, interpret, NUMBERS, -NUMBERS, in_specs=[WHOLE] * 2, out_specs=WHOLE,
        input_output_aliases={0: 0},
    )
    equal(result, np.concatenate([-NUMBERS[4:], -NUMBERS[:4]]))


@kernel_for("alias.across_steps")
def _(interpret):
    """Each step reads, through the input, what the step before wrote through the output."""

    def body(x_ref, o_ref, scratch_ref):
        pltpu.sync_copy(x_ref, scratch_ref)
        scratch_ref[...] += 1
        pltpu.sync_copy(scratch_ref, o_ref)

    result = call(
        body, interpret, NUMBERS, grid=(3,), in_specs=[WHOLE], out_specs=WHOLE,
        input_output_aliases={0: 0}, scratch_shapes=[VMEM],
    )
    equal(result, NUMBERS + 3)


@kernel_for("alias.scalar_prefetch")
def _(interpret):
    def body(order_ref, x_ref, alias_ref, o_ref):
        o_ref[...] = x_ref[...] + alias_ref[...]

    row = pl.BlockSpec((8, 128), lambda i, order_ref: (i, 0))
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(2,), in_specs=[row, row], out_specs=row
    )
    x = jnp.concatenate([INTS, INTS])
    out = jax.ShapeDtypeStruct((16, 128), jnp.int32)
    result = call(
        body, interpret, jnp.array([1, 0], jnp.int32), x, x, out_shape=out, grid_spec=grid_spec,
        input_output_aliases={2: 0},
    )
    equal(result, 2 * x)


# Entry points over cores.


def tensor_cores(n=1):
    if RELEASE >= (0, 12):
        return pltpu.TensorCoreMesh(axis_name="core", num_cores=n)
    return pltpu.create_tensorcore_mesh("core", num_cores=n)


@kernel_for("pl_kernel")
def _(interpret):
    def body(x_ref, o_ref):
        pltpu.sync_copy(x_ref, o_ref)

    run = pl.kernel(body, BLOCK, mesh=tensor_cores(), interpret=interpret)
    equal(run(NUMBERS), NUMBERS)


@kernel_for("pl_kernel.scratch")
def _(interpret):
    def body(x_ref, o_ref, scratch_ref):
        pltpu.sync_copy(x_ref, scratch_ref)
        scratch_ref[...] += 1
        pltpu.sync_copy(scratch_ref, o_ref)

    run = pl.kernel(body, BLOCK, mesh=tensor_cores(), interpret=interpret, scratch_types=[VMEM])
    equal(run(NUMBERS), NUMBERS + 1)


@kernel_for("pl_kernel.axis_index")
def _(interpret):
    def body(x_ref, o_ref):
        core = jax.lax.axis_index("core")
        pltpu.sync_copy(x_ref.at[pl.ds(4 * core, 4)], o_ref.at[pl.ds(4 * core, 4)])

    run = pl.kernel(body, BLOCK, mesh=tensor_cores(2), interpret=interpret)
    equal(run(NUMBERS), NUMBERS)


@kernel_for("pl_kernel.axis_index.one_core")
def _(interpret):
    def body(x_ref, o_ref):
        core = jax.lax.axis_index("core")
        pltpu.sync_copy(x_ref.at[pl.ds(8 * core, 8)], o_ref.at[pl.ds(8 * core, 8)])

    run = pl.kernel(body, BLOCK, mesh=tensor_cores(1), interpret=interpret)
    equal(run(NUMBERS), NUMBERS)


@kernel_for("pl_kernel.two_cores")
def _(interpret):
    def body(x_ref, o_ref):
        pltpu.sync_copy(x_ref, o_ref)

    run = pl.kernel(body, BLOCK, mesh=tensor_cores(2), interpret=interpret)
    equal(run(NUMBERS), NUMBERS)


@kernel_for("pl_kernel.program_id")
def _(interpret):
    def body(x_ref, o_ref):
        core = pl.program_id(0)
        pltpu.sync_copy(x_ref.at[pl.ds(4 * core, 4)], o_ref.at[pl.ds(4 * core, 4)])

    run = pl.kernel(body, BLOCK, mesh=tensor_cores(2), interpret=interpret)
    equal(run(NUMBERS), NUMBERS)


@kernel_for("pl_kernel.handed_refs")
def _(interpret):
    def body(x_ref, y_ref):
        pltpu.sync_copy(x_ref, y_ref)

    @jax.jit
    def run(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
        pl.kernel(body, mesh=tensor_cores(), interpret=interpret)(x_ref, y_ref)
        return y_ref[...]

    equal(run(NUMBERS), NUMBERS)


@kernel_for("pl_kernel.captured_refs")
def _(interpret):
    @jax.jit
    def run(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

        def body():
            pltpu.sync_copy(x_ref, y_ref)

        pl.kernel(body, mesh=tensor_cores(), interpret=interpret)()
        return y_ref[...]

    equal(run(NUMBERS), NUMBERS)


@kernel_for("core_map")
def _(interpret):
    @jax.jit
    def run(x):
        def with_refs(refs):
            x_ref, y_ref = refs

            @pl.core_map(tensor_cores(), interpret=interpret)
            def _():
                pltpu.sync_copy(x_ref, y_ref)

        return pl.run_state(with_refs)((x, jnp.zeros_like(x)))[1]

    equal(run(NUMBERS), NUMBERS)


@kernel_for("core_map.new_ref")
def _(interpret):
    @jax.jit
    def run(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))

        @pl.core_map(tensor_cores(), interpret=interpret)
        def _():
            pltpu.sync_copy(x_ref, y_ref)

        return y_ref[...]

    equal(run(NUMBERS), NUMBERS)


@kernel_for("run_on_first_core")
def _(interpret):
    def body(x_ref, o_ref):
        @pltpu.run_on_first_core("core")
        def _():
            pltpu.sync_copy(x_ref, o_ref)

    run = pl.kernel(body, BLOCK, mesh=tensor_cores(2), interpret=interpret)
    equal(run(NUMBERS), NUMBERS)


@kernel_for("core_barrier", own_process=True)
def _(interpret):
    def body(x_ref, o_ref, semaphore):
        core = jax.lax.axis_index("core")
        pltpu.sync_copy(x_ref.at[pl.ds(4 * core, 4)], o_ref.at[pl.ds(4 * core, 4)])
        pltpu.core_barrier(semaphore, core_axis_name="core")

    run = pl.kernel(
        body, BLOCK, mesh=tensor_cores(2), interpret=interpret,
        scratch_types=[pltpu.SemaphoreType.REGULAR],
    )
    equal(run(NUMBERS), NUMBERS)


@kernel_for("run_state")
def _(interpret):
    @jax.jit
    def run(x):
        def with_refs(refs):
            x_ref, y_ref = refs
            y_ref[...] = call(add_one, interpret, x_ref[...])

        return pl.run_state(with_refs)((x, jnp.zeros_like(x)))[1]

    equal(run(NUMBERS), NUMBERS + 1)


# Pipelines inside a kernel, under the figures of a TPU.


def abstract_tpu():
    device = jax.sharding.AbstractDevice(device_kind="TPU v6 lite", num_cores=1, platform="tpu")
    return jax.sharding.use_abstract_mesh(
        jax.sharding.AbstractMesh((), (), abstract_device=device)
    )


def pipelined(emit, interpret):
    def body(x_ref, o_ref):
        with abstract_tpu():
            emit(x_ref, o_ref)

    x = jnp.concatenate([NUMBERS, -NUMBERS])
    out = jax.ShapeDtypeStruct((16, 128), jnp.float32)
    equal(call(body, interpret, x, out_shape=out, in_specs=[WHOLE], out_specs=WHOLE), x + 1)


@kernel_for("emit_pipeline")
def _(interpret):
    pipelined(
        pltpu.emit_pipeline(add_one, grid=(2,), in_specs=[ROWS], out_specs=[ROWS]), interpret
    )


@kernel_for("emit_pipeline_with_allocations")
def _(interpret):
    def emit(x_ref, o_ref):
        pipeline, make_allocations = pltpu.emit_pipeline_with_allocations(
            add_one, grid=(2,), in_specs=[ROWS], out_specs=[ROWS]
        )
        pl.run_scoped(
            lambda allocations: pipeline(x_ref, o_ref, allocations=allocations),
            make_allocations(x_ref, o_ref),
        )

    pipelined(emit, interpret)


# SparseCores, made under the figures of a TPU that has them.


def on_subcores(body, interpret, *arguments, out=BLOCK, scalar=False, **parameters):
    with abstract_tpu():
        if scalar:
            mesh = plsc.ScalarSubcoreMesh(axis_name="core", num_cores=2)
        else:
            mesh = plsc.VectorSubcoreMesh(
                core_axis_name="core", subcore_axis_name="subcore", num_cores=1, num_subcores=4
            )
        return np.asarray(
            pl.kernel(body, out, mesh=mesh, interpret=interpret, **parameters)(*arguments)
        )


@kernel_for("scalar_subcores")
def _(interpret):
    def body(x_ref, o_ref):
        core = jax.lax.axis_index("core")
        pltpu.sync_copy(x_ref.at[pl.ds(4 * core, 4)], o_ref.at[pl.ds(4 * core, 4)])

    equal(on_subcores(body, interpret, NUMBERS, scalar=True), NUMBERS)


@kernel_for("scalar_subcores.noaxis")
def _(interpret):
    def body(x_ref, o_ref):
        pltpu.sync_copy(x_ref, o_ref)

    equal(on_subcores(body, interpret, NUMBERS, scalar=True), NUMBERS)


@kernel_for("vector_subcores")
def _(interpret):
    def body(x_ref, o_ref):
        me = jax.lax.axis_index("subcore")
        pltpu.sync_copy(x_ref.at[pl.ds(2 * me, 2)], o_ref.at[pl.ds(2 * me, 2)])

    equal(on_subcores(body, interpret, NUMBERS), NUMBERS)


@kernel_for("vector_subcores.noaxis")
def _(interpret):
    def body(x_ref, o_ref):
        pltpu.sync_copy(x_ref, o_ref)

    equal(on_subcores(body, interpret, NUMBERS), NUMBERS)


def lanes(compute, interpret, x, expected):
    """``compute`` on one vector of a subcore, which every subcore does alike."""

    def body(x_ref, o_ref, in_ref, out_ref):
        pltpu.sync_copy(x_ref, in_ref)
        compute(in_ref, out_ref)
        pltpu.sync_copy(out_ref, o_ref)

    vector = pltpu.VMEM((8,), x.dtype)
    out_vector = pltpu.VMEM((8,), expected.dtype)
    out = jax.ShapeDtypeStruct((8,), expected.dtype)
    kw = {"scratch_types": [vector, out_vector]}
    equal(on_subcores(body, interpret, x, out=out, **kw), expected)


EIGHT = np.array([3, 1, 4, 1, 5, 9, 2, 6], jnp.int32)
ODD = EIGHT % 2 == 1

LANES = {
    "load_expanded": None,
}


def store(f):
    def compute(in_ref, out_ref):
        out_ref[...] = f(in_ref[...])
    return compute

@kernel_for("sc.copy")
def _(i): lanes(store(lambda x: x), i, EIGHT, EIGHT)
@kernel_for("sc.cumsum")
def _(i): lanes(store(plsc.cumsum), i, EIGHT, np.cumsum(EIGHT).astype(np.int32))
@kernel_for("sc.cummax")
def _(i): lanes(store(plsc.cummax), i, EIGHT, np.maximum.accumulate(EIGHT))
@kernel_for("sc.all_reduce_population_count")
def _(i): lanes(store(lambda x: plsc.all_reduce_population_count(x % 2 == 1)), i, EIGHT, np.full(8, 5, np.int32))
@kernel_for("sc.all_reduce_ffs")
def _(i): lanes(store(lambda x: plsc.all_reduce_ffs(x % 2 == 0)), i, EIGHT, np.full(8, 2, np.int32))
@kernel_for("sc.sort_key_val")
def _(i): lanes(store(lambda x: plsc.sort_key_val(x, x)[0]), i, EIGHT, np.sort(EIGHT))
@kernel_for("sc.scan_count")
def _(i): lanes(store(lambda x: plsc.scan_count(x)[0]), i, EIGHT, np.array([1,1,1,2,1,1,1,1], np.int32))
@kernel_for("sc.bitcast")
def _(i): lanes(store(lambda x: plsc.bitcast(x, jnp.float32)), i, EIGHT, EIGHT.view(np.float32))
@kernel_for("sc.pack")
def _(i): lanes(store(lambda x: plsc.unpack(plsc.pack(x, x, format=plsc.PackFormat.INTERLEAVED), format=plsc.PackFormat.INTERLEAVED)[0]), i, EIGHT.astype(jnp.float32), np.asarray(EIGHT.astype(jnp.float32)))
@kernel_for("sc.load_expanded")
def _(i):
    def c(a, o): o[...] = jnp.where(a[...] % 2 == 1, plsc.load_expanded(a.at[...], mask=a[...] % 2 == 1), 0)
    lanes(c, i, EIGHT, np.array([3,1,0,4,1,5,0,0],np.int32))
@kernel_for("sc.store_compressed")
def _(i):
    def c(a, o):
        o[...] = jnp.zeros(8, jnp.int32)
        plsc.store_compressed(o.at[...], a[...], mask=a[...] % 2 == 1)
    lanes(c, i, EIGHT, np.array([3,1,1,5,9,0,0,0],np.int32))
@kernel_for("sc.addupdate")
def _(i):
    def c(a, o):
        o[...] = a[...]
        plsc.addupdate(o.at[...], a[...])
    lanes(c, i, EIGHT, 2*EIGHT)
@kernel_for("sc.addupdate_compressed")
def _(i):
    def c(a, o):
        o[...] = jnp.zeros(8, jnp.int32)
        plsc.addupdate_compressed(o.at[...], a[...], mask=a[...] % 2 == 1)
    lanes(c, i, EIGHT, np.array([3,1,1,5,9,0,0,0],np.int32))
@kernel_for("sc.load_gather")
def _(i):
    def c(a, o): o[...] = plsc.load_gather(a, [7 - jnp.arange(8, dtype=jnp.int32)])
    lanes(c, i, EIGHT, EIGHT[::-1])
@kernel_for("sc.store_scatter")
def _(i):
    def c(a, o): plsc.store_scatter(o, [7 - jnp.arange(8, dtype=jnp.int32)], a[...])
    lanes(c, i, EIGHT, EIGHT[::-1])
@kernel_for("sc.addupdate_scatter")
def _(i):
    def c(a, o):
        o[...] = a[...]
        plsc.addupdate_scatter(o, [7 - jnp.arange(8, dtype=jnp.int32)], a[...])
    lanes(c, i, EIGHT, EIGHT[::-1]+EIGHT)
@kernel_for("sc.parallel_loop")
def _(i):
    def c(a, o):
        @plsc.parallel_loop(0, 1)
        def _(j): o[...] = a[...] + 1
    lanes(c, i, EIGHT, EIGHT+1)
@kernel_for("sc.subcore_barrier")
def _(i):
    def c(a, o):
        plsc.subcore_barrier()
        o[...] = a[...]
    lanes(c, i, EIGHT, EIGHT)
@kernel_for("sc.fetch_and_add")
def _(interpret):
    def body(x_ref, o_ref, s_ref):
        s_ref[0] = 5
        s_ref[1] = plsc.fetch_and_add(s_ref.at[0], 2, subcore_id=0)
        o_ref[0] = s_ref[1]
    out = jax.ShapeDtypeStruct((1,), jnp.int32)
    with abstract_tpu():
        mesh = plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", num_cores=1, num_subcores=1)
        equal(pl.kernel(body, out, mesh=mesh, interpret=interpret, scratch_types=[pltpu.SMEM((2,), jnp.int32)])(EIGHT), [5])
@kernel_for("sc.indices")
def _(i):
    def body(x_ref, o_ref, i_ref):
        i_ref[...] = 7 - jnp.arange(8, dtype=jnp.int32)
        pltpu.sync_copy(x_ref.at[plsc.Indices(i_ref)], o_ref)
    equal(on_subcores(body, i, NUMBERS, scratch_types=[pltpu.VMEM((8,), jnp.int32)]), NUMBERS[::-1])


# Several devices, each simulated by a thread: in a Python of their own.


def on_devices(body, interpret, *, collective_id=None, **parameters):
    """``body`` on two devices, each of which holds one block; what the two hold afterwards."""
    devices = jax.sharding.Mesh(np.array(jax.devices()), ("device",))
    rows = jax.sharding.PartitionSpec("device")

    def on_each(x):
        return call(
            body, interpret, x, in_specs=[WHOLE], out_specs=WHOLE,
            compiler_params=pltpu.CompilerParams(collective_id=collective_id), **parameters,
        )

    run = jax.jit(
        jax.shard_map(on_each, mesh=devices, in_specs=rows, out_specs=rows, check_vma=False)
    )
    return np.asarray(run(jnp.concatenate([NUMBERS, -NUMBERS])))


SWAPPED = np.concatenate([-NUMBERS, NUMBERS])
TWO_DMA = [pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA]


def remote_copy(device_id, **kw):
    def body(x_ref, o_ref, send, receive):
        other = 1 - jax.lax.axis_index("device")
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id(other), **kw)
        copy.start()
        copy.wait()

    return body


@kernel_for("shard_map", devices=2)
def _(interpret):
    def body(x_ref, o_ref):
        pltpu.sync_copy(x_ref, o_ref)

    equal(on_devices(body, interpret), -SWAPPED)


@kernel_for("device_axis_index", devices=2)
def _(interpret):
    def body(x_ref, o_ref):
        me = jax.lax.axis_index("device")

        @pl.when(me == 1)
        def _():
            pltpu.sync_copy(x_ref, o_ref)

    equal(on_devices(body, interpret)[8:], -NUMBERS)


@kernel_for("remote_copy.scalar", devices=2)
def _(interpret):
    equal(on_devices(remote_copy(lambda i: i), interpret, scratch_shapes=TWO_DMA), SWAPPED)


@kernel_for("remote_copy.scalar.logical", devices=2)
def _(interpret):
    equal(on_devices(remote_copy(lambda i: i, device_id_type=pl.DeviceIdType.LOGICAL), interpret, scratch_shapes=TWO_DMA), SWAPPED)


@kernel_for("remote_copy.tuple", devices=2)
def _(interpret):
    equal(on_devices(remote_copy(lambda i: (i,)), interpret, scratch_shapes=TWO_DMA), SWAPPED)


@kernel_for("remote_copy.dict", devices=2)
def _(interpret):
    equal(
        on_devices(remote_copy(lambda i: {"device": i}), interpret, scratch_shapes=TWO_DMA), SWAPPED
    )


@kernel_for("async_remote_copy", devices=2)
def _(interpret):
    def body(x_ref, o_ref, send, receive):
        other = 1 - jax.lax.axis_index("device")
        pltpu.async_remote_copy(x_ref, o_ref, send, receive, other).wait()

    equal(on_devices(body, interpret, scratch_shapes=TWO_DMA), SWAPPED)


def signal(device_id):
    def body(x_ref, o_ref, semaphore):
        other = 1 - jax.lax.axis_index("device")
        pl.semaphore_signal(semaphore, 1, device_id=device_id(other))
        pl.semaphore_wait(semaphore, 1)
        pltpu.sync_copy(x_ref, o_ref)

    return body


REGULAR = [pltpu.SemaphoreType.REGULAR]


@kernel_for("semaphore_signal.scalar", devices=2)
def _(interpret):
    equal(on_devices(signal(lambda i: i), interpret, scratch_shapes=REGULAR), -SWAPPED)


@kernel_for("semaphore_signal.tuple", devices=2)
def _(interpret):
    equal(on_devices(signal(lambda i: (i,)), interpret, scratch_shapes=REGULAR), -SWAPPED)


@kernel_for("semaphore_signal.dict", devices=2)
def _(interpret):
    equal(on_devices(signal(lambda i: {"device": i}), interpret, scratch_shapes=REGULAR), -SWAPPED)


@kernel_for("get_barrier_semaphore", devices=2)
def _(interpret):
    def body(x_ref, o_ref):
        barrier = pltpu.get_barrier_semaphore()
        other = 1 - jax.lax.axis_index("device")
        pl.semaphore_signal(barrier, 1, device_id=other)
        pl.semaphore_wait(barrier, 1)
        pltpu.sync_copy(x_ref, o_ref)

    equal(on_devices(body, interpret, collective_id=0), -SWAPPED)


@kernel_for("get_barrier_semaphore.one")
def _(interpret):
    def body(x_ref, o_ref):
        barrier = pltpu.get_barrier_semaphore()
        pl.semaphore_signal(barrier, 1)
        pl.semaphore_wait(barrier, 1)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS, compiler_params=pltpu.CompilerParams(collective_id=0)), NUMBERS)


def main(key, interpreter):
    kernel = KERNELS[key]
    jax.config.update("jax_num_cpu_devices", kernel.devices)
    kernel.check(INTERPRETERS[interpreter])
    print("right", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
