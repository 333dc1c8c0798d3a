"""What `interpret=` becomes: what a value means on each platform, and how its successor is written."""

from __future__ import annotations

from dataclasses import dataclass

from fissix.pgen2 import token
from fissix.pytree import Leaf

from .backends import CPU, PLATFORMS
from .calls import Tree, as_call, end, start, unwrapped, written
from .changes import Need
from .edits import Edits, parentheses_for, replace, wrap
from .gates import TPU_MODULE, Spelled, module_name
from .kinds import Kind
from .module import Module
from .parsing import symbols
from .releases import arguments
from .settings import GATE
from .targets import Site

NATIVE, GENERIC, SIMULATED = "native", "generic", "simulated"
_PARAMETERS = ("InterpretParams", "TPUInterpretParams")
# With the defaults two public kernels gave wrong numbers and one an IndexError (JAX 0.10.2).
_SIMULATOR_ARGUMENTS = {
    "dma_execution_mode": '"eager"',
    "out_of_bounds_reads": '"uninitialized"',
}


class Unwritable(Exception):
    """The value can't be rewritten safely; the message says why."""


@dataclass(frozen=True)
class Row:
    """What a value becomes: `text`, or, where that is empty, itself between `before` and `after`."""

    text: str = ""
    before: str = ""
    after: str = ""
    needs: frozenset[Need] = frozenset()

    def edits(self, value: Tree) -> Edits:
        """The edits that make it of `value`."""
        return replace(value, self.text) if self.text else wrap(value, self.before, self.after)

    def of(self, text: str) -> str:
        """What it makes of a value that is written `text`."""
        return self.text or f"{self.before}{text}{self.after}"


def mode(
    module: Module, node: Tree, platform: str, seen: frozenset[str] = frozenset()
) -> str | None:
    """How a kernel whose `interpret=` is `node` runs on `platform`; None where that can't be told.

    `seen` are the names that have led here, so that names which are assigned one another come to an end.
    """
    node = unwrapped(node)
    if is_parameters(module, node):
        return SIMULATED
    if isinstance(node, Leaf) and node.type == token.NAME:
        assigned = module.names.assigned(node)
        if assigned is not None:
            known = node.value in seen
            return None if known else mode(module, assigned, platform, seen | {node.value})
    if node.type == symbols.test and len(node.children) == 5:
        return _mode_of_conditional(module, node.children, platform, seen)
    if node.type == symbols.or_test:
        modes = [mode(module, operand, platform, seen) for operand in node.children[::2]]
        return _mode_of_or(modes)
    truth = module.backends.truth(node, platform)
    return None if truth is None else GENERIC if truth else NATIVE


def _mode_of_conditional(
    module: Module, kids: list[Tree], platform: str, seen: frozenset[str]
) -> str | None:
    truth = module.backends.truth(kids[2], platform)
    if truth is not None:
        return mode(module, kids[0] if truth else kids[4], platform, seen)
    body = SIMULATED if _tests_for_parameters(module, kids[2], kids[0]) else None
    one = body or mode(module, kids[0], platform, seen)
    return one if one == mode(module, kids[4], platform, seen) else None


def _mode_of_or(modes: list[str | None]) -> str | None:
    unknown = False
    for found in modes:
        if found in (GENERIC, SIMULATED):
            return GENERIC if unknown else found
        unknown = unknown or found is None
    return None if unknown else NATIVE


def _tests_for_parameters(module: Module, test: Tree, body: Tree) -> bool:
    """Whether `test` is `isinstance(body, InterpretParams)`."""
    call = as_call(test)
    if call is None or written(call.power.children[0]) != "isinstance":
        return False
    first, second = call.positional(0), call.positional(1)
    if first is None or second is None or written(first) != written(body):
        return False
    return module.names.path(second).rpartition(".")[2] in _PARAMETERS


def is_parameters(module: Module, node: Tree) -> bool:
    """Whether `node` makes the simulator's parameters."""
    call = as_call(node)
    if call is None:
        return False
    path = module.names.callee(call).path
    return path.startswith("jax.") and path.rpartition(".")[2] in _PARAMETERS


def suffices(module: Module, value: Tree, simulator: bool) -> bool:
    """Whether a kernel with `interpret=value` is interpreted as it should be, wherever it should be."""
    platforms = (CPU,) if module.settings.strategy == GATE else PLATFORMS
    wanted = (SIMULATED,) if simulator else (GENERIC, SIMULATED)
    return all(mode(module, value, platform) in wanted for platform in platforms)


class Rows:
    """The rows of the rule's table, as they are written at one site."""

    def __init__(self, module: Module, site: Site, simulator: bool) -> None:
        self.module = module
        self.site = site
        self.simulator = simulator
        self.gated = module.settings.strategy == GATE

    def row(self, value: Tree | None, node: Tree) -> Row | None:
        """The row for `value` (None: absent), written at `node`.

        None where it needs a gate in code that runs at import. Raises `Unwritable` where the table has no row.
        """
        if value is None or _is_constant(value, "False", "None", "0"):
            return self._absent(node)
        if _is_constant(value, "True", "1"):
            return self._simulator(node)
        if _is_test(self.module, value) and self.module.backends.truth(value, CPU):
            return self._test(value, node)
        if is_name(value):
            return self._name(self.module.text[start(value) : end(value)], node)
        return self.other(parentheses_for(value), node)

    def _absent(self, node: Tree) -> Row | None:
        if not self.gated:
            return self._simulator(node) if self.simulator else Row("True")
        not_native = self._not_native(node)
        if not_native is None:
            return None
        if not self.simulator:
            return Row(not_native.text, needs=not_native.needs)
        simulator = self._simulator(node)
        text = f"{simulator.text} if {not_native.text} else False"
        return Row(text, needs=simulator.needs | not_native.needs)

    def _simulator(self, node: Tree) -> Row:
        module = module_name(TPU_MODULE, node, self.module.names)
        release = self.module.settings.release
        handed = arguments(release, "InterpretParams", **_SIMULATOR_ARGUMENTS)
        return Row(f"{module.text}.InterpretParams({handed})", needs=module.needs)

    def _test(self, value: Tree, node: Tree) -> Row | None:
        if not self.gated:
            return self._absent(node)
        opening, closing = parentheses_for(value)
        simulator = self._simulator(node)
        return Row("", f"{simulator.text} if {opening}", f"{closing} else False", simulator.needs)

    def _name(self, name: str, node: Tree) -> Row | None:
        if not self.simulator:
            return self.other(("", ""), node)
        simulator = self._simulator(node)
        module = module_name(TPU_MODULE, node, self.module.names)
        kept = f"{name} if isinstance({name}, {module.text}.InterpretParams) else {simulator.text}"
        if not self.gated:
            return Row(kept, needs=simulator.needs)
        not_native = self._not_native(node)
        if not_native is None:
            return None
        text = f"{kept} if {name} or {not_native.text} else False"
        return Row(text, needs=simulator.needs | not_native.needs)

    def other(self, parentheses: tuple[str, str], node: Tree) -> Row | None:
        """The row for an expression, put between `parentheses`."""
        if self.simulator:
            raise Unwritable("its value is an expression, which can't be written twice")
        not_native = self._not_native(node) if self.gated else Spelled("True")
        if not_native is None:
            return None
        opening, closing = parentheses
        return Row("", opening, f"{closing} or {not_native.text}", not_native.needs)

    def _not_native(self, node: Tree) -> Spelled | None:
        """G: true where the kernel can't run natively. A portable kernel may run natively on GPU too."""
        if self.module.kinds.kind(self.site) is Kind.TPU:
            gate = self.module.gate.call(node)
            return gate and Spelled(f"not {gate.text}", gate.needs)
        if self.module.names.runs_at_import(node) and not self.module.settings.gate_at_import:
            return None
        jax = module_name("jax", node, self.module.names)
        return Spelled(f'{jax.text}.default_backend() == "cpu"', jax.needs)


def _is_constant(value: Tree, *words: str) -> bool:
    value = unwrapped(value)
    return isinstance(value, Leaf) and value.value in words


def _is_test(module: Module, value: Tree, seen: frozenset[str] = frozenset()) -> bool:
    """Whether `value` is a backend test and nothing besides: `flag or TEST` may be the simulator's parameters."""
    value = unwrapped(value)
    assigned = module.names.assigned(value)
    if assigned is not None:
        return value.value not in seen and _is_test(module, assigned, seen | {value.value})
    if value.type in (symbols.or_test, symbols.and_test):
        return all(_is_test(module, operand, seen) for operand in value.children[::2])
    return module.backends.is_test(value)


def is_name(value: Tree) -> bool:
    """Whether `value` is a name or an attribute of one, which may be written twice."""
    if isinstance(value, Leaf):
        return bool(value.type == token.NAME)
    return value.type == symbols.power and all(
        kid.type == token.NAME or (kid.type == symbols.trailer and kid.children[0].value == ".")
        for kid in value.children
    )
