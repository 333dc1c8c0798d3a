"""The stand-in's `jax._src.pallas`, where jax 0.10.2 defines the entry points."""

import importlib


def __getattr__(name):
    if name in ("core", "helpers", "mpmd", "pallas_call", "primitives"):
        return importlib.import_module(f"jax._src.pallas.{name}")
    raise AttributeError(name)
