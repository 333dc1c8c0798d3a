"""`with_scoped` and `kernel`."""

from jax._recording import Inert, entry_point, remember, run

kernel = entry_point("kernel")


def with_scoped(*types, **keywords):
    """Records the call; what it decorates runs with an inert Ref for each type."""
    remember("with_scoped", len(types), keywords)
    named = {name: Inert(name) for name in keywords if name != "collective_axes"}

    def decorate(function):
        def call(*args):
            return run(function, *args, *(Inert(f"ref{i}") for i in range(len(types))), **named)

        return call

    return decorate
