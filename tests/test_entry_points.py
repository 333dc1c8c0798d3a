"""Every entry point of three public packages is accounted for: changed, right already, or left with a finding.

They are found here a second time, by `ast` and in another way: a name means what any import of its file, or the only
assignment to it, says that it does.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from public_packages import PACKAGES, wheel

ROOT = Path(__file__).parents[1]
ENTRY_POINTS = ("pallas_call", "kernel", "core_map", "mpmd_map")
MIGRATED, PORTABLE, PERSON, GPU = "migrated", "portable", "person", "gpu"
# In the releases that are pinned; no entry point of theirs is right already.
STATUSES = {
    "tpu-inference": {MIGRATED: 37, PERSON: 29},
    "tokamax": {MIGRATED: 39, PERSON: 23, GPU: 24},
    "ejkernel": {MIGRATED: 36, PERSON: 5, GPU: 1},
}
# What is said of an entry point of each status, within its call: one of the first, and none of the second.
SAID = {
    MIGRATED: ({"MP110"}, {"MP202", "MP204", "MP208"}),
    PORTABLE: (set(), {"MP110", "MP202", "MP204", "MP205", "MP208"}),
    PERSON: ({"MP202", "MP205", "MP208"}, {"MP204"}),
    GPU: ({"MP204"}, {"MP110", "MP202", "MP205", "MP208"}),
}


@dataclass(frozen=True)
class EntryPoint:
    """A call of an entry point: where it begins, and the line where it ends."""

    path: str
    line: int
    column: int
    target: str
    last_line: int


class Meanings(ast.NodeVisitor):
    """What the names of one file may mean, as dotted paths."""

    def __init__(self, tree: ast.AST) -> None:
        self.paths: dict[str, set[str]] = {}
        self.assigned: dict[str, list[ast.expr]] = {}
        self.visit(tree)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.paths.setdefault(name, set()).add(alias.name if alias.asname else name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            path = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            self.paths.setdefault(alias.asname or alias.name, set()).add(path)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.assigned.setdefault(target.id, []).append(node.value)
        self.generic_visit(node)

    def of(self, node: ast.expr, depth: int = 0) -> set[str]:
        """The dotted paths that an expression may mean."""
        if isinstance(node, ast.Attribute):
            return {f"{path}.{node.attr}" for path in self.of(node.value, depth)}
        if not isinstance(node, ast.Name) or depth > 3:
            return set()
        values = self.assigned.get(node.id, [])
        if node.id not in self.paths and len(values) == 1:
            return self.of(values[0], depth + 1)
        return self.paths.get(node.id, set())

    def target(self, node: ast.expr) -> str:
        """The name of the entry point that an expression means, or ''."""
        for path in self.of(node):
            module, _, name = path.rpartition(".")
            if name in ENTRY_POINTS and module.startswith(
                ("jax.experimental.pallas", "jax._src.pallas")
            ):
                return name
        return ""


def parsed(source: str) -> ast.Module | None:
    """The tree of `source`; None where it is newer than the running Python: some files ask for 3.12."""
    try:
        return ast.parse(source)
    except SyntaxError:
        if sys.version_info >= (3, 12):
            raise
        return None


def entry_points(root: Path) -> Iterator[EntryPoint]:
    """Every call in `root` that hands arguments to an entry point, a partial of one included."""
    for path in sorted(root.rglob("*.py")):
        source = path.read_text()
        if "pallas" not in source:
            continue
        tree = parsed(source)
        if tree is None:
            continue
        meanings = Meanings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                target = meanings.target(node.func)
                if not target and node.args and "functools.partial" in meanings.of(node.func):
                    target = meanings.target(node.args[0])
                if target:
                    place = path.relative_to(root).as_posix(), node.lineno, node.col_offset + 1
                    yield EntryPoint(*place, target, node.end_lineno or node.lineno)


def outcomes(root: Path, target: str) -> list[dict[str, Any]]:
    """What the command line says of each file in `root`."""
    codes = ",".join(sorted(set().union(*(some for some, _ in SAID.values()))))
    options = [f"--to={target}", f"--select={codes}", "--diff", "--format=json"]
    done = subprocess.run(
        [sys.executable, "-m", "migrate_pallas", *options, "."],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    files: list[dict[str, Any]] = json.loads(done.stdout)["files"]
    return files


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The packages, unpacked each under its own name."""
    parent = tmp_path_factory.mktemp("packages")
    for package in PACKAGES:
        if package.name in STATUSES:
            with zipfile.ZipFile(wheel(package)) as archive:
                archive.extractall(parent / package.name)
    return parent


@pytest.fixture(scope="module")
def found(packages):
    """The entry points of each package, found by `ast`."""
    return {name: list(entry_points(packages / name)) for name in STATUSES}


@pytest.fixture(scope="module", params=["interpret", "cpu"])
def told(request, packages):
    """What the command line says of the files of each package."""
    return {name: outcomes(packages / name, request.param) for name in STATUSES}


def test_the_entry_points_are_those_that_ast_finds(packages, found, told):
    for name, points in found.items():
        places = {(one.path, one.line, one.column, one.target) for one in points}
        assert places == {
            (file["path"], kernel["line"], kernel["column"], kernel["target"])
            for file in told[name]
            for kernel in file["kernels"]
            if parsed((packages / name / file["path"]).read_text()) is not None
        }


def test_as_many_have_each_status_as_in_the_pinned_releases(told):
    statuses = {
        name: Counter(kernel["status"] for file in files for kernel in file["kernels"])
        for name, files in told.items()
    }
    assert statuses == STATUSES


def test_every_entry_point_has_the_change_or_the_finding_that_its_status_promises(found, told):
    for name, points in found.items():
        files = {file["path"]: file for file in told[name]}
        for point in points:
            file = files[point.path]
            (status,) = [
                kernel["status"]
                for kernel in file["kernels"]
                if (kernel["line"], kernel["column"]) == (point.line, point.column)
            ]
            said = {
                one["code"]
                for one in (*file["changes"], *file["findings"])
                if point.line <= one["line"] <= point.last_line
            }
            some, none = SAID[status]
            assert (said & some or not some) and not said & none, (point, status, said)
