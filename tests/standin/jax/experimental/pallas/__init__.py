"""The stand-in's Pallas: its entry points record what reaches them."""

import importlib

from jax._recording import Inert, run
from jax._src.pallas.core import core_map as core_map
from jax._src.pallas.helpers import kernel as kernel
from jax._src.pallas.helpers import with_scoped as with_scoped
from jax._src.pallas.mpmd import mpmd_map as mpmd_map
from jax._src.pallas.pallas_call import pallas_call as pallas_call
from jax._src.pallas.primitives import run_scoped as run_scoped


def when(condition):
    """A decorator that runs the branch, as the interpreter would for a true condition."""
    return run


def __getattr__(name):
    if name in ("tpu", "mosaic_gpu", "triton", "tpu_sc"):
        return importlib.import_module(f"jax.experimental.pallas.{name}")
    if name.startswith("__"):
        raise AttributeError(name)
    return Inert(f"pl.{name}")
