"""MP130: calls that ask for the figures of a TPU inside."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Node

from ..calls import Call, end, start, written
from ..changes import NOTHING
from ..edits import Edit, add_item
from ..figures import Figures
from ..module import Module
from ..names import PARTIAL
from ..releases import Release, has, has_figures, since, spelled
from ..settings import GATE
from ..targets import decorated_by
from . import CALL, rule

_PIPELINES = ("emit_pipeline",)
_MESHES = ("TensorCoreMesh", "ScalarSubcoreMesh", "VectorSubcoreMesh", "get_sparse_core_info")
_TAKES_CORES = "create_tensorcore_mesh"
# It asks only where it is given neither cores (JAX 0.12) nor devices (0.10).
_NEEDS_NONE_WITH_CORES = "TensorCoreMesh"
# A pair, of which only the first is called; and a pipeline whose own kernel can't be interpreted.
_NOT_EXACTLY = ("emit_pipeline_with_allocations", "emit_pipeline_with_async_prefetch")


@rule(
    "MP130",
    "tpu-figures",
    ("pallas", "emit_pipeline"),
    ("pallas", "TensorCoreMesh"),
    ("pallas", "create_tensorcore_mesh"),
    ("pallas", "SubcoreMesh"),
    ("pallas", "get_sparse_core_info"),
    about=(*_PIPELINES, *_MESHES, _TAKES_CORES, *_NOT_EXACTLY),
)
def tpu_figures(query: Query) -> Query:
    """A call that asks for the figures of the TPU that is there: a pipeline, a mesh of cores.

    What it does: lets what `pltpu.emit_pipeline(...)` returned, and the constructors of meshes of cores, run under an
    abstract mesh of one chip (`--tpu`, default v6e), through one context manager that it adds to the module; gated,
    only where there is no TPU. `create_tensorcore_mesh(axis)` gets `num_cores=1` instead.

    Why: on CPU they raise `ValueError: Unsupported TPU device kind: cpu`, or an `AttributeError` without a text.

    Example:

        pltpu.emit_pipeline(body, grid=(8,), in_specs=[spec], out_specs=[spec])(x_ref, o_ref)

    Use instead:

        tpu_figures()(pltpu.emit_pipeline(body, grid=(8,), in_specs=[spec], out_specs=[spec]))(x_ref, o_ref)

    References: jax/_src/pallas/mosaic/pipeline.py and core.py, JAX 0.10.2. A context manager of `contextlib` may be
    called with a function, which then runs under it (`contextlib.ContextDecorator`).
    """
    return query.select(CALL).filter(asks_for_figures).modify(give_figures)


def asks_for_figures(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` asks for figures inside, and would do so on CPU."""
    module: Module = capture["module"]
    call = module.call_at(node)
    if call is None:
        return False
    meaning = module.names.callee(call)
    first, decorated = call.positional(0), decorated_by(call)
    if decorated is not None and meaning.path == PARTIAL and first is not None:
        meaning = module.names.meaning(first)
    name = meaning.path.rpartition(".")[2]
    if (
        not meaning.path.startswith(("jax.experimental.pallas.", "jax._src.pallas."))
        or "mosaic_gpu" in meaning.path
    ):
        return False
    indirect = bool(meaning.through) or decorated is not None
    capture.update(call=call, name=name, indirect=indirect)
    if name not in (*_PIPELINES, *_MESHES, _TAKES_CORES, *_NOT_EXACTLY):
        return False
    if name == _NEEDS_NONE_WITH_CORES and _is_given(call, "num_cores", 0):
        return False
    return not module.is_guarded(node) and not Figures(module).under_manager(node)


def _is_given(call: Call, keyword: str, position: int) -> bool:
    """Whether `call` passes the argument `keyword`, or something at `position`."""
    item = call.brackets.keyword(keyword)
    given = item.value if item else call.positional(position)
    return given is not None and written(given) != "None"


def give_figures(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Propose that it sees the figures of a chip."""
    module: Module = capture["module"]
    call: Call = capture["call"]
    name: str = capture["name"]
    if name != _TAKES_CORES and not has_figures(module.settings.release):
        _nothing_serves(module, call, name, since("use_abstract_mesh"))
    elif name in _NOT_EXACTLY or capture["indirect"]:
        _by_hand(module, call, name)
    elif name == _TAKES_CORES:
        _one_core(module, call)
    else:
        _under_manager(module, call, name)


def _by_hand(module: Module, call: Call, name: str) -> None:
    module.find(
        "MP206",
        call.power,
        f"{name} asks for the figures of a TPU, and is not called in a way that can be rewritten: run it under "
        "jax.sharding.use_abstract_mesh with the mesh of a chip",
    )


def _nothing_serves(module: Module, call: Call, name: str, first: Release) -> None:
    """Report that the release has nothing that stands in for the figures; `first` is the first that has."""
    module.find(
        "MP206",
        call.power,
        f"{name} asks for the figures of a TPU, and JAX {spelled(module.settings.release)} has no way to show it those "
        f"of a chip ({spelled(first)} is the first that has): it can't run where there is no TPU",
    )


def _one_core(module: Module, call: Call) -> None:
    """`num_cores=1`; gated, JAX's own default on TPU."""
    if _is_given(call, "num_cores", 2):
        return
    if _is_given(call, "devices", 1) or call.brackets.keyword("num_cores") or call.brackets.splats:
        _by_hand(module, call, _TAKES_CORES)
        return
    if not has(module.settings.release, _TAKES_CORES, "num_cores"):
        _nothing_serves(module, call, _TAKES_CORES, since(_TAKES_CORES, "num_cores"))
        return
    text, needs = "1", NOTHING
    if module.settings.strategy == GATE:
        gate = module.gate.call(call.trailer)
        if gate is None:
            module.find_at_import(call.power, f"num_cores= of {_TAKES_CORES}")
            return
        text, needs = f"None if {gate.text} else 1", gate.needs
    reason = f"{_TAKES_CORES} asks the TPU for its number of cores: one stands in"
    module.propose(
        "MP130",
        call.power,
        reason,
        add_item(module.text, call.brackets, f"num_cores={text}"),
        needs,
    )


def _under_manager(module: Module, call: Call, name: str) -> None:
    """The pipeline, or the constructor, is handed to the context manager, which it then runs under."""
    is_pipeline = name in _PIPELINES
    runs_now = (
        not is_pipeline
        and module.settings.strategy == GATE
        and module.names.runs_at_import(call.trailer)
    )
    if runs_now and not module.settings.gate_at_import:
        module.find_at_import(call.power, name)
        return
    manager = Figures(module).manager()
    last = end(call.trailer) if is_pipeline else start(call.trailer)
    edits = (Edit(start(call.power), start(call.power), f"{manager.text}("), Edit(last, last, ")"))
    reason = f"{name} asks for the figures of a TPU: those of a {module.settings.chip} stand in where there is none"
    module.propose("MP130", call.power, reason, edits, manager.needs)
