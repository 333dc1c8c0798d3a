"""MP207: a guard that skips or refuses without a TPU."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from bowler import Query
from fissix.pgen2 import token
from fissix.pytree import Leaf, Node

from ..backends import CPU, TPU, branches, gate_names
from ..calls import (
    Call,
    Item,
    Tree,
    ancestry,
    as_call,
    first_leaf,
    last_leaf,
    literal_text,
    plain_text,
    written,
)
from ..guards import guards, keeps_from_cpu, keeps_sites, names_site, unguarded
from ..module import Module
from ..parsing import symbols
from ..parts import Part
from . import CALL, rule

# Decorators and marks with a condition, and what it is where they skip.
_CONDITIONS = {"skipif": True, "skipIf": True, "skipUnless": False}
# Decorators of jax/_src/test_util.py, 0.10.2, that are handed words for devices, and whether those skip.
_DEVICE_FILTERS = {"skip_on_devices": True, "run_on_devices": False}
_LEAVING = ("pytest.skip", "sys.exit", "os._exit")
_SETTINGS = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", "jax_platforms", "jax_platform_name")
_RUNS = "once its kernels are interpreted there"
_SKIPS_TESTS = f"this guard skips tests on CPU: {_RUNS}, take it away"
_REFUSES = f"this guard refuses to run on CPU: {_RUNS}, take it away"
_ASKS = f"this asks for TPU devices, which raises where there are none: {_RUNS}, ask for any"
_DEMANDS = (
    "this makes JAX start on TPU or not at all: leave the platform to whoever runs the program"
)

# What a file with a guard must hold: what refuses, what tells the platform, and the platform's name.
_ACTS = ("skip", "raise", "Skip", "assert", "exit")
_SOURCES = (
    "default_backend",
    "device_under_test",
    "platform",
    "device_kind",
    "is_device_tpu",
    "is_device_tpu_at_least",
    "is_tpu_device",
    "is_cloud_tpu",
    "test_device_matches",
)


def _where(module: Module) -> set[Part]:
    """The parts that may have a guard: they ask for a platform or set it, and skip or refuse where they ask."""
    gate = module.settings.gate
    spelled = (
        set(re.findall(rf"\b{gate_names(gate)}\b", module.text)) if gate in module.text else ()
    )
    asking = set(module.mentions.of(*_SOURCES, answers=True, aliases=tuple(sorted(spelled))))
    found = {*module.tree.holding(*_SETTINGS)}
    found.update(module.mentions.of(*_DEVICE_FILTERS, "devices", "local_devices"))
    if asking:
        found |= asking.intersection(module.tree.holding(*_ACTS))
        found |= asking.intersection(module.mentions.of(*_CONDITIONS, "skip", "exit", "_exit"))
    return found


@rule(
    "MP207",
    "tpu-guard",
    *product((*_SOURCES, "{gate}"), _ACTS),
    ("run_on_devices", "tpu"),
    ("skip_on_devices", "cpu"),
    ("devices", "tpu"),
    ("JAX_PLATFORM", "tpu"),
    ("jax_platform", "tpu"),
    about=_where,
)
def tpu_guard(query: Query) -> Query:
    """A guard that skips, or refuses to go on, where there is no TPU.

    What it does: reports tests that are skipped by a backend test (`pytest.mark.skipif`, `unittest.skipIf` and
    `skipUnless`, `skipTest` and the like under an `if`), `raise`, `assert` and `sys.exit` that depend on one,
    `jax.devices("tpu")`, and `JAX_PLATFORMS=tpu`; once for a class, or for what stands outside of classes. With
    `--unguard` it rewrites those that skip, so that the tests run: the backend test becomes what it is on TPU, `False`
    or `True`, and all else of the condition stays. A condition that also asks which TPU it is stays a finding, and so
    does a guard that keeps from CPU what other rules would have to rewrite.

    Why: what is guarded never runs on CPU, so that a migrated kernel behind it is not tested there.

    Example:

        @pytest.mark.skipif(jax.default_backend() != "tpu", reason="needs a TPU")
        def test_kernel(): ...

    Use instead: no guard, once the kernel is interpreted where there is no TPU; or, by `--unguard`:

        @pytest.mark.skipif(False, reason="needs a TPU")
        def test_kernel(): ...

    References: what a backend test is stands in the README; `run_on_devices` and `skip_on_devices`, which are
    reported too, in jax/_src/test_util.py, JAX 0.10.2.
    """
    query = query.select(CALL).filter(is_guarding_call).modify(tell)
    query = query.select("if_stmt").filter(is_guarding_if).modify(tell)
    query = query.select("assert_stmt").filter(demands_tpu).modify(tell)
    query = query.select("dictsetmaker").filter(holds_setting).modify(tell)
    return query.select("expr_stmt< any '=' any >").filter(sets_platform).modify(tell)


def is_guarding_call(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` is a condition for skipping, asks for TPU devices, or sets the platform to TPU."""
    module: Module = capture["module"]
    call = module.call_at(node)
    if call is None:
        return False
    capture["at"] = call.power
    path = module.names.callee(call).path
    name = path.rpartition(".")[2] or _last_name(call)
    if name in _CONDITIONS:
        test, on = _condition(call), _CONDITIONS[name]
        spelled_out = _last_name(call) in _CONDITIONS  # an alias of it is not rewritten
        capture.update(message=_SKIPS_TESTS, on=on)
        if test is None or not guards(module, test, on):
            return False
        capture["test"] = test if spelled_out and not names_site(module, test) else None
        return True
    if path.startswith("jax.") and name in _DEVICE_FILTERS:
        capture["message"] = _SKIPS_TESTS
        return _filters_out(call, _DEVICE_FILTERS[name])
    if name in ("devices", "local_devices") and path.startswith("jax."):
        backend = call.brackets.keyword("backend")
        value = backend.value if backend else call.positional(0)
        capture["message"] = _ASKS
        return value is not None and plain_text(value) == TPU and not module.is_guarded(node)
    capture["message"] = _DEMANDS
    return _sets(call)


def _last_name(call: Call) -> str:
    last = call.power.children[call.index - 1]
    return last.value if isinstance(last, Leaf) else written(last.children[-1])


def _condition(call: Call) -> Tree | None:
    keyword = call.brackets.keyword("condition")
    return keyword.value if keyword else call.positional(0)


def _filters_out(call: Call, skips: bool) -> bool:
    """Whether the words for devices in `call`, on which it skips or does not, keep a test from CPU and not from TPU."""
    words = [plain_text(item.value) for item in call.brackets.items if not item.keyword]
    return None not in words and ((CPU in words) is skips) and ((TPU in words) is not skips)


def _is_platform(item: Item) -> bool:
    """Whether an argument or entry hands JAX's platform setting the word for TPU."""
    return item.keyword in _SETTINGS and _names_tpu(item.value)


def _names_tpu(node: Tree) -> bool:
    """Whether `node` is a list of platforms with TPU; JAX needs all of those (jax/_src/xla_bridge.py, 0.10.2)."""
    return TPU in (literal_text(node) or "").lower().split(",")


def _sets(call: Call) -> bool:
    """Whether the call hands JAX's platform setting the word for TPU: `config.update`, `setenv`, `dict`."""
    if any(_is_platform(item) for item in call.brackets.items):
        return True
    first, second = call.positional(0), call.positional(1)
    if _last_name(call) not in ("update", "setdefault", "setenv"):
        return False
    return (
        first is not None
        and second is not None
        and plain_text(first) in _SETTINGS
        and _names_tpu(second)
    )


def is_guarding_if(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether a branch of the `if` statement that is taken where there is no TPU skips a test, or raises."""
    module: Module = capture["module"]
    before: list[Tree] = []
    for test, suite in branches(node):
        place = node.children[-3] if test is None else test if before else node.children[0]
        message = "" if module.is_skipped(place) else _refusal(module, suite)
        if message and _leads_to(module, test, before):
            kept = None if keeps_sites(module, node, suite) else test
            capture.update(at=place, message=message, test=kept, on=True)
            return True
        before += [] if test is None else [test]
    return False


def _leads_to(module: Module, test: Tree | None, before: list[Tree]) -> bool:
    """Whether a branch with `test` (None: `else`) after tests `before` it is taken for want of a TPU."""
    if test is not None:
        return guards(module, test, True)
    on_cpu = [module.backends.truth(one, CPU) for one in before]
    return True not in on_cpu and any(keeps_from_cpu(module, one, False) for one in before)


def _refusal(module: Module, suite: Tree) -> str:
    """What to say of a suite whose own statements skip or refuse; '' where none does."""
    lines = suite.children if suite.type == symbols.suite else [suite]
    simple = [line for line in lines if line.type == symbols.simple_stmt]
    for statement in (small for line in simple for small in line.children[:-1:2]):
        if _skips(module, statement):
            return _SKIPS_TESTS
        if statement.type == symbols.raise_stmt or _called(module, statement) in _LEAVING:
            return _REFUSES
    return ""


def _skips(module: Module, statement: Tree) -> bool:
    """Whether a statement skips the test: `self.skipTest(...)`, `pytest.skip(...)`, `raise SkipTest(...)`."""
    if statement.type == symbols.raise_stmt:
        raised = as_call(statement.children[1])
        what = raised.power.children[raised.index - 1] if raised else statement.children[1]
        return bool(last_leaf(what).value == "SkipTest")
    if statement.type == symbols.return_stmt:
        statement = statement.children[1]
    call = as_call(statement)
    name = _last_name(call) if call else ""
    return name == "skipTest" or (name == "skip" and _called(module, statement) == "pytest.skip")


def _called(module: Module, statement: Tree) -> str:
    """The dotted path of what a statement calls; '' where it is no call."""
    call = as_call(statement)
    return module.names.callee(call).path if call else ""


def demands_tpu(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the `assert` statement fails where there is no TPU."""
    module: Module = capture["module"]
    capture.update(at=node, message=_REFUSES)
    return not module.is_skipped(node) and keeps_from_cpu(module, node.children[1], False)


def holds_setting(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether a dict display sets `JAX_PLATFORMS` to TPU, as for a subprocess's environment."""
    kids = node.children
    for index, kid in enumerate(kids):
        key = kids[index - 1]
        if kid.type == token.COLON and plain_text(key) in _SETTINGS and _names_tpu(kids[index + 1]):
            capture.update(at=key, message=_DEMANDS)
            return not capture["module"].is_skipped(key)
    return False


def sets_platform(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether `node` sets the environment's `JAX_PLATFORMS` to TPU."""
    target, value = node.children[0], node.children[-1]
    if not _names_tpu(value) or target.type != symbols.power or capture["module"].is_skipped(node):
        return False
    capture.update(at=node, message=_DEMANDS)
    last = target.children[-1]
    return (
        last.type == symbols.trailer
        and last.children[0].value == "["
        and plain_text(last.children[1]) in _SETTINGS
    )


def tell(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Propose that the guard goes, if that was asked for and can be done exactly; else report it."""
    module: Module = capture["module"]
    test = capture.get("test")
    if module.settings.unguard and capture["message"] == _SKIPS_TESTS and test is not None:
        edits = unguarded(module, test, capture["on"])
        if edits:
            reason = "this guard skips tests where there is no TPU: its backend test is what it is on TPU"
            module.propose("MP207", test, reason, edits)
            return
    report(module, node, capture)


def report(module: Module, node: Node, capture: dict[str, Any]) -> None:
    """Report the guard, once for the class around it or for the file."""
    around = (parent for _, parent in ancestry(node) if parent.type == symbols.classdef)
    place = next(around, None)
    inside = f"class {place.children[1].value}" if place else "this file"
    module.find_once(
        "MP207",
        first_leaf(place).lineno if place else 0,
        capture["at"],
        capture["message"],
        f"like it in {inside}",
    )
