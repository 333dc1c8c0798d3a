"""MP110: `interpret=` at every entry point."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Leaf, Node

from ..arguments import assigned_dict, dict_of, held
from ..calls import Item, Tree
from ..edits import add_item, replace
from ..interpreting import Row, Rows, Unwritable, suffices
from ..kinds import Kind
from ..module import Module
from ..operations import Choice, choose
from ..settings import AUTO, SIMULATOR
from ..targets import ENTRY_POINTS, Site
from . import CALL, rule


@rule(
    "MP110", "interpret", *((name,) for name in ("pallas_call", "kernel", "core_map", "mpmd_map"))
)
def interpret(query: Query) -> Query:
    """An entry point that is not interpreted where there is no TPU.

    What it does: gives `interpret=` to `pallas_call`, `pl.kernel`, `pl.core_map` and `pl.mpmd_map`, or extends the
    value that is there. For each kernel it chooses between the two interpreters: `interpret=True`, which is fast, and
    the TPU simulator, where the kernel does what only that does right. The change says which operation decided.

    Why: without it a kernel raises `ValueError: Only interpret mode is supported on CPU backend.`

    Example:

        out = pl.pallas_call(kernel, out_shape=x)(x)

    Use instead:

        out = pl.pallas_call(kernel, out_shape=x, interpret=True)(x)

    or, gated:

        out = pl.pallas_call(kernel, out_shape=x, interpret=not on_tpu())(x)

    References: jax/_src/pallas/pallas_call.py and jax/_src/pallas/mosaic/interpret/, JAX 0.10.2.
    """
    return query.select(CALL).filter(is_entry_point).modify(set_interpret)


def is_entry_point(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` is an entry point of kind TPU or portable."""
    module: Module = capture["module"]
    capture["site"] = site = module.site_at(node)
    return site is not None and may_interpret(module, site)


def may_interpret(module: Module, site: Site) -> bool:
    """Whether `site` is an entry point that is ours to change."""
    return site.target in ENTRY_POINTS and module.kinds.kind(site) is not Kind.GPU


def set_interpret(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Propose a change for each place that hands `interpret` to the entry point, or for the call itself."""
    module: Module = capture["module"]
    site: Site = capture["site"]
    own = list(held(module, site, "interpret", lambda other: may_interpret(module, other)))
    if not own and site.through:
        return  # it gets the argument once, where the function is bound
    choice = chosen(module, site)
    rows = Rows(module, site, choice.simulator)
    reason = _reason(site, choice)
    for found in choice.amiss:
        module.find(
            "MP205",
            node,
            f"{site.target} is interpreted generically, which is not right for {found.told}",
        )
    try:
        for argument in own:
            value = argument.item.value
            if not suffices(module, value, choice.simulator):
                _propose(module, site, argument.item.first, rows.row(value, value), value, reason)
        if not own:
            _add(module, site, rows, reason)
    except Unwritable as error:
        module.find(
            "MP202",
            own[0].item.first if own else node,
            f"{site.target} needs interpret=, but {error}: set it by hand",
        )


def chosen(module: Module, site: Site) -> Choice:
    """The interpreter that was asked for, or the one that serves the kernel."""
    if module.settings.interpreter == AUTO:
        return choose(module, site)
    return Choice(module.settings.interpreter == SIMULATOR)


def _reason(site: Site, choice: Choice) -> str:
    which = "the TPU simulator" if choice.simulator else "the generic interpreter"
    decided = f", for {choice.decided_by.told}" if choice.decided_by else ""
    return f"{site.target} is interpreted where there is no TPU: {which}{decided}"


def _propose(
    module: Module, site: Site, node: Tree, row: Row | None, value: Tree, reason: str
) -> None:
    if row is None:
        module.find_at_import("MP110", node, f"interpret= of {site.target}")
    else:
        module.propose("MP110", node, reason, row.edits(value), row.needs)


def _add(module: Module, site: Site, rows: Rows, reason: str) -> None:
    """Add the argument, unless a splat may hold it already."""
    brackets = site.call.brackets
    hiding = [item for item in brackets.splats if _may_hold(module, item, rows.simulator)]
    trailer = site.call.trailer
    if len(hiding) > 1 or any(not isinstance(item.value, Leaf) for item in hiding):
        raise Unwritable("a splat may hold it already")
    row = rows.row(None, trailer)
    if hiding:
        kept = f'{hiding[0].value.value}.get("interpret")'
        row = rows.other(("", ""), trailer)
        if row is not None:
            new = f'**{{**{hiding[0].value.value}, "interpret": {row.of(kept)}}}'
            module.propose(
                "MP110", hiding[0].first, reason, replace(hiding[0].first, new), row.needs
            )
            return
    if row is None:
        module.find_at_import("MP110", trailer, f"interpret= of {site.target}")
        return
    edits = add_item(module.text, brackets, f"interpret={row.text}")
    module.propose("MP110", trailer, reason, edits, row.needs)


def _may_hold(module: Module, item: Item, simulator: bool) -> bool:
    """Whether the splat `item` may hold `interpret`.

    A display shows that it does not. So does a dict assigned once and only splatted; that is asked only where the
    simulator is needed, as then the value could not be extended.
    """
    entries = dict_of(module, item.value)
    if entries is None and simulator:
        entries = assigned_dict(module, item.value, lambda other: True)
    return entries is None or bool(entries.splats)
