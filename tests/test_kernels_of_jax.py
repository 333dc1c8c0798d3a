"""The table of MP213 against the installed JAX: every function that runs a kernel, and its own `interpret=`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from migrate_pallas.rules.mp213 import KERNELS

ops = pytest.importorskip("jax.experimental.pallas.ops.tpu")

# No functions, but partials of one.
MADE_BY_PARTIAL = {name for name in KERNELS if name.startswith("make_splash")}
BODIES = {"ragged_paged_attention_kernel"}  # what pallas_call runs, and not what calls it


def functions() -> dict[str, object]:
    """Every function of the package, and what the table has, by name."""
    found: dict[str, object] = {}
    for module in pkgutil.walk_packages(ops.__path__, f"{ops.__name__}."):
        members = vars(importlib.import_module(module.name))
        found |= {name: one for name, one in members.items() if is_own(one) or name in KERNELS}
    return found


def is_own(value: object) -> bool:
    return callable(value) and getattr(value, "__module__", "").startswith(ops.__name__)


def test_every_kernel_of_the_table_is_a_function_of_the_package():
    assert set(KERNELS) - set(functions()) == set()


@pytest.mark.parametrize("name", sorted(set(KERNELS) - MADE_BY_PARTIAL))
def test_the_table_tells_which_function_takes_interpret(name):
    parameters = inspect.signature(functions()[name]).parameters
    assert ("interpret" in parameters) is KERNELS[name]


def test_the_makers_of_splash_attention_take_interpret():
    kernel = importlib.import_module(f"{ops.__name__}.splash_attention.splash_attention_kernel")
    assert "interpret" in inspect.signature(kernel._make_splash_attention).parameters
    assert all(KERNELS[name] for name in MADE_BY_PARTIAL)


def test_no_public_function_that_runs_a_kernel_is_missing():
    running = {"pallas_call"}
    named = {name: words(value) for name, value in sources().items()}
    while more := {name for name, used in named.items() if used & running} - running:
        running |= more
    public = {name for name in running if not name.startswith("_")} - {"pallas_call"}
    assert public & set(functions()) - BODIES - set(KERNELS) == set()


def sources() -> dict[str, object]:
    """The code of every function at module level, private ones too."""
    found: dict[str, object] = {}
    for module in pkgutil.walk_packages(ops.__path__, f"{ops.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
            if code is not None and is_own(value):
                found[name] = code
    return found


def words(code) -> set[str]:
    """The names that `code` uses, and the functions in it."""
    inner = (constant for constant in code.co_consts if inspect.iscode(constant))
    return set(code.co_names).union(*map(words, inner))
