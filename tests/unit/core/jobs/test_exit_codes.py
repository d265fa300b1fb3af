"""An exit code is explained where it usually has one cause."""

import pytest

from homeport.core.jobs.exit_codes import exit_message


@pytest.mark.parametrize(
    ("exit_code", "memory_bytes", "said"),
    [
        (3, 2**24, "The job ended with exit code 3."),
        (
            137,
            2**24,
            "The job ended with exit code 137: it was killed, as the system does with a program that uses more than "
            "its 16 MiB of memory.",
        ),
        (
            137,
            0,
            "The job ended with exit code 137: it was killed, as the system does with a program that uses all memory "
            "of the machine.",
        ),
    ],
)
def test_a_program_that_was_killed_may_have_used_too_much_memory(
    exit_code: int, memory_bytes: int, said: str
) -> None:
    assert exit_message(exit_code, memory_bytes) == said
