"""MP211: axes that are kept for TPU, which refuses them."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Node

from ..axes import keeps_axes
from ..module import Module
from ..releases import has, since, spelled
from ..targets import SCOPED
from . import CALL, rule


@rule("MP211", "axes-refused-on-tpu", ("scoped", "collective_axes"), about=SCOPED)
def axes_refused_on_tpu(query: Query) -> Query:
    """Axes that a gate keeps for TPU, where lowering refuses them.

    What it does: reports, with strategy gate, each site that still has `collective_axes` on TPU; and, where `--jax` is
    a release whose function has no such parameter, each site that passes it, which is then left alone.

    Why: a gate keeps a program's meaning, not its health: on TPU the call raises, as it did before,
    `NotImplementedError: run_scoped lowering does not support collective axes`.

    Example:

        pl.run_scoped(body, shape, collective_axes="x" if on_tpu() else ())

    Use instead:

        pl.run_scoped(body, shape)

    References: `_run_scoped_lowering_rule` in jax/_src/pallas/mosaic/lowering.py, JAX 0.6.1 to 0.12.0.
    """
    return query.select(CALL).filter(keeps_axes_on_tpu).modify(report)


def keeps_axes_on_tpu(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` is a site that has axes on TPU."""
    module: Module = capture["module"]
    capture["site"] = site = module.site_at(node)
    return site is not None and keeps_axes(module, site)


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report the site."""
    module: Module = capture["module"]
    target, release = capture["site"].target, module.settings.release
    message = (
        f"{target} keeps its collective_axes on TPU, where today's lowering refuses them "
        "(NotImplementedError): drop them, unless a later JAX accepts them"
    )
    if not has(release, target, "collective_axes"):
        first = spelled(since(target, "collective_axes"))
        message = (
            f"{target} takes no collective_axes in JAX {spelled(release)} ({first} is the first where it does): "
            "drop them"
        )
    module.find("MP211", capture["site"].call.power, message)
