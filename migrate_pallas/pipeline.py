"""What happens to a file, in order.

    bytes -> text -> (words?) -> tree -> changes and findings -> decision -> text -> proof -> bytes

`examine` does the first half and decides nothing; `migrated` makes the text that follows from the changes that were
accepted; `prove` is the last thing before a file is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from fissix.fixer_base import BaseFix
from fissix.pytree import Leaf, LeafPattern, Node, NodePattern, WildcardPattern

from .calls import first_leaf
from .changes import Change, Finding, Kernel
from .checker import Accepted, Permit, Refused, prove
from .edits import Edits, apply
from .files import FileFault
from .gates import additions
from .module import Module
from .newer import require_python
from .parsing import SyntaxFault, parse
from .parts import Part, in_parts
from .releases import CHIPS
from .rules import all_rules, fixers, running
from .settings import REMOVE, Settings

# The longest text that is parsed, in characters, which keeps a run within seconds and 2 GB. No kernel is that long.
LONGEST = 2_000_000


@dataclass(frozen=True)
class Examined:
    """What the rules say of one file; `module` is None where no rule could apply, and the file was not parsed."""

    text: str
    module: Module | None
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    kernels: tuple[Kernel, ...] = ()


def examine(text: str, settings: Settings) -> Examined:
    """Find what is to change in `text`, and what is to be told of it.

    Raises `SyntaxFault` where `text` is not Python, and `FileFault` MP903 where it is too long to be parsed. A fault
    in a part that no rule looks at shows only if there is anything to tell: changes are proven with all of the text.
    """
    codes = applicable(text, settings)
    if not codes:
        return Examined(text, None)
    if len(text) > LONGEST:
        message = f"{len(text):,} characters, among them words of Pallas: no more than {LONGEST:,} are parsed"
        raise FileFault("MP903", f"{message}. Split it, or leave it out with --exclude")
    module = Module(text, in_parts(text), settings, running(settings))
    if module.skips_file:
        return Examined(text, module)
    try:
        run_fixers(module, codes)
    except Exception:
        require_python(text, module.tree)  # rules trust trees: the fault may be of the text
        raise
    changes = sorted(module.changes.values(), key=lambda change: change.start)
    kernels = [kernel for _, kernel in sorted(module.kernels.items())]
    findings = module.all_findings()
    if (findings or kernels) and not changes:
        require_python(text, module.tree)  # all of it, and not only the parts that were parsed
    return Examined(text, module, tuple(changes), tuple(findings), tuple(kernels))


def applicable(text: str, settings: Settings) -> tuple[str, ...]:
    """The codes of the rules that are to run and whose words `text` holds; () where none can apply.

    A file that may call a wrapper holds the words of every rule.
    """
    calls_wrapper = any(path.rpartition(".")[2] in text for path, _ in settings.wrappers)
    holds = cache(text.__contains__)  # Many rules share a word, and a text may have 50 MB.
    return tuple(
        code
        for code, words in _words(settings)
        if calls_wrapper or any(all(map(holds, together)) for together in words)
    )


@cache
def _words(settings: Settings) -> list[tuple[str, list[tuple[str, ...]]]]:
    """The code of each rule that is to run, and its words."""
    return [
        (
            rule.code,
            [tuple(word.format(gate=settings.gate) for word in words) for words in rule.words],
        )
        for rule in all_rules()
        if rule.code in running(settings)
    ]


def run_fixers(module: Module, codes: tuple[str, ...]) -> None:
    """Let each fixer of the rules `codes` see each node of the parts that it may select from.

    Each part is walked once; fixers of one pattern share its matches.
    """
    selecting: dict[Part, list[str]] = {}
    for rule in all_rules():
        if rule.code in codes:
            for part in rule.parts(module):
                selecting.setdefault(part, []).append(rule.code)
    for part in sorted(selecting, key=lambda part: part.start):
        _run_in(module, part, _selections(tuple(selecting[part])))


@dataclass(frozen=True)
class _Selection:
    """The fixers of one pattern; `begins` is the token with which a node begins that matches it, '' where any may."""

    begins: str
    fixers: tuple[BaseFix, ...]


def _run_in(module: Module, part: Part, by_type: dict[int, list[_Selection]]) -> None:
    stack: list[Node | Leaf] = [*reversed(part.nodes)]
    while stack:
        node = stack.pop()
        for selection in by_type.get(node.type, ()):
            if selection.begins and first_leaf(node).value != selection.begins:
                continue  # matching would tell the same, and takes ten times as long
            capture = selection.fixers[0].match(node)
            if capture:
                for fixer in selection.fixers:
                    fixer.transform(node, {**capture, "module": module})
        stack += [
            child for child in reversed(node.children) if child.children or child.type in by_type
        ]


@cache
def _selections(codes: tuple[str, ...]) -> dict[int, list[_Selection]]:
    """The fixers of the rules `codes`, those of one pattern together, by the type of node that it selects."""
    by_pattern: dict[str, list[BaseFix]] = {}
    for rule in all_rules():
        if rule.code in codes:
            for fixer in fixers(rule):
                by_pattern.setdefault(fixer.PATTERN, []).append(fixer)
    by_type: dict[int, list[_Selection]] = {}
    for together in by_pattern.values():
        pattern = together[0].pattern
        selection = _Selection(_first_token(pattern), tuple(together))
        by_type.setdefault(pattern.type, []).append(selection)
    return by_type


def _first_token(pattern: NodePattern | LeafPattern) -> str:
    """The token with which a node begins that `pattern` matches; '' where any may."""
    sequence: Any = pattern.content if isinstance(pattern, NodePattern) else None
    while sequence and len(sequence) == 1 and isinstance(sequence[0], WildcardPattern):
        (group,) = sequence  # the brackets of `trailer< ... >`
        if (group.min, group.max, len(group.content)) != (1, 1, 1):
            return ""
        sequence = group.content[0]
    first = sequence[0] if sequence else None
    return first.content or "" if isinstance(first, LeafPattern) else ""


def migrated(examined: Examined, accepted: Sequence[Change]) -> str:
    """The text that results when `accepted` are made: their edits, and the gate and imports that they need."""
    return apply(examined.text, edits_of(examined, accepted))


def edits_of(examined: Examined, accepted: Sequence[Change]) -> Edits:
    """The edits of `accepted`, and those that add the gate and imports that they need."""
    module = examined.module
    if module is None or not accepted:
        return ()
    edits = [edit for change in accepted for edit in change.edits]
    return (*edits, *additions(examined.text, module.tree, module.functions, accepted))


class Unsound(Exception):
    """Our own rewrite of a file was refused: it does not parse, or is not what was accepted."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def proven(examined: Examined, accepted: Sequence[Change], settings: Settings) -> str:
    """The text that `accepted` make of the file, proven.

    What a person has edited is theirs: the changes are proven without it, and with it they must only parse.
    Raises `Unsound` where it can't be, and `SyntaxFault` where that is because it was no Python from the start.
    """
    proposed = [change for change in accepted if not change.edited]
    result = migrated(examined, proposed)
    _require_proof(examined, result, proposed, settings)
    if len(proposed) < len(accepted):
        result = migrated(examined, accepted)
        _require_parses(result)
    return result


def _require_proof(
    examined: Examined, result: str, proposed: Sequence[Change], settings: Settings
) -> None:
    """Let the checker prove `result`; what the running Python can't parse must be of a newer syntax."""
    if examined.module is None or not proposed:
        return
    chip, device_kind = CHIPS[settings.chip]
    removes = settings.strategy == REMOVE
    permit = Permit(examined.module.gate.name, settings.gate_import, chip, device_kind, removes)
    accepted = [Accepted(change.code, change.line, change.column) for change in proposed]
    try:
        was_parsed = prove(examined.text, result, accepted, permit)
    except Refused as refused:
        require_python(examined.text, examined.module.tree)
        raise Unsound(refused.message, refused.line) from refused
    if not was_parsed:
        require_python(examined.text, examined.module.tree)
        _require_parses(result)


def _require_parses(result: str) -> None:
    try:
        parse(result)
    except SyntaxFault as fault:
        raise Unsound(f"the result does not parse: {fault.message}", fault.line) from fault
