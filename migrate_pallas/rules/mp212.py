"""MP212: transformed or exported where the simulator or a gate does not serve."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pgen2 import token
from fissix.pytree import Node

from ..arguments import held
from ..backends import CPU, PLATFORMS, TPU
from ..calls import Item, Tree, as_call, literal_text, written
from ..interpreting import NATIVE, SIMULATED, mode
from ..kinds import Kind
from ..module import Module
from ..names import PARTIAL
from ..parsing import symbols
from ..parts import Part
from ..settings import GATE, SIMULATOR
from ..targets import Site
from . import CALL, rule

_CHECKPOINTS = ("checkpoint", "remat")
# Keywords that name the platforms to lower for: jax.export.export, jax.stages.Traced.lower, jax2tf.convert, 0.10.2.
_PLATFORM_LISTS = ("lowering_platforms", "native_serialization_platforms")

_CHECKPOINTED = (
    "the simulator's effects are refused where jax.checkpoint is differentiated: write interpret=True where the kernel "
    "allows it, or leave the checkpoint out on CPU"
)
_LOWERED = (
    "a gate is decided by the process's default backend, not by the platform that is lowered for, so this may get the "
    "other platform's kernel: do it on a host of that platform"
)
_PLACED = (
    "a gate is decided by the process's default backend, and does not see jax.default_device: start the program with "
    "JAX_PLATFORMS instead, where its kernels run there"
)


def _where(module: Module) -> list[Part]:
    """The parts that may transform, export or place anything: a keyword needs no name of JAX beside it."""
    named = module.mentions.of(*_CHECKPOINTS, "default_device", "export")
    return [*named, *module.tree.holding(*_PLATFORM_LISTS)]


@rule(
    "MP212",
    "not-served",
    ("pallas", "checkpoint"),
    ("pallas", "remat"),
    ("pallas", "export", "platforms"),
    ("pallas", "lowering_platforms"),
    ("pallas", "native_serialization_platforms"),
    ("pallas", "default_device"),
    about=_where,
)
def not_served(query: Query) -> Query:
    """A kernel under `jax.checkpoint`, or exported or lowered for a platform, where the simulator or a gate fails.

    What it does: reports `jax.checkpoint` of a function whose kernel has the simulator's parameters, or gets them by
    `--interpreter=tpu`; and, with strategy gate, in a module that has entry points, what is exported or lowered for
    platforms that are named, and `jax.default_device`.

    Why: the simulator's effects are refused under `jax.checkpoint` with `grad`. A gate is decided by the process's
    default backend, so that code lowered for TPU from a CPU host is the interpreted one.

    Example:

        exported = jax.export.export(jax.jit(step), platforms=["tpu"])(x)

    Use instead: export on a host with a TPU; for `jax.checkpoint`, `interpret=True` where the kernel allows it.

    References: jax/_src/ad_checkpoint.py and jax/_src/export/_export.py, JAX 0.10.2.
    """
    query = query.select(CALL).filter(is_not_served).modify(report)
    return query.select("decorator").filter(checkpoints_kernel).modify(report)


def is_not_served(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` transforms, exports or lowers a kernel in such a way."""
    module: Module = capture["module"]
    call = module.call_at(node)
    if call is None:
        return False
    path = module.names.callee(call).path
    capture.update(at=call.power, message=_CHECKPOINTED)
    if _is_checkpoint(path):
        first = call.positional(0)
        return first is not None and _runs_simulated(module, first)
    if module.settings.strategy != GATE or not any(_is_gated(module, s) for s in _entries(module)):
        return False
    if path == "jax.default_device":
        capture["message"] = _PLACED
        device = call.positional(0)
        return device is not None and written(device) != "None"
    capture["message"] = _LOWERED
    exports = path.startswith("jax.") and path.endswith(".export")
    keywords = (*_PLATFORM_LISTS, "platforms") if exports else _PLATFORM_LISTS
    return any(_names_platform(module, item) for item in map(call.brackets.keyword, keywords))


def _is_checkpoint(path: str) -> bool:
    return path.startswith("jax.") and path.rpartition(".")[2] in _CHECKPOINTS


def _names_platform(module: Module, item: Item | None) -> bool:
    """Whether an argument lists TPU or CPU, itself or by a name that was assigned once."""
    if item is None:
        return False
    assigned = module.names.assigned(item.value)
    listed = item.value if assigned is None else assigned
    strings = [leaf for leaf in listed.leaves() if leaf.type == token.STRING]
    return any(literal_text(leaf) in (CPU, TPU) for leaf in strings)


def checkpoints_kernel(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the decorator `node` is `jax.checkpoint`, bare or with arguments, on what runs a simulated kernel."""
    module: Module = capture["module"]
    expression = node.children[1]
    call = as_call(expression)
    path = module.names.callee(call).path if call else module.names.path(expression)
    first = call.positional(0) if call else None
    if path == PARTIAL and first is not None:
        path = module.names.path(first)
    if not _is_checkpoint(path) or module.is_skipped(node.children[0], expression):
        return False
    capture.update(at=expression, message=_CHECKPOINTED)
    holder = node.parent
    while holder.type != symbols.decorated:
        holder = holder.parent
    return _runs_simulated(module, holder.children[-1])


def _runs_simulated(module: Module, function: Tree) -> bool:
    return any(_is_simulated(module, site) for site in _sites_under(module, function))


def _entries(module: Module) -> list[Site]:
    """The entry points of the module that are ours to change."""
    return [s for s in module.kinds.entry_sites if module.kinds.kind(s) is not Kind.GPU]


def _is_gated(module: Module, site: Site) -> bool:
    """Whether the entry point has a gate, or gets one: it is not interpreted on every platform."""
    arguments = held(module, site, "interpret", None)
    modes = [[mode(module, one.item.value, p) for p in PLATFORMS] for one in arguments]
    return not any(one[0] is not None and len(set(one)) == 1 and one[0] != NATIVE for one in modes)


def _sites_under(module: Module, function: Tree) -> list[Site]:
    """The entry points that `function` may run."""
    definitions = module.functions.definitions(function)
    reached = {id(f) for d in definitions for f in module.functions.reached(d)}
    return [
        s for s in _entries(module) if any(id(f) in reached for f in module.functions.around(s))
    ]


def _is_simulated(module: Module, site: Site) -> bool:
    """Whether the simulator runs the kernel on CPU, or will when MP110 is done."""
    if module.settings.interpreter == SIMULATOR and module.considers("MP110"):
        return True
    values = [argument.item.value for argument in held(module, site, "interpret", None)]
    return any(mode(module, value, CPU) == SIMULATED for value in values)


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report the place."""
    capture["module"].find("MP212", capture["at"], capture["message"])
