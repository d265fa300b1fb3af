"""A central on another host, with a certificate of its own authority, used by a person who knows its pin and a token:
the command line, podman and git all reach it, and the lines that it prints join a site and a node."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.forks import COMMAND
from tests.support.namespaces import Host, lan
from tests.support.podman import images, podman
from tests.support.processes import Machine, machine

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making network namespaces needs root")

GREETER = Path(__file__).parents[2] / "examples/apps/demo/greeter/1.0.0/components/greeter"


@dataclass
class Remote:
    central: Host
    person: Machine
    """On another host than central."""
    url: str

    @property
    def registry(self) -> str:
        return f"{self.central.address}:5000"

    def run(self, *command: str) -> str:
        """Any program on the person's host."""
        done = subprocess.run(
            [*self.person.prefix, *command],
            env=self.person.clean_environment() | {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}{done.stdout}"
        return done.stdout


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    with ExitStack() as stack:
        hosts = stack.enter_context(lan(["central", "person"]))
        machines = {name: stack.enter_context(machine(tmp_path / name)) for name in hosts}
        for name, each in machines.items():
            each.prefix = hosts[name].prefix
        address = hosts["central"].address
        data = str(tmp_path / "data")
        made = machines["central"].json("tokens", "create", "--data", data, "--name", "ada", "--role", "admin")
        central = machines["central"].start(
            *("central", "central", "--data", data, "--http", f"{address}:8443", "--grpc", "0"),
            *("--host", address, "--registry", f"{address}:5000"),
        )
        central.wait_up()
        pin = re.search(r"--pin (sha256:[0-9a-f]{64})", central.log.read_text())
        assert pin, central.log.read_text()
        person, url = machines["person"], f"https://{address}:8443"
        person.url = url
        person.homeport("login", url, "--pin", pin[1], "--token", made["token"])
        yield Remote(hosts["central"], person, url)


def test_a_person_elsewhere_joins_machines_pushes_apps_images_and_charts_and_uses_git(
    remote: Remote, tmp_path: Path
) -> None:
    person, here = remote.person, tmp_path / "person"
    site = shlex.split(person.homeport("sites", "join-command", "north"))
    ports = ("--http", "127.0.0.1:8081", "--grpc", "127.0.0.1:50052")
    person.start("north", *site[1:], *ports, "--data", str(here / "site")).wait_up()
    person.wait_for(lambda: person.command("nodes", "join-command", "north").returncode == 0)
    node = shlex.split(person.homeport("nodes", "join-command", "north"))
    options = ("--id", "n1", "--runtime", "null", "--http", "127.0.0.1:8082", "--data", str(here / "node"))
    person.start("n1", *node[1:], *options).wait_up()
    person.wait_for(lambda: person.json("nodes", "list")["nodes"])

    shop = here / "shop"
    shop.mkdir()
    (shop / "compose.yaml").write_text("services: {web: {image: 'docker.io/library/nginx:1.27'}}\n")
    assert "INSTALLED" in person.homeport("deploy", str(shop)), "its files are in the registry over there"

    app = here / "apps"
    person.homeport("apps", "init", str(shop), "--to", str(app), "--registry", remote.registry, "--app-name", "kept")
    folder = next(app.glob("*/*/*"))
    assert "pushed" in person.homeport("apps", "push", str(folder), f"oci://{remote.registry}/packages/kept")

    shutil.copy("/bin/busybox", shop / "busybox")
    (shop / "Containerfile").write_text("FROM scratch\nCOPY busybox /bin/busybox\n")
    (shop / "compose.yaml").write_text("services: {web: {build: .}}\n")
    try:
        assert "INSTALLED" in person.homeport("deploy", str(shop), "--build", "--app-name", "built")
    finally:
        for image in images(where=lambda name: name.startswith(remote.registry)):
            podman("rmi", "--force", image)

    ca = here / "ca.crt"
    ca.write_text(person.homeport("identity", "ca"))
    token = person.homeport("token").strip()
    remote.run("helm", "package", str(GREETER), "--destination", str(here))
    trusting = ("--ca-file", str(ca))
    remote.run("helm", "registry", "login", remote.registry, "--username", "ada", "--password", token, *trusting)
    remote.run("helm", "push", str(here / "greeter-1.0.0.tgz"), f"oci://{remote.registry}/charts", *trusting)
    planned = person.command("deploy", f"oci://{remote.registry}/charts/greeter:1.0.0", "--plan")
    assert "greeter" in planned.stdout, planned.stderr

    person.homeport("setup-git")
    copy = here / "fleet"
    remote.run("git", "clone", f"{remote.url}/git/deployments.git", str(copy))
    (file,) = [each for each in (copy / "deployments/north").glob("*.yaml") if "name: built" in each.read_text()]
    file.unlink()
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    remote.run("git", "-C", str(copy), *author, "commit", "-qam", "take it away")
    remote.run("git", "-C", str(copy), "push")
    person.wait_for(lambda: [each["name"] for each in person.json("deployments", "list")["deployments"]] == ["shop"])
