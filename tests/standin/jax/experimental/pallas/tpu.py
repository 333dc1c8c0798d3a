"""The stand-in's `pallas.tpu`."""

import dataclasses

from jax import _recording
from jax._recording import Inert
from jax._src.pallas.core import core_map as core_map
from jax._src.pallas.helpers import kernel as kernel
from jax._src.pallas.mpmd import mpmd_map as mpmd_map


@dataclasses.dataclass(frozen=True)
class InterpretParams:
    """Parameters of the TPU simulator: a class of its own, since rewrites ask `isinstance`."""

    dma_execution_mode: str = "on_wait"
    out_of_bounds_reads: str = "raise"
    detect_races: bool = False
    uninitialized_memory: str = "nan"
    num_cores_or_threads: int = 1


def is_tpu_device():
    """Whether the backend is a TPU."""
    return _recording.backend == "tpu"


def get_tpu_info():
    """Figures of the TPU at hand, or of the abstract mesh in use; raises where there is neither."""
    _recording.figures_kind()
    return Inert("pltpu.get_tpu_info()")


def get_tpu_info_for_chip(chip, num_cores):
    """Figures of a chip by its name; these need no TPU."""
    return Inert("pltpu.get_tpu_info_for_chip")(chip, num_cores)


def emit_pipeline(body, **_):
    """A pipeline, which asks for figures when it is called, then runs its body once."""

    def pipeline(*refs, **_):
        _recording.remember("pipeline", len(refs), {"figures": _recording.figures_kind()})
        return _recording.run(body, *refs)

    return pipeline


def create_tensorcore_mesh(axis_name, devices=None, num_cores=None):
    """A mesh of the cores that are given, else of those that the TPU has."""
    if num_cores is None and devices is None:
        _recording.figures_kind()
    named = {"num_cores": num_cores, "devices": devices}
    _recording.remember("create_tensorcore_mesh", 1, named)
    return Inert("mesh")


def TensorCoreMesh(*args, **keywords):
    """A mesh of the cores, or devices, that are given, else of those that the TPU has."""
    if not args and "num_cores" not in keywords:
        _recording.figures_kind()
    _recording.remember("TensorCoreMesh", len(args), keywords)
    return Inert("mesh")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Inert(f"pltpu.{name}")
