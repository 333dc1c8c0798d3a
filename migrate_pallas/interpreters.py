"""Which of Pallas's two interpreters runs which operation of a TPU kernel right on CPU.

Measured, not read: ``tests/test_interpreters.py`` runs a kernel for every row on the installed JAX.
The generic interpreter is ``interpret=True``. The simulator is
``pltpu.InterpretParams(dma_execution_mode="eager", out_of_bounds_reads="uninitialized")``.

The names are those of ``jax.experimental.pallas``, ``.tpu`` and ``.tpu_sc`` in JAX 0.10.2 and
0.12.0; each is in the ``names`` of some row or in ``NO_PART``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

Release = tuple[int, int]


class Serves(enum.Flag):
    """Which interpreters do an operation right; ``&`` of two is what serves a kernel with both."""

    NEITHER = 0
    GENERIC = 1
    SIMULATOR = 2
    BOTH = 3


@dataclass(frozen=True)
class Operation:
    """One operation, or pattern of code, of TPU kernels.

    ``key``: stable, and short; what refers to a row without naming a function refers to it by this.
    ``names``: the functions that are the operation, by their canonical dotted names; empty for a
    pattern that no name shows.
    ``serves``: who does it right, in the newest release that was measured.
    ``why``: a phrase for a message, saying what is wrong with an interpreter that does not serve.
    ``keyword``: the row is about those calls of ``names`` that pass this argument.
    ``until``: a release, and who served before it.
    ``flaw``: what even an interpreter that serves gets wrong, though it raises nothing.
    """

    key: str
    names: tuple[str, ...]
    serves: Serves
    why: str
    keyword: str = ""
    until: tuple[Release, Serves] | None = None
    flaw: str = ""

    def serves_in(self, release: Release) -> Serves:
        """Who does it right in JAX ``release``, as in ``(0, 12)``."""
        if self.until is not None and release < self.until[0]:
            return self.until[1]
        return self.serves

    @property
    def serves_everywhere(self) -> Serves:
        """Who does it right in every release measured, for code whose JAX is not known.

        ``NEITHER`` may mean that it takes a newer release: ``serves`` then tells who does.
        """
        return self.serves if self.until is None else self.serves & self.until[1]


def _pl(*names: str) -> tuple[str, ...]:
    return tuple(f"jax.experimental.pallas.{name}" for name in names)


def _tpu(*names: str) -> tuple[str, ...]:
    return tuple(f"jax.experimental.pallas.tpu.{name}" for name in names)


def _sc(*names: str) -> tuple[str, ...]:
    return tuple(f"jax.experimental.pallas.tpu_sc.{name}" for name in names)


NEITHER, GENERIC, SIMULATOR, BOTH = Serves.NEITHER, Serves.GENERIC, Serves.SIMULATOR, Serves.BOTH

_RIGHT = "both interpreters compute it"
_NO_CPU_RULE = "neither interpreter implements it"
_SC_OPERATION = "neither interpreter implements this SparseCore operation"
_TPU_AXES = "interpret=True knows no axis of cores"

_RANDOM = (
    Operation(
        "prng_seed", _tpu("prng_seed"), SIMULATOR, "interpret=True has no hardware random numbers"
    ),
    Operation(
        "prng_random_bits",
        _tpu("prng_random_bits"),
        SIMULATOR,
        "interpret=True has no hardware random numbers",
        flaw="the simulator's random bits are all zeros",
    ),
    Operation(
        "stateful_random",
        _tpu("stateful_bits", "stateful_uniform", "stateful_normal", "stateful_bernoulli"),
        NEITHER,
        "neither interpreter has the hardware's stateful random numbers",
    ),
    Operation(
        "to_pallas_key",
        _tpu("to_pallas_key"),
        NEITHER,
        "neither interpreter draws random numbers from a Pallas key",
    ),
    Operation("sample_block", _tpu("sample_block"), BOTH, _RIGHT),
    Operation("jax-random", (), BOTH, _RIGHT),
)

_VALUES = (
    Operation("stochastic_round", _tpu("stochastic_round"), NEITHER, _NO_CPU_RULE),
    Operation("pack_elementwise", _tpu("pack_elementwise"), NEITHER, _NO_CPU_RULE),
    Operation("unpack_elementwise", _tpu("unpack_elementwise"), NEITHER, _NO_CPU_RULE),
    Operation(
        "split_bits",
        _tpu("split_bits", "pack_fp6"),
        NEITHER,
        "neither interpreter implements unpack_elementwise, by which it takes the higher bits",
    ),
    Operation(
        "join_bits",
        _tpu("join_bits", "unpack_fp6"),
        NEITHER,
        "neither interpreter implements pack_elementwise, by which it joins",
    ),
    Operation("bitcast", _tpu("bitcast"), BOTH, _RIGHT),
    Operation("roll", _tpu("roll"), BOTH, _RIGHT),
    Operation("einshape", _tpu("einshape"), BOTH, _RIGHT),
    Operation("reciprocal", (*_pl("reciprocal"), *_tpu("reciprocal")), BOTH, _RIGHT),
    Operation("broadcast_to", _pl("broadcast_to"), BOTH, _RIGHT),
    Operation("multiple_of", _pl("multiple_of"), BOTH, _RIGHT),
    Operation("empty", _pl("empty", "empty_like"), BOTH, _RIGHT),
    Operation("dot", (), BOTH, _RIGHT),
    Operation(
        "matmul_explicit",
        _tpu("matmul_push_rhs", "matmul_acc_lhs", "matmul_pop", "ACC"),
        NEITHER,
        "neither interpreter has the matrix unit's registers",
    ),
    Operation(
        "matmul_fifo",
        _tpu("matmul_lhs_fifo", "matmul_pop_fifo"),
        NEITHER,
        "neither interpreter has the matrix unit's queue",
    ),
    Operation("conv", _tpu("conv"), NEITHER, _NO_CPU_RULE),
)

_REFS = (
    Operation("static-slice", _pl("ds", "dslice", "Slice"), BOTH, _RIGHT),
    Operation("traced-start", (), BOTH, _RIGHT),
    Operation(
        "traced-slice", (), SIMULATOR, "interpret=True needs to know a slice's size when it traces"
    ),
    Operation("strided-slice", (), BOTH, _RIGHT),
    Operation("smem-scalars", (), BOTH, _RIGHT),
    Operation("load", _tpu("load"), BOTH, _RIGHT),
    Operation(
        "masked-load",
        _tpu("load"),
        GENERIC,
        "the simulator has no masked load",
        keyword="mask",
    ),
    Operation("store", _tpu("store"), BOTH, _RIGHT),
    Operation("masked-store", _tpu("store"), BOTH, _RIGHT, keyword="mask"),
    Operation("ref-reshape", (), GENERIC, "the simulator has no reshaped view of a Ref"),
    Operation("ref-bitcast", (), GENERIC, "the simulator has no bitcast view of a Ref"),
    Operation(
        "store-through-view",
        (),
        GENERIC,
        "the simulator has no views of a Ref, interpret=True none to store through before JAX 0.12",
        until=((0, 12), NEITHER),
    ),
    Operation(
        "copy-from-view", (), GENERIC, "the simulator has no reshaped or bitcast view of a Ref"
    ),
    Operation(
        "copy-to-view",
        (),
        GENERIC,
        "the simulator has no views of a Ref, interpret=True none to copy to before JAX 0.12",
        until=((0, 12), NEITHER),
    ),
    Operation(
        "copy-of-traced-slice-of-view",
        (),
        NEITHER,
        "interpret=True needs to know a slice's size, and the simulator has no views of a Ref",
    ),
    Operation("select_ref", _pl("select_ref"), NEITHER, _NO_CPU_RULE),
    Operation("touch", _tpu("touch"), NEITHER, _NO_CPU_RULE),
    Operation(
        "annotate", _tpu("annotate"), GENERIC, "the simulator has no annotated view of a Ref"
    ),
    Operation("has_memory_space", _tpu("has_memory_space"), NEITHER, _NO_CPU_RULE),
)

_SCOPES = (
    Operation("run_scoped", _pl("run_scoped"), BOTH, _RIGHT),
    Operation("with_scoped", _pl("with_scoped"), BOTH, _RIGHT),
    Operation("run_state", _pl("run_state"), BOTH, _RIGHT),
    Operation("hbm-run-scoped", (), GENERIC, "the simulator allocates no HBM in run_scoped"),
    Operation("hbm-scratch", (), GENERIC, "the simulator allocates no HBM as scratch"),
    Operation(
        "host-ref",
        _pl("HOST"),
        BOTH,
        "the simulator has no host memory before JAX 0.12",
        until=((0, 12), GENERIC),
    ),
    Operation("sync_copy", _tpu("sync_copy"), BOTH, _RIGHT),
    Operation(
        "copy-add",
        _tpu("sync_copy"),
        NEITHER,
        "interpret=True has no copy that adds, and the simulator's overwrites",
        keyword="add",
    ),
    Operation("async_copy", _tpu("async_copy", "make_async_copy"), BOTH, _RIGHT),
    Operation("semaphore", _pl("semaphore_signal", "semaphore_wait"), BOTH, _RIGHT),
    Operation(
        "semaphore-wait-keeping",
        _pl("semaphore_wait"),
        GENERIC,
        "the simulator's wait always decrements",
        keyword="decrement",
    ),
    Operation(
        "semaphore_read", _pl("semaphore_read"), GENERIC, "the simulator can't read a semaphore"
    ),
    Operation(
        "semaphore-output",
        _tpu("SEMAPHORE"),
        NEITHER,
        "neither interpreter hands a semaphore from one kernel to the next",
    ),
    Operation(
        "with_memory_space_constraint",
        _tpu("with_memory_space_constraint"),
        BOTH,
        "interpret=True can't mix memory spaces before JAX 0.12",
        until=((0, 12), SIMULATOR),
    ),
    Operation(
        "vmem-constraint",
        (),
        GENERIC,
        "the simulator takes no argument from VMEM, interpret=True none before JAX 0.12",
        until=((0, 12), NEITHER),
    ),
    Operation("delay", _pl("delay"), SIMULATOR, "interpret=True has no delay"),
    Operation(
        "trace_value",
        _tpu("trace_value"),
        SIMULATOR,
        "interpret=True can't trace a value, nor can the simulator before JAX 0.12",
        until=((0, 12), NEITHER),
    ),
    Operation("debug_print", _pl("debug_print"), BOTH, _RIGHT),
    Operation(
        "debug_check",
        _pl("debug_check"),
        BOTH,
        _RIGHT,
        flaw="neither interpreter runs the check",
    ),
)

_DEVICES = (
    Operation("device-id-scalar", (), BOTH, _RIGHT),
    Operation(
        "remote-copy",
        _tpu("make_async_remote_copy", "async_remote_copy"),
        BOTH,
        _RIGHT,
    ),
    Operation(
        "device-id-tuple",
        (),
        BOTH,
        "interpret=True takes only a scalar device_id before JAX 0.12",
        until=((0, 12), SIMULATOR),
    ),
    Operation(
        "device-id-dict",
        (),
        BOTH,
        "interpret=True takes only a scalar device_id before JAX 0.12",
        until=((0, 12), SIMULATOR),
    ),
    Operation(
        "several-device-axes",
        (),
        SIMULATOR,
        "interpret=True copies between devices along one mesh axis only",
    ),
    Operation(
        "remote-signal",
        _pl("semaphore_signal"),
        SIMULATOR,
        "interpret=True has no signal to another device",
        keyword="device_id",
    ),
    Operation(
        "get_barrier_semaphore",
        _tpu("get_barrier_semaphore"),
        SIMULATOR,
        "interpret=True has no barrier semaphore",
    ),
    Operation("device-axis-index", (), BOTH, _RIGHT),
)

_CALLS = (
    Operation("program_id", _pl("program_id", "num_programs"), BOTH, _RIGHT),
    Operation("when", _pl("when"), BOTH, _RIGHT),
    Operation("loop", _pl("loop"), BOTH, _RIGHT),
    Operation("lax-control-flow", (), BOTH, _RIGHT),
    Operation("scratch-state", (), BOTH, _RIGHT),
    Operation("dynamic-grid", (), BOTH, _RIGHT),
    Operation("ragged-last-block", (), BOTH, _RIGHT),
    Operation("squeezed-block", _pl("Squeezed", "squeezed"), BOTH, _RIGHT),
    Operation("element-block", _pl("Element"), BOTH, _RIGHT),
    Operation(
        "padded-element-block", (), GENERIC, "the simulator ignores the padding of pl.Element"
    ),
    Operation(
        "bounded-slice",
        _pl("BoundedSlice"),
        SIMULATOR,
        "interpret=True needs to know a slice's size when it traces",
    ),
    Operation(
        "indirect-block", _pl("Indirect"), GENERIC, "the simulator can't gather blocks by an array"
    ),
    Operation("buffered-block", _pl("Buffered"), BOTH, _RIGHT),
    Operation(
        "revisited-block",
        _pl("RevisitMode"),
        GENERIC,
        "the simulator refuses an output block that is visited again later",
    ),
    Operation("scalar-prefetch", _tpu("PrefetchScalarGridSpec"), BOTH, _RIGHT),
    Operation(
        "scalar-prefetch-state",
        (),
        SIMULATOR,
        "interpret=True forgets between grid steps what is written to a scalar-prefetch Ref",
    ),
    Operation("alias-untouched", (), BOTH, _RIGHT),
    Operation(
        "alias-input-written",
        (),
        BOTH,
        "interpret=True loses what is written to an aliased input before JAX 0.12",
        until=((0, 12), SIMULATOR),
    ),
    Operation(
        "alias-both-written",
        (),
        SIMULATOR,
        "interpret=True loses one of the writes to an aliased input and its output",
    ),
    Operation(
        "alias-read-after-write",
        (),
        SIMULATOR,
        "under interpret=True an aliased input does not show what was written to the output",
    ),
    Operation(
        "alias-across-steps",
        (),
        BOTH,
        "under interpret=True an aliased input does not show what an earlier grid step wrote"
        " before JAX 0.12",
        until=((0, 12), SIMULATOR),
    ),
    Operation("vmap", (), BOTH, _RIGHT),
    Operation("vmap-hbm", (), GENERIC, "the simulator can't batch a kernel whose Refs are in HBM"),
    Operation("dimension-semantics", (), BOTH, _RIGHT),
    Operation(
        "vmap-dimension-semantics",
        (),
        GENERIC,
        "the simulator can't batch a kernel that has dimension_semantics",
    ),
    Operation(
        "checkpoint-grad",
        (),
        GENERIC,
        "the simulator's effects are refused under jax.checkpoint with grad",
    ),
)

_CORES = (
    Operation("kernel", _pl("kernel"), BOTH, _RIGHT),
    Operation(
        "handed-refs",
        (),
        BOTH,
        "interpret=True loses what pl.kernel writes to Refs it was handed before JAX 0.12",
        until=((0, 12), SIMULATOR),
    ),
    Operation(
        "empty_ref_like",
        _pl("empty_ref_like"),
        BOTH,
        "interpret=True loses what pl.kernel writes to Refs it was handed before JAX 0.12",
        until=((0, 12), SIMULATOR),
    ),
    Operation(
        "core_map",
        _pl("core_map"),
        BOTH,
        "interpret=True loses what core_map writes to Refs before JAX 0.12",
        until=((0, 12), SIMULATOR),
    ),
    Operation("core-axis-index", (), SIMULATOR, _TPU_AXES),
    Operation("run_on_first_core", _tpu("run_on_first_core"), SIMULATOR, _TPU_AXES),
    Operation("core_barrier", _tpu("core_barrier"), SIMULATOR, _TPU_AXES),
    Operation(
        "emit_pipeline", _tpu("emit_pipeline", "emit_pipeline_with_allocations"), BOTH, _RIGHT
    ),
    Operation(
        "emit_pipeline-core-axis",
        _tpu("emit_pipeline"),
        SIMULATOR,
        _TPU_AXES,
        keyword="core_axis_name",
    ),
    Operation(
        "emit_pipeline_with_async_prefetch",
        _tpu("emit_pipeline_with_async_prefetch"),
        NEITHER,
        "the kernel by which it fetches can't be told to be interpreted",
    ),
)

_SPARSE_CORES = (
    Operation(
        "sparse-core-mesh",
        _sc("ScalarSubcoreMesh", "VectorSubcoreMesh"),
        NEITHER,
        "interpret=True knows no axis of cores, and the simulator runs core 0 only",
    ),
    *(
        Operation(f"sc-{name}", _sc(name), NEITHER, _SC_OPERATION)
        for name in (
            "Indices",
            "addupdate",
            "addupdate_compressed",
            "addupdate_scatter",
            "all_reduce_ffs",
            "all_reduce_population_count",
            "cummax",
            "cumsum",
            "fetch_and_add",
            "load_expanded",
            "load_gather",
            "pack",
            "parallel_loop",
            "scan_count",
            "slice_subcore_vmem_from_shared",
            "sort_key_val",
            "store_compressed",
            "store_scatter",
            "subcore_barrier",
            "unpack",
        )
    ),
    Operation(
        "sc-bitcast",
        _sc("bitcast"),
        BOTH,
        "neither interpreter implements it before JAX 0.12",
        until=((0, 12), NEITHER),
    ),
)

OPERATIONS: tuple[Operation, ...] = (
    *_RANDOM,
    *_VALUES,
    *_REFS,
    *_SCOPES,
    *_DEVICES,
    *_CALLS,
    *_CORES,
    *_SPARSE_CORES,
)

NO_PART: tuple[str, ...] = (
    # Entry points, specifications and types, of which no interpreter asks more than the other.
    *_pl(
        "ANY",
        "BlockDim",
        "BlockSpec",
        "Blocked",
        "CompilerParams",
        "CostEstimate",
        "DeviceIdType",
        "GridSpec",
        "MemoryRef",
        "MemorySpace",
        "no_block_spec",
        "pallas_call",
        "pallas_call_p",
        "semaphore",
    ),
    *_tpu(
        "ARBITRARY",
        "BufferType",
        "BufferedRef",
        "BufferedRefBase",
        "CMEM",
        "CORE_PARALLEL",
        "CompilerParams",
        "CoreType",
        "GridDimensionSemantics",
        "HBM",
        "MemorySpace",
        "PARALLEL",
        "PipelineStep",
        "SMEM",
        "SUBCORE_PARALLEL",
        "SemaphoreType",
        "SideEffectType",
        "TensorCoreMesh",
        "Tiling",
        "VMEM",
        "VMEM_SHARED",
        "create_tensorcore_mesh",
        "dma_semaphore",
    ),
    *_sc("PackFormat", "SparseCorePushStreamWarning"),
    # Arithmetic on shapes, settings, exports and figures, all outside of kernel bodies, and what
    # a TPU has not (`get_global`).
    *_pl(
        "align_to",
        "cdiv",
        "enable_debug_checks",
        "enable_poison_buffers",
        "estimate_cost",
        "get_global",
        "lower_as_mlir",
        "next_power_of_2",
        "pallas_export_experimental",
        "strides_from_shape",
    ),
    *_tpu(
        "ChipVersion",
        "InterpretParams",
        "LoweringException",
        "TpuInfo",
        "force_tpu_interpret_mode",
        "get_tpu_info",
        "get_tpu_info_for_chip",
        "is_tpu_device",
        "reset_tpu_interpret_mode_state",
        "set_tpu_interpret_mode",
    ),
    *_sc("get_sparse_core_info"),
)
