"""MP213: a call of a kernel that lives in JAX."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Node

from ..module import Module
from ..parsing import symbols
from . import CALL, rule

_OPS = "jax.experimental.pallas.ops.tpu."
# The functions of jax/experimental/pallas/ops/tpu that run a kernel, 0.10.2: whether they take `interpret=`.
_KERNELS = {
    "all_gather": False,
    "double": False,
    "flash_attention": False,
    "gmm": True,
    "make_splash_mha": True,
    "make_splash_mha_single_device": True,
    "make_splash_mqa": True,
    "make_splash_mqa_single_device": True,
    "matmul": False,
    "paged_attention": False,
    "philox_4x32_count": False,
    "philox_random_bits": False,
    "philox_split": False,
    "plthreefry_random_bits": False,
    "ragged_paged_attention": False,
    "tgmm": True,
    "threefry_2x32_count": False,
}
_FORCE = "force_tpu_interpret_mode"


@rule("MP213", "kernel-in-jax", ("pallas.ops.tpu",), ("pallas.ops",), ("ops.tpu",))
def kernel_in_jax(query: Query) -> Query:
    """A call of a kernel that lives in JAX itself, which rewriting a repository can't reach.

    What it does: reports calls of the kernels of `jax.experimental.pallas.ops.tpu` that neither pass `interpret=` nor
    stand under `pltpu.force_tpu_interpret_mode()`.

    Why: the `pallas_call` inside says nothing of interpreting, so it raises `ValueError: Only interpret mode is
    supported on CPU backend.`

    Example:

        out = flash_attention.flash_attention(q, k, v)

    Use instead:

        with pltpu.force_tpu_interpret_mode():
            out = flash_attention.flash_attention(q, k, v)

    or the function's own `interpret=`, where it has one (megablox `gmm` and `tgmm`, splash attention's `make_...`).

    References: `force_tpu_interpret_mode` in jax/_src/pallas/mosaic/interpret/, JAX 0.10.2; it overrides `interpret=`.
    """
    return query.select(CALL).filter(runs_kernel_of_jax).modify(report)


def runs_kernel_of_jax(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` runs a kernel of JAX natively."""
    module: Module = capture["module"]
    call = module.call_at(node)
    if call is None:
        return False
    path = module.names.callee(call).path
    name = path.rpartition(".")[2]
    if not path.startswith(_OPS) or name not in _KERNELS:
        return False
    capture.update(call=call, name=name)
    return call.brackets.keyword("interpret") is None and not _is_forced(module, node)


def _is_forced(module: Module, node: Node) -> bool:
    current = node
    while current.parent is not None:
        if current.parent.type == symbols.with_stmt and any(
            _FORCE in str(kid) for kid in current.parent.children[1:-2]
        ):
            return True
        current = current.parent
    return False


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report the call."""
    cure = "pass its interpret=, or call it" if _KERNELS[capture["name"]] else "call it"
    capture["module"].find(
        "MP213",
        capture["call"].power,
        f"the kernel of {capture['name']} lives in JAX and is not reached by this tool: {cure} under "
        "pltpu.force_tpu_interpret_mode()",
    )
