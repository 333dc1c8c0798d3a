"""MP209: axes in a function that no entry point reaches."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Leaf, Node

from ..axes import keeps_axes
from ..module import Module
from ..parsing import symbols
from ..targets import SCOPED, Site, enclosing_functions
from . import CALL, rule


@rule("MP209", "axes-outside-kernel", ("scoped", "collective_axes"), about=SCOPED)
def axes_outside_kernel(query: Query) -> Query:
    """`run_scoped` that keeps its axes on TPU, in a function that no entry point of the module reaches.

    What it does: reports, with strategy gate, a site with `collective_axes` of which no enclosing function is a kernel
    of the module, or is named in one; not in a module that has a kernel which can't be followed to its definition.

    Why: under plain `jit` `run_scoped` with axes raises on every backend, on TPU too, so that a gate does not help it.

    Example:

        @jax.jit
        def scale(x):
            return pl.run_scoped(functools.partial(body, x), shape, collective_axes="x")

    Use instead: call it from a kernel, or drop the argument (`--strategy=remove`).

    References: `_run_scoped_lowering_rule` in jax/_src/pallas/primitives.py, JAX 0.10.2.
    """
    return query.select(CALL).filter(is_outside_kernels).modify(report)


def is_outside_kernels(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` keeps its axes and is reached by no entry point."""
    module: Module = capture["module"]
    site = module.site_at(node)
    if site is None or not keeps_axes(module, site):
        return False
    capture["site"] = site
    if not module.kinds.follows_all:
        return False  # it may be in the kernel that can't be followed
    around = _functions_around(module, site)
    if not around:
        return not site.binds
    return not any(module.kinds.is_reached(function) for function in around)


def _functions_around(module: Module, site: Site) -> list[Node]:
    """The functions that `site` runs in; of a partial that was given a name, those that use the name too."""
    places = [site.call.trailer]
    statement = site.call.power.parent
    if site.binds and statement.type == symbols.expr_stmt:
        name = statement.children[0]
        places += module.names.uses(name) if isinstance(name, Leaf) else []
    return [function for place in places for function in enclosing_functions(place)]


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report the site."""
    capture["module"].find(
        "MP209",
        capture["site"].call.power,
        f"{capture['site'].target} keeps collective_axes in a function that no kernel of this module calls: under "
        "plain jit it raises on every backend; call it from a kernel, or drop the argument",
    )
