"""Run recurrentgemma's Pallas kernel against its own scan without Pallas; prints a JSON object of names and errors.

Started where `recurrentgemma.jax.scan` and `flax` can be imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import jax_ops
import numpy as np
from recurrentgemma.common import ScanType
from recurrentgemma.jax.complex_lib import Complex
from recurrentgemma.jax.scan import linear_scan

SHAPE = (2, 64, 256)


def between_zero_and_one(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=SHAPE).astype(np.float32)


def scan(kind: ScanType, reverse: bool) -> Callable[..., Any]:
    """The scan of one kind, in blocks of 32 steps where it is the kernel."""

    def run(x: Any, a: Any, h0: Any) -> Any:
        return linear_scan(x, a, h0, reverse=reverse, scan_type=kind, pallas_max_seq_block_size=32)

    return run


def real(reverse: bool) -> None:
    """Values and gradients of a real recurrence."""
    operands = (jax_ops.normal(0, *SHAPE), between_zero_and_one(1), jax_ops.normal(2, 2, 256))
    found, back = jax.vjp(scan(ScanType.LINEAR_PALLAS, reverse), *operands)
    expected, expected_back = jax.vjp(scan(ScanType.LINEAR_NATIVE, reverse), *operands)
    jax_ops.agree(found, expected, 1e-4)
    jax_ops.agree(back(expected), expected_back(expected), 1e-4)


def complex_numbers() -> None:
    """Values of a recurrence of the package's own complex numbers."""
    x = Complex(jax_ops.normal(0, *SHAPE), jax_ops.normal(1, *SHAPE))
    a = Complex(between_zero_and_one(2) / 2, between_zero_and_one(3) / 2)
    found, expected = (
        scan(kind, reverse=False)(x, a, None)
        for kind in (ScanType.LINEAR_PALLAS, ScanType.LINEAR_NATIVE)
    )
    jax_ops.agree(found, expected, 1e-4)


CHECKS = {
    "forwards": lambda: real(reverse=False),
    "backwards": lambda: real(reverse=True),
    "complex": complex_numbers,
}

if __name__ == "__main__":
    print(json.dumps({name: jax_ops.outcome(check) for name, check in CHECKS.items()}))
