"""The stand-in's `jax`: a settable backend, transformations that return what they are given."""

import importlib
from types import SimpleNamespace

from jax import _recording

__version__ = "0.10.2"


def default_backend():
    """The backend that the recording was asked for."""
    return _recording.backend


def devices(backend=None):
    """One device of the backend."""
    platform = backend or _recording.backend
    kind = _recording.DEVICE_KINDS[platform]
    return [SimpleNamespace(platform=platform, device_kind=kind, id=0)]


local_devices = devices


def jit(function=None, **_):
    """Runs the function as it is, called directly or as a decorator with options."""
    return (lambda decorated: decorated) if function is None else function


def __getattr__(name):
    if name in ("experimental", "_src", "numpy", "lax", "sharding"):
        return importlib.import_module(f"jax.{name}")
    if name.startswith("__"):
        raise AttributeError(name)
    return _recording.Inert(f"jax.{name}")
