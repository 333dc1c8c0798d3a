"""The rules and findings: one file each, which registers itself.

A rule is a `bowler.Query`: what it selects, what it filters, and a modification that proposes a change or reports
a finding. Its docstring has the parts that are printed when a user asks for an explanation.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from bowler import Query
from fissix.fixer_base import BaseFix

from ..module import Module
from ..parts import Part
from ..settings import Settings

# Every call: what is called stands before it in the same `power` node.
CALL = "trailer< '(' any* ')' >"


@dataclass(frozen=True)
class Rule:
    """A rule or finding. `words` are such that a file without all of one tuple's words can't have it.

    `{gate}` among them is the name of the gate.

    `about` are the names of which a part of a file mentions one if the rule selects anything in it; or what tells
    those parts. With none, they are all.
    """

    code: str
    name: str
    words: tuple[tuple[str, ...], ...]
    build: Callable[[Query], Query]
    told_by: tuple[str, ...] = ()
    about: tuple[str, ...] | Callable[[Module], Iterable[Part]] = ()

    @property
    def rewrites(self) -> bool:
        """Whether it changes code, rather than only telling."""
        return self.code.startswith("MP1")

    def parts(self, module: Module) -> Iterable[Part]:
        """The parts of `module` in which it may select anything."""
        if callable(self.about):
            return self.about(module)
        return module.mentions.of(*self.about) if self.about else module.tree.parts

    @property
    def explanation(self) -> str:
        """Its docstring."""
        return inspect.getdoc(self.build) or ""

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return self.explanation.partition("\n")[0]


_registry: dict[str, Rule] = {}


def rule(
    code: str,
    name: str,
    *words: tuple[str, ...],
    told_by: tuple[str, ...] = (),
    about: tuple[str, ...] | Callable[[Module], Iterable[Part]] = (),
) -> Callable[[Callable[[Query], Query]], Callable[[Query], Query]]:
    """Register the decorated function, which completes a query, as the rule `code`.

    `told_by` are the rules for whose targets a finding is told: by their code, or as what its own code asks. `about`
    is where those that select anything look.
    """

    def register(build: Callable[[Query], Query]) -> Callable[[Query], Query]:
        _registry[code] = Rule(code, name, words, build, told_by, about)
        return build

    return register


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule and finding, by code."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return tuple(_registry[code] for code in sorted(_registry))


@cache
def running(settings: Settings) -> frozenset[str]:
    """The codes that are selected; and of a finding that is selected without the rules that tell it, those too."""
    selected = {rule.code for rule in all_rules() if settings.runs(rule.code)}
    alone = [r for r in all_rules() if r.code in selected and not selected.intersection(r.told_by)]
    return frozenset(selected.union(*(rule.told_by for rule in alone)))


def fixers(rule: Rule) -> list[BaseFix]:
    """The fixers that Bowler compiles the rule's query to; [] for a finding that other rules report."""
    query = rule.build(Query())
    return [fixer({}, []) for fixer in query.compile()] if query.transforms else []
