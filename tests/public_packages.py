"""Public packages that tests migrate: pinned wheels, downloaded once and kept.

They are kept in `.downloads/` at the checkout's top, or in the directory that MIGRATE_PALLAS_DOWNLOADS names.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

# What pip says where it reached no index at all, rather than one without the wheel.
_NO_NETWORK = ("connection broken by", "Max retries exceeded", "Failed to establish", "timed out")


@dataclass(frozen=True)
class Package:
    """A release of a package on PyPI, as a wheel for any platform."""

    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the wheel."""
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"


PACKAGES = (
    Package("jax", "0.10.2", "724d73c4678d8b06f6a6ab4db1b8a2fea8cd4f1e2c2564f99601634ec7b8d1c6"),
    Package(
        "tpu-inference",
        "0.32.0",
        "7c25a3c76cefd383f06ef115a6ed4d7bed82c081f047046bfef55f5913ea06d4",
    ),
    Package(
        "tokamax", "0.0.17", "232a1be65c52b3c436f3836f96889a521c77199df91be8d40a1af63016f0c2d6"
    ),
    Package(
        "ejkernel", "0.0.80.3", "40292137621a094749f66492db852addd64a66e3eefecffadf61b9fe9ac2b9ce"
    ),
    Package(
        "recurrentgemma",
        "1.0.1",
        "6d6b513766f559807c43fd98a205d05ece54a329efe3842a5a033e35dee42b4e",
    ),
    Package(
        "ringattention", "0.1.2", "89cc587c01a6e49c286dc1163fba69375236b8f7f06d1b1d06536b80a68c81fa"
    ),
)


def cache() -> Path:
    """The directory in which downloads are kept."""
    chosen = os.environ.get("MIGRATE_PALLAS_DOWNLOADS")
    return Path(chosen) if chosen else Path(__file__).parents[1] / ".downloads"


def unpack(into: Path) -> None:
    """Unpack every package into the directory `into`, each under its own name."""
    for package in PACKAGES:
        with zipfile.ZipFile(wheel(package)) as archive:
            archive.extractall(into / package.name)


def wheel(package: Package) -> Path:
    """The wheel of `package`, from the cache or the index.

    The calling test fails where it can't be had, or is not the pinned one; it is skipped only where there is no
    network and the environment variable CI is not set.
    """
    kept = cache() / package.file_name
    if not kept.exists():
        _download(package, kept)
    if hashlib.sha256(kept.read_bytes()).hexdigest() != package.sha256:
        pytest.fail(f"{kept} is not the wheel that is pinned; remove it and run again")
    return kept


def _download(package: Package, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as directory:
        done = subprocess.run(_pip(package, directory), capture_output=True, text=True)
        fetched = Path(directory, package.file_name)
        if fetched.exists():
            fetched.replace(kept)  # in one step: another test process may look at this moment
            return
    said = done.stdout + done.stderr
    why = f"can't download {package.name} {package.version}"
    if any(words in said for words in _NO_NETWORK) and not os.environ.get("CI"):
        pytest.skip(f"{why}: no network")
    pytest.fail(f"{why}: {said}")


def _pip(package: Package, directory: str) -> list[str]:
    """The command that downloads a wheel, on any Python: some ask for a newer one than runs the tests."""
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries=2", "--timeout=30"]
    anywhere = ["--only-binary=:all:", "--python-version=3.12", f"--dest={directory}"]
    return [*download, *anywhere, f"{package.name}=={package.version}"]
