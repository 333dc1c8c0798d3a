"""The few pieces that tests of several facts share: a block of numbers, a call, a fresh Python."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

RELEASE = jax.__version_info__[:2]

GENERIC = True
SIMULATOR = pltpu.InterpretParams(dma_execution_mode="eager", out_of_bounds_reads="uninitialized")
INTERPRETERS = {"generic": GENERIC, "simulator": SIMULATOR}

BLOCK = jax.ShapeDtypeStruct((8, 128), jnp.float32)
NUMBERS = jnp.arange(8.0 * 128).reshape(8, 128)

# What precedes a script that is run by `fresh_python`.
PREAMBLE = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

SIMULATOR = pltpu.InterpretParams(
    dma_execution_mode="eager", out_of_bounds_reads="uninitialized"
)
BLOCK = jax.ShapeDtypeStruct((8, 128), jnp.float32)

def add_one(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1
"""


def add_one(x_ref, o_ref):
    o_ref[...] = x_ref[...] + 1


def call(kernel, interpret, out_shape=BLOCK, **parameters):
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=interpret, **parameters)


def fresh_python(script: str, *, seconds: float = 60) -> list[str]:
    """The lines that ``script``, after ``PREAMBLE``, prints in a Python of its own.

    For what may hang, poison the process, or must precede the start of JAX's backend. ``NPROC``
    gives XLA threads enough for several simulated devices on a host with few cores.
    """
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "NPROC": "16"}
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def abstract_tpu(device_kind: str) -> jax.sharding.AbstractMesh:
    """The mesh under which JAX takes figures from ``device_kind`` and not from the host."""
    device = jax.sharding.AbstractDevice(device_kind=device_kind, num_cores=1, platform="tpu")
    return jax.sharding.AbstractMesh((), (), abstract_device=device)


def tensor_cores(**num_cores):
    """As a user asks for them: JAX 0.12 deprecates the function in favour of the class."""
    if RELEASE >= (0, 12):
        return pltpu.TensorCoreMesh(axis_name="core", **num_cores)
    return pltpu.create_tensorcore_mesh("core", **num_cores)
