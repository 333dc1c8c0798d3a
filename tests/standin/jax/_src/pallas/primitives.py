"""`run_scoped`, which runs its function at once."""

from jax._recording import Inert, remember, run


def run_scoped(f, *types, **keywords):
    """Records the call, then runs `f` with an inert Ref for each type."""
    remember("run_scoped", 1 + len(types), keywords)
    named = {name: Inert(name) for name in keywords if name != "collective_axes"}
    return run(f, *(Inert(f"ref{i}") for i in range(len(types))), **named)
