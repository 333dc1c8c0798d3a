"""What a run was asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from .releases import NEWEST, Release

REMOVE, GATE = "remove", "gate"
INTERPRET, CPU = "interpret", "cpu"
TEXT, JSON, GITHUB, SARIF = "text", "json", "github", "sarif"
AUTO_COLOUR, ALWAYS, NEVER = "auto", "always", "never"
AUTO, GENERIC, SIMULATOR = "auto", "generic", "tpu"


@dataclass(frozen=True)
class Settings:
    """The options that rules see; one value for the whole run, sent to every process.

    `to` and `strategy` are as on the command line. `gate` is the gate's name, `gate_import` the module it is imported
    from and its name there. `unguard` is whether guards that skip tests where there is no TPU are rewritten.
    `interpreter` is auto, generic or tpu. `chip` is the one whose figures stand in for those of a TPU that is not
    there. `select` and `ignore` are codes or prefixes of codes. `wrappers` are dotted paths of the user's own
    functions, each with that of the Pallas function that it forwards its arguments to. `jax` is the
    release of JAX that the code is for, None where that was not told.
    """

    to: str = INTERPRET
    strategy: str = REMOVE
    gate: str = "on_tpu"
    gate_import: tuple[str, str] | None = None
    gate_at_import: bool = False
    unguard: bool = False
    interpreter: str = AUTO
    chip: str = "v6e"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    wrappers: tuple[tuple[str, str], ...] = ()
    jax: Release | None = None

    @property
    def release(self) -> Release:
        """The release whose names are written: the newest that was measured, unless another was told."""
        return self.jax or NEWEST

    def runs(self, code: str) -> bool:
        """Whether the rule or finding `code` is to run."""
        selected = not self.select or code.startswith(self.select)
        return selected and not code.startswith(self.ignore or ("-",))
