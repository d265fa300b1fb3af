"""Which integers are accepted: those that every database, message and language involved can hold."""

from typing import Final

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1


def fits_64_bits(value: int) -> bool:
    return INTEGER_MIN <= value <= INTEGER_MAX
