"""The stand-in's `jax.sharding`: abstract meshes, whose device Pallas asks for figures."""

import contextlib
import dataclasses

from jax import _recording
from jax._recording import Inert


@dataclasses.dataclass(frozen=True)
class AbstractDevice:
    """A device that is not there."""

    device_kind: str
    num_cores: int | None = None
    platform: str | None = None


@dataclasses.dataclass(frozen=True)
class AbstractMesh:
    """A mesh without devices, but for the one that it stands for."""

    axis_sizes: tuple
    axis_names: tuple
    abstract_device: AbstractDevice


@contextlib.contextmanager
def use_abstract_mesh(mesh):
    """While it lasts, figures are those of the mesh's device."""
    before = _recording.abstract_kind
    _recording.abstract_kind = mesh.abstract_device.device_kind
    try:
        yield
    finally:
        _recording.abstract_kind = before


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Inert(f"jax.sharding.{name}")
