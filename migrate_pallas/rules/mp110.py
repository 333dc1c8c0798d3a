"""MP110: `interpret=` at every entry point."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Leaf, Node

from ..arguments import Held, assigned_dict, held, keywords_of, sharing
from ..calls import Item, holds_comment
from ..changes import Status
from ..edits import add_item, replace
from ..interpreting import Rows, Unwritable, suffices
from ..kinds import Kind
from ..module import Module
from ..operations import Choice, choose
from ..releases import has, since, spelled
from ..settings import AUTO, SIMULATOR
from ..targets import ENTRY_POINTS, Site
from . import CALL, rule


@rule(
    "MP110",
    "interpret",
    *(("pallas", name) for name in ("pallas_call", "kernel", "core_map", "mpmd_map")),
    about=ENTRY_POINTS,
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
    if site is None or not may_interpret(module, site):
        if site is not None and site.target in ENTRY_POINTS and not site.through:
            module.judge(site, Status.GPU)
        return False
    return True


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
    if not own and not has(module.settings.release, site.target, "interpret"):
        _find_amiss(module, site, _takes_no_interpret(module, site))
        return
    choice = chosen(module, site)
    module.judge(site, Status.PORTABLE)
    messages = [_lacks_simulator(module, site, choice)] if choice.lacking else []
    if choice.amiss:
        told = "; ".join(found.wrong for found in choice.amiss)
        messages.append(f"no interpreter on CPU runs all of this {site.target} right: {told}")
    if messages:
        _find_amiss(module, site, "; ".join(messages))
    try:
        for argument in own:
            _extend(module, site, argument, choice)
        if not own:
            _add(module, site, choice)
    except Unwritable as error:
        module.judge(site, Status.PERSON)
        module.find(
            "MP202",
            own[0].item.first if own else node,
            f"{site.target} needs interpret=, but {error}: set it by hand",
        )


def _find_amiss(module: Module, site: Site, message: str) -> None:
    module.judge(site, Status.PERSON)
    module.find("MP205", site.call.trailer, message)


def chosen(module: Module, site: Site) -> Choice:
    """The interpreter that was asked for, or that serves the kernel; the generic one in a release with no other."""
    if module.settings.interpreter == AUTO:
        choice = choose(module, site)
    else:
        choice = Choice(module.settings.interpreter == SIMULATOR)
    if choice.simulator and not has(module.settings.release, "InterpretParams"):
        return Choice(False, choice.decided_by, choice.amiss, lacking=True)
    return choice


def _reason(site: Site, choice: Choice) -> str:
    which = "the TPU simulator" if choice.simulator else "the generic interpreter"
    decided = "" if choice.lacking else _decided(choice)
    return f"{site.target} is interpreted where there is no TPU: {which}{decided}"


def _decided(choice: Choice) -> str:
    return f", for {choice.decided_by.told}" if choice.decided_by else ""


def _takes_no_interpret(module: Module, site: Site) -> str:
    release, first = spelled(module.settings.release), spelled(since(site.target, "interpret"))
    return (
        f"{site.target} takes no interpret= in JAX {release} ({first} is the first where it does), so it can't be "
        "interpreted there: left alone"
    )


def _lacks_simulator(module: Module, site: Site, choice: Choice) -> str:
    release, first = spelled(module.settings.release), spelled(since("InterpretParams"))
    return (
        f"{site.target} should be interpreted by the TPU simulator{_decided(choice)}; JAX {release} has no simulator "
        f"({first} is the first that has), so it is interpreted generically"
    )


def _extend(module: Module, site: Site, argument: Held, choice: Choice) -> None:
    """Extend the value that is there, for every kernel that it serves."""
    for other in sharing(module, argument):
        choice = choice if choice.simulator else chosen(module, other)
    value = argument.item.value
    if suffices(module, value, choice.simulator):
        return
    row = Rows(module, site, choice.simulator).row(value, value)
    if row is not None and row.text and holds_comment(value):
        raise Unwritable("its value holds a comment, which would be lost")
    module.judge(site, Status.PERSON if row is None else Status.MIGRATED)
    if row is None:
        module.find_at_import(argument.item.first, f"interpret= of {site.target}")
        return
    reason = _reason(site, choice)
    module.propose("MP110", argument.item.first, reason, row.edits(value), row.needs)


def _add(module: Module, site: Site, choice: Choice) -> None:
    """Add the argument, unless a splat may hold it already."""
    rows, reason = Rows(module, site, choice.simulator), _reason(site, choice)
    brackets = site.call.brackets
    hiding = [item for item in brackets.splats if _may_hold(module, item, rows.simulator)]
    trailer = site.call.trailer
    if len(hiding) > 1 or any(not isinstance(item.value, Leaf) for item in hiding):
        raise Unwritable("a splat may hold it already")
    row = rows.row(None, trailer)
    module.judge(site, Status.PERSON if row is None else Status.MIGRATED)
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
        module.find_at_import(trailer, f"interpret= of {site.target}")
        return
    edits = add_item(module.text, brackets, f"interpret={row.text}")
    module.propose("MP110", trailer, reason, edits, row.needs)


def _may_hold(module: Module, item: Item, simulator: bool) -> bool:
    """Whether the splat `item` may hold `interpret`.

    A display shows that it does not. So does a dict assigned once and only splatted; that is asked only where the
    simulator is needed, as then the value could not be extended.
    """
    entries = keywords_of(module, item.value)
    if entries is None and simulator:
        entries = assigned_dict(module, item.value, lambda other: True)
    return entries is None or bool(entries.splats)
