"""The figures of a TPU that is not there: which chip stands in for it, and how code is made to see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fissix.pytree import Leaf

from .backends import TPU
from .calls import Tree, ancestry, as_call, call_at, unwrapped
from .changes import Need
from .gates import TPU_MODULE, Spelled, free_or_bound, module_name
from .module import Module
from .names import Binding, How
from .parsing import symbols
from .releases import CHIPS, arguments
from .settings import GATE

_MANAGER = "tpu_figures"


@dataclass(frozen=True)
class Figures:
    """How figures of the chip that was asked for are written in one module."""

    module: Module

    @property
    def device_kind(self) -> str:
        """The kind of the chip, as a string literal."""
        return f'"{CHIPS[self.module.settings.chip][1]}"'

    def info(self, node: Tree, prefix: str) -> Spelled:
        """The call that gives the chip's information; `prefix` is how the TPU module is written there, if it is."""
        tpu = Spelled(prefix) if prefix else module_name(TPU_MODULE, node, self.module.names)
        chip = CHIPS[self.module.settings.chip][0]
        return Spelled(
            f"{tpu.text}.get_tpu_info_for_chip({tpu.text}.ChipVersion.{chip}, 1)", tpu.needs
        )

    def manager(self) -> Spelled:
        """The call of the context manager under which code sees the chip, and what defines it."""
        names = self.module.names
        name, bound = free_or_bound(names, _MANAGER, self._is_manager)
        if bound is not None:
            return Spelled(f"{name}()")
        jax, contextlib = module_name("jax", None, names), module_name("contextlib", None, names)
        needs = jax.needs | contextlib.needs
        gated: tuple[str, ...] = ()
        if self.module.settings.strategy == GATE:
            gate = self.module.gate.later()
            needs |= gate.needs
            gated = (f"\tif {gate.text}:", "\t\tyield", "\t\treturn")
        sharding = f"{jax.text}.sharding"
        chip = arguments(
            self.module.settings.release,
            "AbstractDevice",
            device_kind=self.device_kind,
            num_cores="1",
            platform='"tpu"',
        )
        lines = (
            f"@{contextlib.text}.contextmanager",
            f"def {name}():",
            f'\t"""Where there is no TPU, what asks for its figures sees one core of a {self.device_kind[1:-1]}."""',
            *gated,
            f"\tdevice = {sharding}.AbstractDevice({chip})",
            f"\twith {sharding}.use_abstract_mesh({sharding}.AbstractMesh((), (), abstract_device=device)):",
            "\t\tyield",
        )
        return Spelled(f"{name}()", needs | {Need(name, lines=lines)})

    def _is_manager(self, binding: Binding) -> bool:
        """Whether it is a function that enters an abstract mesh; gated, not where there is a TPU."""
        if binding.how is not How.FUNCTION or not self._enters_mesh(binding.node):
            return False
        return self.module.settings.strategy != GATE or all(
            self.module.backends.unreached(leaf, TPU) for leaf in self._entrances(binding.node)
        )

    def _enters_mesh(self, node: Tree) -> bool:
        """Whether `node` names `use_abstract_mesh`."""
        return any(self._entrances(node))

    @staticmethod
    def _entrances(node: Tree) -> Iterator[Leaf]:
        return (leaf for leaf in node.leaves() if leaf.value == "use_abstract_mesh")

    def under_manager(self, node: Tree) -> bool:
        """Whether `node` runs under such figures already: in a `with`, or handed to the manager's call."""
        for _, parent in ancestry(node):
            if parent.type == symbols.with_stmt and any(
                self._gives_figures(kid) for kid in parent.children[1:-2]
            ):
                return True
            call = call_at(parent) if parent.type == symbols.trailer and parent.children else None
            if call and call.index == 2 and self._gives_figures(call.power.children[0], call.power):
                return True
        return False

    def _gives_figures(self, node: Tree, power: Tree | None = None) -> bool:
        """Whether `node` names `use_abstract_mesh`, or calls a function of the module that does."""
        if self._enters_mesh(node):
            return True
        call = as_call(node) if power is None else None
        callee = unwrapped(node) if power is not None else call.power.children[0] if call else None
        definition = self.module.names.meaning(callee).definition if callee is not None else None
        return definition is not None and self._enters_mesh(definition)
