"""MP213: a call of a kernel that lives in JAX."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Leaf, Node

from ..calls import Call, Tree, ancestry, written
from ..module import Module
from ..names import PARTIAL
from ..parsing import symbols
from . import CALL, rule

_OPS = "jax.experimental.pallas.ops.tpu."
# The functions of jax/experimental/pallas/ops/tpu that run a kernel, 0.10.2 to 0.12.0: whether they take `interpret=`.
KERNELS = {
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
    "philox_4x32_kernel": False,
    "philox_fold_in": False,
    "philox_random_bits": False,
    "philox_split": False,
    "plthreefry_random_bits": False,
    "ragged_paged_attention": False,
    "tgmm": True,
    "threefry_2x32_count": False,
}
# Of these the result is a function that runs the kernel as it is.
_TRANSFORMATIONS = (
    "checkpoint",
    "grad",
    "jit",
    "pmap",
    "remat",
    "shard_map",
    "value_and_grad",
    "vmap",
)
_FORCE, _SET = "force_tpu_interpret_mode", "set_tpu_interpret_mode"


@rule("MP213", "kernel-in-jax", ("pallas", "ops", "tpu"), about=tuple(KERNELS))
def kernel_in_jax(query: Query) -> Query:
    """A call of a kernel that lives in JAX itself, which rewriting a repository can't reach.

    What it does: reports calls of the kernels of `jax.experimental.pallas.ops.tpu`, also where one is handed to
    `functools.partial` or to a transformation such as `jax.jit`. Not where `interpret=` is passed, a backend test is
    around it, or `pltpu.force_tpu_interpret_mode()` is entered around it or for its function or class.

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
    meaning = module.names.callee(call)
    calls = (*meaning.through, call)
    path = meaning.path if meaning.path.startswith(_OPS) else _bound(module, call)
    name = path.rpartition(".")[2]
    if not path.startswith(_OPS) or name not in KERNELS:
        return False
    capture.update(call=call, name=name)
    if any(one.brackets.keyword("interpret") for one in calls):
        return False
    return not module.is_guarded(node) and not _is_forced(module, node)


def _bound(module: Module, call: Call) -> str:
    """The path of what `call` makes a function of: `jax.jit(kernel)`, or a partial whose calls can't be seen."""
    first = call.positional(0)
    by = module.names.callee(call).path
    transforms = by.startswith("jax.") and by.rpartition(".")[2] in _TRANSFORMATIONS
    if first is None or not (by == PARTIAL or transforms):
        return ""
    holder = call.power.parent
    named = (
        holder.type == symbols.expr_stmt and module.names.assigned(holder.children[0]) is not None
    )
    return "" if by == PARTIAL and named else module.names.path(first)


def _is_forced(module: Module, node: Node) -> bool:
    """Whether JAX's own switch for the simulator is on around `node`, as far as the module tells."""
    for _, current in ancestry(node):
        if current.type == symbols.with_stmt and _names(current.children[1:-2], _FORCE):
            return True
        if current.type == symbols.decorated and _names(current.children[:1], _FORCE):
            return True
        in_scope = current.type in (symbols.funcdef, symbols.classdef)
        if in_scope and any(_switches_on(leaf) for leaf in current.leaves()):
            return True
    nodes = (node for part in module.tree.holding(_SET, _FORCE) for node in part.nodes)
    return any(_switches_on(leaf) for node in nodes for leaf in node.leaves())


def _names(nodes: list[Tree], word: str) -> bool:
    return any(leaf.value == word for node in nodes for leaf in node.leaves())


def _switches_on(leaf: Leaf) -> bool:
    """Whether `leaf` sets the mode, or enters the context for longer than a block: `self.enter_context(...)`."""
    if leaf.value == _SET:
        return True
    if leaf.value != _FORCE:
        return False
    holder = leaf.parent
    while holder is not None and holder.type in (symbols.trailer, symbols.power):
        if written(holder.children[0]) == "(" and "enter_context" in written(holder.parent):
            return True
        holder = holder.parent
    return False


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report the call."""
    cure = "pass its interpret=, or call it" if KERNELS[capture["name"]] else "call it"
    capture["module"].find(
        "MP213",
        capture["call"].power,
        f"the kernel of {capture['name']} lives in JAX and is not reached by this tool: {cure} under "
        "pltpu.force_tpu_interpret_mode()",
    )
