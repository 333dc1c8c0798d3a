"""MP207: a guard that skips or refuses without a TPU."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Leaf, Node

from ..backends import CPU, TPU, branches
from ..calls import Call, Tree, call_at, first_leaf, literal_text
from ..module import Module
from ..parsing import symbols
from . import CALL, rule

_SKIPS = ("skipTest", "skip", "SkipTest", "exit")
_CONDITIONS = {"skipif": True, "skipIf": True, "skipUnless": False}
_SETTING = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "jax_platforms", "jax_platform_name")

# What a file with a guard must hold: what refuses, what tells the platform, and the platform's name.
_ACTS = ("skip", "raise", "Skip")
_SOURCES = (
    "default_backend",
    ".platform",
    "device_kind",
    "is_device_tpu",
    "is_tpu_device",
    "test_device_matches",
)


@rule(
    "MP207",
    "tpu-guard",
    *((act, source, word) for act in _ACTS for source in _SOURCES for word in ("tpu", "TPU")),
    ("devices(", "tpu"),
    ("devices(", "TPU"),
    ("JAX_PLATFORM", "tpu"),
    ("jax_platform", "tpu"),
)
def tpu_guard(query: Query) -> Query:
    """A guard that skips, or refuses to go on, where there is no TPU.

    What it does: reports `skipTest` and `raise` under a backend test, `pytest.mark.skipif` and `unittest.skipUnless` of
    one, `jax.devices("tpu")`, and `JAX_PLATFORMS=tpu`; once for a class, or for what stands outside of classes.

    Why: what is guarded never runs on CPU, so that a migrated kernel behind it is not tested there.

    Example:

        @pytest.mark.skipif(jax.default_backend() != "tpu", reason="needs a TPU")
        def test_kernel(): ...

    Use instead: no guard, once the kernel is interpreted where there is no TPU.

    References: none; what a backend test is stands in the README.
    """
    query = query.select(CALL).filter(is_guarding_call).modify(report)
    query = query.select("if_stmt< any* >").filter(is_guarding_if).modify(report)
    return query.select("expr_stmt< any '=' any >").filter(sets_platform).modify(report)


def is_guarding_call(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` is a condition for skipping, asks for TPU devices, or sets the platform to TPU."""
    module: Module = capture["module"]
    call = module.call_at(node)
    if call is None:
        return False
    capture["at"] = call.power
    path = module.names.callee(call).path
    name = path.rpartition(".")[2] or _method(call)
    if name in _CONDITIONS:
        first = call.positional(0)
        return first is not None and _skips(module, first, _CONDITIONS[name])
    if name in ("devices", "local_devices") and path.startswith("jax."):
        backend = call.brackets.keyword("backend")
        value = backend.value if backend else call.positional(0)
        return value is not None and literal_text(value) == TPU and not module.is_guarded(node)
    return _sets(call)


def _method(call: Call) -> str:
    last = call.power.children[call.index - 1]
    return last.value if isinstance(last, Leaf) else str(last.children[-1]).strip()


def _sets(call: Call) -> bool:
    """Whether the call hands JAX's platform setting the word for TPU: `config.update`, `setdefault`, `setenv`."""
    first, second = call.positional(0), call.positional(1)
    if first is None or second is None or _method(call) not in ("update", "setdefault", "setenv"):
        return False
    return literal_text(first) in _SETTING and literal_text(second) == TPU


def _skips(module: Module, test: Tree, on: bool) -> bool:
    """Whether a test being `on` is what keeps code from running on CPU, and not on TPU."""
    truth = module.backends.truth
    return truth(test, CPU) is on and truth(test, TPU) is not on


def is_guarding_if(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether a branch of the `if` statement that is taken where there is no TPU skips a test, or raises."""
    module: Module = capture["module"]
    for test, suite in branches(node):
        if test is None or not _skips(module, test, True) or module.is_skipped(test):
            continue
        statement = _first_statement(suite)
        if statement is not None and _refuses(statement):
            capture["at"] = node
            return True
    return False


def _first_statement(suite: Tree) -> Tree | None:
    statements = [suite] if suite.type != symbols.suite else suite.children
    simple = [s for s in statements if s.type == symbols.simple_stmt]
    return simple[-1].children[0] if simple else None


def _refuses(statement: Tree) -> bool:
    if statement.type == symbols.raise_stmt:
        return True
    if statement.type != symbols.power or statement.children[-1].type != symbols.trailer:
        return False
    call = call_at(statement.children[-1])
    return call is not None and _method(call) in _SKIPS


def sets_platform(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether `node` sets the environment's `JAX_PLATFORMS` to TPU."""
    target, value = node.children[0], node.children[-1]
    if literal_text(value) != TPU or target.type != symbols.power:
        return False
    capture["at"] = node
    last = target.children[-1]
    return (
        last.type == symbols.trailer
        and last.children[0].value == "["
        and literal_text(last.children[1]) in _SETTING
    )


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report the guard, once for the class around it or for the file."""
    module: Module = capture["module"]
    place = node
    while place.parent is not None and place.type != symbols.classdef:
        place = place.parent
    inside = f"class {place.children[1].value}" if place.type == symbols.classdef else "this file"
    module.find_once(
        "MP207",
        first_leaf(place).lineno,
        capture["at"],
        "this guard keeps code from running without a TPU: once its kernels are interpreted there, take it away",
        f"guards like it in {inside}",
    )
