"""Which machine and network namespace this process is in: a loopback address means the same engine for two processes
only where both agree on this."""

import hashlib
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE: Final = Path("/proc/self/ns/net")


def network_id() -> str:
    """Empty where the system does not say; then nothing is assumed to be shared."""
    try:
        text = BOOT_ID.read_text().strip() + str(NAMESPACE.readlink())
    except OSError:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
