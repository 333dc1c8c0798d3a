"""Run each kernel of a copy of JAX's own Pallas kernels for TPU, and say of each what went wrong.

Started as ``python jax_ops.py [NAME...]`` where the copy can be imported as `tpu_ops`, on four devices; prints one JSON
object of names and errors, '' for a kernel that agrees with its reference function.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu

KERNELS: dict[str, Callable[[], None]] = {}


def kernel(check: Callable[[], None]) -> Callable[[], None]:
    """Register `check`, which raises where the kernel that it is named for is wrong."""
    KERNELS[check.__name__] = check
    return check


def ops(name: str) -> Any:
    """A module of the copy."""
    return importlib.import_module(f"tpu_ops.{name}")


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def agree(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def agree_with_gradients(attention: Callable, reference: Callable, *arguments: Any) -> None:
    """Raise unless two functions agree, and what they pull back from one cotangent does."""
    found, back = jax.vjp(attention, *arguments)
    expected, expected_back = jax.vjp(reference, *arguments)
    cotangent = normal(9, *expected.shape)
    gradients, expected_gradients = back(cotangent), expected_back(cotangent)
    agree(found, expected)
    agree(gradients, expected_gradients, 1e-4)


@kernel
def example() -> None:
    x = normal(0, 8, 128)
    agree(ops("example_kernel").double(x), x * 2, 0)


@kernel
def matmul() -> None:
    x, y = normal(0, 256, 256), normal(1, 256, 128)
    found = ops("matmul").matmul(x, y, block_shape=(128, 128), block_k=128)
    agree(found, x @ y, 1e-3)


@kernel
def flash_attention() -> None:
    module = ops("flash_attention")
    q, k, v = (normal(seed, 1, 1, 256, 128) for seed in range(3))
    sizes = module.BlockSizes(
        block_q=128,
        block_k_major=256,
        block_k=128,
        block_b=1,
        block_q_major_dkv=128,
        block_k_major_dkv=128,
        block_k_dkv=128,
        block_q_dkv=128,
        block_k_major_dq=128,
        block_k_dq=128,
        block_q_dq=128,
    )

    def attention(q, k, v):
        return module.flash_attention(q, k, v, causal=True, sm_scale=0.1, block_sizes=sizes)

    def reference(q, k, v):
        return module.mha_reference_no_custom_vjp(q, k, v, causal=True, sm_scale=0.1)

    agree_with_gradients(attention, reference, q, k, v)


@kernel
def flash_attention_in_one_step() -> None:
    module = ops("flash_attention")
    q, k, v = (normal(seed, 1, 1, 128, 128) for seed in range(3))
    agree(module.flash_attention(q, k, v), module.mha_reference(q, k, v, None, None))


@kernel
def splash_attention() -> None:
    module = ops("splash_attention")
    mask = module.MultiHeadMask([module.CausalMask((256, 256))])
    attention = module.make_splash_mha_single_device(mask)
    reference = module.make_masked_mha_reference(mask)
    agree_with_gradients(attention, reference, *(normal(s, 1, 256, 128) for s in range(3)))


@kernel
def splash_attention_with_many_queries_a_head() -> None:
    module = ops("splash_attention")
    mask = module.MultiHeadMask([module.LocalMask((128, 128), (16, 0), 0)] * 2)
    attention = module.make_splash_mqa_single_device(mask)
    reference = module.make_masked_mqa_reference(mask)
    q, k, v = normal(0, 2, 128, 128), normal(1, 128, 128), normal(2, 128, 128)
    agree(attention(q, k, v), reference(q, k, v))


def paged(inline: bool) -> None:
    attention = ops("paged_attention").paged_attention
    reference = ops("paged_attention.util").grouped_query_attention_reference
    heads, pages, page_size, width = 2, 8, 16, 128
    q = normal(0, 2, 4, width)
    # The kernel computes with pages in bfloat16.
    k, v = (
        normal(seed, heads, pages, page_size, width).astype(jnp.bfloat16).astype(np.float32)
        for seed in (1, 2)
    )
    lengths = jnp.array([20, 64], jnp.int32)
    indices = jnp.array([[3, 0, 5, 1], [2, 7, 4, 6]], jnp.int32)

    def of_each_sequence(pages):
        chosen = pages[:, indices].transpose(1, 0, 2, 3, 4)
        return chosen.reshape(2, heads, 4 * page_size, width)

    found = attention(q, k, v, lengths, indices, pages_per_compute_block=2, inline_seq_dim=inline)
    agree(found, reference(q, of_each_sequence(k), of_each_sequence(v), lengths))


@kernel
def paged_attention() -> None:
    paged(inline=True)


@kernel
def paged_attention_with_a_grid_over_the_sequence() -> None:
    paged(inline=False)


def ragged(lengths: list[tuple[int, int]], queries_a_block: int) -> None:
    """`lengths` are those of each sequence: new tokens, and all."""
    module = ops("ragged_paged_attention.kernel")
    new = [one for one, _ in lengths]
    q, pages = normal(0, sum(new), 4, 128), normal(1, 16, 16, 4, 128)
    kv_lens = jnp.array([total for _, total in lengths], jnp.int32)
    indices = np.random.default_rng(2).permutation(16).reshape(-1, 4)[: len(lengths)]
    starts = jnp.array(np.concatenate([[0], np.cumsum(new)]), jnp.int32)
    arguments = (q, pages, kv_lens, jnp.array(indices, jnp.int32), starts)
    arguments += (jnp.array([len(lengths)], jnp.int32),)
    found = module.ragged_paged_attention(
        *arguments, num_kv_pages_per_block=2, num_queries_per_block=queries_a_block
    )
    agree(found, module.ref_ragged_paged_attention(*arguments), 1e-4)


@kernel
def ragged_paged_attention() -> None:
    ragged([(8, 20), (1, 33), (7, 64)], queries_a_block=16)


@kernel
def ragged_paged_attention_over_several_blocks() -> None:
    ragged([(24, 60), (8, 33)], queries_a_block=16)


def grouped_matmul(lhs: Any, rhs: Any, sizes: list[int]) -> Any:
    parts = jnp.split(lhs, np.cumsum(sizes)[:-1])
    return jnp.concatenate([part @ one for part, one in zip(parts, rhs, strict=True)])


SIZES = [50, 0, 78, 128]


@kernel
def megablox() -> None:
    lhs, rhs = normal(0, 256, 128), normal(1, 4, 128, 128)
    agree_with_gradients(
        lambda lhs, rhs: ops("megablox").gmm(lhs, rhs, jnp.array(SIZES, jnp.int32), jnp.float32),
        lambda lhs, rhs: grouped_matmul(lhs, rhs, SIZES),
        lhs,
        rhs,
    )


@kernel
def megablox_into_an_existing_output() -> None:
    gmm = importlib.import_module("tpu_ops.megablox.gmm").gmm
    lhs, rhs, existing = normal(0, 256, 128), normal(1, 4, 128, 128), normal(2, 256, 128)
    sizes, first = jnp.array(SIZES, jnp.int32), jnp.array(2, jnp.int32)
    found = gmm(lhs, rhs[2:], sizes, jnp.float32, (128, 128, 128), first, jnp.array(existing))
    expected = np.concatenate([existing[:50], np.asarray(grouped_matmul(lhs, rhs, SIZES))[50:]])
    agree(found, expected, 1e-4)


@kernel
def threefry() -> None:
    jax.config.update("jax_threefry_partitionable", True)
    key, shape = jax.random.key(3, impl="threefry2x32"), (300, 256)
    found = ops("random.threefry").plthreefry_random_bits(jax.random.key_data(key), 32, shape)
    agree(found, jax.random.bits(key, shape), 0)


@kernel
def philox() -> None:
    module = ops("random.philox")
    shape = (300, 256)
    counts = jnp.arange(shape[0] * shape[1], dtype=jnp.uint32).reshape(shape)
    high, low, _, _ = module.philox_4x32(0 * counts, counts, 0 * counts, 0 * counts, 5, 7)
    found = module.philox_random_bits(jnp.array([5, 7], jnp.uint32), 32, shape)
    agree(found, high ^ low, 0)


@kernel
def all_gather() -> None:
    devices = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    x = normal(0, 64, 128)
    agree(ops("all_gather").all_gather(x, mesh=devices, axis_name="x"), x, 0)


def outcome(check: Callable[[], None]) -> str:
    """What `check` says: '' where it holds."""
    try:
        check()
    except Exception as error:
        if hasattr(pltpu, "reset_tpu_interpret_mode_state"):
            pltpu.reset_tpu_interpret_mode_state()
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(KERNELS)
    print(json.dumps({name: outcome(KERNELS[name]) for name in chosen}))
