"""MP208: a site that needs a gate in code that runs at import."""

from __future__ import annotations

from bowler import Query

from . import rule


@rule("MP208", "gate-at-import", told_by=("MP101", "MP110", "MP120", "MP121", "MP130"))
def gate_at_import(query: Query) -> Query:
    """A site that needs a gate, in code that runs when the module is imported: left alone.

    What it does: reports, for the rules that would write a gate, a site in the body of a module or class, or in a
    decorator or default there. With `--gate-at-import` they write the gate.

    Why: a gate calls `jax.default_backend()`, which starts the backend. After that `jax.distributed.initialize()` and
    `jax_num_cpu_devices` fail, so importing the module would break them.

    Example:

        scoped = functools.partial(pl.run_scoped, collective_axes="x")

    Use instead:

        def scoped(*args, **kwargs):
            return pl.run_scoped(*args, collective_axes="x", **kwargs)

    References: jax/_src/distributed.py, `initialize`, JAX 0.10.2.
    """
    return query
