"""Every registry that speaks the Distribution specification: ours, and Debian's for comparison."""

from collections.abc import Iterator

import pytest

from tests.support.own_registry import OwnRegistry, Raw, fresh_name, own_registry
from tests.support.registry import running_registry


@pytest.fixture(scope="package")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRegistry]:
    with own_registry(tmp_path_factory.mktemp("central"), registry_quota_bytes=64 * 2**20) as running:
        yield running


@pytest.fixture(scope="package")
def debians() -> Iterator[Raw]:
    with running_registry() as running:
        yield Raw(running.host)


@pytest.fixture(params=["homeport", "docker-registry"])
def registry(request: pytest.FixtureRequest) -> Raw:
    """What both promise: a client written for the one works with the other."""
    if request.param == "homeport":
        own: OwnRegistry = request.getfixturevalue("own")
        return own.client()
    debians: Raw = request.getfixturevalue("debians")
    return debians


@pytest.fixture
def ours(own: OwnRegistry) -> Raw:
    """For what Debian's version is too old for, or does otherwise."""
    return own.client()


@pytest.fixture
def name() -> str:
    """A repository of one test alone."""
    return fresh_name()
