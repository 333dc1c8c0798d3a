"""Tell what reaches Pallas's entry points on a machine that says it has a TPU; nothing is compiled or run.

Started as ``python recording.py ops``, where a copy of JAX's own kernels can be imported as `tpu_ops`, or with the
directory of a project, whose tests then call its kernels. Prints one JSON object a line for each call.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax_ops
import pytest
from jax.experimental import pallas as pl

CALLS: list[dict[str, str]] = []


def text_of(value: Any) -> str:
    """The text of a value, without the addresses of functions."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def note(target: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Record one call, each argument under the name of its parameter, those left out with their defaults."""
    bound = inspect.signature(target).bind(*arguments, **named)
    bound.apply_defaults()
    passed = {name: text_of(value) for name, value in bound.arguments.items()}
    CALLS.append({"target": target.__name__, **passed})


def recorded(target: Callable[..., Any]) -> Callable[..., Any]:
    """`target`, with its calls recorded."""

    @functools.wraps(target)
    def call(*arguments: Any, **named: Any) -> Any:
        note(target, arguments, named)
        return target(*arguments, **named)

    return call


def traced(target: Callable[..., Any]) -> Callable[..., Any]:
    """`target`, which makes functions, with its calls recorded; what it makes is traced, and returns zeros."""

    @functools.wraps(target)
    def call(*arguments: Any, **named: Any) -> Callable[..., Any]:
        note(target, arguments, named)
        made = target(*arguments, **named)

        def trace(*operands: Any) -> Any:
            shapes = jax.eval_shape(made, *operands)
            return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

        return trace

    return call


def call_kernels(subject: str) -> None:
    """Call every kernel; that the results are wrong is of no account."""
    if subject == "ops":
        jax_ops.agree = lambda *_: None
        for check in jax_ops.KERNELS.values():
            jax.eval_shape(lambda check=check: [jax_ops.outcome(check)][:0])  # compiles nothing
    else:
        pytest.main(["-q", "-p", "no:cacheprovider", f"--rootdir={subject}", subject])


if __name__ == "__main__":
    jax.default_backend = lambda: "tpu"
    pl.pallas_call = traced(pl.pallas_call)
    pl.run_scoped, pl.with_scoped = recorded(pl.run_scoped), recorded(pl.with_scoped)
    with contextlib.redirect_stdout(io.StringIO()):
        call_kernels(sys.argv[1])
    for one in CALLS:
        print(json.dumps(one))
