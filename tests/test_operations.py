"""Which rows of the interpreter table a kernel uses, and which interpreter is chosen for it."""

from __future__ import annotations

from textwrap import indent

import pytest

from migrate_pallas.interpreters import OPERATIONS
from migrate_pallas.kinds import calls_in
from migrate_pallas.module import Module
from migrate_pallas.operations import Found, choose, operations
from migrate_pallas.parts import in_parts
from migrate_pallas.releases import Release
from migrate_pallas.settings import Settings
from migrate_pallas.targets import ENTRY_POINTS, Site

IMPORTS = """
import functools
import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc
from jax.experimental.pallas.tpu import prng_seed as seed
"""
CALL = "pl.pallas_call(kernel, out_shape=x)(x)"


def site_of_module(text: str, jax: Release | None = None) -> tuple[Module, Site]:
    """The module, for a release of JAX where one is told, and its first entry point."""
    module = Module(text, in_parts(text), Settings(jax=jax))
    sites = [module.site(call) for call in calls_in(module.tree)]
    return module, next(site for site in sites if site and site.target in ENTRY_POINTS)


def kernel_text(body: str, call: str = CALL, parameters: str = "x_ref, o_ref") -> str:
    return (
        f"{IMPORTS}def kernel({parameters}):\n{indent(body, '    ')}\n"
        f"def call(x, sems, mesh, n):\n{indent(call, '    ')}\n"
    )


def keys(body: str, call: str = CALL, parameters: str = "x_ref, o_ref") -> set[str]:
    """The rows that the kernel with that body, called in that way, is found to use."""
    found = operations(*site_of_module(kernel_text(body, call, parameters)))
    return {f.operation.key for f in found}


@pytest.mark.parametrize(
    "body, expected",
    [
        ("pass", set()),
        ("o_ref[...] = x_ref[...]", set()),
        ("pl.delay(1)", {"delay"}),
        ("seed(0)", {"prng_seed"}),
        ("jax.experimental.pallas.tpu.prng_seed(0)", {"prng_seed"}),
        ("pause = pl.delay\npause(1)", {"delay"}),
        ("def inner():\n    pl.delay(1)\ninner()", {"delay"}),
        ("functools.partial(pl.delay, 1)()", {"delay"}),
        ("pltpu.roll(x_ref[...], 1, 0)", {"roll"}),
        ("pltpu.sync_copy(x_ref, o_ref)", {"sync_copy"}),
        ("pltpu.sync_copy(x_ref, o_ref, add=True)", {"sync_copy", "copy-add"}),
        ("pltpu.load(x_ref, mask=x_ref[...] > 0)", {"load", "masked-load"}),
        ("pltpu.store(o_ref, x_ref[...])", {"store"}),
        ("pl.semaphore_wait(o_ref, decrement=False)", {"semaphore", "semaphore-wait-keeping"}),
        ("plsc.cumsum(x_ref[...])", {"sc-cumsum"}),
        ("pl.unheard_of(1)", set()),
        ("delay(1)", set()),
    ],
)
def test_operations_that_a_name_shows(body, expected):
    assert keys(body) == expected


@pytest.mark.parametrize(
    "slice_, traced",
    [
        ("pl.ds(0, 8)", False),
        ("pl.ds(8)", False),
        ("pl.ds(pl.program_id(0), 8)", False),
        ("pl.ds(0, x_ref.shape[0] // 2)", False),
        ("pl.ds(0, pl.program_id(0))", True),
        ("pl.ds(0, size=x_ref[0])", True),
        ("pl.dslice(0, x_ref[0])", True),
        ("pl.Slice(0, x_ref[0])", True),
        ("pl.ds(x_ref[0])", True),
    ],
)
def test_slices_of_traced_size(slice_, traced):
    assert ("traced-slice" in keys(f"o_ref[...] = x_ref[{slice_}]")) is traced


def test_a_size_that_can_not_be_told_may_be_traced():
    body = "def later(n):\n    o_ref[...] = x_ref[pl.ds(0, n)]\nelsewhere(later)"
    assert "traced-slice" in keys(body)


def test_outside_of_followed_kernels_a_size_must_be_shown_to_be_traced():
    text = (
        f"{IMPORTS}def copy(ref, n):\n    ref[pl.ds(0, n)]\n"
        "def call(kernel, x):\n    pl.pallas_call(kernel, out_shape=x)(x)\n"
    )
    found = operations(*site_of_module(text))
    assert {f.operation.key for f in found} == {"static-slice"}


@pytest.mark.parametrize(
    "body, expected",
    [
        ("device_id=1", set()),
        ("device_id=my_id + 1", set()),
        ("device_id=(0, 1)", {"device-id-tuple"}),
        ("device_id=(my_id,)", {"device-id-tuple"}),
        ("device_id=neighbour", {"device-id-tuple"}),
        ("device_id={'x': 1}", {"device-id-dict"}),
        ("device_id=dict(x=1)", {"device-id-dict"}),
        ("", set()),
    ],
)
def test_device_ids(body, expected):
    found = keys(f"pltpu.make_async_remote_copy(x_ref, o_ref, s, r, {body})")
    assert {key for key in found if key.startswith("device-id")} == expected


def test_a_device_id_is_followed_to_what_it_was_once_assigned():
    copy = "pltpu.async_remote_copy(x_ref, o_ref, s, r, device_id=to)"
    assert "device-id-dict" in keys(f"to = {{'x': 1}}\n{copy}")
    assert "device-id-tuple" in keys(f"to = (0, 1)\n{copy}")


def test_a_signal_is_remote_where_it_names_a_device():
    assert keys("pl.semaphore_signal(o_ref, 1)") == {"semaphore"}
    assert keys("pl.semaphore_signal(o_ref, 1, device_id=1)") == {"semaphore", "remote-signal"}


@pytest.mark.parametrize(
    "body, expected",
    [
        ("x_ref.reshape(8, 128)[...]", {"ref-reshape"}),
        ("x_ref.at[0].reshape(8)[...]", {"ref-reshape"}),
        ("x_ref.bitcast('int32')[...]", {"ref-bitcast"}),
        ("x_ref[...].reshape(8, 128)", set()),
        ("elsewhere.reshape(8, 128)", set()),
        ("o_ref.reshape(8)[...] = 1", {"ref-reshape", "store-through-view"}),
        (
            "pltpu.sync_copy(x_ref.reshape(8), o_ref)",
            {"sync_copy", "ref-reshape", "copy-from-view"},
        ),
        ("pltpu.sync_copy(x_ref, o_ref.reshape(8))", {"sync_copy", "ref-reshape", "copy-to-view"}),
    ],
)
def test_views_of_refs(body, expected):
    assert keys(body) == expected


def test_an_axis_is_one_of_cores_but_in_a_pallas_call_one_of_devices():
    body = "o_ref[0] = jax.lax.axis_index('core')"
    assert "core-axis-index" not in keys(body)
    assert "core-axis-index" in keys(body, "pl.kernel(kernel, x, mesh=mesh)(x)")


@pytest.mark.parametrize(
    "call, expected",
    [
        ("pl.pallas_call(kernel, out_shape=x)", set()),
        ("pl.kernel(kernel, x, mesh=mesh)", {"handed-refs"}),
        ("pl.mpmd_map([(mesh, kernel)], x)", {"handed-refs"}),
        ("pl.core_map(mesh)(kernel)", {"core_map"}),
        (
            "pl.pallas_call(kernel, in_specs=[pl.BlockSpec((pl.Element(8),), None)])",
            {"element-block"},
        ),
        (
            "spec = pl.BlockSpec((pl.BoundedSlice(8),), None)\npl.pallas_call(kernel, in_specs=[spec])",
            {"bounded-slice"},
        ),
        (
            "bound = functools.partial(pl.pallas_call, in_specs=[pl.BoundedSlice(8)])\n"
            "bound(kernel)(x)",
            {"bounded-slice"},
        ),
        (
            "cores = plsc.ScalarSubcoreMesh(axis_name='core')\npl.kernel(kernel, x, mesh=cores)",
            {"handed-refs", "sparse-core-mesh"},
        ),
    ],
)
def test_operations_that_the_entry_point_shows(call, expected):
    assert keys("pass", call) == expected


ALIASED = "pl.pallas_call(kernel, out_shape=x, input_output_aliases={aliases})(x)"


@pytest.mark.parametrize(
    "body, aliases, harmless",
    [
        ("o_ref[...] = x_ref[...]", "{0: 0}", True),
        ("o_ref[...] += x_ref[...]", "{0: 0}", True),
        ("x = x_ref[...]\no_ref[...] = x", "{0: 0}", True),
        ("o_ref[x_ref[0]] = 1", "{0: 0}", True),
        ("o_ref[...] = x_ref.shape[0]", "{0: 0}", True),
        ("o_ref[...] = 1", "{0: 0}", True),
        ("del x_ref\no_ref[...] = 1", "{0: 0}", True),
        ("x_ref[...] = 1", "{}", True),
        ("x_ref[...] = 1", "{0: 0}", False),
        ("x_ref[...] += 1", "{0: 0}", False),
        ("o_ref[0] = 1\no_ref[1] = x_ref[0]", "{0: 0}", False),
        ("for i in range(8):\n    o_ref[i] = x_ref[i]", "{0: 0}", False),
        ("while x_ref[0]:\n    o_ref[0] = 1", "{0: 0}", False),
        ("def step():\n    o_ref[...] = x_ref[...]\nstep()", "{0: 0}", False),
        ("pltpu.sync_copy(x_ref, o_ref)", "{0: 0}", False),
        ("elsewhere(o_ref)\no_ref[...] = x_ref[...]", "{0: 0}", False),
        ("ref = x_ref\no_ref[...] = 1", "{0: 0}", False),
        ("o_ref[...] = x_ref[...]", "{1: 0}", False),
        ("o_ref[...] = x_ref[...]", "{7: 0}", False),
        ("o_ref[...] = x_ref[...]", "{n: 0}", False),
        ("o_ref[...] = x_ref[...]", "n", False),
    ],
)
def test_an_alias_is_harmless_where_the_input_is_read_only_before_anything_is_stored(
    body, aliases, harmless
):
    found = keys(body, ALIASED.format(aliases=aliases))
    assert ("alias-read-after-write" not in found) is harmless


def test_an_alias_counts_the_parameters_that_a_partial_leaves():
    call = (
        "pl.pallas_call(functools.partial(kernel, 2), out_shape=x, input_output_aliases={0: 0})(x)"
    )
    assert keys("o_ref[...] = x_ref[...] * n", call, "n, x_ref, o_ref") == set()
    assert keys("x_ref[...] = x_ref[...] * n", call, "n, x_ref, o_ref") == {
        "alias-read-after-write"
    }


PREFETCHED = (
    "spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(8,))\n"
    "pl.pallas_call(kernel, out_shape=x, grid_spec=spec)(n, x)"
)


@pytest.mark.parametrize(
    "body, is_state",
    [
        ("o_ref[...] = x_ref[...] * n_ref[0]", False),
        ("n_ref[0] = 1", True),
        ("n_ref[0] += 1", True),
        ("def bump(ref):\n    ref[0] += 1\nbump(n_ref)", True),
        ("def bump(ref):\n    ref[0] += 1\nbump(o_ref)", False),
        ("x_ref[0] = 1", False),
    ],
)
def test_a_prefetched_scalar_that_is_written_is_state(body, is_state):
    found = keys(body, PREFETCHED, "n_ref, x_ref, o_ref")
    assert ("scalar-prefetch-state" in found) is is_state


SEMANTICS = "compiler_params=pltpu.CompilerParams(dimension_semantics=('parallel',))"


@pytest.mark.parametrize(
    "around, arguments, expected",
    [
        ("jax.checkpoint(call)(x)", "", {"checkpoint-grad"}),
        ("jax.remat(call)(x)", "", {"checkpoint-grad"}),
        ("jax.checkpoint(lambda x: call(x))(x)", "", {"checkpoint-grad"}),
        ("jax.checkpoint(other)(x)", "", set()),
        ("jax.vmap(call)(x)", "", set()),
        ("jax.vmap(call)(x)", SEMANTICS, {"vmap-dimension-semantics"}),
        ("jax.vmap(jax.jit(call))(x)", SEMANTICS, {"vmap-dimension-semantics"}),
        ("jax.vmap(functools.partial(call))(x)", SEMANTICS, {"vmap-dimension-semantics"}),
        ("jax.jit(call)(x)", SEMANTICS, set()),
    ],
)
def test_transformations_around_the_entry_point(around, arguments, expected):
    text = (
        f"{IMPORTS}def kernel(x_ref, o_ref):\n    pass\n"
        f"def call(x):\n    return pl.pallas_call(kernel, out_shape=x, {arguments})(x)\n"
        f"def other(x):\n    return x\ndef outer(x):\n    return {around}\n"
    )
    found = {f.operation.key for f in operations(*site_of_module(text))}
    assert found == expected


@pytest.mark.parametrize(
    "decorator, expected",
    [
        ("@jax.checkpoint", {"checkpoint-grad"}),
        ("@jax.remat", {"checkpoint-grad"}),
        ("@functools.partial(jax.checkpoint, policy=None)", {"checkpoint-grad"}),
        ("@jax.jit\n@jax.checkpoint", {"checkpoint-grad"}),
        ("@jax.vmap", {"vmap-dimension-semantics"}),
        ("@functools.partial(jax.vmap, in_axes=0)", {"vmap-dimension-semantics"}),
        ("@jax.jit", set()),
        ("@checkpoint", set()),
    ],
)
def test_transformations_by_a_decorator(decorator, expected):
    text = (
        f"{IMPORTS}def kernel(x_ref, o_ref):\n    pass\n"
        f"PARAMS = pltpu.CompilerParams(dimension_semantics=('parallel',))\n"
        f"def call(x):\n    return pl.pallas_call(kernel, compiler_params=PARAMS)(x)\n"
        f"{decorator}\ndef outer(x):\n    return call(x)\n"
    )
    assert {f.operation.key for f in operations(*site_of_module(text))} == expected


def test_a_transformation_of_the_entry_point_itself():
    text = kernel_text("pass", f"jax.vmap(pl.pallas_call(kernel, {SEMANTICS}))(x)")
    found = operations(*site_of_module(text))
    assert {f.operation.key for f in found} == {"vmap-dimension-semantics"}


@pytest.mark.parametrize(
    "kernel, expected",
    [
        ("kernel", {"delay"}),
        ("lambda x_ref, o_ref: kernel(x_ref, o_ref)", {"delay"}),
        ("functools.partial(kernel, 1)", {"delay"}),
        ("kernel if x else quiet", {"delay"}),
        ("quiet", set()),
        ("quiet if x else silent", set()),
        ("lambda x_ref, o_ref: None", set()),
        ("self.kernel", {"delay"}),
        ("given", {"delay"}),
        ("make()", {"delay"}),
    ],
)
def test_a_kernel_is_followed_and_where_it_can_not_be_the_module_counts(kernel, expected):
    text = (
        f"{IMPORTS}def kernel(*refs):\n    pl.delay(1)\ndef quiet(*refs):\n    pass\n"
        "def silent(*refs):\n    pass\n"
        f"def call(self, given, make, x):\n    pl.pallas_call({kernel}, out_shape=x)(x)\n"
    )
    assert {f.operation.key for f in operations(*site_of_module(text))} == expected


@pytest.mark.parametrize(
    "body, simulator, decided_by, amiss",
    [
        ("pass", False, "", []),
        ("pl.delay(1)", True, "delay", []),
        ("x_ref.reshape(8)[...]", False, "ref-reshape", []),
        ("pltpu.stochastic_round(1)", False, "stochastic_round", ["stochastic_round"]),
        (
            "pl.delay(1)\npltpu.stochastic_round(1)",
            False,
            "stochastic_round",
            ["stochastic_round"],
        ),
        ("pl.delay(1)\nx_ref.reshape(8)[...]", False, "delay", ["delay", "ref-reshape"]),
        ("pltpu.prng_random_bits((8,))", True, "prng_random_bits", ["prng_random_bits"]),
        ("pltpu.get_barrier_semaphore()\npl.delay(1)", True, "get_barrier_semaphore", []),
    ],
)
def test_the_interpreter_that_is_chosen(body, simulator, decided_by, amiss):
    choice = choose(*site_of_module(kernel_text(body)))
    assert choice.simulator is simulator
    assert (choice.decided_by.operation.key if choice.decided_by else "") == decided_by
    assert [found.operation.key for found in choice.amiss] == amiss


@pytest.mark.parametrize(
    "jax, simulator", [(None, True), ((0, 10, 2), True), ((0, 12, 0), False), ((0, 13, 0), False)]
)
def test_a_release_that_is_told_decides_what_serves(jax, simulator):
    body = "pltpu.make_async_remote_copy(x_ref, o_ref, s, r, device_id=(0, 1)).start()"
    assert choose(*site_of_module(kernel_text(body), jax)).simulator is simulator


def test_each_row_is_found_once_where_it_is_first_met_in_the_kernel():
    text = kernel_text("x_ref[...]\npl.delay(1)\npl.delay(2)")
    (found,) = operations(*site_of_module(text))
    assert text.splitlines()[found.line - 1].strip() == "pl.delay(1)"


def test_a_message_names_the_operation_its_line_and_what_is_wrong():
    operation = next(row for row in OPERATIONS if row.key == "prng_random_bits")
    found = Found(operation, 7)
    assert found.told == (
        "prng_random_bits in line 7: interpret=True has no hardware random numbers"
    )
    assert found.wrong == ("prng_random_bits in line 7: the simulator's random bits are all zeros")
