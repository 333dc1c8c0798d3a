"""The command line on public packages of kernels: what it may change, what it must not, and what it must name."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from public_packages import PACKAGES, unpack

TARGETS = ("interpret", "cpu")
AXES_ONLY = "--select=MP101,MP102,MP204,MP208"
SAID = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):\d+: (?P<code>MP\d+) ", re.MULTILINE)

# Counted in the pinned releases with `sites_with_axes` under Python 3.12, which reads every file of them.
SITES_WITH_AXES = {"jax": 9, "tokamax": 5}


@dataclass(frozen=True)
class Run:
    """One run of the command line: its status, its output, and the findings and faults as (path, line, code)."""

    status: int
    stdout: str
    stderr: str

    @property
    def said(self) -> set[tuple[str, int, str]]:
        found = SAID.finditer(self.stderr)
        return {(one["path"], int(one["line"]), one["code"]) for one in found}

    @property
    def changed(self) -> set[str]:
        """The files that it says it has changed."""
        return set(re.findall(r"^changed (.+\.py)$", self.stderr, re.MULTILINE))


def migrate(root: Path, *options: str) -> Run:
    """Run the command line on everything in `root`, from there."""
    source = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "migrate_pallas", *options, "."],
        cwd=root,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        errors="surrogateescape",
    )
    return Run(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Pass:
    """What all tests look at, for one target: a run with the rules about axes alone, and two with all rules."""

    root: Path  # migrated in place
    axes: Run
    write: Run
    again: Run


@pytest.fixture(scope="session")
def originals(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("public")
    unpack(root)
    return root


@pytest.fixture(scope="session", params=TARGETS)
def done(request, originals, tmp_path_factory) -> Pass:
    to = f"--to={request.param}"
    root = tmp_path_factory.mktemp(request.param) / "packages"
    shutil.copytree(originals, root)
    axes = migrate(root, to, "--diff", AXES_ONLY)
    write = migrate(root, to, "--write")
    return Pass(root, axes, write, again=migrate(root, to, "--diff"))


def sources(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*.py"))


def compiles(source: bytes) -> bool:
    """Whether the running Python takes `source`; some files ask for 3.12."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(source, "<file>", "exec", dont_inherit=True)
        except SyntaxError:
            return False
    return True


def sites_with_axes(source: bytes) -> Iterator[int]:
    """The line of each `collective_axes=` handed to something called `run_scoped` or `with_scoped`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = [ast.unparse(part).rpartition(".")[2] for part in (node.func, *node.args[:1])]
            if {"run_scoped", "with_scoped"} & set(called):
                yield from (k.value.lineno for k in node.keywords if k.arg == "collective_axes")


def test_every_run_succeeds_and_no_file_fails(done):
    for run in (done.axes, done.write, done.again):
        assert run.status == 0, run.stderr
        assert "Traceback" not in run.stderr
        assert not {one for one in run.said if one[2].startswith("MP9")}
        assert " failed" not in run.stderr.splitlines()[-1]


def test_every_file_is_looked_at(done):
    assert f"of {len(sources(done.root))} files" in done.write.stderr


def test_the_sites_with_axes_are_as_many_as_in_the_pinned_releases(originals):
    found = {}
    for package in PACKAGES:
        readable = [
            (originals / p).read_bytes() for p in sources(originals) if p.parts[0] == package.name
        ]
        count = sum(
            len(list(sites_with_axes(s))) for s in readable if b"_scoped" in s and compiles(s)
        )
        found[package.name] = count
    assert {name: count for name, count in found.items() if count} == SITES_WITH_AXES


def test_every_site_with_axes_is_named_and_none_is_changed(originals, done):
    sites = {
        (path.as_posix(), line)
        for path in sources(originals)
        if b"collective_axes" in (source := (originals / path).read_bytes()) and compiles(source)
        for line in sites_with_axes(source)
    }
    assert len(sites) == sum(SITES_WITH_AXES.values())
    named = {(path, line) for path, line, code in done.axes.said if code in ("MP204", "MP208")}
    assert sites <= named
    assert done.axes.stdout == ""


def test_all_rules_name_the_same_sites_with_axes(done):
    def with_axes(run):
        return {one for one in run.said if one[2] in ("MP204", "MP208")}

    assert with_axes(done.axes) <= with_axes(done.write)


def test_a_second_run_changes_nothing(done):
    assert done.write.changed
    assert done.again.stdout == ""


def test_only_the_files_that_are_named_as_changed_have_changed(originals, done):
    differing = {
        path.as_posix()
        for path in sources(originals)
        if (originals / path).read_bytes() != (done.root / path).read_bytes()
    }
    assert differing == done.write.changed


def test_every_changed_file_compiles(originals, done):
    broken = [
        path
        for path in sorted(done.write.changed)
        if compiles((originals / path).read_bytes())
        and not compiles((done.root / path).read_bytes())
    ]
    assert broken == []
