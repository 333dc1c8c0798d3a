"""These tests are about hosts without a TPU, so JAX is held to its CPU backend."""

import importlib.util
import os

# Before any module of this package imports JAX.
os.environ["JAX_PLATFORMS"] = "cpu"

import pytest

if importlib.util.find_spec("jax") is None:  # JAX 0.10.2 needs Python 3.11
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def fresh_simulator():
    """Let no test start from the simulator state that another left behind."""
    from jax.experimental.pallas import tpu as pltpu

    yield
    pltpu.reset_tpu_interpret_mode_state()
