"""GPUs that are none: a file of the Container Device Interface, where a container with one gets a variable of it."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FOLDER = Path("/var/run/cdi")


@contextmanager
def pretended_gpus(count: int) -> Iterator[None]:
    """A container with the GPU 0 has the variable GPU_0=yes, one with all of them GPU_all=yes."""
    if os.geteuid() != 0:
        pytest.skip("writing to /var/run/cdi needs root")
    if list(FOLDER.glob("*nvidia*")) or list(Path("/etc/cdi").glob("*nvidia*")):
        pytest.skip("this machine has real ones")
    devices = [{"name": str(n), "containerEdits": {"env": [f"GPU_{n}=yes"]}} for n in (*range(count), "all")]
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"homeport-{uuid.uuid4().hex[:8]}.json"
    file.write_text(json.dumps({"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": devices}))
    try:
        yield
    finally:
        file.unlink()
