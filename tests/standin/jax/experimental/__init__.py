"""The stand-in's `jax.experimental`."""

import importlib

from jax._recording import Inert


def __getattr__(name):
    if name == "pallas":
        return importlib.import_module("jax.experimental.pallas")
    if name.startswith("__"):
        raise AttributeError(name)
    return Inert(f"jax.experimental.{name}")
