"""Every row of the interpreter table, measured on the installed JAX under both interpreters.

A row has one or more small kernels here, under its key, that compare what was computed with what
the operation means. An interpreter serves a row if none of its kernels raises. Kernels for several
devices run together in a Python of their own, since they may hang and need XLA threads enough:
``python tests/test_interpreters.py INTERPRETER``.
"""

import functools
import inspect
import os
import pathlib
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

# Before JAX is imported: these tests are about hosts without a TPU.
os.environ["JAX_PLATFORMS"] = "cpu"

import pytest

jax = pytest.importorskip("jax", minversion="0.10.2", reason="JAX 0.10.2 needs Python 3.11")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402
from jax.experimental.pallas import tpu_sc as plsc  # noqa: E402

from migrate_pallas.interpreters import NO_PART, OPERATIONS, Operation, Serves  # noqa: E402

RELEASE = jax.__version_info__[:2]
INTERPRETERS = {
    Serves.GENERIC: True,
    Serves.SIMULATOR: pltpu.InterpretParams(
        dma_execution_mode="eager", out_of_bounds_reads="uninitialized"
    ),
}

BLOCK = jax.ShapeDtypeStruct((8, 128), jnp.float32)
TWO_BLOCKS = jax.ShapeDtypeStruct((16, 128), jnp.float32)
INT_BLOCK = jax.ShapeDtypeStruct((8, 128), jnp.int32)
TWO_INT_BLOCKS = jax.ShapeDtypeStruct((16, 128), jnp.int32)
# NumPy's, for JAX's own would start its backend before the number of devices is set.
NUMBERS = np.arange(8 * 128, dtype=np.float32).reshape(8, 128)
TWICE = np.concatenate([NUMBERS, -NUMBERS])
INTS = np.arange(8 * 128, dtype=np.int32).reshape(8, 128)
TWICE_INTS = np.concatenate([INTS, INTS])

VMEM = pltpu.VMEM((8, 128), jnp.float32)
DMA = pltpu.SemaphoreType.DMA
IN_HBM = pl.BlockSpec(memory_space=pl.ANY)
IN_SMEM = pl.BlockSpec(memory_space=pltpu.SMEM)
IN_VMEM = pl.BlockSpec(memory_space=pltpu.VMEM)
ROWS = pl.BlockSpec((8, 128), lambda i, *scalars: (i, 0))


@dataclass(frozen=True)
class Kernel:
    """One kernel of a row: ``check`` raises where an interpreter does not do the row right."""

    key: str
    check: Callable[[object], None]
    devices: int


KERNELS: list[Kernel] = []
FLAWS: dict[str, Callable[[object], None]] = {}


def kernel_for(key, devices=1):
    def register(check):
        KERNELS.append(Kernel(key, check, devices))
        return check

    return register


def flaw_of(key):
    return functools.partial(FLAWS.setdefault, key)


def call(body, interpret, *arguments, out_shape=BLOCK, **parameters):
    return pl.pallas_call(body, out_shape=out_shape, interpret=interpret, **parameters)(*arguments)


def in_hbm(body, interpret, *arguments, scratch=(), **parameters):
    """As ``call``, but the kernel is handed Refs to HBM, and moves the data itself."""
    specs = {"in_specs": [IN_HBM] * len(arguments), "out_specs": IN_HBM}
    return call(body, interpret, *arguments, scratch_shapes=scratch, **{**specs, **parameters})


def by_rows(body, interpret, *arguments, steps=2, out_shape=TWO_BLOCKS, **parameters):
    """As ``call``, but over a grid, a block of eight rows at each step."""
    specs = {"in_specs": [ROWS] * len(arguments), "out_specs": ROWS}
    return call(
        body, interpret, *arguments, out_shape=out_shape, grid=(steps,), **{**specs, **parameters}
    )


def add_one(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


def copy_block(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def equal(actual, expected):
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


# Random numbers.


@kernel_for("prng_seed")
def seeds(interpret):
    def body(x_ref, o_ref):
        pltpu.prng_seed(7)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("prng_random_bits")
def draws_bits(interpret):
    def body(x_ref, o_ref):
        bits = pltpu.prng_random_bits((8, 128))
        o_ref[...] = jnp.where(bits == bits, x_ref[...], 0)

    equal(call(body, interpret, NUMBERS), NUMBERS)


@flaw_of("prng_random_bits")
def bits_are_all_zeros(interpret):
    def body(o_ref):
        pltpu.prng_seed(7)
        o_ref[...] = pltpu.prng_random_bits((8, 128))

    equal(call(body, interpret, out_shape=INT_BLOCK), np.zeros((8, 128)))


def draws_stateful(interpret, sample):
    def body(o_ref):
        pltpu.prng_seed(7)
        o_ref[...] = sample((8, 128)).astype(jnp.float32)

    assert np.unique(call(body, interpret)).size > 1


@kernel_for("stateful_random")
def draws_stateful_bits(interpret):
    draws_stateful(interpret, pltpu.stateful_bits)


@kernel_for("stateful_random")
def draws_stateful_uniform(interpret):
    draws_stateful(interpret, pltpu.stateful_uniform)


@kernel_for("stateful_random")
def draws_stateful_normal(interpret):
    draws_stateful(interpret, pltpu.stateful_normal)


@kernel_for("stateful_random")
def draws_stateful_bernoulli(interpret):
    draws_stateful(interpret, lambda shape: pltpu.stateful_bernoulli(0.5, shape))


@kernel_for("to_pallas_key")
def draws_by_a_pallas_key(interpret):
    def body(key_ref, o_ref):
        o_ref[...] = jax.random.uniform(key_ref[...], (8, 128))

    key = pltpu.to_pallas_key(jax.random.key(3))
    assert np.unique(call(body, interpret, key, in_specs=[IN_SMEM])).size > 1


def with_key_data(body, interpret):
    """``body`` gets a key of JAX's own, whose data goes into the kernel as numbers."""

    def from_data(data_ref, o_ref):
        o_ref[...] = body(jax.random.wrap_key_data(data_ref[0, :], impl="threefry2x32"))

    return call(from_data, interpret, jax.random.key_data(jax.random.key(3)).reshape(1, 2))


@kernel_for("jax-random")
def draws_by_a_key_of_jax(interpret):
    drawn = with_key_data(lambda key: jax.random.uniform(key, (8, 128)), interpret)
    equal(drawn, jax.random.uniform(jax.random.key(3), (8, 128)))


@kernel_for("sample_block")
def samples_a_block(interpret):
    def sample(key):
        shapes = {"block_size": (8, 128), "tile_size": (8, 128), "total_size": (8, 128)}
        return pltpu.sample_block(jax.random.uniform, key, **shapes, block_index=(0, 0))

    equal(with_key_data(sample, interpret), sample(jax.random.key(3)))


# Values: bits, packing, shapes, products.


@kernel_for("stochastic_round")
def rounds_what_needs_no_rounding(interpret):
    def body(x_ref, bits_ref, o_ref):
        o_ref[...] = pltpu.stochastic_round(x_ref[...], bits_ref[...], target_dtype=jnp.bfloat16)

    out = jax.ShapeDtypeStruct((8, 128), jnp.bfloat16)
    ones, bits = np.ones((8, 128), np.float32), np.zeros((8, 128), np.uint32)
    equal(call(body, interpret, ones, bits, out_shape=out), ones)


# The bits of 2.0 above those of 1.0, each a bfloat16.
TWO_OVER_ONE = np.full((8, 128), 0x4000_3F80, np.uint32)


@kernel_for("pack_elementwise")
def packs_two_numbers(interpret):
    def body(o_ref):
        one, two = jnp.full((8, 128), 1.0), jnp.full((8, 128), 2.0)
        o_ref[...] = pltpu.pack_elementwise([one, two], packed_dtype=jnp.bfloat16)

    out = jax.ShapeDtypeStruct((8, 128), jnp.uint32)
    equal(call(body, interpret, out_shape=out), TWO_OVER_ONE)


@kernel_for("unpack_elementwise")
def unpacks_the_upper_number(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.unpack_elementwise(
            x_ref[...], index=1, packed_dtype=jnp.bfloat16, unpacked_dtype=jnp.float32
        )

    equal(call(body, interpret, TWO_OVER_ONE), np.full((8, 128), 2.0))


@kernel_for("split_bits")
def splits_off_the_upper_bits(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.split_bits(x_ref[...], bitwidths=(4, 4))[1].astype(jnp.int32)

    bits = (INTS % 8 * 16).astype(np.int8)
    equal(call(body, interpret, bits, out_shape=INT_BLOCK), INTS % 8)


@kernel_for("split_bits")
def packs_fp6(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.pack_fp6(x_ref[...])[0].astype(jnp.int32)

    bits = (INTS % 2 * 16).astype(np.int8)
    equal(call(body, interpret, bits, out_shape=INT_BLOCK), INTS % 2)


def joined(join, interpret):
    def body(two_ref, four_ref, o_ref):
        two, four = two_ref[...].astype(jnp.int2), four_ref[...].astype(jnp.int4)
        o_ref[...] = join(two_bits=two, four_bits=four).astype(jnp.int32)

    one, five = np.full((8, 128), 1, np.int8), np.full((8, 128), 5, np.int8)
    equal(call(body, interpret, one, five, out_shape=INT_BLOCK), np.full((8, 128), 16 + 5))


@kernel_for("join_bits")
def joins_bits(interpret):
    joined(pltpu.join_bits, interpret)


@kernel_for("join_bits")
def unpacks_fp6(interpret):
    joined(pltpu.unpack_fp6, interpret)


@kernel_for("bitcast")
def bitcasts_to_halves(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.bitcast(x_ref[...], jnp.int16)

    out = jax.ShapeDtypeStruct((16, 128), jnp.int16)
    halves = INTS.view(np.int16).reshape(8, 128, 2).transpose(0, 2, 1).reshape(16, 128)
    equal(call(body, interpret, INTS, out_shape=out), halves)


@kernel_for("roll")
def rolls_each_row_further(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.roll(x_ref[...], 3, axis=1, stride=2, stride_axis=0)

    rolled = [np.roll(row, 3 + 2 * i) for i, row in enumerate(NUMBERS)]
    equal(call(body, interpret, NUMBERS), rolled)


@kernel_for("einshape")
def transposes_by_einshape(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.einshape("a(bc)->(ba)c", x_ref[...], b=2)

    out = jax.ShapeDtypeStruct((16, 64), jnp.float32)
    transposed = NUMBERS.reshape(8, 2, 64).transpose(1, 0, 2).reshape(16, 64)
    equal(call(body, interpret, NUMBERS, out_shape=out), transposed)


@kernel_for("reciprocal")
def takes_reciprocals(interpret):
    reciprocal = pltpu.reciprocal if RELEASE >= (0, 12) else pl.reciprocal

    def body(x_ref, o_ref):
        o_ref[...] = reciprocal(x_ref[...] + 1, approx=True)

    # bfloat16's precision is what `approx` promises.
    np.testing.assert_allclose(call(body, interpret, NUMBERS), 1 / (NUMBERS + 1), rtol=1e-2)


@kernel_for("broadcast_to")
def broadcasts_a_row(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pl.broadcast_to(x_ref[1, :], (8, 128))

    equal(call(body, interpret, NUMBERS), np.broadcast_to(NUMBERS[1], (8, 128)))


@kernel_for("multiple_of")
def slices_at_a_multiple(interpret):
    def body(x_ref, o_ref):
        start = pl.multiple_of(8 - pl.program_id(0) * 8, 8)
        o_ref[...] = x_ref[pl.ds(start, 8), :]

    result = by_rows(body, interpret, TWICE, in_specs=[IN_VMEM])
    equal(result, np.concatenate([-NUMBERS, NUMBERS]))


@kernel_for("empty")
def overwrites_empty_values(interpret):
    def body(x_ref, o_ref):
        x = x_ref[...]
        empty = jnp.where(x >= 0, x, pl.empty((8, 128), jnp.float32))
        o_ref[...] = jnp.where(x >= 0, empty, pl.empty_like(x))

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("dot")
def multiplies_matrices(interpret):
    def body(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    equal(call(body, interpret, NUMBERS, 2 * np.eye(128, dtype=np.float32)), 2 * NUMBERS)


SQUARE = jax.ShapeDtypeStruct((256, 256), jnp.float32)


def multiplied(body, interpret, **parameters):
    ones = np.ones((256, 256), jnp.bfloat16)
    product = call(body, interpret, ones, ones, out_shape=SQUARE, **parameters)
    equal(product, np.full((256, 256), 256.0))


@kernel_for("matmul_explicit")
def multiplies_in_the_matrix_unit(interpret):
    def by_address(x_ref, y_ref, o_ref):
        pltpu.matmul_push_rhs(y_ref[...], 0, 0)
        pltpu.matmul_acc_lhs(0, x_ref[...], 0, load_staged_rhs=0)
        o_ref[...] = pltpu.matmul_pop(0, (256, 256), jnp.float32, 0)

    def by_accumulator(x_ref, y_ref, o_ref, accumulator):
        pltpu.matmul_push_rhs(y_ref[...], 0, 0)
        pltpu.matmul_acc_lhs(accumulator, x_ref[...], load_staged_rhs=0)
        o_ref[...] = pltpu.matmul_pop(accumulator)

    if RELEASE < (0, 12):
        multiplied(by_address, interpret)
    else:
        with figures_of("TPU7x"):
            accumulator = pltpu.ACC(0)((256, 256), jnp.float32)
            multiplied(by_accumulator, interpret, scratch_shapes=[accumulator])


@kernel_for("matmul_fifo")
def multiplies_through_the_queue(interpret):
    def body(x_ref, y_ref, o_ref):
        pltpu.matmul_push_rhs(y_ref[...], 0, 0)
        pltpu.matmul_lhs_fifo(x_ref[...], 0, load_staged_rhs=0)
        o_ref[...] = pltpu.matmul_pop_fifo((256, 256), jnp.float32, 0)

    multiplied(body, interpret)


@kernel_for("conv")
def convolves(interpret):
    def body(x_ref, w_ref, o_ref):
        layout = ("NHWC", "HWIO", "NHWC")
        o_ref[...] = pltpu.conv(x_ref[...], w_ref[...], dimension_numbers=layout)

    x, w = np.ones((1, 4, 4, 128), np.float32), np.ones((2, 2, 128, 128), np.float32)
    out = jax.ShapeDtypeStruct((1, 3, 3, 128), jnp.float32)
    equal(call(body, interpret, x, w, out_shape=out), np.full((1, 3, 3, 128), 512.0))


# Loads, stores and views of Refs.


@kernel_for("static-slice")
def swaps_halves(interpret):
    def body(x_ref, o_ref):
        o_ref[0:4, :] = x_ref.at[pl.ds(4, 4)][...]
        o_ref[pl.dslice(4, 4), :] = x_ref[pl.Slice(0, 4), :]

    equal(call(body, interpret, NUMBERS), np.roll(NUMBERS, 4, axis=0))


FOUR, FIVE = np.array([4], np.int32), np.array([5], np.int32)


@kernel_for("traced-start")
def swaps_halves_from_a_traced_start(interpret):
    def body(n_ref, x_ref, o_ref):
        n = n_ref[0]
        o_ref[pl.ds(n, 4), :] = x_ref.at[pl.ds(n - 4, 4)][...]
        o_ref[pl.ds(n - 4, 4), :] = x_ref[pl.ds(n, 4), :]

    swapped = call(body, interpret, FOUR, NUMBERS, in_specs=[IN_SMEM, IN_VMEM])
    equal(swapped, np.roll(NUMBERS, 4, axis=0))


@kernel_for("traced-start")
def copies_rows_by_a_traced_index(interpret):
    def body(n_ref, x_ref, o_ref, semaphore):
        for row in range(8):
            last = n_ref[0] + 3
            pltpu.async_copy(x_ref.at[last - row], o_ref.at[row], semaphore).wait()

    copied = in_hbm(body, interpret, FOUR, NUMBERS, in_specs=[IN_SMEM, IN_HBM], scratch=[DMA])
    equal(copied, NUMBERS[::-1])


@kernel_for("traced-slice")
def copies_a_traced_number_of_rows(interpret):
    def body(n_ref, x_ref, o_ref, semaphore):
        rows = pl.ds(0, n_ref[0])
        pltpu.async_copy(x_ref.at[rows], o_ref.at[rows], semaphore).wait()

    copied = in_hbm(body, interpret, FIVE, NUMBERS, in_specs=[IN_SMEM, IN_HBM], scratch=[DMA])
    equal(copied[:5], NUMBERS[:5])


@kernel_for("strided-slice")
def swaps_neighbours(interpret):
    def body(x_ref, o_ref):
        o_ref[pl.ds(0, 4, stride=2), :] = x_ref[pl.ds(1, 4, stride=2), :]
        o_ref[pl.ds(1, 4, stride=2), :] = x_ref[pl.ds(0, 4, stride=2), :]

    equal(call(body, interpret, NUMBERS), NUMBERS[[1, 0, 3, 2, 5, 4, 7, 6]])


@kernel_for("smem-scalars")
def counts_in_smem(interpret):
    def body(n_ref, x_ref, o_ref, count_ref):
        count_ref[0] = n_ref[0] + 1
        o_ref[...] = x_ref[...] + count_ref[0]

    counter = [pltpu.SMEM((1,), jnp.int32)]
    specs = [IN_SMEM, IN_VMEM]
    counted = call(
        body, interpret, FIVE, INTS, out_shape=INT_BLOCK, in_specs=specs, scratch_shapes=counter
    )
    equal(counted, INTS + 6)


@kernel_for("load")
def loads_a_slice(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.load(x_ref.at[pl.ds(4, 4)])

    out = jax.ShapeDtypeStruct((4, 128), jnp.float32)
    equal(call(body, interpret, NUMBERS, out_shape=out), NUMBERS[4:])


@kernel_for("masked-load")
def loads_where_masked(interpret):
    def body(x_ref, o_ref):
        mask = x_ref[...] < 512
        o_ref[...] = jnp.where(mask, pltpu.load(x_ref, mask=mask), 0)

    equal(call(body, interpret, NUMBERS), np.where(NUMBERS < 512, NUMBERS, 0))


@kernel_for("store")
def stores_a_slice(interpret):
    def body(x_ref, o_ref):
        pltpu.store(o_ref.at[0:4], x_ref[4:8, :])
        pltpu.store(o_ref.at[4:8], x_ref[0:4, :])

    equal(call(body, interpret, NUMBERS), np.roll(NUMBERS, 4, axis=0))


@kernel_for("masked-store")
def stores_where_masked(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)
        pltpu.store(o_ref.at[0:4], x_ref[0:4, :], mask=x_ref[0:4, :] < 128)

    equal(call(body, interpret, NUMBERS), np.where(NUMBERS < 128, NUMBERS, 0))


@kernel_for("ref-reshape")
def loads_through_a_reshaped_view(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref.reshape(4, 2, 128)[:, 1, :]

    out = jax.ShapeDtypeStruct((4, 128), jnp.float32)
    equal(call(body, interpret, NUMBERS, out_shape=out), NUMBERS[1::2])


@kernel_for("ref-bitcast")
def loads_through_a_bitcast_view(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref.bitcast(jnp.int32)[...]

    equal(call(body, interpret, NUMBERS, out_shape=INT_BLOCK), NUMBERS.view(np.int32))


PAIRS = jax.ShapeDtypeStruct((4, 2, 128), jnp.float32)


@kernel_for("store-through-view")
def stores_through_a_reshaped_view(interpret):
    def body(x_ref, o_ref):
        o_ref.reshape(8, 128)[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS, out_shape=PAIRS), NUMBERS.reshape(4, 2, 128))


@kernel_for("store-through-view")
def stores_through_a_bitcast_view(interpret):
    def body(x_ref, o_ref):
        o_ref.bitcast(jnp.float32)[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS, out_shape=INT_BLOCK), NUMBERS.view(np.int32))


@kernel_for("copy-from-view")
def copies_from_a_reshaped_view(interpret):
    def body(x_ref, o_ref, semaphore):
        pltpu.async_copy(x_ref.reshape(4, 2, 128).at[0:4], o_ref, semaphore).wait()

    copied = in_hbm(body, interpret, NUMBERS, out_shape=PAIRS, scratch=[DMA])
    equal(copied, NUMBERS.reshape(4, 2, 128))


@kernel_for("copy-from-view")
def copies_from_a_bitcast_view(interpret):
    def body(x_ref, o_ref, semaphore):
        pltpu.async_copy(x_ref.bitcast(jnp.int32), o_ref, semaphore).wait()

    copied = in_hbm(body, interpret, NUMBERS, out_shape=INT_BLOCK, scratch=[DMA])
    equal(copied, NUMBERS.view(np.int32))


@kernel_for("copy-to-view")
def copies_to_a_reshaped_view(interpret):
    def body(x_ref, o_ref, semaphore):
        pltpu.async_copy(x_ref, o_ref.reshape(8, 128), semaphore).wait()

    copied = in_hbm(body, interpret, NUMBERS, out_shape=PAIRS, scratch=[DMA])
    equal(copied, NUMBERS.reshape(4, 2, 128))


@kernel_for("copy-to-view")
def copies_to_a_bitcast_view(interpret):
    def body(x_ref, o_ref, semaphore):
        pltpu.async_copy(x_ref, o_ref.bitcast(jnp.float32), semaphore).wait()

    copied = in_hbm(body, interpret, NUMBERS, out_shape=INT_BLOCK, scratch=[DMA])
    equal(copied, NUMBERS.view(np.int32))


@kernel_for("copy-of-traced-slice-of-view")
def copies_a_traced_number_of_pairs(interpret):
    def body(n_ref, x_ref, o_ref, semaphore):
        pairs = pl.ds(0, n_ref[0])
        view = x_ref.reshape(4, 2, 128)
        pltpu.async_copy(view.at[pairs], o_ref.at[pairs], semaphore).wait()

    two = np.array([2], np.int32)
    specs = [IN_SMEM, IN_HBM]
    copied = in_hbm(body, interpret, two, NUMBERS, out_shape=PAIRS, in_specs=specs, scratch=[DMA])
    equal(copied[:2], NUMBERS.reshape(4, 2, 128)[:2])


@kernel_for("select_ref")
def copies_from_the_selected_ref(interpret):
    def body(which_ref, x_ref, y_ref, o_ref, semaphore):
        pltpu.async_copy(pl.select_ref(which_ref[0], x_ref, y_ref), o_ref, semaphore).wait()

    one = np.array([1], np.int32)
    specs = [IN_SMEM, IN_HBM, IN_HBM]
    copied = in_hbm(body, interpret, one, NUMBERS, -NUMBERS, in_specs=specs, scratch=[DMA])
    equal(copied, -NUMBERS)


@kernel_for("touch")
def touches(interpret):
    def body(x_ref, o_ref):
        pltpu.touch(x_ref)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("annotate")
def loads_through_an_annotated_view(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = pltpu.annotate(x_ref, no_store=True)[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("has_memory_space")
def copies_if_in_hbm(interpret):
    def body(x_ref, o_ref):
        @pl.when(pltpu.has_memory_space(x_ref, pltpu.HBM))
        def copy():
            pltpu.sync_copy(x_ref, o_ref)

    equal(in_hbm(body, interpret, NUMBERS), NUMBERS)


# Scopes, copies and semaphores of one device.


@kernel_for("run_scoped")
def computes_in_a_scope(interpret):
    def body(x_ref, o_ref):
        def compute(scratch_ref, semaphore):
            pltpu.async_copy(x_ref, scratch_ref, semaphore).wait()
            scratch_ref[...] += 1
            return scratch_ref[...]

        o_ref[...] = pl.run_scoped(compute, VMEM, semaphore=DMA)

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("with_scoped")
def computes_in_a_decorated_scope(interpret):
    def body(x_ref, o_ref):
        @pl.with_scoped(VMEM)
        def compute(scratch_ref):
            scratch_ref[...] = x_ref[...] + 1
            o_ref[...] = scratch_ref[...]

        compute()

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("run_state")
def is_called_inside_run_state(interpret):
    @jax.jit
    def run(x):
        def with_refs(refs):
            x_ref, y_ref = refs
            y_ref[...] = call(add_one, interpret, x_ref[...])

        return pl.run_state(with_refs)((x, jnp.zeros_like(x)))[1]

    equal(run(NUMBERS), NUMBERS + 1)


def copy_twice(x_ref, o_ref, between_ref):
    pltpu.sync_copy(x_ref, between_ref)
    pltpu.sync_copy(between_ref, o_ref)


@kernel_for("hbm-run-scoped")
def copies_over_scoped_hbm(interpret):
    def body(x_ref, o_ref):
        pl.run_scoped(functools.partial(copy_twice, x_ref, o_ref), pltpu.HBM((8, 128), jnp.float32))

    equal(in_hbm(body, interpret, NUMBERS), NUMBERS)


@kernel_for("hbm-scratch")
def copies_over_scratch_hbm(interpret):
    scratch = [pltpu.HBM((8, 128), jnp.float32)]
    equal(in_hbm(copy_twice, interpret, NUMBERS, scratch=scratch), NUMBERS)


@kernel_for("host-ref")
def copies_from_the_host(interpret):
    on_host = pl.BlockSpec(memory_space=pl.HOST)
    equal(in_hbm(pltpu.sync_copy, interpret, NUMBERS, in_specs=[on_host]), NUMBERS)


@kernel_for("sync_copy")
def copies(interpret):
    equal(in_hbm(pltpu.sync_copy, interpret, NUMBERS), NUMBERS)


@kernel_for("copy-add")
def adds_by_a_copy(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = jnp.ones_like(o_ref)
        pltpu.sync_copy(x_ref, o_ref, add=True)

    equal(call(body, interpret, NUMBERS), NUMBERS + 1)


@kernel_for("async_copy")
def copies_halves_at_once(interpret):
    def body(x_ref, o_ref, semaphores):
        lower = pltpu.async_copy(x_ref.at[0:4], o_ref.at[4:8], semaphores.at[0])
        upper = pltpu.make_async_copy(x_ref.at[4:8], o_ref.at[0:4], semaphores.at[1])
        upper.start(priority=1)
        lower.wait()
        upper.wait()

    copied = in_hbm(body, interpret, NUMBERS, scratch=[pltpu.SemaphoreType.DMA((2,))])
    equal(copied, np.roll(NUMBERS, 4, axis=0))


@kernel_for("async_copy")
def waits_by_size_only(interpret):
    def body(x_ref, o_ref, semaphore):
        pltpu.make_async_copy(x_ref, o_ref, semaphore).start()
        pltpu.make_async_copy(o_ref, o_ref, semaphore).wait()

    equal(in_hbm(body, interpret, NUMBERS, scratch=[DMA]), NUMBERS)


REGULAR = [pltpu.SemaphoreType.REGULAR]


@kernel_for("semaphore")
def signals_and_waits(interpret):
    def body(x_ref, o_ref, semaphore):
        pl.semaphore_signal(semaphore, 2)
        pl.semaphore_wait(semaphore, 2)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS, scratch_shapes=REGULAR), NUMBERS)


@kernel_for("semaphore-wait-keeping")
def waits_and_keeps(interpret):
    def body(x_ref, o_ref, semaphore):
        pl.semaphore_signal(semaphore, 2)
        pl.semaphore_wait(semaphore, 2, decrement=False)
        pl.semaphore_wait(semaphore, 2)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS, scratch_shapes=REGULAR), NUMBERS)


@kernel_for("semaphore_read")
def reads_a_semaphore(interpret):
    def body(x_ref, o_ref, semaphore):
        pl.semaphore_signal(semaphore, 2)
        o_ref[...] = x_ref[...] + pl.semaphore_read(semaphore)
        pl.semaphore_wait(semaphore, 2)

    result = call(body, interpret, INTS, out_shape=INT_BLOCK, scratch_shapes=REGULAR)
    equal(result, INTS + 2)


@kernel_for("semaphore-output")
def starts_in_one_kernel_and_waits_in_the_next(interpret):
    def start(x_ref, o_ref, semaphore):
        pltpu.make_async_copy(x_ref, o_ref, semaphore).start()

    def wait(x_ref, started_ref, semaphore, o_ref):
        pltpu.make_async_copy(x_ref, o_ref, semaphore).wait()

    handed = pl.BlockSpec(memory_space=pltpu.SEMAPHORE)
    out = (BLOCK, pltpu.SemaphoreType.DMA(()))
    started, semaphore = in_hbm(
        start, interpret, NUMBERS, out_shape=out, out_specs=(IN_HBM, handed)
    )
    specs = [IN_HBM, IN_HBM, handed]
    aliases = {"input_output_aliases": {1: 0}}
    arrived = in_hbm(wait, interpret, NUMBERS, started, semaphore, in_specs=specs, **aliases)
    equal(arrived, NUMBERS)


@kernel_for("with_memory_space_constraint")
def takes_an_argument_constrained_to_hbm(interpret):
    @jax.jit
    def run(x):
        x = pltpu.with_memory_space_constraint(x, pltpu.HBM)
        return in_hbm(pltpu.sync_copy, interpret, x)

    equal(run(NUMBERS), NUMBERS)


@kernel_for("vmem-constraint")
def takes_an_argument_constrained_to_vmem(interpret):
    @jax.jit
    def run(x):
        x = pltpu.with_memory_space_constraint(x, pltpu.VMEM)
        return call(add_one, interpret, x, in_specs=[IN_VMEM])

    equal(run(NUMBERS), NUMBERS + 1)


@kernel_for("delay")
def is_delayed(interpret):
    def body(x_ref, o_ref):
        pl.delay(100)
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("trace_value")
def traces_a_value(interpret):
    def body(x_ref, o_ref):
        pltpu.trace_value("first", x_ref[0, 0])
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("debug_print")
def prints(interpret):
    def body(x_ref, o_ref):
        pl.debug_print("first: {}", x_ref[0, 0])
        o_ref[...] = x_ref[...]

    equal(call(body, interpret, NUMBERS), NUMBERS)


def checked(interpret, first):
    def body(x_ref, o_ref):
        pl.debug_check(x_ref[0, 0] == first, "starts otherwise")
        o_ref[...] = x_ref[...]

    with pl.enable_debug_checks(True):
        equal(call(body, interpret, NUMBERS), NUMBERS)


@kernel_for("debug_check")
def checks_what_holds(interpret):
    checked(interpret, first=0)


@flaw_of("debug_check")
def a_check_of_what_does_not_hold_passes(interpret):
    checked(interpret, first=1)


# Calls: grids, block specifications, scalar prefetch, aliases, transformations.


@kernel_for("program_id")
def adds_its_place_in_the_grid(interpret):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] + pl.program_id(0) * 10 + pl.num_programs(0)

    result = by_rows(body, interpret, TWICE_INTS, out_shape=TWO_INT_BLOCKS)
    equal(result, np.concatenate([INTS + 2, INTS + 12]))


@kernel_for("when")
def accumulates_over_the_grid(interpret):
    def body(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def clear():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    everywhere = pl.BlockSpec((8, 128), lambda i: (0, 0))
    total = by_rows(body, interpret, TWICE + 1, out_shape=BLOCK, out_specs=everywhere)
    equal(total, np.full((8, 128), 2))


@kernel_for("loop")
def loops_over_rows(interpret):
    def body(x_ref, o_ref):
        @pl.loop(0, 8)
        def copy_row(i):
            o_ref[pl.ds(i, 1), :] = x_ref[pl.ds(7 - i, 1), :]

    equal(call(body, interpret, NUMBERS), NUMBERS[::-1])


@kernel_for("lax-control-flow")
def loops_and_branches(interpret):
    def body(x_ref, o_ref):
        def copy_row(i, count):
            o_ref[pl.ds(i, 1), :] = jax.lax.cond(
                i < 4, lambda: x_ref[pl.ds(i, 1), :], lambda: -x_ref[pl.ds(i, 1), :]
            )
            return count + 1

        count = jax.lax.fori_loop(0, 8, copy_row, 0)
        _, count = jax.lax.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + 1), (0, count)
        )
        o_ref[0:1, :] = o_ref[0:1, :] + count.astype(jnp.float32)

    expected = np.concatenate([NUMBERS[:4], -NUMBERS[4:]])
    expected[0] += 11
    equal(call(body, interpret, NUMBERS), expected)


@kernel_for("scratch-state")
def keeps_a_total_in_scratch(interpret):
    def body(x_ref, o_ref, total_ref):
        @pl.when(pl.program_id(0) == 0)
        def clear():
            total_ref[...] = jnp.zeros_like(total_ref)

        total_ref[...] += x_ref[...]
        o_ref[...] = total_ref[...]

    totals = by_rows(body, interpret, TWICE, scratch_shapes=[VMEM])
    equal(totals, np.concatenate([NUMBERS, np.zeros_like(NUMBERS)]))


@kernel_for("dynamic-grid")
def runs_a_traced_number_of_steps(interpret):
    run = jax.jit(lambda n, x: by_rows(add_one, interpret, x, steps=n))
    equal(run(2, TWICE), TWICE + 1)


@kernel_for("ragged-last-block")
def ends_within_a_block(interpret):
    out = jax.ShapeDtypeStruct((12, 128), jnp.float32)
    equal(by_rows(add_one, interpret, TWICE[:12], out_shape=out), TWICE[:12] + 1)


@kernel_for("squeezed-block")
def squeezes_a_dimension(interpret):
    x = TWICE.reshape(2, 8, 128)
    spec = pl.BlockSpec((pl.Squeezed(), 8, 128), lambda i: (i, 0, 0))
    assert isinstance(pl.squeezed, pl.Squeezed)
    out = jax.ShapeDtypeStruct((2, 8, 128), jnp.float32)
    equal(by_rows(add_one, interpret, x, out_shape=out, in_specs=[spec], out_specs=spec), x + 1)


@kernel_for("element-block")
def starts_blocks_at_elements(interpret):
    spec = pl.BlockSpec((pl.Element(8), pl.Element(128)), lambda i: (4 * i, 0))
    result = by_rows(add_one, interpret, TWICE, in_specs=[spec])
    equal(result, np.concatenate([TWICE[0:8], TWICE[4:12]]) + 1)


@kernel_for("padded-element-block")
def starts_before_the_first_element(interpret):
    spec = pl.BlockSpec((pl.Element(8, (4, 0)), pl.Element(128)), lambda i: (8 * i, 0))
    result = by_rows(add_one, interpret, NUMBERS, steps=1, out_shape=BLOCK, in_specs=[spec])
    equal(result[4:], NUMBERS[:4] + 1)


BOUNDED = pl.BlockSpec((pl.BoundedSlice(8), 128), lambda i: (pl.ds(8 * i, 8), 0))


@kernel_for("bounded-slice")
def is_pipelined_over_bounded_slices(interpret):
    pipelined(interpret, in_specs=[BOUNDED], out_specs=[BOUNDED])


@kernel_for("buffered-block")
def buffers_three_blocks(interpret):
    spec = pl.BlockSpec((8, 128), lambda i: (i, 0), pipeline_mode=pl.Buffered(3))
    equal(by_rows(add_one, interpret, TWICE, in_specs=[spec]), TWICE + 1)


@kernel_for("revisited-block")
def visits_a_block_again_later(interpret):
    def body(x_ref, o_ref):
        @pl.when(pl.program_id(0) < 2)
        def clear():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    in_turn = pl.BlockSpec(
        (8, 128),
        lambda i: (i % 2, 0),
        pipeline_mode=pl.Buffered(1, revisit=pl.RevisitMode.ANY),
    )
    x = np.concatenate([TWICE, TWICE])
    equal(by_rows(body, interpret, x, steps=4, out_specs=in_turn), 2 * TWICE)


def prefetched(body, interpret, scalars, *arguments, spec=ROWS):
    grid_spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(2,), in_specs=[spec] * len(arguments), out_specs=ROWS
    )
    scalars = np.array(scalars, np.int32)
    return call(body, interpret, scalars, *arguments, out_shape=TWO_INT_BLOCKS, grid_spec=grid_spec)


@kernel_for("scalar-prefetch")
def chooses_blocks_by_scalars(interpret):
    def body(order_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] + order_ref[pl.program_id(0)]

    chosen = pl.BlockSpec((8, 128), lambda i, order_ref: (order_ref[i], 0))
    x = np.concatenate([INTS, -INTS])
    result = prefetched(body, interpret, [1, 0], x, spec=chosen)
    equal(result, np.concatenate([1 - INTS, INTS]))


@kernel_for("scalar-prefetch-state")
def counts_in_a_prefetched_scalar(interpret):
    def body(count_ref, x_ref, o_ref):
        count_ref[0] += 1
        o_ref[...] = x_ref[...] + count_ref[0]

    result = prefetched(body, interpret, [10], TWICE_INTS)
    equal(result, np.concatenate([INTS + 11, INTS + 12]))


def aliased(body, interpret, *arguments, **parameters):
    return in_hbm(body, interpret, *arguments, input_output_aliases={0: 0}, **parameters)


@kernel_for("alias-untouched")
def overwrites_its_input_by_blocks(interpret):
    equal(by_rows(add_one, interpret, TWICE, input_output_aliases={0: 0}), TWICE + 1)


@kernel_for("alias-untouched")
def writes_a_part_of_its_output(interpret):
    def body(x_ref, o_ref):
        pltpu.sync_copy(o_ref.at[0:4], o_ref.at[4:8])

    equal(aliased(body, interpret, NUMBERS), np.concatenate([NUMBERS[:4], NUMBERS[:4]]))


@kernel_for("alias-input-written")
def writes_to_its_aliased_input(interpret):
    def body(x_ref, y_ref, o_ref):
        pltpu.sync_copy(y_ref.at[0:4], x_ref.at[4:8])

    result = aliased(body, interpret, NUMBERS, -NUMBERS)
    equal(result, np.concatenate([NUMBERS[:4], -NUMBERS[:4]]))


@kernel_for("alias-both-written")
def writes_to_its_aliased_input_and_its_output(interpret):
    def body(x_ref, y_ref, o_ref):
        pltpu.sync_copy(y_ref.at[0:4], x_ref.at[4:8])
        pltpu.sync_copy(y_ref.at[4:8], o_ref.at[0:4])

    result = aliased(body, interpret, NUMBERS, -NUMBERS)
    equal(result, np.concatenate([-NUMBERS[4:], -NUMBERS[:4]]))


@kernel_for("alias-read-after-write")
def reads_its_aliased_input_after_writing_its_output(interpret):
    def body(x_ref, y_ref, o_ref, seen_ref):
        pltpu.sync_copy(y_ref, o_ref)
        pltpu.sync_copy(x_ref, seen_ref)

    out = {"out_shape": (BLOCK, BLOCK), "out_specs": (IN_HBM, IN_HBM)}
    _, seen = aliased(body, interpret, NUMBERS, -NUMBERS, **out)
    equal(seen, -NUMBERS)


@kernel_for("alias-across-steps")
def reads_what_the_step_before_wrote(interpret):
    def body(x_ref, o_ref, scratch_ref):
        pltpu.sync_copy(x_ref, scratch_ref)
        scratch_ref[...] += 1
        pltpu.sync_copy(scratch_ref, o_ref)

    equal(aliased(body, interpret, NUMBERS, grid=(3,), scratch=[VMEM]), NUMBERS + 3)


PAIR = TWICE.reshape(2, 8, 128)


@kernel_for("vmap")
def is_batched(interpret):
    equal(jax.vmap(functools.partial(call, add_one, interpret))(PAIR), PAIR + 1)


@kernel_for("vmap-hbm")
def is_batched_with_refs_in_hbm(interpret):
    equal(jax.vmap(functools.partial(in_hbm, pltpu.sync_copy, interpret))(PAIR), PAIR)


ONE_PARALLEL_DIMENSION = pltpu.CompilerParams(dimension_semantics=("parallel",))


@kernel_for("dimension-semantics")
def runs_its_grid_in_parallel(interpret):
    result = by_rows(add_one, interpret, TWICE, compiler_params=ONE_PARALLEL_DIMENSION)
    equal(result, TWICE + 1)


@kernel_for("vmap-dimension-semantics")
def is_batched_with_dimension_semantics(interpret):
    settings = {"out_shape": BLOCK, "compiler_params": ONE_PARALLEL_DIMENSION}
    run = functools.partial(by_rows, add_one, interpret, steps=1, **settings)
    equal(jax.vmap(run)(PAIR), PAIR + 1)


@kernel_for("checkpoint-grad")
def is_differentiated_through_checkpoint(interpret):
    @jax.custom_vjp
    def f(x):
        return call(add_one, interpret, x)

    f.defvjp(lambda x: (f(x), None), lambda _, g: (call(add_one, interpret, g),))
    equal(jax.grad(lambda x: jax.checkpoint(f)(x).sum())(NUMBERS), np.full((8, 128), 2.0))


# Cores, and pipelines inside a kernel, which ask for the figures of a TPU.


def figures_of(device_kind):
    device = jax.sharding.AbstractDevice(device_kind=device_kind, num_cores=1, platform="tpu")
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))


def tensor_cores(number):
    if RELEASE >= (0, 12):
        return pltpu.TensorCoreMesh(axis_name="core", num_cores=number)
    return pltpu.create_tensorcore_mesh("core", num_cores=number)


def on_cores(body, interpret, x, cores=1, **parameters):
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.kernel(body, out, mesh=tensor_cores(cores), interpret=interpret, **parameters)(x)


@kernel_for("kernel")
def computes_in_vmem_on_a_core(interpret):
    def body(x_ref, o_ref, scratch_ref):
        pltpu.sync_copy(x_ref, scratch_ref)
        scratch_ref[...] += 1
        pltpu.sync_copy(scratch_ref, o_ref)

    equal(on_cores(body, interpret, NUMBERS, scratch_types=[VMEM]), NUMBERS + 1)


def copied_between_refs(run):
    """What ``run`` copies from the first of two Refs to the second."""

    @jax.jit
    def copied(x):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
        run(x_ref, y_ref)
        return y_ref[...]

    equal(copied(NUMBERS), NUMBERS)


@kernel_for("handed-refs")
def copies_between_refs_it_was_handed(interpret):
    copied_between_refs(pl.kernel(pltpu.sync_copy, mesh=tensor_cores(1), interpret=interpret))


@kernel_for("handed-refs")
def copies_between_refs_it_closes_over(interpret):
    def run(x_ref, y_ref):
        body = functools.partial(pltpu.sync_copy, x_ref, y_ref)
        pl.kernel(body, mesh=tensor_cores(1), interpret=interpret)()

    copied_between_refs(run)


@kernel_for("empty_ref_like")
def copies_to_an_empty_ref_it_was_handed(interpret):
    @jax.jit
    def copied(x):
        x_ref, y_ref = jax.new_ref(x), pl.empty_ref_like(BLOCK)
        pl.kernel(pltpu.sync_copy, mesh=tensor_cores(1), interpret=interpret)(x_ref, y_ref)
        return y_ref[...]

    equal(copied(NUMBERS), NUMBERS)


@kernel_for("core_map")
def copies_in_core_map(interpret):
    def run(x_ref, y_ref):
        @pl.core_map(tensor_cores(1), interpret=interpret)
        def copy():
            pltpu.sync_copy(x_ref, y_ref)

    copied_between_refs(run)


def copy_half_of_core(x_ref, o_ref):
    half = pl.ds(4 * jax.lax.axis_index("core"), 4)
    pltpu.sync_copy(x_ref.at[half], o_ref.at[half])


@kernel_for("core-axis-index")
def copies_its_half_on_each_of_two_cores(interpret):
    equal(on_cores(copy_half_of_core, interpret, NUMBERS, cores=2), NUMBERS)


@kernel_for("core-axis-index")
def asks_for_its_index_on_a_single_core(interpret):
    def body(x_ref, o_ref):
        whole = pl.ds(8 * jax.lax.axis_index("core"), 8)
        pltpu.sync_copy(x_ref.at[whole], o_ref.at[whole])

    equal(on_cores(body, interpret, NUMBERS), NUMBERS)


@kernel_for("run_on_first_core")
def copies_on_the_first_core(interpret):
    def body(x_ref, o_ref):
        pltpu.run_on_first_core("core")(lambda: pltpu.sync_copy(x_ref, o_ref))

    equal(on_cores(body, interpret, NUMBERS, cores=2), NUMBERS)


@kernel_for("core_barrier", devices=2)
def waits_for_the_other_core(interpret):
    def body(x_ref, o_ref, semaphore):
        copy_half_of_core(x_ref, o_ref)
        pltpu.core_barrier(semaphore, core_axis_name="core")

    equal(on_cores(body, interpret, NUMBERS, cores=2, scratch_types=REGULAR), NUMBERS)


def pipelined(interpret, emit=pltpu.emit_pipeline, in_specs=(ROWS,), out_specs=(ROWS,)):
    def body(x_ref, o_ref):
        with figures_of("TPU v6 lite"):
            emit(add_one, grid=(2,), in_specs=in_specs, out_specs=out_specs)(x_ref, o_ref)

    equal(in_hbm(body, interpret, TWICE, out_shape=TWO_BLOCKS), TWICE + 1)


@kernel_for("emit_pipeline")
def is_pipelined(interpret):
    pipelined(interpret)


@kernel_for("emit_pipeline")
def is_pipelined_in_its_own_buffers(interpret):
    def emit(body, **specs):
        pipeline, allocations = pltpu.emit_pipeline_with_allocations(body, **specs)

        def run(*refs):
            pl.run_scoped(lambda made: pipeline(*refs, allocations=made), allocations(*refs))

        return run

    pipelined(interpret, emit)


@kernel_for("emit_pipeline-core-axis")
def is_pipelined_over_two_cores(interpret):
    def body(x_ref, o_ref):
        with figures_of("TPU v6 lite"):
            pipeline = pltpu.emit_pipeline(
                add_one,
                grid=(2,),
                in_specs=[ROWS],
                out_specs=[ROWS],
                core_axis_name="core",
                dimension_semantics=(pltpu.PARALLEL,),
            )
            pipeline(x_ref, o_ref)

    equal(on_cores(body, interpret, TWICE, cores=2), TWICE + 1)


@kernel_for("emit_pipeline_with_async_prefetch")
def is_pipelined_over_prefetched_blocks(interpret):
    fetched = pl.BlockSpec(
        (8, 128), lambda i: (i, 0), pipeline_mode=pl.Buffered(2, prefetched_count=1)
    )
    pipeline, prefetch = pltpu.emit_pipeline_with_async_prefetch(
        add_one, grid=(2,), in_specs=[fetched], out_specs=[ROWS], mesh=tensor_cores(1)
    )

    @jax.jit
    def run(x):
        body = functools.partial(pipeline, allocations=prefetch(x))
        return on_cores(body, interpret, x)

    with figures_of("TPU v6 lite"):
        equal(run(TWICE), TWICE + 1)


# SparseCores.


def on_subcores(body, interpret, x, out, subcores=1, **parameters):
    mesh = plsc.VectorSubcoreMesh(
        core_axis_name="core", subcore_axis_name="subcore", num_cores=1, num_subcores=subcores
    )
    return pl.kernel(body, out, mesh=mesh, interpret=interpret, **parameters)(x)


def copy_part(x_ref, o_ref, *, axis, rows):
    part = pl.ds(rows * jax.lax.axis_index(axis), rows)
    pltpu.sync_copy(x_ref.at[part], o_ref.at[part])


@kernel_for("sparse-core-mesh")
def copies_its_part_on_each_scalar_subcore(interpret):
    body = functools.partial(copy_part, axis="core", rows=4)
    with figures_of("TPU v6 lite"):
        mesh = plsc.ScalarSubcoreMesh(axis_name="core", num_cores=2)
        equal(pl.kernel(body, BLOCK, mesh=mesh, interpret=interpret)(NUMBERS), NUMBERS)


@kernel_for("sparse-core-mesh")
def copies_its_part_on_each_vector_subcore(interpret):
    body = functools.partial(copy_part, axis="subcore", rows=2)
    with figures_of("TPU v6 lite"):
        equal(on_subcores(body, interpret, NUMBERS, BLOCK, subcores=4), NUMBERS)


EIGHT = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)
BACKWARDS = (np.arange(8, dtype=np.int32)[::-1],)


def kernel_of_lanes(name, expected):
    """Register a kernel that applies a function to the one vector that a subcore computes with.

    The function is given a Ref to ``EIGHT`` and one, of zeros, to what must become ``expected``.
    """

    def register(compute):
        def check(interpret):
            def body(x_ref, o_ref, in_ref, out_ref):
                pltpu.sync_copy(x_ref, in_ref)
                out_ref[...] = jnp.zeros_like(out_ref)
                compute(in_ref, out_ref)
                pltpu.sync_copy(out_ref, o_ref)

            wanted = np.array(expected)
            vectors = [pltpu.VMEM((8,), jnp.int32), pltpu.VMEM((8,), wanted.dtype)]
            out = jax.ShapeDtypeStruct((8,), wanted.dtype)
            with figures_of("TPU v6 lite"):
                result = on_subcores(body, interpret, EIGHT, out, scratch_types=vectors)
            equal(result, wanted)

        check.__name__ = f"computes_{name}"
        KERNELS.append(Kernel(f"sc-{name}", check, devices=1))
        return compute

    return register


def odd(ref):
    return ref[...] % 2 == 1


ODD = np.array([3, 1, 1, 5, 9, 0, 0, 0], np.int32)


@kernel_of_lanes("addupdate", 2 * EIGHT)
def add_twice(x_ref, o_ref):
    plsc.addupdate(o_ref.at[...], x_ref[...])
    plsc.addupdate(o_ref.at[...], x_ref[...])


@kernel_of_lanes("addupdate_compressed", ODD)
def add_the_odd_ones(x_ref, o_ref):
    plsc.addupdate_compressed(o_ref.at[...], x_ref[...], mask=odd(x_ref))


@kernel_of_lanes("store_compressed", ODD)
def store_the_odd_ones(x_ref, o_ref):
    plsc.store_compressed(o_ref.at[...], x_ref[...], mask=odd(x_ref))


@kernel_of_lanes("load_expanded", np.array([3, 1, 0, 4, 1, 5, 0, 0], np.int32))
def load_into_the_odd_lanes(x_ref, o_ref):
    mask = odd(x_ref)
    o_ref[...] = jnp.where(mask, plsc.load_expanded(x_ref.at[...], mask=mask), 0)


@kernel_of_lanes("load_gather", EIGHT[::-1])
def gather_backwards(x_ref, o_ref):
    o_ref[...] = plsc.load_gather(x_ref, [7 - jnp.arange(8)])


@kernel_of_lanes("store_scatter", EIGHT[::-1])
def scatter_backwards(x_ref, o_ref):
    plsc.store_scatter(o_ref, [7 - jnp.arange(8)], x_ref[...])


@kernel_of_lanes("addupdate_scatter", EIGHT[::-1])
def add_backwards(x_ref, o_ref):
    plsc.addupdate_scatter(o_ref, [7 - jnp.arange(8)], x_ref[...])


@kernel_of_lanes("all_reduce_ffs", np.full(8, 2, np.int32))
def find_the_first_even_one(x_ref, o_ref):
    o_ref[...] = jnp.broadcast_to(plsc.all_reduce_ffs(~odd(x_ref)), (8,))


@kernel_of_lanes("all_reduce_population_count", np.full(8, 5, np.int32))
def count_the_odd_ones(x_ref, o_ref):
    o_ref[...] = jnp.broadcast_to(plsc.all_reduce_population_count(odd(x_ref)), (8,))


@kernel_of_lanes("cumsum", np.cumsum(EIGHT, dtype=np.int32))
def sum_up(x_ref, o_ref):
    o_ref[...] = plsc.cumsum(x_ref[...])


@kernel_of_lanes("cummax", np.maximum.accumulate(EIGHT))
def take_the_greatest(x_ref, o_ref):
    o_ref[...] = plsc.cummax(x_ref[...])


@kernel_of_lanes("sort_key_val", np.sort(EIGHT))
def sort(x_ref, o_ref):
    o_ref[...] = plsc.sort_key_val(x_ref[...], x_ref[...])[0]


@kernel_of_lanes("scan_count", np.array([1, 1, 1, 2, 1, 1, 1, 1], np.int32))
def count_the_same_so_far(x_ref, o_ref):
    o_ref[...] = plsc.scan_count(x_ref[...])[0]


def packed(ref):
    halves = ref[...].astype(jnp.float32)
    return plsc.pack(halves, halves, format=plsc.PackFormat.INTERLEAVED)


@kernel_of_lanes("pack", EIGHT.astype(np.float32))
@kernel_of_lanes("unpack", EIGHT.astype(np.float32))
def pack_and_unpack(x_ref, o_ref):
    o_ref[...] = plsc.unpack(packed(x_ref), format=plsc.PackFormat.INTERLEAVED)[0]


@kernel_of_lanes("bitcast", EIGHT.view(np.float32))
def take_bits_for_floats(x_ref, o_ref):
    o_ref[...] = plsc.bitcast(x_ref[...], jnp.float32)


@kernel_of_lanes("parallel_loop", EIGHT)
def copy_in_a_parallel_loop(x_ref, o_ref):
    @plsc.parallel_loop(0, 1)
    def copy(_):
        o_ref[...] = x_ref[...]


@kernel_of_lanes("subcore_barrier", EIGHT)
def copy_after_a_barrier(x_ref, o_ref):
    plsc.subcore_barrier()
    o_ref[...] = x_ref[...]


@kernel_for("sc-fetch_and_add")
def fetches_and_adds(interpret):
    def body(x_ref, o_ref, count_ref):
        count_ref[0] = 5
        plsc.fetch_and_add(count_ref.at[0], 2, subcore_id=0)
        pltpu.sync_copy(count_ref, o_ref)

    out = jax.ShapeDtypeStruct((1,), jnp.int32)
    counter = [pltpu.SMEM((1,), jnp.int32)]
    with figures_of("TPU v6 lite"):
        equal(on_subcores(body, interpret, EIGHT, out, scratch_types=counter), [7])


@kernel_for("sc-Indices")
def gathers_by_a_copy(interpret):
    def body(x_ref, o_ref, order_ref, rows_ref):
        order_ref[...] = 7 - jnp.arange(8)
        pltpu.sync_copy(x_ref.at[plsc.Indices(order_ref)], rows_ref)
        pltpu.sync_copy(rows_ref, o_ref)

    scratch = [pltpu.VMEM((8,), jnp.int32), VMEM]
    with figures_of("TPU v6 lite"):
        result = on_subcores(body, interpret, NUMBERS, BLOCK, scratch_types=scratch)
    equal(result, NUMBERS[::-1])


@kernel_for("indirect-block")
def is_pipelined_over_gathered_blocks(interpret):
    gathered = pl.BlockSpec((pl.Indirect(8), 128), lambda i: (7 - jnp.arange(8), 0))

    def copy_by_lanes(x_ref, o_ref):
        @pl.loop(0, 8)
        def copy_row(row):
            for column in range(0, 128, 8):
                lanes = pl.ds(column, 8)
                o_ref[row, lanes] = x_ref[row, lanes]

    def body(x_ref, o_ref):
        pipeline = pltpu.emit_pipeline(
            copy_by_lanes, grid=(1,), in_specs=[gathered], out_specs=[ROWS]
        )
        pipeline(x_ref, o_ref)

    with figures_of("TPU v6 lite"):
        equal(on_subcores(body, interpret, NUMBERS, BLOCK), NUMBERS[::-1])


@kernel_for("sc-slice_subcore_vmem_from_shared")
def computes_in_its_slice_of_shared_memory(interpret):
    def body(x_ref, o_ref, shared_ref):
        mine = plsc.slice_subcore_vmem_from_shared(shared_ref)
        pltpu.sync_copy(x_ref, mine)
        pltpu.sync_copy(mine, o_ref)

    shared = [pltpu.VMEM_SHARED((16 * 8,), jnp.int32)]
    out = jax.ShapeDtypeStruct((8,), jnp.int32)
    with figures_of("TPU v6 lite"):
        equal(on_subcores(body, interpret, EIGHT, out, scratch_types=shared), EIGHT)


# Several devices.


def on_devices(body, interpret, axes=("device",), **parameters):
    """``body`` on two devices, each of which holds one block; what the two hold afterwards."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape((1,) * (len(axes) - 1) + (2,)), axes)
    rows = jax.sharding.PartitionSpec("device")
    on_each = functools.partial(in_hbm, body, interpret, **parameters)
    return jax.jit(
        jax.shard_map(on_each, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)
    )(jnp.asarray(TWICE))


def swapped(interpret, device_id, axes=("device",), copy=pltpu.make_async_remote_copy, **how):
    """Each device copies its block to the other, which ``device_id`` writes from its number."""

    def body(x_ref, o_ref, send, receive):
        other = 1 - jax.lax.axis_index("device")
        remote = copy(x_ref, o_ref, send, receive, device_id(other), **how)
        if copy is pltpu.make_async_remote_copy:
            remote.start()
        remote.wait()

    equal(on_devices(body, interpret, axes, scratch=[DMA, DMA]), -TWICE)


@kernel_for("device-id-scalar", devices=2)
def copies_to_a_device_by_its_number(interpret):
    swapped(interpret, lambda other: other)


@kernel_for("remote-copy", devices=2)
def starts_a_remote_copy_at_once(interpret):
    swapped(interpret, lambda other: other, copy=pltpu.async_remote_copy)


@kernel_for("device-id-tuple", devices=2)
def copies_to_a_device_by_a_tuple(interpret):
    swapped(interpret, lambda other: (other,))


@kernel_for("device-id-dict", devices=2)
def copies_to_a_device_by_a_dict(interpret):
    swapped(interpret, lambda other: {"device": other})


@kernel_for("several-device-axes", devices=2)
def copies_along_one_of_two_axes_by_a_tuple(interpret):
    swapped(interpret, lambda other: (0, other), axes=("row", "device"))


@kernel_for("several-device-axes", devices=2)
def copies_along_one_of_two_axes_by_a_dict(interpret):
    swapped(interpret, lambda other: {"device": other}, axes=("row", "device"))


def signalled(interpret, device_id):
    def body(x_ref, o_ref, semaphore):
        other = 1 - jax.lax.axis_index("device")
        pl.semaphore_signal(semaphore, 1, device_id=device_id(other))
        pl.semaphore_wait(semaphore, 1)
        pltpu.sync_copy(x_ref, o_ref)

    equal(on_devices(body, interpret, scratch=REGULAR), TWICE)


@kernel_for("remote-signal", devices=2)
def signals_a_device_by_its_number(interpret):
    signalled(interpret, lambda other: other)


@kernel_for("remote-signal", devices=2)
def signals_a_device_by_a_dict(interpret):
    signalled(interpret, lambda other: {"device": other})


@kernel_for("get_barrier_semaphore", devices=2)
def meets_the_other_device_at_a_barrier(interpret):
    def body(x_ref, o_ref):
        barrier = pltpu.get_barrier_semaphore()
        pl.semaphore_signal(barrier, 1, device_id=1 - jax.lax.axis_index("device"))
        pl.semaphore_wait(barrier, 1)
        pltpu.sync_copy(x_ref, o_ref)

    settings = pltpu.CompilerParams(collective_id=0)
    equal(on_devices(body, interpret, compiler_params=settings), TWICE)


@kernel_for("get_barrier_semaphore")
def signals_the_barrier_of_its_own_device(interpret):
    def body(x_ref, o_ref):
        barrier = pltpu.get_barrier_semaphore()
        pl.semaphore_signal(barrier, 1)
        pl.semaphore_wait(barrier, 1)
        o_ref[...] = x_ref[...]

    settings = pltpu.CompilerParams(collective_id=0)
    equal(call(body, interpret, NUMBERS, compiler_params=settings), NUMBERS)


@kernel_for("device-axis-index", devices=2)
def knows_its_own_device(interpret):
    def body(x_ref, o_ref):
        half = pl.ds(4 * jax.lax.axis_index("device"), 4)
        pltpu.sync_copy(x_ref, o_ref)
        pltpu.sync_copy(x_ref.at[half], o_ref.at[0:4])

    expected = TWICE.copy()
    expected[8:12] = TWICE[12:16]
    equal(on_devices(body, interpret), expected)


# What is measured.


def is_public(name):
    """Whether the installed JAX has ``name``, under a module of Pallas, deprecated or not."""
    module, _, attribute = name.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return hasattr(sys.modules[module], attribute)


def outcome(kernel, interpret):
    """``""`` if the kernel was right, else what went wrong."""
    try:
        kernel.check(interpret)
    # A kernel may fail in any way at all: by an error of JAX's, of Python's, or of the comparison.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        pltpu.reset_tpu_interpret_mode_state()
    return ""


@functools.cache
def outcomes_on_devices(interpreter):
    """What came of each kernel for several devices, by its name, in a Python of their own.

    A kernel that hangs, and those after it, are missing.
    """
    command = [sys.executable, __file__, interpreter.name]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "NPROC": "16", "PYTHONPATH": path}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
        lines = done.stdout
    except subprocess.TimeoutExpired as hung:
        lines = (hung.stdout or b"").decode()
    return dict(line.split("\t", 1) for line in lines.splitlines() if "\t" in line)


def measure_on_devices(interpreter):
    jax.config.update("jax_num_cpu_devices", 2)
    for kernel in KERNELS:
        if kernel.devices > 1:
            result = outcome(kernel, INTERPRETERS[interpreter])
            print(kernel.check.__name__, " ".join(result.split()), sep="\t", flush=True)
    sys.stdout.flush()
    os._exit(0)  # An orderly exit waits for what a failed kernel left behind.


def result_of(kernel, interpreter):
    if kernel.devices == 1:
        return outcome(kernel, INTERPRETERS[interpreter])
    return outcomes_on_devices(interpreter).get(kernel.check.__name__, "hung")


ROWS_BY_KEY = {operation.key: operation for operation in OPERATIONS}
INSTALLED = [
    kernel
    for kernel in KERNELS
    if not (names := ROWS_BY_KEY[kernel.key].names) or any(map(is_public, names))
]


@pytest.mark.parametrize("interpreter", INTERPRETERS, ids=lambda interpreter: interpreter.name)
@pytest.mark.parametrize("kernel", INSTALLED, ids=lambda k: f"{k.key}-{k.check.__name__}")
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_an_interpreter_serves_as_the_table_says(kernel, interpreter):
    row = ROWS_BY_KEY[kernel.key]
    serves = bool(row.serves_in(RELEASE) & interpreter)
    assert (result_of(kernel, interpreter) == "") == serves, result_of(kernel, interpreter)


@pytest.mark.parametrize("key", FLAWS)
def test_what_an_interpreter_that_serves_gets_wrong_is_still_wrong(key):
    for interpreter, interpret in INTERPRETERS.items():
        if ROWS_BY_KEY[key].serves_in(RELEASE) & interpreter:
            FLAWS[key](interpret)


def test_every_row_has_a_kernel_and_every_kernel_a_row():
    assert {kernel.key for kernel in KERNELS} == set(ROWS_BY_KEY)
    assert set(FLAWS) == {operation.key for operation in OPERATIONS if operation.flaw}


def test_the_table_needs_no_jax():
    script = "import sys, migrate_pallas.interpreters; sys.exit('jax' in sys.modules)"
    root = pathlib.Path(__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", script], cwd=root).returncode == 0


def test_keys_are_unique():
    assert len(ROWS_BY_KEY) == len(OPERATIONS)


def test_no_two_rows_are_about_the_same_call():
    about = [(name, row.keyword) for row in OPERATIONS for name in row.names]
    assert len(about) == len(set(about))


def public_names():
    for module in (pl, pltpu, plsc):
        for name, value in inspect.getmembers(module):
            if not name.startswith("_") and not inspect.ismodule(value):
                yield f"{module.__name__}.{name}"


def test_every_public_name_of_pallas_is_in_a_row_or_plays_no_part():
    named = {name for operation in OPERATIONS for name in operation.names}
    assert not named & set(NO_PART)
    assert set(public_names()) <= named | set(NO_PART)


# Names that one of the two releases measured has, and the other has not.
UNTIL_0_12 = {
    "jax.experimental.pallas.tpu.BufferedRefBase",
}
SINCE_0_12 = {
    "jax.experimental.pallas.tpu.ACC",
    "jax.experimental.pallas.tpu.PipelineStep",
    "jax.experimental.pallas.tpu.TensorCoreMesh",
    "jax.experimental.pallas.tpu.annotate",
    "jax.experimental.pallas.tpu.conv",
    "jax.experimental.pallas.tpu.emit_pipeline_with_async_prefetch",
    "jax.experimental.pallas.tpu.has_memory_space",
    "jax.experimental.pallas.tpu.join_bits",
    "jax.experimental.pallas.tpu.matmul_lhs_fifo",
    "jax.experimental.pallas.tpu.matmul_pop_fifo",
    "jax.experimental.pallas.tpu.pack_fp6",
    "jax.experimental.pallas.tpu.reciprocal",
    "jax.experimental.pallas.tpu.split_bits",
    "jax.experimental.pallas.tpu.unpack_fp6",
    "jax.experimental.pallas.tpu_sc.SparseCorePushStreamWarning",
    "jax.experimental.pallas.tpu_sc.slice_subcore_vmem_from_shared",
}


def test_the_table_has_no_name_that_pallas_has_not():
    named = {name for operation in OPERATIONS for name in operation.names} | set(NO_PART)
    missing = {name for name in named if not is_public(name)}
    assert missing <= (UNTIL_0_12 if RELEASE >= (0, 12) else SINCE_0_12)


def test_serving_is_what_both_operations_are_served_by():
    assert Serves.BOTH & Serves.GENERIC is Serves.GENERIC
    assert Serves.GENERIC & Serves.SIMULATOR is Serves.NEITHER
    assert not Serves.NEITHER


def test_a_row_tells_who_served_before_a_release():
    row = Operation("k", (), Serves.BOTH, "", until=((0, 12), Serves.SIMULATOR))
    assert row.serves_in((0, 11)) is Serves.SIMULATOR
    assert row.serves_in((0, 12)) is Serves.BOTH
    assert row.serves_everywhere is Serves.SIMULATOR
    assert Operation("k", (), Serves.GENERIC, "").serves_everywhere is Serves.GENERIC


def test_a_row_says_why_wherever_an_interpreter_does_not_serve():
    for row in OPERATIONS:
        assert row.why
        assert (row.why == "both interpreters compute it") == (
            row.serves_everywhere is Serves.BOTH
        ), row.key


if __name__ == "__main__":
    measure_on_devices(Serves[sys.argv[1]])
