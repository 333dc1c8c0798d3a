"""MP202: `interpret` may hide in a splat, or its value can't be rewritten safely."""

from __future__ import annotations

from bowler import Query

from . import rule


@rule("MP202", "interpret-unclear", told_by=("MP110",))
def interpret_unclear(query: Query) -> Query:
    """An entry point whose `interpret=` can't be told or can't be rewritten safely.

    What it does: reports, for MP110, a call with several splats, or with a splat of an expression, which may hold
    `interpret` already; and a value that would have to be written twice to choose the simulator, but is neither a
    name nor an attribute.

    Why: adding the argument beside a splat that holds it is a `TypeError`; writing an expression twice runs it twice.

    Example:

        pl.pallas_call(kernel, **shapes, **options)

    Use instead:

        pl.pallas_call(kernel, **shapes, **{**options, "interpret": True})

    References: the Python language reference, 6.3.4 "Calls".
    """
    return query
