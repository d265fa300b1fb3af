"""The runtimes under test. Engines are brought up once for the session, and every deployment is taken away again."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.ports import Runtime
from tests.conformance.runtime.stands import ComposeStand, HelmStand, ImageStand, NullStand, ProcessStand, Stand
from tests.support.engines import (
    containerd_daemon,
    docker_daemon,
    engine_environment,
    podman_service,
    probe_image,
    skip_docker_if_asked,
    tag_again,
)
from tests.support.registry import running_registry
from tests.support.stage import shared_stage


@pytest.fixture(scope="session")
def registry_host() -> Iterator[str]:
    stage = shared_stage()
    if stage is not None:
        yield stage.registry_host
        return
    with running_registry() as registry:
        yield registry.host


@pytest.fixture(scope="session")
def image(registry_host: str) -> Iterator[str]:
    # Each worker has its own: a test that removes images must not take them from another.
    with probe_image(registry_host) as reference:
        tag_again(reference, "2")
        yield reference


@pytest.fixture(scope="session")
def docker_socket() -> Iterator[Path]:
    skip_docker_if_asked()
    stage = shared_stage()
    if stage is not None and stage.docker_socket is not None:
        yield Path(stage.docker_socket)
        return
    with docker_daemon() as socket:
        yield socket


@pytest.fixture(scope="session")
def podman_socket() -> Iterator[Path]:
    """One service for all tests saves each of them half a second; `test_podman` has the runtime bring up its own."""
    stage = shared_stage()
    if stage is not None:
        yield Path(stage.podman_socket)
        return
    with podman_service() as socket:
        yield socket


@pytest.fixture(scope="session")
def containerd_socket() -> Iterator[Path]:
    stage = shared_stage()
    if stage is not None:
        yield Path(stage.containerd_socket)
        return
    with containerd_daemon() as socket:
        yield socket


WITHOUT_CHARTS = ("null", "process", "podman", "docker", "podman-image", "docker-image", "containerd-image")
IS_LONG = os.environ.get("HOMEPORT_ENGINES") == "long"
"""`make engines` tries everything on every runtime; `make test` the slow things on one of each make."""
ONE_OF_EACH_MAKE = WITHOUT_CHARTS if IS_LONG else ("null", "process", "podman", "containerd-image")


@pytest.fixture(params=[*WITHOUT_CHARTS, "helm"])
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    return stand_of(request, tmp_path)


def stand_of(request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    options = EngineOptions(environment=engine_environment())
    if request.param == "null":
        return NullStand("null", tmp_path, "", options)
    if request.param == "process":
        return ProcessStand("process", tmp_path, "", options)
    if request.param.endswith("-image"):
        return _image_stand(request, tmp_path)
    if request.param == "helm":
        return _helm_stand(request, tmp_path)
    return _compose_stand(request, tmp_path)


@pytest.fixture
def helm_stand(request: pytest.FixtureRequest, tmp_path: Path) -> HelmStand:
    return _helm_stand(request, tmp_path)


@pytest.fixture
async def helm_runtime(helm_stand: HelmStand) -> AsyncIterator[Runtime]:
    async with helm_stand.opened() as runtime:
        try:
            yield runtime
        finally:
            await runtime.remove(helm_stand.deployment_id, "web", remove_images=False)


@pytest.fixture(params=["podman", "docker"])
def compose_stand(request: pytest.FixtureRequest, tmp_path: Path) -> ComposeStand:
    return _compose_stand(request, tmp_path)


@pytest.fixture(params=["podman-image", "docker-image", "containerd-image"])
def image_stand(request: pytest.FixtureRequest, tmp_path: Path) -> ImageStand:
    return _image_stand(request, tmp_path)


@pytest.fixture
async def image_runtime(image_stand: ImageStand) -> AsyncIterator[Runtime]:
    async with image_stand.opened() as runtime:
        try:
            yield runtime
        finally:
            await runtime.remove(image_stand.deployment_id, "web", remove_images=False)


@pytest.fixture
async def runtime(stand: Stand) -> AsyncIterator[Runtime]:
    async with stand.opened() as runtime:
        try:
            yield runtime
        finally:
            for name in ("web", "worker"):
                await runtime.remove(stand.deployment_id, name, remove_images=False)


@pytest.fixture
async def compose_runtime(compose_stand: ComposeStand) -> AsyncIterator[Runtime]:
    async with compose_stand.opened() as runtime:
        try:
            yield runtime
        finally:
            await runtime.remove(compose_stand.deployment_id, "web", remove_images=False)


def _compose_stand(request: pytest.FixtureRequest, folder: Path) -> ComposeStand:
    socket = request.getfixturevalue(f"{request.param}_socket")
    options = EngineOptions(environment=engine_environment(), socket=socket)
    host, image = request.getfixturevalue("registry_host"), request.getfixturevalue("image")
    return ComposeStand(request.param, folder, host, options, image=image)


def _image_stand(request: pytest.FixtureRequest, folder: Path) -> ImageStand:
    kind = request.param.removesuffix("-image")
    options = EngineOptions(environment=engine_environment(), socket=request.getfixturevalue(f"{kind}_socket"))
    host, image = request.getfixturevalue("registry_host"), request.getfixturevalue("image")
    return ImageStand(kind, folder, host, options, image=image)


def _helm_stand(request: pytest.FixtureRequest, folder: Path) -> HelmStand:
    options = EngineOptions(environment=engine_environment(), socket=request.getfixturevalue("podman_socket"))
    host, image = request.getfixturevalue("registry_host"), request.getfixturevalue("image")
    return HelmStand("podman", folder, host, options, image=image)
