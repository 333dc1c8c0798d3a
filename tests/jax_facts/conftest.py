"""These tests are about hosts without a TPU, so JAX is held to its CPU backend."""

import os

# Before any module of this package imports JAX.
os.environ["JAX_PLATFORMS"] = "cpu"

import pytest
from jax.experimental.pallas import tpu as pltpu


@pytest.fixture(autouse=True)
def fresh_simulator():
    """Let no test start from the simulator state that another left behind."""
    yield
    pltpu.reset_tpu_interpret_mode_state()
