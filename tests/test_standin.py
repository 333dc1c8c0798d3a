"""The recording stand-in for JAX, and what it shows of each fixture: that a gate keeps a program
as it was on TPU, and that elsewhere no axes reach Pallas, every kernel is interpreted, and nothing
asks for the figures of a TPU."""

from __future__ import annotations

import importlib.util
import sys
import types
from functools import cache
from pathlib import Path

import pytest
from standin.record import STANDIN, Call, outcomes, record

FIXTURES = Path(__file__).parents[1] / "fixtures"
CASES = sorted(
    path.parent for rule in ("MP101", "MP102") for path in FIXTURES.glob(f"{rule}/*/before.py")
)
INTERPRETED = sorted(
    path.parent for rule in ("MP110", "MP205") for path in FIXTURES.glob(f"{rule}/*/after.*.py")
)
FIGURED = sorted(
    path.parent for path in FIXTURES.glob("MP1[23]*/*/after.cpu.py") if "at-import" not in str(path)
)
ENTRY_POINTS = ("pallas_call", "kernel", "core_map", "mpmd_map")
SIMULATOR = (
    "InterpretParams(dma_execution_mode='eager', out_of_bounds_reads='uninitialized', "
    "detect_races=False, uninitialized_memory='nan', num_cores_or_threads=1)"
)
TARGETS = ("interpret", "cpu")
FILE_NAMES = {"before.py", "after.interpret.py", "after.cpu.py", "findings.txt", "options.txt"}


def neighbours() -> dict[str, types.ModuleType]:
    """The modules that some fixtures import: their project's own."""
    modules = {
        name: types.ModuleType(name)
        for name in ("my_project", "my_project.backends", "my_project.allocation")
    }
    modules["my_project.backends"].on_tpu = lambda: sys.modules["jax"].default_backend() == "tpu"
    modules["my_project"].kernel = lambda x_ref, o_ref: None
    modules["my_project.allocation"].with_scoped = lambda *_, **__: lambda function: function
    return modules


@cache
def recorded(path: Path, backend: str) -> tuple[Call, ...]:
    """What reached the entry points from a fixture's module."""
    return tuple(record(path, backend, neighbours()))


def axes_of(calls: tuple[Call, ...]) -> list[object]:
    """The `collective_axes` that reached `run_scoped` and `with_scoped`, `()` where absent."""
    return [
        call.keywords.get("collective_axes", ())
        for call in calls
        if call.name in ("run_scoped", "with_scoped")
    ]


def with_empty_for_none(calls: tuple[Call, ...]) -> list[Call]:
    """The calls with `()` where `collective_axes` is None, which is the repair of MP102."""
    return [
        Call(
            call.name,
            call.positional,
            {
                name: () if name == "collective_axes" and value is None else value
                for name, value in call.keywords.items()
            },
        )
        for call in calls
    ]


def found_under(case: Path, target: str) -> bool:
    """Whether the case expects a finding under a target."""
    findings = case / "findings.txt"
    return findings.exists() and any(
        line.startswith(target) for line in findings.read_text().splitlines()
    )


def case_id(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


def those(condition, cases: list[Path] = CASES) -> pytest.MarkDecorator:
    """Parametrize over the cases that meet a condition, each once."""
    met = filter(condition, dict.fromkeys(cases))
    return pytest.mark.parametrize("case", list(met), ids=case_id)


@those(lambda case: True)
def test_fixture_is_well_formed(case):
    before = (case / "before.py").read_bytes()
    assert {path.name for path in case.iterdir()} <= FILE_NAMES
    for after in case.glob("after.*.py"):
        compile(after.read_bytes(), str(after), "exec")
        assert after.read_bytes() != before, "an absent file says unchanged"
    if (case / "findings.txt").exists():
        for line in (case / "findings.txt").read_text().splitlines():
            target, number, code = line.split()
            assert target in ("interpret", "cpu")
            assert code in ("MP204", "MP208")
            assert b"collective_axes" in before.splitlines()[int(number) - 1]


@those(lambda case: any(case.glob("after.*.py")))
def test_fixture_that_changes_passes_axes_to_pallas(case):
    calls = recorded(case / "before.py", "tpu")
    assert any("collective_axes" in call.keywords for call in calls)


@those(lambda case: (case / "after.cpu.py").exists())
def test_gate_keeps_the_program_on_tpu(case):
    before = recorded(case / "before.py", "tpu")
    after = recorded(case / "after.cpu.py", "tpu")
    if case.parent.name == "MP102":
        assert list(after) == with_empty_for_none(before)
    else:
        assert after == before


@those(lambda case: (case / "after.cpu.py").exists() and not found_under(case, "cpu"))
def test_gate_leaves_no_axes_on_cpu(case):
    assert set(axes_of(recorded(case / "after.cpu.py", "cpu"))) <= {()}


@those(
    lambda case: (
        (case / "after.interpret.py").exists()
        and not (case / "after.cpu.py").exists()
        and not found_under(case, "cpu")
        and case.name != "gated-by-try"  # the stand-in's entry points never raise
    )
)
def test_what_counts_as_gated_leaves_no_axes_on_cpu(case):
    assert set(axes_of(recorded(case / "before.py", "cpu"))) <= {()}


@those(lambda case: (case / "after.interpret.py").exists() and not found_under(case, "interpret"))
@pytest.mark.parametrize("backend", ["tpu", "cpu"])
def test_removal_leaves_no_axes_anywhere(case, backend):
    assert set(axes_of(recorded(case / "after.interpret.py", backend))) <= {()}


def interpreters(calls: tuple[Call, ...]) -> list[object]:
    """The `interpret` of every entry point that was reached, False where absent."""
    return [call.keywords.get("interpret", False) for call in calls if call.name in ENTRY_POINTS]


def native_or(value: object, before: object) -> object:
    """`value` as `before` had it where the two mean the same on TPU.

    Nothing, False and None are one; and what was interpreted may now be so by the simulator.
    """
    if not value and not before:
        return before
    return before if before and value == SIMULATOR else value


def raised(calls: tuple[Call, ...]) -> list[Call]:
    return [call for call in calls if call.name == "raises"]


def unchanged_under(case: Path, target: str) -> bool:
    return not (case / f"after.{target}.py").exists()


@those(lambda case: not unchanged_under(case, "cpu"), INTERPRETED)
def test_a_gate_leaves_every_kernel_as_it_was_on_tpu(case):
    before, after = (recorded(case / name, "tpu") for name in ("before.py", "after.cpu.py"))
    assert not raised(after)
    assert [call.name for call in after] == [call.name for call in before]
    for old, new in zip(before, after, strict=True):
        was = old.keywords.get("interpret")
        assert native_or(new.keywords.get("interpret"), was) == was
        assert {**new.keywords, "interpret": was} == {**old.keywords, "interpret": was}
        assert new.positional == old.positional


@those(
    # There some calls get no gate; or are of GPU kernels, which are left alone.
    lambda case: not found_under(case, "cpu") and case.name != "kind-of-each-call",
    INTERPRETED,
)
def test_on_cpu_both_targets_interpret_every_kernel_in_the_same_way(case):
    names = ("before.py" if unchanged_under(case, to) else f"after.{to}.py" for to in TARGETS)
    always, gated = (interpreters(recorded(case / name, "cpu")) for name in names)
    assert always and all(always)
    assert gated == always


@those(
    lambda case: (
        not unchanged_under(case, "interpret")
        and not found_under(case, "interpret")
        and case.name != "kind-of-each-call"
    ),
    INTERPRETED,
)
def test_kernels_that_are_always_interpreted_are_so_on_tpu_too(case):
    assert all(interpreters(recorded(case / "after.interpret.py", "tpu")))


@those(lambda case: case.name.endswith("-simulator"), INTERPRETED)
def test_where_the_simulator_is_needed_nothing_else_is_chosen_by_the_tool(case):
    values = interpreters(recorded(case / "after.interpret.py", "cpu"))
    assert SIMULATOR in values
    assert True not in values


@those(lambda case: True, FIGURED)
def test_a_gate_leaves_all_figures_as_they_were_on_tpu(case):
    before, after = case / "before.py", case / "after.cpu.py"
    assert recorded(after, "tpu") == recorded(before, "tpu")
    was, is_now = (outcomes(path, "tpu", neighbours()) for path in (before, after))
    assert {place: is_now[place] for place in was} == was


@those(lambda case: True, FIGURED)
def test_on_cpu_nothing_asks_for_the_figures_of_the_tpu_that_is_not_there(case):
    assert raised(recorded(case / "before.py", "cpu")) or case.parent.name == "MP121"
    for to in TARGETS:
        assert not raised(recorded(case / f"after.{to}.py", "cpu"))


@those(lambda case: case.parent.name == "MP121" and case.name != "option-tpu", FIGURED)
@pytest.mark.parametrize("target", TARGETS)
def test_on_cpu_the_kind_is_that_of_the_chip(case, target):
    on_chip = outcomes(case / "before.py", "tpu", neighbours())
    on_cpu = outcomes(case / f"after.{target}.py", "cpu", neighbours())
    assert {place: on_cpu[place] for place in on_chip} == on_chip
    assert outcomes(case / "before.py", "cpu", neighbours()) != on_chip


def recorded_text(tmp_path: Path, text: str, backend: str = "cpu") -> list[Call]:
    """What reaches the entry points from a module with this text."""
    path = tmp_path / "module.py"
    path.write_text(text)
    return record(path, backend)


@pytest.mark.parametrize(
    "text",
    [
        "from jax.experimental import pallas as pl\ndef f(): pl.run_scoped(print, 1, collective_axes='x')",
        "import jax\ndef f(): jax.experimental.pallas.run_scoped(print, 1, collective_axes='x')",
        "from jax import experimental as e\ndef f(): e.pallas.run_scoped(print, 1, collective_axes='x')",
        "from jax.experimental.pallas import run_scoped as r\ndef f(): r(print, 1, collective_axes='x')",
        "from jax._src.pallas.primitives import *\ndef f(): run_scoped(print, 1, collective_axes='x')",
        "import jax._src.pallas.primitives as p, functools\n"
        "def f(): functools.partial(p.run_scoped, print, collective_axes='x')(1)",
        "from functools import partial\nfrom jax.experimental import pallas as pl\n"
        "f = partial(partial(pl.run_scoped, print), collective_axes='x')\nf(1)",
        "import jax.experimental.pallas as pl\n"
        "def f():\n    def g(r=pl.run_scoped): r(print, 1, **dict(collective_axes='x'))\n    g()",
    ],
)
def test_call_is_recorded_whatever_the_import_and_shape(tmp_path, text):
    assert recorded_text(tmp_path, text) == [Call("run_scoped", 2, {"collective_axes": "x"})]


def test_decorated_function_runs_with_a_ref_for_each_type(tmp_path):
    calls = recorded_text(
        tmp_path,
        """
import functools
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def kernel(x_ref):
    @functools.partial(pl.run_scoped, sem=pltpu.SemaphoreType.DMA)
    def _(sem):
        @pl.with_scoped(pltpu.VMEM((8, 128), "f4"), collective_axes=("x",))
        def inner(y_ref, buf):
            raise ValueError(f"{x_ref} {sem} {y_ref} {buf}")
        inner(x_ref)
""",
    )
    assert calls == [
        Call("run_scoped", 1, {"sem": "pltpu.SemaphoreType.DMA"}),
        Call("with_scoped", 1, {"collective_axes": ("x",)}),
        Call("raises", 0, {"in": "kernel", "error": "ValueError: x_ref sem x_ref ref0"}),
    ]


def test_every_entry_point_is_recorded_and_runs_its_kernel(tmp_path):
    calls = recorded_text(
        tmp_path,
        """
import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu
from jax._src.pallas.mpmd import mpmd_map

@jax.jit
def main():
    def kernel(x_ref):
        pl.run_scoped(lambda: None)

    pl.pallas_call(kernel, out_shape=1, interpret=True)(2)
    pl.kernel(kernel, 1, mesh=2, interpret=pltpu.InterpretParams())(2)
    pl.kernel(mesh=2)(kernel)(2)
    pl.core_map(2, interpret=False)(kernel)
    mpmd_map([(2, kernel), (3, kernel)], 1, interpret=None)(2)
    plgpu.kernel(kernel, 1)(2)
""",
    )
    simulator = (
        "InterpretParams(dma_execution_mode='on_wait', out_of_bounds_reads='raise', "
        "detect_races=False, uninitialized_memory='nan', num_cores_or_threads=1)"
    )
    body = Call("run_scoped", 1, {})
    assert calls == [
        Call("pallas_call", 1, {"out_shape": 1, "interpret": True}),
        body,
        Call("kernel", 2, {"mesh": 2, "interpret": simulator}),
        body,
        Call("kernel", 0, {"mesh": 2}),
        body,
        Call("core_map", 1, {"interpret": False}),
        body,
        Call("mpmd_map", 2, {"interpret": None}),
        body,
        body,
        Call("mosaic_gpu.kernel", 2, {}),
        body,
    ]


@pytest.mark.parametrize("backend", ["tpu", "cpu"])
def test_every_platform_source_tells_the_backend_asked_for(tmp_path, backend):
    (call,) = recorded_text(
        tmp_path,
        """
import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def main():
    device = jax.devices()[0]
    sources = (
        jax.default_backend() == "tpu",
        jax.local_devices()[0].platform == "tpu",
        device.platform == "tpu",
        "tpu" in device.device_kind.lower(),
        pltpu.is_tpu_device(),
    )
    pl.core_map(sources)(lambda: None)
    pl.core_map(1, interpret=sources)
""".replace("    pl.core_map(sources)(lambda: None)\n", ""),
        backend,
    )
    assert call.keywords["interpret"] == (backend == "tpu",) * 5


def test_figures_raise_off_tpu_but_not_those_of_a_named_chip(tmp_path):
    text = """
from jax.experimental.pallas import tpu as pltpu
def named(): pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V6E, 1).num_cores
def at_hand(): pltpu.get_tpu_info().num_cores
"""
    assert recorded_text(tmp_path, text, "tpu") == []
    error = "ValueError: Unsupported TPU device kind: cpu"
    assert recorded_text(tmp_path, text) == [Call("raises", 0, {"in": "at_hand", "error": error})]


def test_what_asks_for_figures_inside_sees_those_of_an_abstract_mesh(tmp_path):
    text = """
import jax
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc
def outside(): plsc.get_sparse_core_info()
def inside():
    pipeline = pltpu.emit_pipeline(lambda ref: ref, grid=(1,))
    device = jax.sharding.AbstractDevice(device_kind="TPU v5", num_cores=1, platform="tpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):
        pipeline(1)
    pipeline(1)
def cores(): pltpu.create_tensorcore_mesh("core", num_cores=1)
"""
    error = "ValueError: Unsupported TPU device kind: cpu"
    assert recorded_text(tmp_path, text) == [
        Call("raises", 0, {"in": "outside", "error": error}),
        Call("pipeline", 1, {"figures": "TPU v5"}),
        Call("raises", 0, {"in": "inside", "error": error}),
        Call("create_tensorcore_mesh", 1, {"num_cores": 1, "devices": None}),
    ]


def test_what_functions_return_is_told_by_name(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "import jax\ndef kind(): return jax.devices()[0].device_kind\n"
        "def steps(): yield 1; yield 2\ndef fails(): 1 / 0\n"
        "class Layer:\n    def size(self): return (1, [jax.numpy.ones])\n"
    )
    assert outcomes(path, "tpu") == {
        "kind": "TPU v6 lite",
        "steps": "[1, 2]",
        "fails": None,
        "Layer.size": (1, "[jax.numpy.ones]"),
    }


def test_interpret_params_is_a_class_whose_values_compare_equal(tmp_path):
    text = """
from jax.experimental.pallas import tpu as pltpu
def main():
    made = pltpu.InterpretParams(dma_execution_mode="eager")
    assert isinstance(made, pltpu.InterpretParams) and not isinstance(True, pltpu.InterpretParams)
    assert len({made, pltpu.InterpretParams(dma_execution_mode="eager")}) == 1
"""
    assert recorded_text(tmp_path, text) == []


def test_methods_generators_and_coroutines_run(tmp_path):
    text = """
from jax.experimental import pallas as pl
class Kernels:
    def method(self, x_ref): pl.run_scoped(print, collective_axes="method")
    @staticmethod
    def static(x_ref): pl.run_scoped(print, collective_axes="static")
def generator(): yield pl.run_scoped(print, collective_axes="generator")
async def coroutine(): pl.run_scoped(print, collective_axes="coroutine")
"""
    axes = [call.keywords["collective_axes"] for call in recorded_text(tmp_path, text)]
    assert axes == ["method", "static", "generator", "coroutine"]


def test_equal_programs_leave_equal_records(tmp_path):
    text = """
import jax.numpy as jnp
from jax.experimental import pallas as pl
def main(x): pl.pallas_call(lambda ref: ref, out_shape=[x, jnp.zeros((8,))], grid=lambda: 3)(x)
"""
    first, second = recorded_text(tmp_path, text), recorded_text(tmp_path, text)
    assert first == second
    assert first[0].keywords == {"out_shape": "[x, jax.numpy.zeros((8,))]", "grid": "<<lambda>>"}


@pytest.mark.parametrize(
    "text", ["import jax", "import jax\n1 / 0", "import jax.experimental.pallas"]
)
def test_the_standin_is_gone_once_the_record_is_made(tmp_path, text):
    mark = types.ModuleType("jax")
    before, path_before = sys.modules.get("jax"), list(sys.meta_path)
    sys.modules["jax"] = mark
    try:
        recorded_text(tmp_path, text)
        assert sys.modules["jax"] is mark
        assert sys.meta_path == path_before
        assert not [name for name in sys.modules if name.startswith("jax._recording")]
    finally:
        del sys.modules["jax"]
        if before is not None:
            sys.modules["jax"] = before


def test_the_standin_is_not_what_import_jax_finds():
    found = importlib.util.find_spec("jax")
    assert found is None or STANDIN not in Path(str(found.origin)).parents
