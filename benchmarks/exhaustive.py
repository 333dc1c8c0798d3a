"""Compare every file's results with those of a run in which every rule looks at every file, and at all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from unittest.mock import patch

from migrate_pallas import pipeline
from migrate_pallas.cuts import Cut
from migrate_pallas.files import FileFault, read
from migrate_pallas.mentions import Mentions
from migrate_pallas.parsing import SyntaxFault
from migrate_pallas.parts import Parted
from migrate_pallas.rules import Rule, all_rules, running
from migrate_pallas.settings import CPU, GATE, INTERPRET, REMOVE, Settings

STRATEGIES = (Settings(to=INTERPRET, strategy=REMOVE), Settings(to=CPU, strategy=GATE))


@dataclass(frozen=True)
class Compared:
    """What came out for one file; `skipped` tells that it is not parsed, but for this comparison.

    `differing` tells whether changes, findings or entry points differ; `wordless` are the codes of what was found
    though the file has not the words of their rule.
    """

    path: Path
    skipped: bool
    fault: str = ""
    differing: bool = False
    wordless: tuple[str, ...] = ()


def compare_all(paths: Iterable[Path]) -> Iterator[Compared]:
    """Compare for each file, on all cores, what the pipeline finds with and without shortcuts."""
    with ProcessPoolExecutor() as pool:
        each = product(sorted(paths), STRATEGIES)
        yield from pool.map(_compare_pair, each, chunksize=8)


def _compare_pair(pair: tuple[Path, Settings]) -> Compared:
    return compare(*pair)


def compare(path: Path, settings: Settings) -> Compared:
    """Compare what the pipeline finds in the file at `path` with and without shortcuts."""
    try:
        text = read(path).text
    except FileFault as fault:
        return Compared(path, skipped=False, fault=fault.message)
    applicable = pipeline.applicable(text, settings)
    try:
        with without_shortcuts():
            whole = pipeline.examine(text, settings)
    except SyntaxFault as fault:
        return Compared(path, not applicable, fault=fault.message)
    usual = pipeline.examine(text, settings)
    results = [(one.changes, one.findings, one.kernels) for one in (usual, whole)]
    codes = {change.code for change in whole.changes}
    codes |= {finding.code for finding in whole.findings}
    wordless = codes.intersection(_WORDED) - set(applicable)
    return Compared(path, not applicable, "", results[0] != results[1], tuple(sorted(wordless)))


@contextmanager
def without_shortcuts() -> Iterator[None]:
    """Have each file parsed as a whole, whatever words it has, and every rule look at all of it."""
    with (
        patch.object(pipeline, "applicable", _all_that_run),
        patch.object(pipeline, "in_parts", lambda text: Parted(text, lambda text: [Cut(0, 0)])),
        patch.object(Mentions, "of", lambda mentions, *words, **options: mentions.tree.parts),
        patch.object(Rule, "parts", lambda rule, module: module.tree.parts),
    ):
        yield


def _all_that_run(text: str, settings: Settings) -> tuple[str, ...]:
    """The codes of all rules that are to run, whatever words `text` holds."""
    return tuple(rule.code for rule in all_rules() if rule.code in running(settings))


# Other findings have no words, since they come from rules of another code.
_WORDED = tuple(rule.code for rule in all_rules() if rule.words)


def summary(compared: Iterable[Compared], root: Path) -> str:
    """What came out, as Markdown: counts, then each difference."""
    counts: Counter[str] = Counter()
    told = []
    for one in compared:
        counts["files and targets"] += 1
        counts["not parsed, thanks to the words"] += one.skipped
        counts["no Python, and parsed only without shortcuts"] += one.skipped and bool(one.fault)
        counts["with different results"] += one.differing
        name = one.path.relative_to(root)
        told += [f"- {name}: results differ"] if one.differing else []
        told += [f"- {name}: {code} found without its words" for code in one.wordless]
    lines = [f"- {count:,} {what}" for what, count in counts.items()]
    return "\n".join([*lines, "", *dict.fromkeys(told)]).rstrip() + "\n"
