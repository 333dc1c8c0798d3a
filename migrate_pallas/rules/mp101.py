"""MP101: `collective_axes` of `run_scoped` and `with_scoped`."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Node

from ..arguments import Held, held
from ..axes import is_empty_on, may_change, needs_no_gate
from ..backends import CPU
from ..edits import gated
from ..module import Module
from ..releases import has
from ..settings import REMOVE
from ..targets import SCOPED, Site
from . import CALL, rule


@rule("MP101", "collective-axes", ("scoped", "collective_axes"), about=SCOPED)
def collective_axes(query: Query) -> Query:
    """`collective_axes` handed to `run_scoped` or `with_scoped` outside Mosaic GPU.

    What it does: drops the argument (strategy remove) or keeps it on TPU only (strategy gate). It looks at calls,
    `functools.partial`, decorators and aliases, and at dicts that are splatted into them.

    Why: no lowering but Mosaic GPU's has collective axes. Plain `jit` raises `ValueError: run_scoped lowering
    outside of Pallas does not support collective_axes.`, and both interpreters refuse likewise.

    Example:

        pl.run_scoped(body, pltpu.VMEM((8, 128), jnp.float32), collective_axes="x")

    Use instead:

        pl.run_scoped(body, pltpu.VMEM((8, 128), jnp.float32))

    or, gated:

        pl.run_scoped(body, pltpu.VMEM((8, 128), jnp.float32), collective_axes="x" if on_tpu() else ())

    References: `run_scoped` in jax/_src/pallas/primitives.py and its lowering rules, JAX 0.10.2. The empty value is
    `()`: `None` is wrapped into `(None,)`, which is true, and raises like a real axis.
    """
    return query.select(CALL).filter(passes_axes).modify(take_axes_away)


def passes_axes(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` is a site that hands on axes that can be changed."""
    module: Module = capture["module"]
    site = module.site_at(node)
    if site is None or not may_change(module, site):
        return False
    capture["site"] = site
    capture["held"] = list(held(module, site, "collective_axes", lambda s: may_change(module, s)))
    return bool(capture["held"])


def take_axes_away(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Propose a change for each place that hands on axes."""
    module: Module = capture["module"]
    for argument in capture["held"]:
        if module.settings.strategy == REMOVE:
            remove(module, capture["site"], argument)
        else:
            gate(module, capture["site"], argument)


def remove(module: Module, site: Site, argument: Held) -> None:
    """Propose that the argument goes."""
    reason = f"{site.target} has collective axes in Mosaic GPU kernels only: argument removed"
    module.propose("MP101", argument.item.first, reason, argument.removal(module.text))


def gate(module: Module, site: Site, argument: Held) -> None:
    """Propose that the value is kept on TPU only, unless it is empty elsewhere as it stands."""
    value = argument.item.value
    if not has(module.settings.release, site.target, "collective_axes"):
        return  # no value serves; MP211 tells
    if is_empty_on(module, value, CPU) or needs_no_gate(module, site, value):
        return
    call = module.gate.call(value)
    if call is None:
        module.find_at_import(argument.item.first, f"collective_axes of {site.target}")
        return
    reason = (
        f"{site.target} has collective axes in Mosaic GPU kernels only: kept on TPU, () elsewhere"
    )
    module.propose(
        "MP101", argument.item.first, reason, gated(value, value, call.text, "()"), call.needs
    )
