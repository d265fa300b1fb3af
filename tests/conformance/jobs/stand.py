"""A runner under test; `runner()` is a new one on the same engine, as after a restart of the node."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from homeport.ports import JobRunner, JobRunRequest


@dataclass
class JobStand:
    name: str
    runner: Callable[[], JobRunner]
    image: str = ""
    run_id: str = field(default_factory=lambda: f"{uuid.uuid4()}.1")

    def request(self, script: str, **changes: Any) -> JobRunRequest:
        """A shell script; the fake takes how it goes from the environment."""
        return JobRunRequest(self.run_id, ("/bin/sh", "-c", script), self.image, **changes)
