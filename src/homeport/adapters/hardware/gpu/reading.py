"""What a tool says of one GPU, and how the tools are run."""

import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from homeport.lazy_dataclass import dataclass

TOOL_SECONDS: Final = 5.0
OUTPUT_MAX: Final = 1_000_000
GPUS_MAX: Final = 64
TEXT_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class GpuReading:
    """None where the hardware or its driver does not say."""

    index: str
    model: str
    manufacturer: str
    memory_bytes: int = 0
    percent: float | None = None
    memory_used_bytes: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


def run_tool(command: Sequence[str]) -> str | None:
    """Its output; None where it is not installed, fails or hangs, as with a driver that is not loaded."""
    program = shutil.which(command[0])
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:OUTPUT_MAX] if done.returncode == 0 else None


def number(text: object) -> float | None:
    """None for "[N/A]", "[Not Supported]" and the like."""
    try:
        value = float(str(text).strip())
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None
