"""What the exit code of a job says to a person."""

from typing import Final

KILLED: Final = 137
"""128 and the number of SIGKILL, as shells and container engines report it."""


def exit_message(exit_code: int, memory_bytes: int) -> str:
    """Engines do not say reliably who killed a program, so this says when it happens. Without a limit, `memory_bytes`
    is 0."""
    said = f"The job ended with exit code {exit_code}"
    if exit_code != KILLED:
        return f"{said}."
    limit = f"more than its {memory_bytes / 2**20:g} MiB of memory" if memory_bytes else "all memory of the machine"
    return f"{said}: it was killed, as the system does with a program that uses {limit}."
