"""Logs of real containers, from the node to whoever reads them, while node, site and central are killed."""

import json
import re
from pathlib import Path

import pytest

from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.processes import Machine
from tests.support.registry import RunningRegistry

COMPOSE = """\
services:
  web:
    image: {image}
    entrypoint: ["/bin/busybox", "sh", "-c"]
    command:
      - |
        echo '{{"level":"warn","msg":"structured","request":"r-1","took":12}}'
        printf '\\033[31mred\\033[0m\\007 bell\\n'
        echo oops >&2
        trap 'exit 0' TERM
        i=0; while true; do i=$$((i+1)); echo "count $$i"; /bin/busybox usleep 20000; done
"""


def counts(host: Machine, *more: str, url: str | None = None) -> list[int]:
    lines = host.homeport("logs", "counter@north", "--tail", "100000", "-o", "json", *more, url=url).splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    return [int(found[1]) for text in texts if (found := re.fullmatch(r"count (\d+)", text))]


@pytest.fixture
def compose_file(tmp_path: Path, registry: RunningRegistry) -> Path:
    folder = tmp_path / "counter"
    folder.mkdir()
    (folder / "compose.yaml").write_text(COMPOSE.format(image=f"{registry.host}/demo/hello:1.0.0"))
    return folder


def test_lines_come_once_and_in_order_while_every_role_is_killed(
    host: Machine, compose_file: Path, node_prefix: str, tmp_path: Path
) -> None:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central("--registry", "127.0.0.1:0")
    fleet.site("north")
    node = f"{node_prefix}-n1"
    fleet.node(node, "north", runtime="podman")
    host.wait_for(lambda: len(host.json("nodes", "list")["nodes"]) == 1)
    host.homeport("deploy", str(compose_file), "--site", "north", "--wait")
    host.wait_for(lambda: len(counts(host)) > 20)

    shown = host.homeport("logs", "counter@north", "--tail", "100000")
    assert "structured" in shown
    assert "request=r-1" in shown
    assert "red\\x07 bell" in shown, "no control character reaches the terminal"
    (warning,) = [
        json.loads(line)
        for line in host.homeport("logs", "counter@north", "--level", "warning", "-o", "json").splitlines()
    ]
    assert (warning["fields"]["took"], warning["site"], warning["node"]) == ("12", "north", node)
    assert "oops" in host.homeport("logs", "counter@north", "--grep", "OOPS", "--component", warning["component"])

    def at_site() -> list[int]:
        return counts(host, url=fleet.roles["north"].url)

    mark = len(at_site())
    fleet.roles["north"].kill()
    fleet.again("north")
    host.wait_for(lambda: len(at_site()) > mark + 20)

    def grows() -> None:
        before = max(at_site())
        host.wait_for(lambda: max(at_site()) > before + 50)

    for _ in range(2):
        fleet.roles[node].kill()
        fleet.again(node)
        grows()
    fleet.roles["central"].kill()
    before = max(at_site())
    grows()
    fleet.again("central")
    host.wait_for(lambda: max(counts(host)) > before + 50)
    for found in (at_site(), counts(host)):
        assert found == list(range(1, len(found) + 1)), "each once and in order, at the site and at central"
    assert "connected to the site" in host.homeport("logs", f"node/{node}")
    assert "node connected" in host.homeport("logs", "site/north")
    assert host.homeport("logs", "central")
    host.homeport("deployments", "delete", "counter@north", "--wait")
