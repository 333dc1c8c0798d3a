"""The checker on real change lists: it passes all that the rules make, and refuses it once it is damaged."""

from __future__ import annotations

import ast
import io
import operator
import random
import re
import shlex
import sys
import token
import tokenize
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from functools import cache, partial
from itertools import chain, product
from pathlib import Path
from unittest import mock

import pytest
from public_packages import unpack

from migrate_pallas import pipeline, run
from migrate_pallas.changes import Change
from migrate_pallas.checker import Accepted, Permit, Refused, prove
from migrate_pallas.cli import command
from migrate_pallas.files import decode
from migrate_pallas.pipeline import Examined, Unsound, examine, proven
from migrate_pallas.rules import all_rules
from migrate_pallas.run import cores
from migrate_pallas.settings import CPU, GATE, INTERPRET, Settings

FIXTURES = Path(__file__).parents[1] / "fixtures"
CASES = sorted(path for path in FIXTURES.glob("MP*/*") if path.is_dir())
TARGETS = (INTERPRET, CPU)

each_target = pytest.mark.parametrize("target", TARGETS)
each_case = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}"
)


@dataclass(frozen=True)
class Made:
    """What the pipeline hands to the checker."""

    before: str
    after: str
    accepted: tuple[Accepted, ...]
    permit: Permit


def made(examined: Examined, changes: list[Change], settings: Settings) -> Made:
    """What the pipeline hands to the checker for `changes`, which must pass."""
    with mock.patch.object(pipeline, "prove", wraps=prove) as checker:
        result = proven(examined, changes, settings)
    [call] = checker.call_args_list
    before, after, accepted, permit = call.args
    assert (before, after) == (examined.text, result)
    return Made(before, after, tuple(accepted), permit)


def some_of(changes: tuple[Change, ...], seed: str) -> list[Change]:
    """About half of `changes`, at least one."""
    chosen = random.Random(seed)
    return [c for c in changes if chosen.random() < 0.5] or [chosen.choice(changes)]


# -- fixtures --


@cache
def settings_of(options: tuple[str, ...]) -> Settings:
    """The settings that the command line makes of `options`."""
    stdin = mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with stdin, mock.patch.object(run, "_work", wraps=run._work) as work:
        command.main([*options, "-"], standalone_mode=False)
    task = work.call_args.args[-1]
    return task.settings


def examined(case: Path, target: str, selected: bool = True) -> tuple[Examined, Settings]:
    """A fixture as the rules see it: those that it selects, or all."""
    select, own = case.parent / "select.txt", case / "options.txt"
    codes = select.read_text().strip() if select.exists() else case.parent.name
    options = [f"--to={target}", *(shlex.split(own.read_text()) if own.exists() else [])]
    settings = settings_of((*options, f"--select={codes}") if selected else tuple(options))
    return examine(decode((case / "before.py").read_bytes()).text, settings), settings


@each_case
def test_every_fixture_passes_and_so_does_half_of_its_changes(case: Path) -> None:
    for target, selected in product(TARGETS, (True, False)):
        found, settings = examined(case, target, selected)
        if found.changes:
            made(found, list(found.changes), settings)
            made(found, some_of(found.changes, case.name), settings)


def test_fixtures_have_changes_of_every_rule() -> None:
    codes = {c.code for case in CASES for t in TARGETS for c in examined(case, t)[0].changes}
    assert {rule.code for rule in all_rules() if rule.rewrites} <= codes


# -- public packages --

# How many files of the pinned releases the checker sees, that is, in how many something changes.
CHECKED = {"jax": 17, "tpu-inference": 80, "tokamax": 127, "ejkernel": 29}


def refused(path: Path, target: str) -> str | None:
    """Why a file's changes, or half of them, are refused, '' if neither is; None where there are none."""
    settings = Settings(target) if target == INTERPRET else Settings(target, GATE)
    found = examine(decode(path.read_bytes()).text, settings)
    if not found.changes:
        return None
    try:
        made(found, list(found.changes), settings)
        made(found, some_of(found.changes, path.name), settings)
    except Unsound as unsound:
        return f"{path}:{unsound.line}: {unsound}"
    return ""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("packages")
    unpack(root)
    return root


@each_target
def test_every_file_of_the_public_packages_passes_and_so_does_half_of_its_changes(
    packages: Path, target: str
) -> None:
    paths = [path for name in CHECKED for path in sorted((packages / name).rglob("*.py"))]
    with ProcessPoolExecutor(cores()) as pool:
        said = list(pool.map(partial(refused, target=target), paths, chunksize=16))
    assert [one for one in said if one] == []
    seen = [path for path, one in zip(paths, said, strict=True) if one is not None]
    assert Counter(path.relative_to(packages).parts[0] for path in seen) == CHECKED


# -- damage --


@dataclass(frozen=True)
class Token:
    """A token or comment of a text, and where it stands."""

    kind: int
    text: str
    start: int
    end: int
    line: int


def tokens_of(text: str) -> list[Token]:
    """The tokens and comments of a text, without what ends a line or a block."""
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    source = io.StringIO("".join(line.rstrip("\r\n") + "\n" for line in lines))
    return [
        Token(kind, word, starts[row - 1] + column, starts[last - 1] + end, row)
        for kind, word, (row, column), (last, end), _ in tokenize.generate_tokens(source.readline)
        if word.strip()
    ]


def meaning(text: str) -> tuple[object, ...]:
    """The statements of a text, without docstrings of functions at its top, its imports there, and its comments.

    Of a text that the running Python can't parse, the tokens.
    """
    tokens = tokens_of(text)
    comments = [one.text for one in tokens if one.kind == tokenize.COMMENT]
    try:
        tree = ast.parse(text.removeprefix("\ufeff"))
    except SyntaxError:
        return [one.text for one in tokens], comments
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False):
            del node.body[0]
    others = [ast.dump(node) for node in tree.body if node not in imports]
    return others, sorted(map(ast.dump, imports)), comments


def is_harmless(what: Made, damaged: str) -> bool:
    """Whether damage may pass: it lies in lines that the changes made, or right beside them, and means the same.

    That is, it leaves there the same tree and the same comments. So what may differ is spaces, blank lines, line ends
    within brackets, trailing commas, quotes and parentheses; the place of an added import among the others; and the
    text of the docstring of the gate and of the context manager.
    """
    lines, others = (text.splitlines(keepends=True) for text in (what.after, damaged))
    codes = SequenceMatcher(None, what.before.splitlines(keepends=True), lines, autojunk=False)
    spans = (range(j1 - 1, j2 + 1) for tag, _, _, j1, j2 in codes.get_opcodes() if tag != "equal")
    ours = set(chain.from_iterable(spans))
    same = [*map(operator.eq, lines, others), False]
    ends = [*map(operator.eq, reversed(lines), reversed(others)), False]
    touched = range(same.index(False), len(lines) - ends.index(False))
    return set(touched) <= ours and meaning(what.after) == meaning(damaged)


def replaced(text: str, one: Token, word: str) -> str:
    return text[: one.start] + word + text[one.end :]


def without_a_token(text: str, one: Token, chosen: random.Random) -> str:
    return replaced(text, one, "")


def with_a_token_twice(text: str, one: Token, chosen: random.Random) -> str:
    return replaced(text, one, f"{one.text} {one.text}")


def with_another_word(text: str, one: Token, chosen: random.Random) -> str:
    words = [other.text for other in tokens_of(text) if other.kind == one.kind]
    return replaced(text, one, chosen.choice(words))


def with_another_constant(text: str, one: Token, chosen: random.Random) -> str:
    if one.kind == token.NUMBER:
        return replaced(text, one, f"1{one.text}")
    if one.kind == token.STRING:
        return replaced(text, one, one.text.replace(one.text[-1], f" {one.text[-1]}"))
    return replaced(text, one, {"True": "False", "None": "0", "False": "True"}.get(one.text, "0"))


def with_another_operator(text: str, one: Token, chosen: random.Random) -> str:
    others = {"==": "!=", "!=": "==", "not": "", "or": "and", "and": "or", "if": "or", "(": "(*"}
    return replaced(text, one, others.get(one.text, f"-{one.text}"))


def with_a_comment(text: str, one: Token, chosen: random.Random) -> str:
    return replaced(text, one, f"{one.text}  # here\n")


def with_a_space(text: str, one: Token, chosen: random.Random) -> str:
    return replaced(text, one, f"{one.text} ")


def without_a_comment(text: str, one: Token, chosen: random.Random) -> str:
    comments = [other for other in tokens_of(text) if other.kind == tokenize.COMMENT]
    return replaced(text, chosen.choice(comments), "") if comments else text


def without_a_line(text: str, one: Token, chosen: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    del lines[one.line - 1]
    return "".join(lines)


def with_two_lines_exchanged(text: str, one: Token, chosen: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    lines[one.line - 1 : one.line + 1] = reversed(lines[one.line - 1 : one.line + 1])
    return "".join(lines)


def with_two_arguments_exchanged(text: str, one: Token, chosen: random.Random) -> str:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1]
    if not calls or not text.isascii() or "\r" in text:
        return text
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    first, second = (
        (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )
        for node in chosen.choice(calls).args[:2]
    )
    parts = text[: first[0]], text[slice(*second)], text[first[1] : second[0]], text[slice(*first)]
    return "".join([*parts, text[second[1] :]])


DAMAGES = (
    without_a_token,
    with_a_token_twice,
    with_another_word,
    with_another_constant,
    with_another_operator,
    with_a_comment,
    with_a_space,
    without_a_comment,
    without_a_line,
    with_two_lines_exchanged,
    with_two_arguments_exchanged,
)


def damaged(what: Made, seed: str) -> Iterator[str]:
    """The result after each damage, most of them done where it differs from the original."""
    chosen = random.Random(seed)
    old = set(what.before.splitlines())
    tokens = tokens_of(what.after)
    lines = re.split(r"\r\n|\r|\n", what.after)
    ours = [one for one in tokens if lines[one.line - 1] not in old] or tokens
    for damage in DAMAGES:
        one = chosen.choice(ours if chosen.random() < 0.7 else tokens)
        yield damage(what.after, one, chosen)


@each_target
@each_case
def test_damage_to_the_result_of_a_fixture_is_refused(case: Path, target: str) -> None:
    found, settings = examined(case, target)
    if not found.changes:
        return
    what = made(found, list(found.changes), settings)
    for text in damaged(what, f"{case.name} {target}"):
        try:
            prove(what.before, text, what.accepted, what.permit)
        except Refused:
            continue
        harm = "".join(unified_diff(what.after.splitlines(True), text.splitlines(True), n=0))
        assert not harm or is_harmless(what, text), harm
