"""Why an engine ended, from its exit code and its last lines. Pure.

Running out of the GPU's memory needs a smaller model or context; running out of the machine's memory needs another
machine, or less beside it; a broken driver needs a person. They are distinguished, since each looks like "it ended".
"""

import re
from enum import StrEnum
from typing import Final

from homeport.lazy_dataclass import dataclass


class Crash(StrEnum):
    STOPPED = "stopped"
    """It ended by itself, without an error."""
    GPU_MEMORY = "gpu-out-of-memory"
    HOST_MEMORY = "out-of-memory"
    GPU_DRIVER = "gpu-error"
    MODEL = "model-unusable"
    PORT = "port-in-use"
    KILLED = "killed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CrashReport:
    crash: Crash
    message: str


_RULES: Final[tuple[tuple[Crash, str, str], ...]] = (
    # the kind          what its output says                                                  what to do
    (
        Crash.GPU_MEMORY,
        r"cuda(malloc|error)?[^\n]*out of memory|failed to allocate[^\n]*(cuda|vram|gpu)|insufficient (vram|gpu)"
        r"|cudaMalloc failed|hipMalloc[^\n]*out of memory",
        "the GPU's memory is full: use a smaller model or context, fewer slots, or another GPU",
    ),
    (
        Crash.GPU_DRIVER,
        r"cuda error|no cuda-capable device|cuda driver version is insufficient|nvml[^\n]*(error|failed)|xid\b",
        "the GPU's driver failed: check nvidia-smi on the machine",
    ),
    (
        Crash.HOST_MEMORY,
        r"bad_alloc|cannot allocate memory|failed to allocate (cpu )?buffer|\bout of memory\b|oom[- ]kill",
        "the machine's memory is full: use a smaller model or context, or another machine",
    ),
    (
        Crash.MODEL,
        r"failed to load model|invalid magic|unknown model architecture|error loading model|not a valid gguf|"
        r"tokenizer[^\n]*not (found|supported)",
        "the engine cannot read the model: check the file and whether this engine's version knows its architecture",
    ),
    (
        Crash.PORT,
        r"address already in use|couldn't bind|failed to bind",
        "another program has its port",
    ),
)
_COMPILED: Final = tuple((crash, re.compile(pattern, re.IGNORECASE), message) for crash, pattern, message in _RULES)
SIGKILL: Final = -9


def crash_of(exit_code: int | None, output: str) -> CrashReport:
    """`output` is the last of what it printed; the caller bounds it."""
    for crash, pattern, message in _COMPILED:
        if pattern.search(output):
            return CrashReport(crash, message)
    if exit_code == 0:
        return CrashReport(Crash.STOPPED, "it ended by itself")
    if exit_code in (SIGKILL, 137):
        return CrashReport(
            Crash.KILLED, "it was killed: by a person, or by the kernel because the machine's memory was full"
        )
    if exit_code is None:
        return CrashReport(Crash.FAILED, "it ended with an unknown exit code")
    return CrashReport(Crash.FAILED, f"it ended with exit code {exit_code}")
