"""Kernels that others wrote for TPU, migrated and run on a CPU: those of JAX itself, and recurrentgemma's.

JAX's own are copied out of the installed release, and import each other from the copy. The programs that run them are
in `kernels/`; each is one process, since a TPU that is only said to be there, several devices, and a simulator that
has failed all stay with a process for its life.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from public_packages import PACKAGES, Package, wheel

pytest.importorskip("jax", minversion="0.10.2", reason="JAX 0.10.2 needs Python 3.11")

ROOT = Path(__file__).parents[1]
OPS = "jax.experimental.pallas.ops.tpu"
ENTRY_POINT = "ValueError: Only interpret mode is supported on CPU backend."
# Its first masked store goes through a view that has an integer among its indices, which `interpret=True` can't read
# (`_swap_discharge_rule` in jax/_src/pallas/primitives.py, 0.10.2 and 0.12.0); and the simulator has no bitcast.
UNSERVED = ("ragged_paged_attention", "ragged_paged_attention_over_several_blocks")
# recurrentgemma asks flax for its dataclasses. It is unpacked without what flax needs for training.
FLAX = Package("flax", "0.12.8", "807931d369cbc716fc447801ab39cd6c3c2614d573387a2319a028675dd34fe5")
SCAN = ("common.py", "jax/complex_lib.py", "jax/pallas.py", "jax/scan.py")
SECONDS = 400  # for one program, on a machine that does much else
HOST = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    "NPROC": "16",  # devices that wait for each other need a thread each
}

each_target = pytest.mark.parametrize("target", ["interpret", "cpu"])


def run(program: str, *arguments: str, path: tuple[Path, ...] = ()) -> str:
    """What a program of `kernels/` prints, when it can import from the directories of `path`."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "kernels" / program), *arguments],
        env={
            **os.environ,
            **HOST,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYTEST_ADDOPTS": "",
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def errors(program: str, *path: Path) -> dict[str, str]:
    """What a program says of each of its kernels, '' for one that is right."""
    found: dict[str, str] = json.loads(run(program, path=path))
    return found


def migrate(root: Path, target: str) -> str:
    """Migrate everything in `root`; what the command line says."""
    command = [sys.executable, "-m", "migrate_pallas", f"--to={target}", "--write", str(root)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stderr


def copy_of_ops(parent: Path) -> Path:
    """A copy of JAX's own kernels as the package `tpu_ops` in `parent`."""
    (source,) = find_spec(OPS).submodule_search_locations
    copy = shutil.copytree(source, parent / "tpu_ops", ignore=shutil.ignore_patterns("__pycache__"))
    for path in copy.rglob("*.py"):
        path.write_text(path.read_text().replace(OPS, "tpu_ops"))
    return parent


@pytest.fixture(scope="module")
def ops(tmp_path_factory):
    return copy_of_ops(tmp_path_factory.mktemp("ops"))


@pytest.fixture(scope="module", params=["interpret", "cpu"])
def migrated_ops(request, tmp_path_factory):
    """A migrated copy, and what the command line said."""
    parent = copy_of_ops(tmp_path_factory.mktemp(request.param))
    return parent, migrate(parent, request.param)


def test_before_migration_none_of_jaxs_own_kernels_runs(ops):
    found = errors("jax_ops.py", ops)
    assert len(found) == 15
    assert set(found.values()) == {ENTRY_POINT}


def test_after_migration_jaxs_own_kernels_agree_with_their_references(migrated_ops):
    parent, _ = migrated_ops
    found = errors("jax_ops.py", parent)
    unserved = {name: found.pop(name) for name in UNSERVED}
    assert set(found.values()) == {""}
    assert set(unserved.values()) == {"AttributeError: 'TypedInt' object has no attribute 'shape'"}


def test_the_simulator_is_chosen_for_devices_aliases_and_state_and_no_more(migrated_ops):
    parent, _ = migrated_ops
    simulated = [p for p in parent.rglob("*.py") if "InterpretParams(dma" in p.read_text()]
    assert {path.relative_to(parent / "tpu_ops").as_posix() for path in simulated} == {
        "all_gather.py",
        "megablox/gmm.py",
        "paged_attention/paged_attention_kernel.py",
    }


def test_the_kernel_that_no_interpreter_runs_is_named_and_no_other(migrated_ops):
    _, said = migrated_ops
    (finding,) = [line for line in said.splitlines() if " MP205 " in line]
    assert "tpu_ops/ragged_paged_attention/kernel.py:" in finding
    assert "scalar-prefetch-state" in finding
    assert "ref-bitcast" in finding


def calls_on_tpu(subject: str, *path: Path) -> list[dict[str, str]]:
    """What reaches the entry points when JAX says that it runs on TPU."""
    return [json.loads(line) for line in run("recording.py", subject, path=path).splitlines()]


def test_on_tpu_jaxs_own_kernels_are_called_as_before(ops, tmp_path):
    copy = copy_of_ops(tmp_path)
    migrate(copy, "cpu")
    before = calls_on_tpu("ops", ops)
    # Of the kernels of its 15 entry points two have a namesake, and one entry point has two.
    assert len({call["kernel"].partition(",")[0] for call in before}) == 14
    assert {call["interpret"] for call in before} == {"False"}
    assert calls_on_tpu("ops", copy) == before


def test_on_tpu_the_demonstration_is_called_as_before_but_for_axes_of_none(tmp_path):
    demo = ROOT / "fixtures" / "demo_repo"
    copies = [shutil.copytree(demo, tmp_path / name / "repo") for name in ("one", "two")]
    migrate(copies[1], "cpu")
    before, after = (calls_on_tpu(str(copy)) for copy in copies)
    assert [call for call in before if call.get("collective_axes") == "None"]
    for call in before:  # None raises like an axis; the repair is part of the migration
        if call.get("collective_axes") == "None":
            call["collective_axes"] = "()"
    targets = [call["target"] for call in before]
    assert {name: targets.count(name) for name in targets} == {
        "pallas_call": 14,
        "run_scoped": 14,
        "with_scoped": 3,
    }
    assert after == before


def recurrentgemma(parent: Path) -> Path:
    """The modules of recurrentgemma that its scan consists of; the rest wants a tokenizer and checkpoints."""
    (package,) = [one for one in PACKAGES if one.name == "recurrentgemma"]
    with zipfile.ZipFile(wheel(package)) as archive:
        for name in SCAN:
            archive.extract(f"recurrentgemma/{name}", parent)
    return parent


@pytest.fixture(scope="module")
def flax(tmp_path_factory):
    parent = tmp_path_factory.mktemp("flax")
    with zipfile.ZipFile(wheel(FLAX)) as archive:
        archive.extractall(parent)
    return parent


def test_before_migration_the_kernel_of_recurrentgemma_does_not_run(flax, tmp_path):
    found = errors("recurrentgemma_scan.py", recurrentgemma(tmp_path), flax)
    assert found == dict.fromkeys(("forwards", "backwards", "complex"), ENTRY_POINT)


@each_target
def test_after_migration_the_kernel_of_recurrentgemma_agrees_with_its_scan(flax, tmp_path, target):
    copy = recurrentgemma(tmp_path)
    migrate(copy, target)
    found = errors("recurrentgemma_scan.py", copy, flax)
    assert found == dict.fromkeys(("forwards", "backwards", "complex"), "")
