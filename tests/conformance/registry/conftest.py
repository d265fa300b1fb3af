"""The same suite over every registry; the real one serves for the whole session."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from homeport.adapters.registry.oci import OciRegistry
from homeport.ports import Registry
from tests.support.fake_registry import FakeRegistry
from tests.support.registry import RunningRegistry, running_registry


@dataclass(frozen=True)
class Subject:
    registry: Registry
    repository: str
    """An empty one, used by one test alone."""
    unreachable: str


@pytest.fixture(scope="session")
def real_registry() -> Iterator[RunningRegistry]:
    with running_registry() as registry:
        yield registry


@pytest.fixture(params=["fake", "oci"])
def subject(request: pytest.FixtureRequest) -> Subject:
    name = f"suite/{uuid4().hex}"
    if request.param == "fake":
        return Subject(FakeRegistry(), f"oci://registry.test/{name}", "")
    real: RunningRegistry = request.getfixturevalue("real_registry")
    return Subject(OciRegistry(), real.repository(name), "oci://127.0.0.1:1/x")
