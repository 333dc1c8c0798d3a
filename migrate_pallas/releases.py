"""What each release of JAX has of the names and parameters that rewrites write.

Measured in the sources of the 30 releases from 0.4.35 to 0.12.0.1; ``tests/test_releases.py`` holds the table against
the installed JAX. No release takes back what a row has, so a row needs no end. Two things have no row, as there is
nothing to write for them: ``TPUInterpretParams`` (0.5.1 to 0.6.1), which no public module ever had, and ``core_map``
itself, deprecated since 0.11.1 but still there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Release = tuple[int, int, int]

OLDEST: Release = (0, 4, 35)
NEWEST: Release = (0, 12, 0)


@dataclass(frozen=True)
class Row:
    """One name, or one parameter of what it names.

    `module` is where it is imported from, `since` the first release where it can be, `file` where that release
    defines it. A dot in `name` leads to a member.
    """

    module: str
    name: str
    since: Release
    file: str
    parameter: str = ""


_PL, _PLTPU, _SHARDING = "jax.experimental.pallas", "jax.experimental.pallas.tpu", "jax.sharding"
_SRC = "jax/_src/pallas/"
_SIMULATOR, _INFO, _MESH = (
    _SRC + "mosaic/interpret.py",
    _SRC + "mosaic/tpu_info.py",
    "jax/_src/mesh.py",
)
_CHIP_VERSIONS = ("V2", "V3", "V4I", "V4", "V5E", "V5P", "V6E", "7X")

TABLE: tuple[Row, ...] = (
    Row(_PL, "pallas_call", OLDEST, _SRC + "pallas_call.py", "interpret"),
    Row(_PL, "core_map", (0, 5, 0), _SRC + "core.py", "interpret"),
    Row(_PL, "kernel", (0, 8, 1), _SRC + "helpers.py", "interpret"),
    Row("jax._src.pallas.mpmd", "mpmd_map", (0, 9, 1), _SRC + "mpmd.py", "interpret"),
    Row(_PL, "run_scoped", (0, 6, 1), _SRC + "primitives.py", "collective_axes"),
    Row(_PL, "with_scoped", (0, 9, 1), _SRC + "helpers.py", "collective_axes"),
    Row(_PLTPU, "InterpretParams", (0, 6, 2), _SIMULATOR),
    Row(_PLTPU, "InterpretParams", (0, 6, 2), _SIMULATOR, "dma_execution_mode"),
    Row(_PLTPU, "InterpretParams", (0, 7, 0), _SIMULATOR, "out_of_bounds_reads"),
    Row(_PLTPU, "get_tpu_info_for_chip", (0, 9, 2), _INFO),
    *(Row(_PLTPU, f"ChipVersion.TPU_{chip}", (0, 8, 1), _INFO) for chip in _CHIP_VERSIONS),
    Row(_PLTPU, "create_tensorcore_mesh", (0, 6, 1), _SRC + "mosaic/core.py", "num_cores"),
    # What asks for figures looks at the abstract mesh's device since 0.7.2: `get_device_kind` in mosaic/core.py.
    Row(_SHARDING, "use_abstract_mesh", (0, 7, 2), _MESH),
    Row(_SHARDING, "AbstractMesh", (0, 7, 1), _MESH, "abstract_device"),
    Row(_SHARDING, "AbstractDevice", (0, 7, 2), _MESH, "device_kind"),
    Row(_SHARDING, "AbstractDevice", (0, 7, 2), _MESH, "num_cores"),
    Row(_SHARDING, "AbstractDevice", (0, 10, 1), _MESH, "platform"),
)

_SINCE = {(row.name, row.parameter): row.since for row in TABLE}


def since(name: str, parameter: str = "") -> Release:
    """The first release that has `name`, or that `parameter` of it; raises `KeyError` where the table has no row."""
    return _SINCE[name, parameter]


def has(release: Release, name: str, parameter: str = "") -> bool:
    """Whether `release` has `name`, or that `parameter` of it; raises `KeyError` where the table has no row."""
    return since(name, parameter) <= release


def has_figures(release: Release) -> bool:
    """Whether in `release` an abstract mesh can show a chip to what asks for the figures of a TPU."""
    return (
        has(release, "use_abstract_mesh")
        and has(release, "AbstractMesh", "abstract_device")
        and has(release, "AbstractDevice", "device_kind")
    )


def arguments(release: Release, name: str, /, **values: str) -> str:
    """The keyword arguments for a call of `name`, without those that `release` does not take.

    `values` are the expressions by parameter. Raises `KeyError` where the table has no row for one.
    """
    taken = (item for item in values.items() if has(release, name, item[0]))
    return ", ".join(f"{parameter}={value}" for parameter, value in taken)


def spelled(release: Release) -> str:
    """`release` as people write it: `0.10.2`."""
    return ".".join(map(str, release))


def parsed(text: str) -> Release:
    """The release that `text` names: `0.10.2`; `0.7` is 0.7.0; of `0.12.0.1` the fourth number is left out.

    A release newer than the newest that was measured is taken to have what that has. Raises `ValueError`, with a
    message for the user, where `text` is no release or one older than the table knows.
    """
    if not re.fullmatch(r"[0-9]+(\.[0-9]+){1,3}", text):
        raise ValueError(f"{text!r} is no release of JAX, such as 0.7 or 0.10.2")
    major, minor, patch = [*map(int, text.split(".")), 0][:3]
    release = (major, minor, patch)
    if release < OLDEST:
        raise ValueError(
            f"{text} is older than {spelled(OLDEST)}, the oldest release whose names are known"
        )
    return release


# `ChipVersion` and the device kinds of `chip_version_from_device_kind`: jax/_src/pallas/mosaic/tpu_info.py, 0.10.2.
CHIPS = {
    "v2": ("TPU_V2", "TPU v2"),
    "v3": ("TPU_V3", "TPU v3"),
    "v4i": ("TPU_V4I", "TPU v4 lite"),
    "v4": ("TPU_V4", "TPU v4"),
    "v5e": ("TPU_V5E", "TPU v5 lite"),
    "v5p": ("TPU_V5P", "TPU v5"),
    "v6e": ("TPU_V6E", "TPU v6 lite"),
    "7x": ("TPU_7X", "TPU7x"),
}
