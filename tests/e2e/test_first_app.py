"""From a plain compose.yaml to a healthy container in one command; then a change; then nothing to do."""

import json
import urllib.request
from pathlib import Path

from homeport.core.data import volume_prefix
from homeport.vocabulary import NodeId
from tests.support.podman import containers, images, podman
from tests.support.processes import Machine, start_up
from tests.support.registry import RunningRegistry

COMPOSE = """
services:
  web:
    image: {image}
    environment:
      GREETING: ${{GREETING:-hello}}
    ports: ["127.0.0.1:${{PORT}}:8080"]
    volumes: ["./page:/page:ro", "data:/data"]
    healthcheck: &check
      test: ["CMD", "/bin/busybox", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8080/healthz"]
      interval: 1s
      retries: 3
    depends_on:
      store: {{condition: service_healthy}}
  store:
    image: {image}
    environment: {{PORT: "8080"}}
    healthcheck: *check
volumes: {{data: {{}}}}
"""


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        return str(answer.read().decode())


def test_a_compose_file_is_one_command_away_from_a_healthy_app(
    host: Machine, registry: RunningRegistry, tmp_path: Path, node_prefix: str, port: int
) -> None:
    start_up(host, node=f"{node_prefix}-laptop")
    shop = tmp_path / "My Shop"
    (shop / "page").mkdir(parents=True)
    (shop / "page" / "index.html").write_text("hi")
    file = shop / "compose.yaml"
    file.write_text(COMPOSE.format(image=f"{registry.host}/demo/hello:1.0.0"))

    missing = host.command("deploy", str(file))
    assert missing.returncode == 1
    assert "uses ${PORT}, which has no value" in missing.stderr
    assert host.json("apps", "list")["apps"] == [], "nothing was written"

    (shop / ".env").write_text(f"PORT={port}\n")
    assert "INSTALLED" in host.homeport("deploy", str(file))
    assert fetch(port).strip() == "hello"
    (deployment,) = host.json("deployments", "list")["deployments"]
    assert (deployment["name"], deployment["app_version"], deployment["site"]) == ("my-shop", "1.0.0", "home")
    assert len(containers(deployment=deployment["id"])) == 2

    assert "unchanged" in host.homeport("deploy", str(shop))

    (shop / "page" / "index.html").write_text("changed")
    planned = host.command("deploy", str(shop), "--set", "GREETING=Ahoy", "--plan")
    assert planned.returncode == 6
    assert "1.0.0 → 1.0.1" in planned.stdout
    elsewhere = host.command("deploy", str(shop), "--app-name", "other", "--plan").stdout
    assert "image     hello:1.0.0 (new), pull up to" in elsewhere
    assert "INSTALLED" in host.homeport("deploy", str(shop), "--set", "GREETING=Ahoy")
    assert fetch(port).strip() == "Ahoy"
    (deployment,) = host.json("deployments", "list")["deployments"]
    assert (deployment["app_version"], deployment["parameters"]["PORT"]) == ("1.0.1", port)

    node = f"{node_prefix}-laptop"
    assert _kept_data(host, node) == [True]
    host.homeport("deployments", "delete", "my-shop@home")
    assert _kept_data(host, node) == [False], "it is there for the next one of the name"
    assert "kept" in host.homeport("nodes", "volumes", node)
    assert "INSTALLED" in host.homeport("deploy", str(shop))
    host.homeport("deployments", "delete", "my-shop@home", "--remove-data")
    assert _kept_data(host, node) == []


def _kept_data(host: Machine, node: str) -> list[bool]:
    """Of each data volume of the shop on this node: whether a container has it."""
    found = host.json("nodes", "volumes", node)["volumes"]
    own = volume_prefix("my-shop", "my-shop", NodeId(node))
    return [each["used"] for each in found if each["volume"].startswith(own)]


def test_what_a_compose_file_builds_is_built_here_and_pulled_by_the_node(
    host: Machine, registry: RunningRegistry, tmp_path: Path, node_prefix: str, port: int
) -> None:
    start_up(host, node=f"{node_prefix}-laptop")
    base = f"{registry.host}/demo/hello:1.0.0"
    podman("pull", "--tls-verify=false", base)
    shop = tmp_path / "built"
    shop.mkdir()
    (shop / "Containerfile").write_text(f"FROM {base}\nENV GREETING={node_prefix}\n")
    text = f"services:\n  web:\n    build: .\n    ports: ['127.0.0.1:{port}:8080']\n"
    (shop / "compose.yaml").write_text(text)
    try:
        assert "INSTALLED" in host.homeport("deploy", str(shop), "--build")
        assert fetch(port).strip() == node_prefix
        assert "unchanged" in host.homeport("deploy", str(shop), "--build")
        host.homeport("deployments", "delete", "built@home")
        _remove_images(node_prefix)
        assert "INSTALLED" in host.homeport("deploy", "built"), "its image is in the registry alone now"
        assert fetch(port).strip() == node_prefix
        host.homeport("deployments", "delete", "built@home")
    finally:
        _remove_images(node_prefix)


def _remove_images(greeting: str) -> None:
    """What was built from the test's own base, by what only it sets."""
    for image in images(where=lambda name: "/apps/images/built-web" in name):
        inspected = json.loads(podman("inspect", image))[0]
        if f"GREETING={greeting}" in inspected["Config"]["Env"]:
            podman("rmi", "--force", image)
