"""`mpmd_map`, which takes pairs of a mesh and a kernel."""

from jax._recording import remember, run


def mpmd_map(meshes_and_fns, *args, **keywords):
    """Records the call; the result runs each kernel once."""
    remember("mpmd_map", 1 + len(args), keywords)
    return lambda *_, **__: [run(fn) for _, fn in meshes_and_fns]
