"""The stand-in's `pallas.tpu_sc`: all that tells of SparseCores asks for the figures of a TPU."""

from jax import _recording
from jax._recording import Inert


def _asking(name):
    """What asks for figures whenever it is called, and records under which chip's it ran."""

    def asking(*args, **keywords):
        keywords["figures"] = _recording.figures_kind()
        _recording.remember(name, len(args), keywords)
        return Inert(name)

    return asking


get_sparse_core_info = _asking("get_sparse_core_info")
ScalarSubcoreMesh = _asking("ScalarSubcoreMesh")
VectorSubcoreMesh = _asking("VectorSubcoreMesh")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Inert(f"plsc.{name}")
