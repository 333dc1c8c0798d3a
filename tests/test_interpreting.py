"""What a value of `interpret=` means on each platform, and where it is enough as it is."""

from __future__ import annotations

import pytest

from migrate_pallas.backends import PLATFORMS
from migrate_pallas.edits import apply
from migrate_pallas.interpreting import (
    GENERIC,
    NATIVE,
    SIMULATED,
    Row,
    is_name,
    is_parameters,
    mode,
    suffices,
)
from migrate_pallas.module import Module
from migrate_pallas.parts import in_parts
from migrate_pallas.settings import GATE, REMOVE, Settings

BEFORE = """
import os
import jax
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.tpu import InterpretParams as Simulator

def on_tpu():
    return jax.default_backend() == "tpu"

ALWAYS = True
NEVER = False
SLOWLY = pltpu.InterpretParams()
ELSEWHERE = not on_tpu()
TWICE = True
TWICE = False
ONE = OTHER
OTHER = ONE
FIRST = SECOND or False
SECOND = FIRST or False
"""


def value_of(expression: str, strategy: str = REMOVE):
    """A module whose last function returns `expression`, and that expression."""
    text = f"{BEFORE}\ndef asked(flag, config):\n    return {expression}\n"
    module = Module(text, in_parts(text), Settings(strategy=strategy))
    returned = module.tree.children[-2].children[-1].children[-2].children[0]
    return module, returned.children[1]


def modes(expression: str) -> tuple[str | None, ...]:
    """How a kernel with that `interpret=` runs on CPU, GPU and TPU."""
    module, value = value_of(expression)
    return tuple(mode(module, value, platform) for platform in PLATFORMS)


EVERYWHERE_NATIVE = (NATIVE,) * 3
EVERYWHERE_GENERIC = (GENERIC,) * 3
EVERYWHERE_SIMULATED = (SIMULATED,) * 3
NATIVE_ON_TPU = (GENERIC, GENERIC, NATIVE)
SIMULATED_BUT_ON_TPU = (SIMULATED, SIMULATED, NATIVE)
UNKNOWN = (None,) * 3


@pytest.mark.parametrize(
    "expression, expected",
    [
        ("True", EVERYWHERE_GENERIC),
        ("1", EVERYWHERE_GENERIC),
        ("(True)", EVERYWHERE_GENERIC),
        ("False", EVERYWHERE_NATIVE),
        ("None", EVERYWHERE_NATIVE),
        ("0", EVERYWHERE_NATIVE),
        ("ALWAYS", EVERYWHERE_GENERIC),
        ("NEVER", EVERYWHERE_NATIVE),
        ("TWICE", UNKNOWN),
        ("flag", UNKNOWN),
        ("config.interpret", UNKNOWN),
        ("config()", UNKNOWN),
        ("not flag", UNKNOWN),
        ("os.environ['X'] == '1'", UNKNOWN),
        ("pltpu.InterpretParams()", EVERYWHERE_SIMULATED),
        ("(pltpu.InterpretParams(detect_races=True))", EVERYWHERE_SIMULATED),
        ("Simulator()", EVERYWHERE_SIMULATED),
        ("jax.experimental.pallas.tpu.TPUInterpretParams()", EVERYWHERE_SIMULATED),
        ("SLOWLY", EVERYWHERE_SIMULATED),
        ("config.InterpretParams()", UNKNOWN),
        ("not on_tpu()", NATIVE_ON_TPU),
        ("ELSEWHERE", NATIVE_ON_TPU),
        ("on_tpu()", (NATIVE, NATIVE, GENERIC)),
        ("jax.default_backend() == 'cpu'", (GENERIC, NATIVE, NATIVE)),
        ("True if on_tpu() else False", (NATIVE, NATIVE, GENERIC)),
        ("False if on_tpu() else True", NATIVE_ON_TPU),
        ("False if on_tpu() else pltpu.InterpretParams()", SIMULATED_BUT_ON_TPU),
        ("pltpu.InterpretParams() if not on_tpu() else False", SIMULATED_BUT_ON_TPU),
        ("SLOWLY if ELSEWHERE else None", SIMULATED_BUT_ON_TPU),
        ("pltpu.InterpretParams() if flag else False", UNKNOWN),
        ("pltpu.InterpretParams() if flag else SLOWLY", EVERYWHERE_SIMULATED),
        ("True if flag else ALWAYS", EVERYWHERE_GENERIC),
        ("flag or True", EVERYWHERE_GENERIC),
        ("flag or False", UNKNOWN),
        ("False or True", EVERYWHERE_GENERIC),
        ("False or None", EVERYWHERE_NATIVE),
        ("flag or not on_tpu()", (GENERIC, GENERIC, None)),
        ("config() or not on_tpu()", (GENERIC, GENERIC, None)),
        ("flag or pltpu.InterpretParams()", EVERYWHERE_GENERIC),
        ("False or pltpu.InterpretParams()", EVERYWHERE_SIMULATED),
        ("pltpu.InterpretParams() or flag", EVERYWHERE_SIMULATED),
        ("flag and True", UNKNOWN),
        (
            "flag if isinstance(flag, pltpu.InterpretParams) else pltpu.InterpretParams()",
            EVERYWHERE_SIMULATED,
        ),
        (
            "config.a if isinstance(config.a, pltpu.InterpretParams) else Simulator()",
            EVERYWHERE_SIMULATED,
        ),
        (
            "flag if isinstance(flag, pltpu.InterpretParams) else "
            "pltpu.InterpretParams() if flag or not on_tpu() else False",
            (SIMULATED, SIMULATED, None),
        ),
        ("flag if isinstance(config, pltpu.InterpretParams) else Simulator()", UNKNOWN),
        ("flag if isinstance(flag, bool) else Simulator()", UNKNOWN),
        ("ONE", UNKNOWN),
        ("FIRST", UNKNOWN),
    ],
)
def test_how_a_kernel_runs_on_each_platform(expression, expected):
    assert modes(expression) == expected


@pytest.mark.parametrize(
    "expression, removed, removed_simulator, gated, gated_simulator",
    [
        ("False", False, False, False, False),
        ("None", False, False, False, False),
        ("True", True, False, True, False),
        ("pltpu.InterpretParams()", True, True, True, True),
        ("SLOWLY", True, True, True, True),
        ("flag", False, False, False, False),
        ("flag or True", True, False, True, False),
        ("flag or not on_tpu()", False, False, True, False),
        ("not on_tpu()", False, False, True, False),
        ("ELSEWHERE", False, False, True, False),
        ("jax.default_backend() == 'cpu'", False, False, True, False),
        ("jax.default_backend() == 'gpu'", False, False, False, False),
        ("on_tpu()", False, False, False, False),
        ("Simulator() if not on_tpu() else False", False, False, True, True),
        ("Simulator() if flag else False", False, False, False, False),
        ("Simulator() if flag else True", False, False, False, False),
    ],
)
def test_whether_a_value_is_enough_as_it_is(
    expression, removed, removed_simulator, gated, gated_simulator
):
    answers = [
        suffices(*value_of(expression, strategy), simulator)
        for strategy in (REMOVE, GATE)
        for simulator in (False, True)
    ]
    assert answers == [removed, removed_simulator, gated, gated_simulator]


@pytest.mark.parametrize(
    "expression, answer",
    [
        ("pltpu.InterpretParams()", True),
        ("Simulator(detect_races=True)", True),
        ("jax._src.pallas.mosaic.interpret.InterpretParams()", True),
        ("pltpu.InterpretParams", False),
        ("pltpu.CompilerParams()", False),
        ("InterpretParams()", False),
        ("config.InterpretParams()", False),
    ],
)
def test_what_makes_the_parameters_of_the_simulator(expression, answer):
    assert is_parameters(*value_of(expression)) is answer


@pytest.mark.parametrize(
    "expression, answer",
    [
        ("flag", True),
        ("config.kernels.interpret", True),
        ("1", False),
        ("'name'", False),
        ("config()", False),
        ("config.get('x')", False),
        ("config[0]", False),
        ("not flag", False),
        ("flag.real ** 2", False),
    ],
)
def test_what_may_be_written_twice(expression, answer):
    _, value = value_of(expression)
    assert is_name(value) is answer


def test_a_row_replaces_a_value_or_stands_around_it():
    module, value = value_of("flag")
    assert apply(module.text, Row("True").edits(value)).endswith("return True\n")
    around = Row("", "(", ") or True")
    assert apply(module.text, around.edits(value)).endswith("return (flag) or True\n")
    assert Row("True").of("flag") == "True"
    assert around.of("flag") == "(flag) or True"
