"""How many examples a property is tried with, where the profile's own number is not right for it."""

from hypothesis import settings

FRESH = "fresh"


def examples(count: int) -> int:
    """`count`, or the fewer that the profile for fresh examples tries: it runs beside the fixed ones, not instead."""
    return min(count, settings().max_examples) if settings.get_current_profile_name() == FRESH else count
