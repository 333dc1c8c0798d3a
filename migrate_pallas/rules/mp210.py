"""MP210: a handler for an error that is no longer raised."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Node

from ..arguments import held
from ..axes import may_change
from ..module import Module
from ..settings import REMOVE
from ..targets import SCOPED
from . import CALL, rule


@rule("MP210", "dead-handler", ("scoped", "collective_axes", "except"), about=SCOPED)
def dead_handler(query: Query) -> Query:
    """A `try` around `run_scoped` whose handler waited for the error that its axes raised.

    What it does: reports, with strategy remove, the `except` clause around a site whose `collective_axes` go.

    Why: without the axes the call no longer raises `ValueError` or `NotImplementedError`, so that the handler, often
    a second way to compute the same, is dead code.

    Example:

        try:
            pl.run_scoped(body, shape, collective_axes="x")
        except NotImplementedError:
            body(fallback_ref)

    Use instead:

        pl.run_scoped(body, shape)

    References: the errors of jax/_src/pallas/primitives.py and hlo_interpreter.py, JAX 0.10.2.
    """
    return query.select(CALL).filter(loses_axes_in_try).modify(report)


def loses_axes_in_try(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` loses its axes, and stands in a `try` that catches what they raised."""
    module: Module = capture["module"]
    site = module.site_at(node)
    if module.settings.strategy != REMOVE or site is None or not may_change(module, site):
        return False
    if not any(held(module, site, "collective_axes", lambda s: may_change(module, s))):
        return False
    capture["clause"] = module.backends.fallback(node)
    return capture["clause"] is not None


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report the handler."""
    capture["module"].find(
        "MP210",
        capture["clause"],
        "this handler waits for the error that collective_axes raised, which are gone: see whether it is still needed",
    )
