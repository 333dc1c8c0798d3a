"""MP212: transformed or exported where the simulator or a gate does not serve."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pgen2 import token
from fissix.pytree import Node

from ..arguments import held
from ..calls import Call, literal_text
from ..interpreting import SIMULATED, mode
from ..module import Module
from ..settings import GATE
from ..targets import Site
from . import CALL, rule

_CHECKPOINTS = ("checkpoint", "remat")


@rule(
    "MP212",
    "not-served",
    ("pallas", "checkpoint"),
    ("pallas", "remat"),
    ("pallas", "export", "platforms"),
    ("pallas", "lowering_platforms"),
)
def not_served(query: Query) -> Query:
    """A kernel under `jax.checkpoint`, or exported or lowered for TPU, where the simulator or a gate does not serve.

    What it does: reports `jax.checkpoint` of a function whose kernel has the simulator's parameters, and, with strategy
    gate, `jax.export` or lowering for TPU in a module that has entry points.

    Why: the simulator's effects are refused under `jax.checkpoint` with `grad`. A gate is decided by the process's
    default backend, so that code lowered for TPU from a CPU host is the interpreted one.

    Example:

        exported = jax.export.export(jax.jit(step), platforms=["tpu"])(x)

    Use instead: export on a host with a TPU; for `jax.checkpoint`, `interpret=True` where the kernel allows it.

    References: jax/_src/ad_checkpoint.py and jax/_src/export/_export.py, JAX 0.10.2.
    """
    return query.select(CALL).filter(is_not_served).modify(report)


def is_not_served(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` transforms, exports or lowers a kernel in such a way."""
    module: Module = capture["module"]
    call = module.call_at(node)
    if call is None:
        return False
    capture["call"] = call
    path = module.names.callee(call).path
    name = path.rpartition(".")[2]
    if path.startswith("jax") and name in _CHECKPOINTS:
        capture["message"] = "the simulator's effects are refused under jax.checkpoint with grad"
        return any(_is_simulated(module, site) for site in _sites_under(module, call))
    if module.settings.strategy != GATE:
        return False
    capture["message"] = (
        "what is lowered for TPU from a host without one is the interpreted kernel: a gate is decided by the "
        "process's default backend; export on a TPU host"
    )
    keyword = "platforms" if name == "export" else "lowering_platforms"
    return _names_tpu(call, keyword) and bool(module.kinds.entry_sites)


def _names_tpu(call: Call, keyword: str) -> bool:
    item = call.brackets.keyword(keyword)
    strings = [leaf for leaf in item.value.leaves() if leaf.type == token.STRING] if item else []
    return any(literal_text(leaf) == "tpu" for leaf in strings)


def _sites_under(module: Module, call: Call) -> list[Site]:
    """The entry points in the functions that the first argument of `call` may run."""
    first = call.positional(0)
    definitions = module.functions.definitions(first) if first is not None else []
    reached = {id(f) for d in definitions for f in module.functions.reached(d)}
    return [
        s
        for s in module.kinds.entry_sites
        if any(id(f) in reached for f in module.functions.around(s))
    ]


def _is_simulated(module: Module, site: Site) -> bool:
    values = [argument.item.value for argument in held(module, site, "interpret", None)]
    return any(mode(module, value, "cpu") == SIMULATED for value in values)


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report the call."""
    capture["module"].find("MP212", capture["call"].power, capture["message"])
