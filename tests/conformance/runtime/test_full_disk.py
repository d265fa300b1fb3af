"""A disk that is full is said to be, on every engine, by one code; a small tmpfs is the disk."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.errors import WorkFailed
from homeport.vocabulary import Code
from tests.conformance.runtime.stands import ImageStand, NullStand, ProcessStand
from tests.conformance.runtime.usage import install
from tests.support.engines import (
    containerd_daemon,
    docker_daemon,
    engine_environment,
    skip_docker_if_asked,
    unmount_below,
)

pytestmark = pytest.mark.anyio


@contextlib.contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """Short, for Podman takes no runroot longer than 50 characters."""
    folder = Path(tempfile.mkdtemp(prefix="hp-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        unmount_below(folder)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(folder)


async def refused(stand: ImageStand | ProcessStand | NullStand, **wishes: object) -> None:
    async with stand.opened() as runtime:
        try:
            with pytest.raises(WorkFailed) as failure:
                await install(runtime, await stand.runs() if not wishes else stand.workload(extensions=wishes))
        finally:
            await runtime.remove(stand.deployment_id, "web", remove_images=True)
    assert failure.value.code is Code.DISK_FULL
    assert failure.value.source == "web"
    assert "web" in str(failure.value)


async def test_podman(tmp_path: Path, registry_host: str, image: str) -> None:
    with small_disk(2) as disk:
        places = ("--root", str(disk / "root"), "--runroot", str(disk / "run"))
        options = EngineOptions(environment=engine_environment(), podman_args=places)
        await refused(ImageStand("podman", tmp_path, registry_host, options, image=image))


async def test_docker(tmp_path: Path, registry_host: str, image: str) -> None:
    skip_docker_if_asked()
    with small_disk(2) as disk, docker_daemon(disk / "docker") as socket:
        options = EngineOptions(environment=engine_environment(), socket=socket)
        await refused(ImageStand("docker", tmp_path, registry_host, options, image=image))


async def test_containerd(tmp_path: Path, registry_host: str, image: str) -> None:
    with small_disk(2) as disk, containerd_daemon(disk / "containerd") as socket:
        options = EngineOptions(environment=engine_environment(), socket=socket)
        await refused(ImageStand("containerd", tmp_path, registry_host, options, image=image))


async def test_process() -> None:
    with small_disk(2) as disk:
        stand = ProcessStand("process", disk, "", EngineOptions(environment=engine_environment()))
        async with stand.opened():
            """Once, so that only what a component needs is missing."""
        with contextlib.suppress(OSError), (disk / "all-of-it").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        await refused(stand)


async def test_the_fake(tmp_path: Path) -> None:
    stand = NullStand("null", tmp_path, "", EngineOptions())
    await refused(stand, null={"fail": "DISK_FULL"})
