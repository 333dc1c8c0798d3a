"""MP121: the kind of the device that is there."""

from __future__ import annotations

import re
from typing import Any

from bowler import Query
from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from ..calls import Tree, call_at, end, holds_comment, literal_text, start, written
from ..edits import Edit, gated
from ..figures import Figures
from ..module import Module
from ..names import How
from ..parsing import symbols
from ..settings import GATE
from . import rule

# A word for a TPU chip names TPU and a number ("TPU v5"), is its version ("v6e", "7x"), or says that it is a light one.
# A platform's word has no number, and a GPU's ("A100", "sm90") no such form.
_CHIP = re.compile(r"tpu.*\d|^v?\d[a-z]?$|\bv\d|\blite\b", re.IGNORECASE)
_TEXT_METHODS = (".lower", ".upper", ".casefold", ".strip", "()")
_PARSERS = (
    "split",
    "rsplit",
    "partition",
    "rpartition",
    "removeprefix",
    "replace",
    "strip",
    "index",
    "find",
)


@rule("MP121", "device-kind", ("device_kind",), about=("device_kind",))
def device_kind(query: Query) -> Query:
    """`device_kind` that is compared with or parsed for the words of a TPU chip.

    What it does: writes the kind of one chip instead (`--tpu`, default v6e); gated, only where there is no TPU. A test
    for a platform (`"TPU" in kind`) tells backends apart, and is left alone.

    Why: on CPU the kind is "cpu": tables of chips have no such key, and parsing a version out of it fails.

    Example:

        version = int(jax.devices()[0].device_kind.split("v")[1][0])

    Use instead:

        version = int("TPU v6 lite".split("v")[1][0])

    References: `chip_version_from_device_kind` in jax/_src/pallas/mosaic/tpu_info.py, JAX 0.10.2.
    """
    return (
        query.select("trailer< '.' 'device_kind' >").filter(is_asked_for_chip).modify(name_the_kind)
    )


def is_asked_for_chip(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the attribute `node` is the kind of a device, is used as a chip's, and would be so on CPU."""
    module: Module = capture["module"]
    power = node.parent
    if power.type != symbols.power or not _is_of_device(module, power, node):
        return False
    if module.is_skipped(power):
        return False
    uses = [_whole(leaf) for leaf in _uses(module, power, node)]
    uses = [use for use in uses if not module.is_guarded(use)]
    judged = [_is_chip_use(module, use) for use in uses]
    return True in judged and False not in judged


def _is_of_device(module: Module, power: Node, node: Node) -> bool:
    if power.children[1].type != symbols.trailer:
        return False  # `await` stands first
    index = next(i for i, child in enumerate(power.children) if child is node)
    for length in range(2, index + 1):
        call = call_at(power.children[length - 1])
        path = module.names.path(power, length - 1) if call else ""
        if path.startswith("jax.") and path.rpartition(".")[2] in ("devices", "local_devices"):
            return True
    subscripts = all(trailer.children[0].value == "[" for trailer in power.children[1:index])
    return subscripts and module.backends.is_device(power.children[0])


def _uses(module: Module, power: Node, node: Node) -> list[Tree]:
    """Where the kind is used: here, or where the name is that it is once assigned to."""
    statement = power.parent
    after = next(i for i, child in enumerate(power.children) if child is node) + 1
    keeps_text = all(written(child) in _TEXT_METHODS for child in power.children[after:])
    if keeps_text and statement.type == symbols.expr_stmt and power is statement.children[-1]:
        target = statement.children[0]
        if isinstance(target, Leaf) and target.type == token.NAME:
            bindings = module.names.bindings(target)
            if len(bindings) == 1 and bindings[0].how is How.ASSIGNED:
                return list(module.names.uses(target))
    return [power]


def _whole(node: Tree) -> Tree:
    """The `power` that begins with the name `node`; else `node` itself."""
    parent = node.parent
    return parent if parent.type == symbols.power and parent.children[0] is node else node


def _is_chip_use(module: Module, use: Tree) -> bool | None:
    """True where `use` asks for a chip, False where it tests for a platform, None where it does neither."""
    words = _compared_words(module, use)
    if words:
        return any(_CHIP.search(word) for word in words)
    methods = [written(child)[1:] for child in use.children[1:]] if isinstance(use, Node) else []
    if any(method in _PARSERS for method in methods):
        return True
    holder = use.parent
    while holder.type in (symbols.arglist, symbols.subscript):
        holder = holder.parent
    if holder.type != symbols.trailer:
        return None
    if holder.children[0].value == "[":
        return True  # a key of a table
    call = call_at(holder)
    called = written(call.power.children[call.index - 1]).lstrip(".") if call else ""
    return True if called in ("int", "get", "match", "search", "fullmatch", "findall") else None


def _compared_words(module: Module, use: Tree) -> list[str]:
    """The strings that `use` is compared with, or begins with."""
    words: list[str] = []
    others: list[Tree] = []
    if use.parent.type == symbols.comparison:
        others += [child for child in use.parent.children[::2] if child is not use]
    if isinstance(use, Node) and len(use.children) > 2:
        call = call_at(use.children[-1]) if use.children[-1].type == symbols.trailer else None
        if call and written(use.children[-2]) in (".startswith", ".endswith"):
            others += [item.value for item in call.brackets.items]
    for other in others:
        value = module.names.assigned(other)
        for leaf in (other if value is None else value).leaves():
            text = literal_text(leaf) if leaf.type == token.STRING else None
            words += [text] if text is not None else []
    return words


def name_the_kind(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Propose the kind of the chip."""
    module: Module = capture["module"]
    power = node.parent
    kind = Figures(module).device_kind
    reason = f"on CPU the kind of the device is no chip's: that of a TPU {module.settings.chip} stands in"
    first, last = start(power), end(node)
    if module.settings.strategy != GATE:
        if holds_comment(power.children[0], node):
            module.find(
                "MP206",
                power,
                f"{reason}, but a comment stands in it, which would be lost: write {kind} by hand",
            )
            return
        module.propose("MP121", power, reason, (Edit(first, last, kind),))
        return
    gate = module.gate.call(node)
    if gate is None:
        module.find_at_import(power, "device_kind")
        return
    edits = gated(power.children[0], node, gate.text, kind)
    module.propose("MP121", power, reason, edits, gate.needs)
