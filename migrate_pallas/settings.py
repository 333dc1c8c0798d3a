"""What a run was asked to do."""

from __future__ import annotations

from dataclasses import dataclass

REMOVE, GATE = "remove", "gate"
INTERPRET, CPU = "interpret", "cpu"
AUTO, GENERIC, SIMULATOR = "auto", "generic", "tpu"


@dataclass(frozen=True)
class Settings:
    """The options that rules see; one value for the whole run, sent to every process.

    `to` and `strategy` are as on the command line. `gate` is the gate's name, `gate_import` the module it is imported
    from and its name there. `interpreter` is auto, generic or tpu. `chip` is the one whose figures stand in for those
    of a TPU that is not there. `select` and `ignore` are codes or prefixes of codes.
    """

    to: str = INTERPRET
    strategy: str = REMOVE
    gate: str = "on_tpu"
    gate_import: tuple[str, str] | None = None
    gate_at_import: bool = False
    interpreter: str = AUTO
    chip: str = "v6e"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def runs(self, code: str) -> bool:
        """Whether the rule or finding `code` is to run."""
        selected = not self.select or code.startswith(self.select)
        return selected and not code.startswith(self.ignore or ("-",))
