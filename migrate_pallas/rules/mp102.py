"""MP102: `None` is no empty `collective_axes`."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Node

from ..arguments import held
from ..axes import may_change, nones
from ..edits import replace
from ..module import Module
from ..releases import has
from ..settings import GATE
from ..targets import SCOPED
from . import CALL, rule


@rule("MP102", "empty-axes", ("scoped", "collective_axes", "None"), about=SCOPED)
def empty_axes(query: Query) -> Query:
    """`None` where empty `collective_axes` were meant.

    What it does: writes `()` for `None`, also as a branch of a conditional (strategy gate; strategy remove drops the
    argument, which is MP101).

    Why: a value that is not a tuple is wrapped in one, so `None` becomes `(None,)`, which is true and raises just
    like a real axis.

    Example:

        pl.run_scoped(body, scratch, collective_axes=axes if on_tpu() else None)

    Use instead:

        pl.run_scoped(body, scratch, collective_axes=axes if on_tpu() else ())

    References: `run_scoped` in jax/_src/pallas/primitives.py, JAX 0.10.2.
    """
    return query.select(CALL).filter(passes_none).modify(write_empty_tuple)


def passes_none(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` is a site that may be handed `None` for axes."""
    module: Module = capture["module"]
    site = module.site_at(node)
    if module.settings.strategy != GATE or site is None or not may_change(module, site):
        return False
    if not has(module.settings.release, site.target, "collective_axes"):
        return False
    arguments = held(module, site, "collective_axes", lambda s: may_change(module, s))
    capture["held"] = [argument for argument in arguments if nones(argument.item.value)]
    return bool(capture["held"])


def write_empty_tuple(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Propose `()` for every such `None`."""
    module: Module = capture["module"]
    for argument in capture["held"]:
        edits = tuple(e for none in nones(argument.item.value) for e in replace(none, "()"))
        module.propose(
            "MP102", argument.item.first, "None is no empty collective_axes: () is", edits
        )
