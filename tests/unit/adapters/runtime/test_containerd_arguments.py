"""What ctr is told, and what containerd alone cannot do."""

import re

import pytest

from homeport.adapters.runtime.containerd.arguments import (
    container_name,
    full_reference,
    manifest_digest,
    refuse_impossible,
    size_of,
)
from homeport.adapters.runtime.containerd.ctr import reason
from homeport.core.custom import OURS, read_custom
from homeport.errors import WorkFailed
from homeport.vocabulary import Code, DeploymentId, NodeId


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("team/app:1", "docker.io/team/app:1"),
        ("localhost/app", "localhost/app:latest"),
        ("127.0.0.1:5005/demo/hello:1.0.0", "127.0.0.1:5005/demo/hello:1.0.0"),
        ("r.example/a@sha256:" + "0" * 64, "r.example/a@sha256:" + "0" * 64),
    ],
)
def test_an_image_gets_its_full_name(short: str, full: str) -> None:
    assert full_reference(short) == full


@pytest.mark.parametrize("component", ["web", "a--b", "x" * 200, "x" * 45 + "--y"])
def test_a_containers_name_is_one_that_containerd_takes(component: str) -> None:
    name = container_name(DeploymentId("00000000-0000-0000-0000-000000000001"), component, NodeId("one"))
    assert re.fullmatch(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*", name)
    assert len(name) <= 66


def test_a_port_that_has_another_number_outside_needs_another_engine() -> None:
    custom, _ = read_custom({OURS: {"image": {"ports": ["80:80"]}}}, repository="oci://r/a", revision="1")
    assert custom is not None
    refuse_impossible("web", custom)
    custom, _ = read_custom({OURS: {"image": {"ports": ["8080:80"]}}}, repository="oci://r/a", revision="1")
    assert custom is not None
    with pytest.raises(WorkFailed, match=r"cannot publish port 80 as 8080; .* use Podman or Docker") as failure:
        refuse_impossible("web", custom)
    assert failure.value.code is Code.CREATE_FAILED


def test_sizes_and_manifests_are_read() -> None:
    line = "r/a:1 application/vnd.oci.image.manifest.v1+json sha256:00 1.5 MiB linux/amd64 - "
    assert size_of(line) == 3 * 2**19
    assert size_of("REF TYPE DIGEST SIZE") == 0
    index = {
        "manifests": [
            {"digest": "sha256:a", "platform": {"os": "linux", "architecture": "arm64"}},
            {"digest": "sha256:b", "platform": {"os": "linux", "architecture": "amd64"}},
        ]
    }
    assert manifest_digest(index, "amd64") == "sha256:b"
    assert manifest_digest({}, "amd64") is None


def test_what_ctr_says_is_cut_to_its_reason() -> None:
    told = 'time="now" level=info msg="trying next host"\nctr: failed to resolve reference "a": not found: unknown\n'
    assert reason(told) == 'failed to resolve reference "a": not found'
    assert reason("") == "it gave no reason"
