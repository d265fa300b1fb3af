"""Servers that a whole test run shares: container engines, a registry with the example apps, PostgreSQL.

`scripts/test` raises the stage once and names its file in HOMEPORT_TEST_STAGE; fixtures then use what stands there. A
plain `pytest` run finds no stage, and each of its workers starts what it needs by itself.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tests.support.engines import containerd_daemon, docker_daemon, podman_service
from tests.support.images import EXAMPLES, build_images, materialise
from tests.support.postgres import PostgresServer, running_postgres
from tests.support.processes import machine
from tests.support.registry import RunningRegistry, running_registry

VARIABLE = "HOMEPORT_TEST_STAGE"
TEST_APPS = Path(__file__).parents[1] / "e2e" / "apps"


@dataclass(frozen=True, slots=True)
class Stage:
    registry_host: str
    """With the images and packages of the example apps and of those of the tests."""
    apps: str
    """A folder with those apps, pointed at the registry."""
    podman_socket: str
    containerd_socket: str
    docker_socket: str | None
    """None where HOMEPORT_SKIP_DOCKER=1 says that this machine has none."""
    postgres_folder: str
    postgres_process: int

    @property
    def registry(self) -> RunningRegistry:
        return RunningRegistry(self.registry_host)

    @property
    def postgres(self) -> PostgresServer:
        return PostgresServer(Path(self.postgres_folder), self.postgres_process)


@cache
def shared_stage() -> Stage | None:
    file = os.environ.get(VARIABLE)
    return None if file is None else Stage(**json.loads(Path(file).read_text("utf-8")))


@contextmanager
def raised_stage(folder: Path) -> Iterator[Path]:
    """Starts everything; gives the file that says where it is. Nothing is left when the block ends."""
    with ExitStack() as stack:
        registry = stack.enter_context(running_registry())
        build_images(registry.host)
        has_docker = os.environ.get("HOMEPORT_SKIP_DOCKER") != "1"
        postgres = stack.enter_context(running_postgres())
        stage = Stage(
            registry_host=registry.host,
            apps=str(publish_apps(registry, folder)),
            podman_socket=str(stack.enter_context(podman_service())),
            containerd_socket=str(stack.enter_context(containerd_daemon())),
            docker_socket=str(stack.enter_context(docker_daemon())) if has_docker else None,
            postgres_folder=str(postgres.socket_folder),
            postgres_process=postgres.process_id,
        )
        file = folder / "stage.json"
        file.write_text(json.dumps(asdict(stage)), "utf-8")
        yield file


def publish_apps(registry: RunningRegistry, folder: Path) -> Path:
    """The example apps and those of the tests, pointed at the registry; their components are in it."""
    apps = materialise(EXAMPLES / "apps", registry.host, folder / "apps")
    materialise(TEST_APPS, registry.host, apps)
    with machine(folder / "packer") as packer:
        for description in sorted(apps.rglob("margo.yaml")):
            version = description.parent
            packer.homeport("apps", "push", str(version), f"oci://{registry.host}/packages/{version.parent.name}")
    return apps
