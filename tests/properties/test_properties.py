"""What holds for the result of every module: it parses, it is proven, and it is stable."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import tokenize
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrate_pallas.changes import Change
from migrate_pallas.module import Module
from migrate_pallas.parts import in_parts
from migrate_pallas.pipeline import Examined, applicable, examine, migrated, proven
from migrate_pallas.review import Review
from migrate_pallas.rules import all_rules, fixers
from migrate_pallas.run import Task, piped, work
from migrate_pallas.sessions import Session
from migrate_pallas.settings import CPU, GATE, INTERPRET, REMOVE, Settings
from properties.examples import examples
from properties.modules import modules

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from exhaustive import without_shortcuts

EVERY_SETTING = st.sampled_from(
    [
        Settings(),
        Settings(to=CPU, strategy=GATE),
        Settings(to=CPU, strategy=GATE, gate_at_import=True),
        Settings(to=CPU, strategy=REMOVE),
        Settings(
            to=INTERPRET, strategy=GATE, gate_import=("my.backends", "has_tpu"), gate="has_tpu"
        ),
        Settings(to=CPU, strategy=GATE, interpreter="tpu", unguard=True),
    ]
)


def result_of(text: str, settings: Settings) -> str:
    """The proven result of making every change."""
    examined = examine(text, settings)
    return proven(examined, examined.changes, settings)


def comments(text: str) -> list[tuple[str, int]]:
    """Each comment, and its line."""
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return [(t.string, t.start[0]) for t in tokens if t.type == tokenize.COMMENT]


def lines_cut(examined: Examined) -> set[int]:
    """The lines of which changes that remove something touch any part."""
    return {
        line
        for change in examined.changes
        for edit in change.edits
        for line in range(
            examined.text.count("\n", 0, edit.start) + 1,
            examined.text.count("\n", 0, edit.end) + 2,
        )
        if len(edit.text) < edit.end - edit.start
    }


@given(modules(), EVERY_SETTING)
@examples(80)
def test_the_result_is_proven_compiles_and_is_stable(text: str, settings: Settings) -> None:
    result = result_of(text, settings)
    compile(result.encode(), "m.py", "exec", dont_inherit=True)
    again = examine(result, settings)
    assert migrated(again, again.changes) == result


@given(modules(), EVERY_SETTING)
@examples(40)
def test_comments_stay_but_for_those_on_removed_lines(text: str, settings: Settings) -> None:
    examined = examine(text, settings)
    before = comments(text)
    after = [comment for comment, _ in comments(migrated(examined, examined.changes))]
    kept = iter(after)
    cut = lines_cut(examined)
    lost = [(comment, line) for comment, line in before if comment not in after]
    assert all(line in cut for _, line in lost)
    assert all(comment in kept for comment, _ in before if (comment, _) not in lost)  # in order
    assert len(before) - len(lost) == len(after)


def said(examined: Examined) -> tuple[object, ...]:
    """What the rules said, but for reasons, which are joined in the order in which rules came."""
    changes = [(c.code, c.start, sorted(c.edits), c.needs) for c in examined.changes]
    return sorted(changes, key=lambda c: c[1]), sorted(examined.findings), examined.kernels


def examined_in_some_order(text: str, settings: Settings, order: random.Random) -> Examined:
    """As `examine`, with nodes and rules in any order."""
    module = Module(text, in_parts(text), settings)
    codes = applicable(text, settings)
    rules = [rule for rule in all_rules() if rule.code in codes]
    seen = [(fixer, node) for r in rules for fixer in fixers(r) for node in module.tree.pre_order()]
    order.shuffle(seen)
    for fixer, node in seen:
        capture = fixer.match(node)
        if capture:
            fixer.transform(node, {**capture, "module": module})
    changes = sorted(module.changes.values(), key=lambda change: change.start)
    kernels = [kernel for _, kernel in sorted(module.kernels.items())]
    return Examined(text, module, tuple(changes), tuple(module.all_findings()), tuple(kernels))


@given(modules(), EVERY_SETTING, st.randoms(use_true_random=False))
@examples(25)
def test_the_order_of_rules_and_nodes_does_not_matter(
    text: str, settings: Settings, order: random.Random
) -> None:
    usual = examine(text, settings)
    shuffled = examined_in_some_order(text, settings, order)
    assert said(shuffled) == said(usual)
    assert migrated(shuffled, shuffled.changes) == migrated(usual, usual.changes)


@given(st.lists(modules(), min_size=1, max_size=4), EVERY_SETTING)
@examples(60)
def test_what_is_left_unparsed_would_change_nothing(texts: list[str], settings: Settings) -> None:
    text = "\n".join(texts)
    usual = examine(text, settings)
    with without_shortcuts():
        whole = examine(text, settings)
        result = migrated(whole, whole.changes)
    assert said(usual) == said(whole)
    assert migrated(usual, usual.changes) == result


@given(st.lists(modules(), min_size=4, max_size=8), EVERY_SETTING)
@examples(4)
def test_git_applies_the_diff_to_what_write_gives(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], settings: Settings
) -> None:
    directory = tmp_path_factory.mktemp("repo")
    paths = [directory / f"m{number} é.py" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    before = os.getcwd()  # noqa: PTH109
    os.chdir(directory)
    try:
        outcomes = [work(path.name, Task(settings, write=False)) for path in paths]
        diff = b"".join(outcome.diff for outcome in outcomes)
        assert [outcome.fault for outcome in outcomes] == [None] * len(paths)
        if diff:
            subprocess.run(["git", "apply"], input=diff, check=True)
    finally:
        os.chdir(before)
    assert [path.read_bytes().decode() for path in paths] == [
        result_of(text, settings) for text in texts
    ]


class Yes:
    """A screen whose every answer is "this and all later in this file"."""

    def check(self) -> None:
        """Nothing stops it."""

    def change(self, name: str, examined: Examined, change: Change) -> None:
        """Nobody looks."""

    def additions(self, name: str, examined: Examined, accepted: Sequence[Change]) -> None:
        """Nobody looks."""

    def hint(self, text: str) -> None:
        """Nobody looks."""

    def report(self, line: str) -> None:
        """A finding."""
        assert "MP9" not in line

    def key(self, prompt: str) -> str:
        return "a"

    def edit(self, text: str) -> str | None:
        raise AssertionError(text)


@given(modules(), EVERY_SETTING)
@examples(25)
def test_a_review_that_accepts_everything_writes_what_write_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, settings: Settings
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # else most of the time is the disk's
    path = tmp_path / "m.py"
    path.write_bytes(text.encode())
    Review(settings, [str(tmp_path)], Yes(), Session()).run([path])
    assert path.read_bytes().decode() == result_of(text, settings)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('f\n    , # one\n    collective_axes="x"\n', "f\n     # one\n"),
        (
            'f, # one\n    collective_axes="x" # gone\n    , # two\n    b=1',
            "f, # one\n     # two\n    b=1",
        ),
        (
            'f,\n    collective_axes="x"\n    # kept\n    ,\n    b=1',
            "f,\n    # kept\n    \n    b=1",
        ),
    ],
)
def test_comments_beside_commas_that_stand_apart_stay(before: str, after: str) -> None:
    module = "from jax.experimental import pallas as pl\npl.run_scoped(\n    {})\n".format
    assert result_of(module(before), Settings(select=("MP101",))) == module(after)


@pytest.mark.parametrize("first", ["\r", "\n"])
def test_added_lines_end_as_most_lines_do(first: str) -> None:
    imports = f"# One.{first}import jax\nfrom jax.experimental import pallas as pl\n"
    text = f"{imports}\n\ndef f(b, x):\n    pl.run_scoped(b, collective_axes=x)\n"
    result = result_of(text, Settings(to=CPU, strategy=GATE))
    assert "def on_tpu() -> bool:\n" in result


NOT_PYTHON = """\
from jax.experimental import pallas as pl
{}
def f(b, x):
    pl.run_scoped(b, collective_axes=x)
"""


@pytest.mark.parametrize(
    "line",
    [
        "def None(): pass",
        "import None",
        "f(a.b=1)",
        "f(**a, *b)",
        "1 = x",
        "f(a * collective_axes=1)",
    ],
)
def test_what_no_python_takes_is_refused_at_its_line_though_our_grammar_is_wider(line: str) -> None:
    outcome = piped(NOT_PYTHON.format(line).encode(), Task(Settings(), write=False))
    assert outcome.fault is not None
    assert (outcome.fault.code, outcome.fault.line) == ("MP901", 2)
    assert outcome.result == b""


@pytest.mark.parametrize(
    "line",
    [
        "type A[T = int] = list[T]",
        "def g[**P](): pass",
        "x = f'{'a'}'",
        "x = t'{b}'",
        "try: pass\nexcept A, B: pass",
        "try: pass\nexcept* A: pass",
        "x = a[*b, 1]",
    ],
)
def test_what_only_a_newer_python_takes_is_migrated(line: str) -> None:
    outcome = piped(NOT_PYTHON.format(line).encode(), Task(Settings(), write=False))
    assert outcome.fault is None
    assert b"collective_axes" not in outcome.result


@pytest.mark.parametrize("value", ["tpu . get_tpu_info()", "\\\n        tpu.get_tpu_info().x"])
def test_a_module_is_named_without_the_space_around_it(value: str) -> None:
    imports = "from jax.experimental.pallas import tpu\n"
    result = result_of(f"{imports}def f():\n    x = {value}\n", Settings())
    assert "\\" not in result.replace("x = \\\n", "").replace("_chip(\\\n", "")
    assert "tpu.get_tpu_info_for_chip(" in result
