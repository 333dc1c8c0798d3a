"""A repository is read, never run: nothing in it is imported, whatever it is called and wherever one stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAP = """\
import pathlib
pathlib.Path({marker!r}).write_text(__name__)
from jax.experimental import pallas as pl
def f(body): pl.run_scoped(body, collective_axes="x")
"""
# What a tool that builds, tests or formats would import, and what this one imports itself.
TRAPPED = (
    *("conftest.py", "setup.py", "sitecustomize.py", "usercustomize.py", "backend.py"),
    *("bowler.py", "click/__init__.py", "fissix/__init__.py", "pathspec.py", "tomllib.py"),
    *("tomli.py", "json.py", "multiprocessing.py", "ast.py", "jax/__init__.py", "volatile.py"),
    *("package/__init__.py", "package/kernels.py", "package/__main__.py", "tests/conftest.py"),
)
PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[tool.migrate-pallas]
to = "cpu"
"""
CONSOLE_SCRIPT = "from migrate_pallas.__main__ import main\nmain()\n"


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What exists once any file of the repository has run."""
    return tmp_path / "it ran"


@pytest.fixture
def repo(tmp_path: Path, marker: Path) -> Path:
    """A repository in which every file is a trap; with enough files for several processes."""
    directory = tmp_path / "repo"
    for name in (*TRAPPED, *(f"many/m{number}.py" for number in range(70))):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TRAP.format(marker=str(marker)))
    (directory / "pyproject.toml").write_text(PYPROJECT)
    return directory


@pytest.fixture(params=["console script", "python -m"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """How the program is started."""
    if request.param == "python -m":
        return [sys.executable, "-m", "migrate_pallas"]
    script = tmp_path / "bin" / "migrate-pallas"
    script.parent.mkdir()
    script.write_text(CONSOLE_SCRIPT)
    return [sys.executable, str(script)]


def run(program: list[str], repo: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [*program, *options, "."]
    return subprocess.run(command, cwd=repo, env=environment, capture_output=True, timeout=120)


@pytest.mark.parametrize(
    "options",
    [
        ("--diff", "--jobs=2"),
        ("--write", "--jobs=2", "--format=sarif", "--statistics"),
        ("--to=interpret", "--check", "--format=json", "--html=report.html"),
    ],
    ids=" ".join,
)
def test_no_file_of_the_repository_runs(
    program: list[str], repo: Path, marker: Path, options: tuple[str, ...]
) -> None:
    done = run(program, repo, *options)
    assert done.returncode == (1 if "--check" in options else 0), done.stderr
    assert not marker.exists(), marker.read_text()
    changed = [path for path in repo.rglob("*.py") if "on_tpu" in path.read_text()]
    assert len(changed) == (len(TRAPPED) + 70 if "--write" in options else 0)


def test_the_traps_are_ones(repo: Path, marker: Path) -> None:
    subprocess.run([sys.executable, "-m", "package"], cwd=repo, capture_output=True, timeout=60)
    assert marker.exists()
