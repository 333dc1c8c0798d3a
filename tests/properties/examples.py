"""How many examples a property is tried with."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Set to 20, say, to try harder than CI has time for.
TIMES = int(os.environ.get("MIGRATE_PALLAS_EXAMPLES", "1"))


def examples(number: int) -> settings:
    """So many examples, or many times as many if the environment says so; without limits of time."""
    return settings(
        max_examples=number * TIMES,
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
            HealthCheck.function_scoped_fixture,
        ],
    )
