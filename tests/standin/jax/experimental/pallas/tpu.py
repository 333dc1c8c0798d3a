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
    """Figures of the TPU at hand.

    Raises:
        ValueError: there is none, with the text of jax 0.10.2.
    """
    if _recording.backend != "tpu":
        kind = _recording.DEVICE_KINDS[_recording.backend]
        raise ValueError(f"Unsupported TPU device kind: {kind}")
    return Inert("pltpu.get_tpu_info()")


def get_tpu_info_for_chip(chip, num_cores):
    """Figures of a chip by its name; these need no TPU."""
    return Inert("pltpu.get_tpu_info_for_chip")(chip, num_cores)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Inert(f"pltpu.{name}")
