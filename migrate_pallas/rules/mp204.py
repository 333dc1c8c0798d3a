"""MP204: a Mosaic GPU or Triton kernel."""

from __future__ import annotations

from typing import Any

from bowler import Query
from fissix.pytree import Node

from ..arguments import held
from ..kinds import Kind
from ..module import Module
from ..targets import ENTRY_POINTS, SCOPED
from . import CALL, rule

_GPU = "this is a Mosaic GPU or Triton kernel, which needs its collective_axes: left alone"
_MIXED = (
    "the code names both TPU and GPU modules, so this may be a GPU kernel, which needs its collective_axes: left "
    "alone; if it is for TPU, drop the argument by hand"
)


@rule(
    "MP204",
    "gpu-kernel",
    ("scoped", "collective_axes"),
    ("pallas", "mosaic_gpu"),
    ("pallas", "triton"),
    told_by=("MP101", "MP110"),
    about=(*SCOPED, *ENTRY_POINTS),
)
def gpu_kernel(query: Query) -> Query:
    """A site in a Mosaic GPU or Triton kernel, or one that may be in one: left alone.

    What it does: reports an entry point whose kind is GPU, and a `run_scoped` or `with_scoped` with
    `collective_axes` whose kind is GPU, or for which the code names both TPU and GPU modules and nothing nearer
    decides.

    Why: Mosaic GPU's kernels, and its interpreter, require the axes. A GPU kernel is not this tool's to change.

    Example:

        pl.run_scoped(body, plgpu.SMEM((8,), jnp.float32), collective_axes="wg")

    Use instead: nothing, where the kernel is for GPU. Where it is not, drop the argument by hand, or name the TPU
    memory space in the call, which decides.

    References: jax/_src/pallas/mosaic_gpu/lowering.py, `_run_scoped_lowering_rule`, JAX 0.10.2.
    """
    return query.select(CALL).filter(is_gpu_site).modify(report)


def is_gpu_site(node: Node, capture: dict[str, Any], filename: str) -> bool:
    """Whether the call `node` is a site with axes that is not ours to change."""
    module: Module = capture["module"]
    site = module.site_at(node)
    if site is None:
        return False
    if site.target not in SCOPED:
        capture["message"] = "this is a Mosaic GPU or Triton kernel: left alone"
        capture["at"] = site.call.power
        return (
            module.considers("MP110") and not site.through and module.kinds.kind(site) is Kind.GPU
        )
    found = list(held(module, site, "collective_axes", None))
    kind = module.kinds.kind(site) if found and module.considers("MP101") else Kind.PORTABLE
    capture["message"] = _MIXED if kind is Kind.MIXED else _GPU
    capture["at"] = found[0].item.first if found else None
    return kind in (Kind.GPU, Kind.MIXED)


def report(node: Node, capture: dict[str, Any], filename: str) -> None:
    """Report the site."""
    capture["module"].find("MP204", capture["at"], capture["message"])
