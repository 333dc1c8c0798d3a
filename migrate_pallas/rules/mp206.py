"""MP206: a call that asks for the figures of a TPU, in a form that is not rewritten."""

from __future__ import annotations

from bowler import Query

from . import rule


@rule("MP206", "figures-by-hand", told_by=("MP120", "MP121", "MP130"))
def figures_by_hand(query: Query) -> Query:
    """A call that asks for the figures of a TPU inside, in a form that MP130 can't rewrite exactly.

    What it does: reports `emit_pipeline_with_allocations`, `emit_pipeline_with_async_prefetch`, and pipelines or meshes
    that are made by a decorator or through `functools.partial`; and, where `--jax` is a release that has nothing to
    stand in for the figures, every call that asks for them, `get_tpu_info()` too.

    Why: on CPU they raise `ValueError: Unsupported TPU device kind: cpu`.

    Example:

        pipeline, allocations = pltpu.emit_pipeline_with_allocations(body, grid=(8,), in_specs=[spec])

    Use instead: call the pipeline under `jax.sharding.use_abstract_mesh(mesh)`, where `mesh` is
    `jax.sharding.AbstractMesh((), (), abstract_device=device)` and `device` is
    `jax.sharding.AbstractDevice(device_kind="TPU v6 lite", num_cores=1, platform="tpu")`.

    References: jax/_src/pallas/mosaic/pipeline.py, JAX 0.10.2.
    """
    return query
