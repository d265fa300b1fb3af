"""How many examples a property is tried with, where the profile's own number is not right for it."""

import os

from hypothesis import settings

FRESH = "fresh"
REQUESTS = 30 if os.environ.get("HOMEPORT_REQUESTS") == "long" else 3
"""How many requests are made up for each operation of an API, right and wrong ones: many in `make requests`."""


def examples(count: int) -> int:
    """`count`, or the fewer that the profile for fresh examples tries: it runs beside the fixed ones, not instead."""
    return min(count, settings().max_examples) if settings.get_current_profile_name() == FRESH else count
