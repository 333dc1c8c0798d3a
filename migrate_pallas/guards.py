"""Guards: conditions that keep code from running where there is no TPU, and how they are dissolved.

A condition has a polarity: what it must be for the guard to skip or refuse. That of `skipif` and of an `if` is true,
that of `skipUnless` is false; `not` turns it round for its operand.
"""

from __future__ import annotations

from fissix.pgen2 import token
from fissix.pytree import Node

from .backends import CPU, TPU, leaves
from .calls import Tree, first_leaf, last_leaf, unwrapped
from .edits import Edits, replace
from .module import Module
from .parsing import symbols

# What rules leave alone where a guard keeps it from CPU, so that such a guard must stay.
_SITES = (
    "collective_axes",
    "device_kind",
    "get_tpu_info",
    "emit_pipeline",
    "create_tensorcore_mesh",
    "get_sparse_core_info",
    "TensorCoreMesh",
    "ScalarSubcoreMesh",
    "VectorSubcoreMesh",
)


def guards(module: Module, test: Tree, on: bool) -> bool:
    """Whether a backend test makes `test`, which skips or refuses where it is `on`, do so on CPU and not on TPU."""
    return keeps_from_cpu(module, test, on) or any(
        guards(module, part, inner) for part, inner in _parts(test, on)
    )


def keeps_from_cpu(module: Module, test: Tree, on: bool) -> bool:
    """Whether `test` is `on` on CPU; on TPU it is not, or may not be: it may ask which TPU there is."""
    truth = module.backends.truth
    return truth(test, CPU) is on and truth(test, TPU) is not on


def _parts(test: Tree, on: bool) -> list[tuple[Tree, bool]]:
    """The operands of `test`, each with what it must be for `test` to be `on`."""
    test = unwrapped(test)
    if test.type == symbols.not_test:
        return [(test.children[1], not on)]
    if test.type in (symbols.and_test, symbols.or_test):
        return [(operand, on) for operand in test.children[::2]]
    return []


def unguarded(module: Module, test: Tree, on: bool) -> Edits:
    """The edits that make each backend test in `test` what it is on TPU; () where one can't be so, exactly.

    `on` is what `test` must be for the guard to skip.
    """
    if keeps_from_cpu(module, test, on):
        test = unwrapped(test)
        if module.backends.truth(test, TPU) is (not on) and _may_go(module, test):
            return replace(test, str(not on))
    edits: Edits = ()
    for part, inner in _parts(test, on):
        if guards(module, part, inner):
            own = unguarded(module, part, inner)
            if not own:
                return ()
            edits += own
    return edits


def _may_go(module: Module, test: Tree) -> bool:
    """Whether nothing is lost with `test`: no name that it binds, no comment, no space that keeps two words apart."""
    parts = list(test.leaves())
    words = {leaf.value for leaf in parts if leaf.type in (token.NAME, token.COLONEQUAL)}
    first, last = first_leaf(test).start, last_leaf(test).end
    around = module.text[max(first - 1, 0) : first] + module.text[last : last + 1]
    return (
        not {":=", "await", "yield"} & words
        and not any("#" in leaf.prefix for leaf in parts[1:])
        and not any(character.isalnum() or character == "_" for character in around)
    )


def keeps_sites(module: Module, statement: Node, skipping: Tree) -> bool:
    """Whether an `if` keeps sites of rules from CPU, in another branch, or after it where `skipping` leaves.

    `skipping` is its suite that is taken on CPU.
    """
    kept = [kid for kid in statement.children if kid is not skipping]
    if leaves(skipping) and statement.parent is not None:
        siblings = statement.parent.children
        at = next(index for index, kid in enumerate(siblings) if kid is statement)
        kept += siblings[at + 1 :]
    return any(names_site(module, kid) for kid in kept)


def names_site(module: Module, node: Tree) -> bool:
    """Whether `node` names what rules rewrite, under its own name or another."""
    words = (leaf for leaf in node.leaves() if leaf.type == token.NAME)
    return any(
        leaf.value in _SITES or module.names.path(leaf).rpartition(".")[2] in _SITES
        for leaf in words
    )
