"""The table of releases against the installed JAX, and what is written for one release and another."""

from __future__ import annotations

import importlib
import inspect
import io
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from functools import reduce
from textwrap import dedent
from unittest import mock

import pytest

from migrate_pallas import cli
from migrate_pallas.pipeline import examine, migrated
from migrate_pallas.releases import CHIPS, NEWEST, OLDEST, TABLE, arguments, has, parsed, spelled
from migrate_pallas.settings import CPU, GATE, GENERIC, SIMULATOR, Settings
from migrate_pallas.targets import ENTRY_POINTS, SCOPED

jax = pytest.importorskip("jax", minversion="0.10.2", reason="JAX 0.10.2 needs Python 3.11")
INSTALLED = parsed(".".join(jax.__version__.split(".")[:3]))
HEAD = dedent(
    """\
    import jax
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu
    """
)
# The size of the slice is known only when the kernel runs, which only the simulator can do.
TRACED_SLICE = dedent(
    """\
    def kernel(n_ref, x_ref, o_ref):
        o_ref[pl.ds(0, n_ref[0])] = x_ref[pl.ds(0, n_ref[0])]

    y = pl.pallas_call(kernel, out_shape=x)(n, x)
    """
)
CORE_MAP = dedent(
    """\
    def f(mesh):
        @pl.core_map(mesh, name="body")
        def body():
            pltpu.sync_copy(x_ref, o_ref)
    """
)
KERNEL = "run = pl.kernel(body, out, mesh=mesh)\n"
INFO = "def f():\n    return pltpu.get_tpu_info().num_cores\n"
PIPELINE = "def f(x, o):\n    pltpu.emit_pipeline(body, grid=(8,))(x, o)\n"
MESH = 'def f():\n    return pltpu.create_tensorcore_mesh("core")\n'
SCOPE = "def f():\n    pl.run_scoped(body, pltpu.VMEM((8,), int), collective_axes={})\n"


def written(source: str, release: str, **options: object) -> tuple[str, list[str]]:
    """What becomes of `source` for a release of JAX, and the findings."""
    settings = Settings(jax=parsed(release) if release else None, **options)
    examined = examine(HEAD + source, settings)
    result = migrated(examined, examined.changes)
    return result, [f"{finding.code} {finding.message}" for finding in examined.findings]


def gated(source: str, release: str, **options: object) -> tuple[str, list[str]]:
    return written(source, release, to=CPU, strategy=GATE, **options)


# -- the table --


def present(row) -> bool:
    """Whether the installed JAX has what `row` is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            found = reduce(getattr, row.name.split("."), importlib.import_module(row.module))
        except AttributeError:
            return False
        except ModuleNotFoundError as error:
            if error.name != row.module:
                raise  # it is not JAX that lacks something
            return False
    return not row.parameter or row.parameter in inspect.signature(found).parameters


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.name} {row.parameter}".strip())
def test_the_installed_jax_has_exactly_what_the_table_says(row):
    assert present(row) == has(INSTALLED, row.name, row.parameter)


def test_every_target_has_a_row_for_its_argument():
    rows = {(row.name, row.parameter) for row in TABLE}
    assert {(name, "interpret") for name in ENTRY_POINTS} <= rows
    assert {(name, "collective_axes") for name in SCOPED} <= rows


@pytest.mark.parametrize("chip", CHIPS)
def test_every_chip_is_known_wherever_figures_of_a_chip_can_be_had(chip):
    can = [row.since for row in TABLE if row.name == "get_tpu_info_for_chip"]
    assert has(can[0], f"ChipVersion.{CHIPS[chip][0]}")


def test_the_newest_release_that_was_measured_has_all_of_the_table():
    assert all(OLDEST <= row.since <= NEWEST for row in TABLE)


def test_a_name_without_a_row_is_an_error():
    with pytest.raises(KeyError):
        has(NEWEST, "no_such_name")
    with pytest.raises(KeyError):
        arguments(NEWEST, "InterpretParams", no_such_parameter="1")


# -- the command line --


def run_cli(source: str, *options: str) -> tuple[int, str, str]:
    """The exit status of the command line for `source` on stdin, its stdout and its stderr."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    argv = ["migrate-pallas", "--to=interpret", *options, "-"]
    with (
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(source.encode()))),
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(cli.signal, "signal"),  # the tests go on, and may be interrupted
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    return ended.value.code, stdout.buffer.getvalue().decode(), stderr.buffer.getvalue().decode()


@pytest.mark.parametrize(
    "text, release",
    [
        ("0.7", (0, 7, 0)),
        ("0.10.2", (0, 10, 2)),
        ("0.12.0.1", (0, 12, 0)),
        ("0.4.35", OLDEST),
        ("1.0", (1, 0, 0)),
    ],
)
def test_a_release_may_have_two_to_four_numbers(text, release):
    assert parsed(text) == release


@pytest.mark.parametrize(
    "text", ["", "7", "latest", "v0.7", "0.7rc1", "0.7.", "0.7.0.1.2", " 0.7", "0.٧"]
)
def test_what_is_no_release_is_a_usage_error(text):
    status, out, said = run_cli("", "--jax", text)
    assert (status, out) == (2, "")
    assert "Invalid value for '--jax'" in said
    assert "is no release of JAX, such as 0.7 or 0.10.2" in said


@pytest.mark.parametrize("text", ["0.4", "0.4.34", "0.3.25"])
def test_a_release_older_than_the_table_is_a_usage_error(text):
    status, out, said = run_cli("", "--jax", text)
    assert (status, out) == (2, "")
    assert f"{text} is older than 0.4.35, the oldest release whose names are known" in said


def test_the_option_decides_what_is_written():
    status, out, _ = run_cli(HEAD + TRACED_SLICE, "--jax=0.6.2", "--select=MP110")
    assert status == 0
    assert 'interpret=pltpu.InterpretParams(dma_execution_mode="eager"))' in out


# -- the simulator --


@pytest.mark.parametrize("release", ["", "0.7", "0.7.0", "0.10.2", "0.12.0.1", "0.13"])
def test_the_simulator_gets_both_arguments_since_0_7(release):
    result, findings = written(TRACED_SLICE, release)
    both = 'dma_execution_mode="eager", out_of_bounds_reads="uninitialized"'
    assert f"out_shape=x, interpret=pltpu.InterpretParams({both}))" in result
    assert findings == []


def test_the_simulator_of_0_6_2_gets_the_one_argument_that_it_takes():
    result, findings = written(TRACED_SLICE, "0.6.2")
    assert 'interpret=pltpu.InterpretParams(dma_execution_mode="eager"))' in result
    assert findings == []


@pytest.mark.parametrize("release", ["0.4.35", "0.5.1", "0.6", "0.6.1"])
def test_without_a_simulator_the_generic_interpreter_is_written_and_told(release):
    result, findings = written(TRACED_SLICE, release)
    assert "out_shape=x, interpret=True)" in result
    (told,) = findings
    assert told.startswith("MP205 pallas_call should be interpreted by the TPU simulator, for ")
    assert "traced-slice in line 5" in told
    assert f"JAX {spelled(parsed(release))} has no simulator (0.6.2 is the first" in told


def test_a_simulator_that_was_asked_for_and_is_not_there_is_told():
    source = "y = pl.pallas_call(lambda x, o: None, out_shape=x)(x)\n"
    result, findings = written(source, "0.6.1", interpreter=SIMULATOR)
    assert "out_shape=x, interpret=True)" in result
    (told,) = findings
    assert told.startswith(
        "MP205 pallas_call should be interpreted by the TPU simulator; JAX 0.6.1"
    )


def test_without_a_simulator_what_it_would_have_wrong_is_told_too():
    source = dedent(
        """\
        def kernel(o_ref):
            pltpu.prng_seed(0)
            o_ref[...] = pltpu.prng_random_bits((8, 128))

        y = pl.pallas_call(kernel, out_shape=x)()
        """
    )
    _, (told,) = written(source, "0.6.1")
    assert "has no simulator" in told
    assert "no interpreter on CPU runs all of this pallas_call right: " in told


def test_without_a_simulator_a_gate_is_written_for_the_generic_interpreter():
    source = TRACED_SLICE.replace("\ny =", "\ndef f(n, x):\n    return")
    result, findings = gated(source, "0.6.1")
    assert "out_shape=x, interpret=not on_tpu())" in result
    assert [told[:5] for told in findings] == ["MP205"]


def test_a_second_run_for_the_same_release_changes_nothing():
    for release in ("0.6.1", "0.6.2", "0.8.1", "0.12.0"):
        once, _ = written(TRACED_SLICE + INFO + PIPELINE + MESH, release)
        twice, _ = written(once.removeprefix(HEAD), release)
        assert twice == once


# -- entry points --


@pytest.mark.parametrize(
    "source, target, release, first",
    [
        (CORE_MAP, "core_map", "0.4.38", "0.5.0"),
        (KERNEL, "kernel", "0.8.0", "0.8.1"),
        (
            "from jax._src.pallas import mpmd\nrun = mpmd.mpmd_map([(mesh, body)], out)\n",
            "mpmd_map",
            "0.9.0",
            "0.9.1",
        ),
    ],
)
def test_an_entry_point_that_takes_no_interpret_is_left_and_told(source, target, release, first):
    result, findings = written(source, release)
    assert result == HEAD + source
    (told,) = findings
    assert told.startswith(
        f"MP205 {target} takes no interpret= in JAX {release} ({first} is the first"
    )
    result, findings = written(source, first)
    assert "interpret=" in result
    assert not any("takes no interpret=" in told for told in findings)


def test_an_interpret_that_is_there_already_is_extended_all_the_same():
    source = "run = pl.kernel(body, out, interpret=debug)\n"
    result, _ = written(source, "0.8.0", interpreter=GENERIC)
    assert "interpret=debug or True)" in result


# -- operations whose interpreters differ by release --

DEVICE_TUPLE = dedent(
    """\
    def kernel(x_ref, o_ref, send, recv):
        pltpu.make_async_remote_copy(x_ref, o_ref, send, recv, device_id=(0, 1)).start()

    y = pl.pallas_call(kernel, out_shape=x)(x)
    """
)
STORE_THROUGH_VIEW = dedent(
    """\
    def kernel(x_ref, o_ref):
        o_ref.reshape(8, 128)[...] = x_ref[...]

    y = pl.pallas_call(kernel, out_shape=x)(x)
    """
)


@pytest.mark.parametrize("release, simulated", [("", True), ("0.10.2", True), ("0.12", False)])
def test_a_row_that_both_serve_since_0_12_needs_the_simulator_before(release, simulated):
    result, findings = written(DEVICE_TUPLE, release)
    assert ("InterpretParams" in result) == simulated
    assert ("interpret=True" in result) != simulated
    assert findings == []


@pytest.mark.parametrize("release, amiss", [("", True), ("0.10.2", True), ("0.12", False)])
def test_a_row_that_one_serves_since_0_12_is_told_before(release, amiss):
    result, findings = written(STORE_THROUGH_VIEW, release)
    assert "interpret=True" in result
    assert [told[:5] for told in findings] == ["MP205"] * amiss


# -- figures --


@pytest.mark.parametrize("make", [written, gated])
@pytest.mark.parametrize("release", ["0.8.1", "0.9.1"])
def test_without_figures_of_a_chip_get_tpu_info_is_left_and_told(make, release):
    result, findings = make(INFO, release)
    assert result == HEAD + INFO
    (told,) = findings
    assert told.startswith("MP206 get_tpu_info() raises where there is no TPU, and JAX " + release)
    assert "(0.9.2 is the first" in told


@pytest.mark.parametrize("release", ["", "0.9.2", "0.12"])
def test_figures_of_a_chip_are_written_since_0_9_2(release):
    result, findings = written(INFO, release)
    assert "pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V6E, 1).num_cores" in result
    assert findings == []


@pytest.mark.parametrize("make", [written, gated])
@pytest.mark.parametrize("release", ["0.6.2", "0.7.1"])
def test_without_an_abstract_device_a_pipeline_is_left_and_told(make, release):
    result, findings = make(PIPELINE, release)
    assert result == HEAD + PIPELINE
    (told,) = findings
    assert told.startswith(f"MP206 emit_pipeline asks for the figures of a TPU, and JAX {release}")
    assert "(0.7.2 is the first that has)" in told


def test_a_pipeline_with_allocations_is_told_the_same_where_there_is_no_abstract_device():
    source = "pipeline, allocations = pltpu.emit_pipeline_with_allocations(body, grid=(8,))\n"
    _, (old,) = written(source, "0.7.1")
    _, (new,) = written(source, "0.7.2")
    assert old.startswith("MP206 ") and "use_abstract_mesh" not in old
    assert new.startswith("MP206 ") and "use_abstract_mesh" in new


@pytest.mark.parametrize(
    "release, platform",
    [("0.7.2", ""), ("0.10.0", ""), ("0.10.1", ', platform="tpu"'), ("", ', platform="tpu"')],
)
def test_an_abstract_device_gets_a_platform_since_0_10_1(release, platform):
    result, findings = written(PIPELINE, release)
    device = f'AbstractDevice(device_kind="TPU v6 lite", num_cores=1{platform})\n'
    assert f"device = jax.sharding.{device}" in result
    assert findings == []


@pytest.mark.parametrize("make", [written, gated])
def test_a_mesh_whose_cores_cannot_be_told_is_left(make):
    result, findings = make(MESH, "0.6.0")
    assert result == HEAD + MESH
    (told,) = findings
    assert told.startswith(
        "MP206 create_tensorcore_mesh asks for the figures of a TPU, and JAX 0.6.0"
    )
    assert "(0.6.1 is the first that has)" in told


def test_a_mesh_is_told_its_cores_since_0_6_1():
    result, findings = written(MESH, "0.6.1")
    assert 'create_tensorcore_mesh("core", num_cores=1)' in result
    assert findings == []


# -- axes --

AXES = ("MP101", "MP102", "MP211")


@pytest.mark.parametrize("axes", ['"x"', '"x" if jax.default_backend() == "tpu" else None'])
def test_a_run_scoped_that_takes_no_axes_is_not_gated_but_told(axes):
    source = SCOPE.format(axes)
    result, (told,) = gated(source, "0.6.0", select=AXES)
    assert result == HEAD + source
    assert told.startswith("MP211 run_scoped takes no collective_axes in JAX 0.6.0 (0.6.1 is the")
    result, (told,) = gated(source, "0.6.1", select=AXES)
    assert "else ())\n" in result
    assert told.startswith("MP211 run_scoped keeps its collective_axes on TPU")


def test_a_with_scoped_takes_axes_since_0_9_1():
    source = 'def f():\n    pl.with_scoped(pltpu.VMEM((8,), int), collective_axes="x")(body)()\n'
    old, (told,) = gated(source, "0.9.0", select=AXES)
    assert old == HEAD + source
    assert "with_scoped takes no collective_axes in JAX 0.9.0 (0.9.1 is the first" in told
    new, _ = gated(source, "0.9.1", select=AXES)
    assert 'collective_axes="x" if on_tpu() else ()' in new


def test_axes_are_removed_in_any_release():
    result, findings = written(SCOPE.format('"x"'), "0.6.0", select=("MP101",))
    assert "pl.run_scoped(body, pltpu.VMEM((8,), int))" in result
    assert findings == []
