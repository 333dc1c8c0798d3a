"""The stand-in's `jax._src.pallas.mosaic`, of which only the figures of chips are more than inert."""

import importlib

from jax._recording import Inert


def __getattr__(name):
    if name == "tpu_info":
        return importlib.import_module("jax.experimental.pallas.tpu")
    if name.startswith("__"):
        raise AttributeError(name)
    return Inert(f"jax._src.pallas.mosaic.{name}")
