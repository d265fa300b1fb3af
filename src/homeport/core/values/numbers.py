"""Which numbers are accepted: those that every database, message, language and calendar involved can hold."""

from typing import Final

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
SECONDS_MAX: Final = 10**9
"""Some thirty years. A date may be that far away, before or behind."""
DAYS_MAX: Final = 36_500
"""A century: in effect for ever."""


def fits_64_bits(value: int) -> bool:
    return INTEGER_MIN <= value <= INTEGER_MAX
