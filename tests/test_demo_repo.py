"""The demonstration repository: its own tests fail on a CPU, and pass once it is migrated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("jax", minversion="0.10.2", reason="JAX 0.10.2 needs Python 3.11")

DEMO = Path(__file__).parents[1] / "fixtures" / "demo_repo"
ENTRY_POINT = "ValueError: Only interpret mode is supported on CPU backend."
INTERPRETED = "NotImplementedError: run_scoped interpret rule does not support collective axes"


@pytest.fixture
def repo(tmp_path):
    """A copy of the repository."""
    kept = shutil.ignore_patterns("__pycache__", ".pytest_cache")
    return shutil.copytree(DEMO, tmp_path / "demo_repo", ignore=kept)


def outcomes(repo: Path) -> dict[str, str]:
    """What each of the repository's own tests says on a CPU: the first line of its failure, or ''."""
    report = repo.parent / "report.xml"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTEST_ADDOPTS": ""}
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
    subprocess.run(run, cwd=repo, env=environment, capture_output=True)
    failures = {
        case.attrib["name"]: case.find("failure")
        for case in ElementTree.parse(report).iter("testcase")
    }
    return {
        name: "" if failure is None else failure.attrib["message"].splitlines()[0]
        for name, failure in failures.items()
    }


def migrate(repo: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command line on the repository."""
    run = [sys.executable, "-m", "migrate_pallas", *options, str(repo)]
    root = Path(__file__).parents[1]
    return subprocess.run(run, cwd=root, capture_output=True, text=True, check=True)


def test_before_migration_the_tests_fail_with_the_errors_that_the_readme_explains(repo):
    found = outcomes(repo)
    assert len(found) == 14
    assert found.pop("test_reduce_rows_refuses_what_it_does_not_know") == ""
    assert found.pop("test_nested_scopes") == INTERPRETED
    assert set(found.values()) == {ENTRY_POINT}


@pytest.mark.parametrize("target", ["interpret", "cpu"])
def test_after_migration_all_tests_pass(repo, target):
    migrate(repo, f"--to={target}", "--write")
    found = outcomes(repo)
    assert len(found) == 14
    assert set(found.values()) == {""}


@pytest.mark.parametrize("target", ["interpret", "cpu"])
def test_the_kernel_for_gpu_stays_as_it_was_and_is_named(repo, target):
    said = migrate(repo, f"--to={target}", "--write").stderr
    gpu = Path("demo_kernels", "gpu.py")
    assert (repo / gpu).read_bytes() == (DEMO / gpu).read_bytes()
    assert [line for line in said.splitlines() if f"{gpu}:23:" in line and " MP204 " in line]


@pytest.mark.parametrize("target", ["interpret", "cpu"])
def test_a_second_migration_changes_nothing(repo, target):
    migrate(repo, f"--to={target}", "--write")
    assert migrate(repo, f"--to={target}", "--diff").stdout == ""
