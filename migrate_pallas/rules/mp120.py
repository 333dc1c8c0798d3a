"""MP120: `get_tpu_info()`."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Node

from ..calls import Call, end, holds_comment, start
from ..edits import Edit, gated
from ..figures import Figures
from ..gates import TPU_MODULE
from ..module import Module
from ..releases import has, since, spelled
from ..settings import GATE
from . import CALL, rule


@rule("MP120", "tpu-info", ("pallas", "get_tpu_info"), about=("get_tpu_info",))
def tpu_info(query: Query) -> Query:
    """`pltpu.get_tpu_info()`, which raises where there is no TPU.

    What it does: asks for the figures of one chip instead (`--tpu`, default v6e); gated, only where there is no TPU.

    Why: on CPU it raises `ValueError: Unsupported TPU device kind: cpu`.

    Example:

        vmem = pltpu.get_tpu_info().vmem_capacity_bytes

    Use instead:

        vmem = pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V6E, 1).vmem_capacity_bytes

    References: jax/_src/pallas/mosaic/tpu_info.py, JAX 0.10.2.
    """
    return query.select(CALL).filter(asks_for_info).modify(name_the_chip)


def asks_for_info(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` asks for the figures of the TPU that is there, and would do so on CPU."""
    module: Module = capture["module"]
    call = module.call_at(node)
    if call is None or call.brackets.items:
        return False
    path = module.names.callee(call).path
    if path.rpartition(".")[2] != "get_tpu_info" or not path.startswith(
        ("jax.experimental.pallas", "jax._src.pallas")
    ):
        return False
    capture["call"] = call
    return not module.is_guarded(node)


def name_the_chip(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Propose the call that names the chip."""
    module: Module = capture["module"]
    call: Call = capture["call"]
    if not has(module.settings.release, "get_tpu_info_for_chip"):
        _nothing_serves(module, call)
        return
    info = Figures(module).info(node, _prefix(module, call))
    reason = f"get_tpu_info() raises where there is no TPU: the figures of a {module.settings.chip} stand in"
    first, last = start(call.power), end(node)
    if module.settings.strategy != GATE:
        if holds_comment(call.power.children[0], node):
            _by_hand(module, call)
            return
        module.propose("MP120", call.power, reason, (Edit(first, last, info.text),), info.needs)
        return
    gate = module.gate.call(node)
    if gate is None:
        module.find_at_import(call.power, "get_tpu_info()")
        return
    edits = gated(call.power.children[0], node, gate.text, info.text)
    module.propose("MP120", call.power, reason, edits, gate.needs | info.needs)


def _nothing_serves(module: Module, call: Call) -> None:
    """Report that the release has nothing that gives the figures of a chip."""
    release, earliest = module.settings.release, since("get_tpu_info_for_chip")
    module.find(
        "MP206",
        call.power,
        f"get_tpu_info() raises where there is no TPU, and JAX {spelled(release)} has no get_tpu_info_for_chip to "
        f"stand in ({spelled(earliest)} is the first that has): write the figures that the code needs",
    )


def _by_hand(module: Module, call: Call) -> None:
    module.find(
        "MP206",
        call.power,
        "get_tpu_info() raises where there is no TPU, and a comment stands in the call, which would be lost: write the "
        "call of get_tpu_info_for_chip by hand",
    )


def _prefix(module: Module, call: Call) -> str:
    """How the TPU module is written in `call`; '' where the function is called by its bare name."""
    if call.index < 2:
        return ""
    path = module.names.path(call.power, call.index - 1)
    written = call.power.children[: call.index - 1]
    names = "".join(leaf.value for part in written for leaf in part.leaves())
    return names if path == TPU_MODULE else ""
