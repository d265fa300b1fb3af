"""The example apps through a real registry: images built with podman, components pushed, pulled and unpacked."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from homeport.adapters.registry.archive import extract_archive
from homeport.adapters.registry.credentials import default_auth_files
from homeport.adapters.registry.oci import OciRegistry
from homeport.catalog.packages import ARCHIVE_TYPE, COMPONENT_TYPE, push_app
from homeport.errors import Refused
from tests.support.images import EXAMPLES, build_images, materialise, podman_environment
from tests.support.registry import RunningRegistry, running_registry

pytestmark = pytest.mark.anyio

ADA = "ada:$2b$04$homeporthomeporthomepu.VDG3YnPzX4rfzZlMGWNE82AMOm7B8S\n"
"""A user with the password `secret`, as htpasswd writes one."""


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry() as running:
        yield running


async def test_an_app_is_pushed_and_its_component_arrives_at_a_node(
    registry: RunningRegistry, tmp_path: Path
) -> None:
    apps = materialise(EXAMPLES / "apps", registry.host, tmp_path / "apps")
    oci = OciRegistry()
    pushed = await push_app(apps / "demo/hello/1.0.0", registry.repository("demo/hello"), oci)
    web = next(each for each in pushed if each.what == "web")
    artifact = await oci.pull(web.repository, web.tag)
    assert artifact.artifact_type == COMPONENT_TYPE
    (layer,) = artifact.layers
    assert layer.media_type == ARCHIVE_TYPE
    extract_archive(layer.content, tmp_path / "web")
    assert f"{registry.host}/demo/hello:1.0.0" in (tmp_path / "web/compose.yaml").read_text()


def test_the_images_are_built_pushed_and_pulled_again(registry: RunningRegistry) -> None:
    images = build_images(registry.host)
    for image in images:
        inspected = subprocess.run(
            ["podman", "pull", "--quiet", "--tls-verify=false", image],
            env=podman_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert inspected.returncode == 0, inspected.stderr
        subprocess.run(
            ["podman", "rmi", image], env=podman_environment(), capture_output=True, timeout=60, check=True
        )


async def test_a_registry_with_a_password_is_used_as_podman_would(tmp_path: Path) -> None:
    auth_file = tmp_path / "auth.json"
    with running_registry(htpasswd=ADA) as registry:
        apps = materialise(EXAMPLES / "apps", registry.host, tmp_path / "apps")
        folder, repository = apps / "demo/broken/1.0.0", registry.repository("demo/broken")
        with pytest.raises(Refused, match="does not let us push"):
            await push_app(folder, repository, OciRegistry())
        _login(registry, auth_file)
        files = default_auth_files({"REGISTRY_AUTH_FILE": str(auth_file)}, tmp_path)
        assert len(await push_app(folder, repository, OciRegistry(auth_files=files))) == 2


def _login(registry: RunningRegistry, auth_file: Path) -> None:
    arguments = ["--tls-verify=false", "--username", "ada", "--password", "secret", "--authfile", str(auth_file)]
    subprocess.run(
        ["podman", "login", *arguments, registry.host],
        env=podman_environment(),
        capture_output=True,
        timeout=60,
        check=True,
    )
