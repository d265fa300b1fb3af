"""The built-in registry with the clients that people have: podman, docker, skopeo and helm, and a kill in a push."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support.engines import docker_daemon, skip_docker_if_asked
from tests.support.images import podman_environment
from tests.support.own_registry import Raw, basic, digest_of
from tests.support.ports import free_port
from tests.support.processes import Machine, machine, start_up
from tests.support.waiting import wait_for

HELM = str(Path(sys.executable).with_name("helm"))


@dataclass
class Stand:
    host: str
    token: str
    machine: Machine
    folder: Path

    def run(self, *command: str, given: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
        """Logins are kept in the test's own folder."""
        own = {
            "REGISTRY_AUTH_FILE": str(self.folder / "auth.json"),
            "DOCKER_CONFIG": str(self.folder / "docker"),
            "HELM_REGISTRY_CONFIG": str(self.folder / "helm.json"),
        }
        return subprocess.run(
            command,
            input=given,
            env={**podman_environment(), **own, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def works(self, *command: str, given: str = "", **environment: str) -> str:
        done = self.run(*command, given=given, **environment)
        assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
        return done.stdout

    @property
    def client(self) -> Raw:
        return Raw(self.host, basic(self.token))


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    folder = tmp_path_factory.mktemp("clients")
    with machine(folder / "host") as host:
        port = free_port()
        start_up(host, runtime="null", extra=("--registry", f"127.0.0.1:{port}"))
        made = host.command("tokens", "create", "--name", "ci", "--role", "operator", "-o", "json")
        assert made.returncode == 0, made.stderr
        yield Stand(f"127.0.0.1:{port}", json.loads(made.stdout)["token"], host, folder)


@pytest.fixture
def image(stand: Stand) -> Iterator[str]:
    """Built with podman, and of one file."""
    reference = f"{stand.host}/shop/web:1.0.0"
    build = stand.folder / "build"
    build.mkdir(exist_ok=True)
    shutil.copy("/bin/busybox", build / "busybox")
    (build / "Containerfile").write_text("FROM scratch\nCOPY busybox /busybox\n")
    stand.works("podman", "build", "--layers=false", "--force-rm", "-t", reference, str(build))
    yield reference
    stand.run("podman", "rmi", "--force", reference)


def test_podman_and_skopeo_log_in_push_and_pull_and_a_version_keeps_its_content(stand: Stand, image: str) -> None:
    assert stand.run("podman", "push", "--tls-verify=false", image).returncode != 0
    login = ("podman", "login", "--tls-verify=false", "-u", "me", "--password-stdin", stand.host)
    assert stand.run(*login, given="hp_wrong").returncode != 0
    assert "Login Succeeded" in stand.works(*login, given=stand.token)
    stand.works("podman", "push", "--tls-verify=false", image)
    stand.works("podman", "rmi", "--force", image)
    stand.works("podman", "pull", "--tls-verify=false", image)
    other = f"docker://{stand.host}/shop/copy:latest"
    insecure = ("--src-tls-verify=false", "--dest-tls-verify=false")
    stand.works("skopeo", "copy", *insecure, f"docker://{image}", other)
    stand.works("skopeo", "copy", "--src-tls-verify=false", other, f"dir:{stand.folder / 'copied'}")
    tags = json.loads(stand.works("skopeo", "list-tags", "--tls-verify=false", f"docker://{stand.host}/shop/copy"))
    assert tags["Tags"] == ["latest"]
    (stand.folder / "build" / "Containerfile").write_text("FROM scratch\nCOPY busybox /other\n")
    stand.works("podman", "build", "--layers=false", "--force-rm", "-t", image, str(stand.folder / "build"))
    refused = stand.run("podman", "push", "--tls-verify=false", image)
    assert refused.returncode != 0
    assert "a version never changes" in refused.stderr
    stand.works("skopeo", "delete", "--tls-verify=false", other)
    assert stand.client.call("GET", "/v2/shop/copy/manifests/latest").status == 404


def test_docker_pushes_and_pulls(stand: Stand, image: str) -> None:
    skip_docker_if_asked()
    archive = stand.folder / "image.tar"
    stand.works("podman", "save", "--format", "docker-archive", "-o", str(archive), image)
    with docker_daemon() as socket:
        address = {"DOCKER_HOST": f"unix://{socket}"}
        tagged = f"{stand.host}/shop/docker:1.0.0"
        stand.works("docker", "load", "-i", str(archive), **address)
        stand.works("docker", "tag", image, tagged, **address)
        stand.works("docker", "login", "-u", "me", "--password-stdin", stand.host, given=stand.token, **address)
        stand.works("docker", "push", tagged, **address)
        stand.works("docker", "rmi", tagged, image, **address)
        stand.works("docker", "pull", tagged, **address)
        stand.works("docker", "rmi", tagged, **address)


def test_helm_logs_in_pushes_and_pulls_a_chart(stand: Stand) -> None:
    chart = stand.folder / "web"
    stand.works(HELM, "create", str(chart))
    stand.works(HELM, "package", str(chart), "-d", str(stand.folder))
    stand.works(
        HELM, "registry", "login", stand.host, "-u", "me", "--password-stdin", "--insecure", given=stand.token
    )
    stand.works(HELM, "push", str(stand.folder / "web-0.1.0.tgz"), f"oci://{stand.host}/charts", "--plain-http")
    pulled = stand.folder / "pulled"
    pulled.mkdir()
    where = (f"oci://{stand.host}/charts/web", "--version", "0.1.0", "--plain-http", "-d", str(pulled))
    stand.works(HELM, "pull", *where)
    assert (pulled / "web-0.1.0.tgz").read_bytes() == (stand.folder / "web-0.1.0.tgz").read_bytes()


def test_a_push_goes_on_after_the_plug_was_pulled(stand: Stand) -> None:
    content = os.urandom(8 * 2**20)
    path = stand.client.call("POST", "/v2/shop/large/blobs/uploads/", b"").headers["location"]
    [up] = stand.machine.running
    file = stand.machine.folder / "up" / "central" / "registry" / "uploads" / path.rpartition("/")[2]
    connection = HTTPConnection(stand.host, timeout=30)
    connection.putrequest("PATCH", path)
    connection.putheader("Content-Length", str(len(content)))
    connection.putheader("Authorization", stand.client.headers["Authorization"])
    connection.endheaders()
    connection.send(content[: 5 * 2**20])
    wait_for(lambda: file.stat().st_size >= 2 * 2**20, what="a part to arrive")
    up.kill()
    connection.close()
    stand.machine.running.clear()
    start_up(stand.machine, runtime="null", extra=("--registry", stand.host))
    shown = stand.client.call("GET", path)
    size = int(shown.headers["range"].rpartition("-")[2]) + 1
    assert (shown.status, 2 * 2**20 <= size <= 5 * 2**20) == (204, True)
    done = stand.client.call(
        "PUT", f"{path}?digest={digest_of(content)}", content[size:], content_range=f"{size}-{len(content) - 1}"
    )
    assert done.status == 201, done
    assert stand.client.call("GET", f"/v2/shop/large/blobs/{digest_of(content)}").body == content
