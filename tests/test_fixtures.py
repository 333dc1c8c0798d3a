"""Each directory `fixtures/RULE/CASE` is a test of the command line, for both targets."""

from __future__ import annotations

import io
import re
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from migrate_pallas.cli import command

FIXTURES = Path(__file__).parents[1] / "fixtures"
CASES = sorted(path for path in FIXTURES.glob("MP*/*") if path.is_dir())
TARGETS = ("interpret", "cpu")
FILE_NAMES = {"before.py", "after.interpret.py", "after.cpu.py", "findings.txt", "options.txt"}
FINDING = re.compile(r"^<stdin>:(\d+):\d+: (MP\d+) ", re.MULTILINE)

each_case = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}"
)
each_target = pytest.mark.parametrize("target", TARGETS)


@cache
def migrate(source: bytes, options: tuple[str, ...]) -> tuple[bytes, tuple[str, ...]]:
    """What the command line makes of `source` on stdin, and its findings, each as "LINE CODE"."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO()) for _ in range(2))
    stdin = mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(source)))
    with stdin, redirect_stdout(stdout), redirect_stderr(stderr):
        status = command.main([*options, "-"], standalone_mode=False)
    said = stderr.buffer.getvalue().decode()
    assert status == 0, said
    return stdout.buffer.getvalue(), tuple(" ".join(found) for found in FINDING.findall(said))


def options_of(case: Path, target: str) -> tuple[str, ...]:
    """The options that a case runs with: those of its rule, and its own."""
    select, own = case.parent / "select.txt", case / "options.txt"
    codes = select.read_text().strip() if select.exists() else case.parent.name
    more = shlex.split(own.read_text()) if own.exists() else []
    return (f"--to={target}", f"--select={codes}", *more)


def before_and_after(case: Path, target: str) -> tuple[bytes, bytes]:
    before, after = case / "before.py", case / f"after.{target}.py"
    return before.read_bytes(), (after if after.exists() else before).read_bytes()


def expected_findings(case: Path, target: str) -> list[str]:
    listed = case / "findings.txt"
    lines = listed.read_text().splitlines() if listed.exists() else []
    return sorted(line.partition(" ")[2] for line in lines if line.split()[0] == target)


def compiles(source: bytes) -> bool:
    """Whether the running Python takes `source`; one newer than it does not."""
    try:
        compile(source, "<fixture>", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def test_every_rule_that_rewrites_has_cases():
    assert {"MP101", "MP102"} <= {case.parent.name for case in CASES}


@each_case
def test_a_case_has_a_module_and_no_unknown_files(case):
    names = {path.name for path in case.iterdir() if path.name != "__pycache__"}
    assert "before.py" in names
    assert names <= FILE_NAMES


@each_case
def test_findings_are_listed_for_known_targets(case):
    listed = case / "findings.txt"
    lines = listed.read_text().splitlines() if listed.exists() else []
    assert all(re.fullmatch(r"(interpret|cpu) \d+ MP\d+", line) for line in lines)


@each_target
@each_case
def test_the_result_is_the_expected_one_byte_for_byte(case, target):
    before, after = before_and_after(case, target)
    result, _ = migrate(before, options_of(case, target))
    assert result == after


@each_target
@each_case
def test_the_findings_are_the_listed_ones(case, target):
    before, _ = before_and_after(case, target)
    _, findings = migrate(before, options_of(case, target))
    assert sorted(findings) == expected_findings(case, target)


@each_target
@each_case
def test_a_second_run_changes_nothing(case, target):
    before, _ = before_and_after(case, target)
    options = options_of(case, target)
    once, _ = migrate(before, options)
    twice, _ = migrate(once, options)
    assert twice == once


@each_target
@each_case
def test_the_result_compiles_where_the_original_does(case, target):
    before, _ = before_and_after(case, target)
    result, _ = migrate(before, options_of(case, target))
    assert compiles(result) >= compiles(before)
