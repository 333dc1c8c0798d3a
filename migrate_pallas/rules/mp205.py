"""MP205: no CPU interpreter does an operation of the kernel right."""

from __future__ import annotations

from bowler import Query

from . import rule


@rule("MP205", "no-interpreter", told_by=("MP110",))
def no_interpreter(query: Query) -> Query:
    """A kernel that uses an operation which no interpreter has, or has right.

    What it does: reports, for MP110, an entry point whose kernel no interpreter serves, with the operation: one that
    neither implements, two of which each needs another interpreter, or one that raises nothing and gives wrong
    results, such as random bits that are all zeros; and one that needs the simulator, or `interpret=` itself, where
    `--jax` is a release that has none.

    Why: the kernel will fail on CPU, or its numbers can't be trusted there, whichever interpreter is written.

    Example:

        o_ref[...] = pltpu.stochastic_round(x_ref[...], bits, target_dtype=jnp.bfloat16)

    Use instead: on CPU, a reference implementation in `jax.numpy`; or keep the kernel's tests for TPU.

    References: the table in migrate_pallas/interpreters.py, each row of which a test runs on the installed JAX.
    """
    return query
