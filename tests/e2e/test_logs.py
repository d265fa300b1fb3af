"""Logs of real containers, from the node to whoever reads them, while node, site and central are killed."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.podman import podman
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
        i=0
        while true; do
          for _ in 1 2 3 4 5; do i=$$((i+1)); echo "count $$i"; done
          /bin/busybox usleep 20000
        done
"""


TICKS = 'i=0; while true; do i=$((i+1)); echo "count $i"; /bin/busybox usleep 50000; done'


CLOCK = "while true; do read up _ < /proc/uptime; echo up $up; /bin/busybox usleep 50000; done"
"""Each line says when it was written, by the clock that all containers of a machine share."""
VISIBLE_SECONDS = 2.0


def counts(host: Machine, target: str = "counter@north", *, url: str | None = None) -> list[int]:
    lines = host.homeport("logs", target, "--tail", "100000", "-o", "json", url=url).splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    return [int(found[1]) for text in texts if (found := re.fullmatch(r"count (\d+)", text))]


@pytest.fixture
def image(registry: RunningRegistry) -> str:
    return f"{registry.host}/demo/hello:1.0.0"


@pytest.fixture
def compose_file(tmp_path: Path, image: str) -> Path:
    folder = tmp_path / "counter"
    folder.mkdir()
    (folder / "compose.yaml").write_text(COMPOSE.format(image=image))
    return folder


def test_lines_come_once_and_in_order_while_every_role_is_killed(
    host: Machine, compose_file: Path, image: str, node_prefix: str, tmp_path: Path
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
    assert warning["component"] == "counter/web", "the app, and what its compose file calls it"
    for name in ("web", "counter", "counter/web"):
        assert "oops" in host.homeport("logs", "counter@north", "--grep", "OOPS", "--component", name)
    assert not host.homeport("logs", "counter@north", "--component", "db")
    lines = [json.loads(line) for line in host.homeport("logs", "--kind", "site", "-o", "json").splitlines()]
    assert lines and all(each["source"].startswith("site") for each in lines)

    def at_site() -> list[int]:
        return counts(host, url=fleet.roles["north"].url)

    mark = len(at_site())
    fleet.roles["north"].kill()
    fleet.again("north")
    host.wait_for(lambda: len(at_site()) > mark + 20)

    def grows() -> None:
        before = max(at_site())
        host.wait_for(lambda: max(at_site()) > before + 50)

    job = ("--image", image, "--id", "ticks", "--", "sh", "-c", TICKS)
    host.homeport("jobs", "run", "--detach", "--site", "north", "--entrypoint", "/bin/busybox", *job)
    host.wait_for(lambda: len(counts(host, "job/ticks")) > 20)
    for _ in range(2):
        fleet.roles[node].kill()
        fleet.again(node)
        grows()
    fleet.roles["central"].kill()
    before = max(at_site())
    grows()
    fleet.again("central")
    host.wait_for(lambda: max(counts(host)) > before + 50)
    ticks = len(counts(host, "job/ticks"))
    host.wait_for(lambda: len(counts(host, "job/ticks")) > ticks)
    host.homeport("jobs", "cancel", "ticks")
    for found in (at_site(), counts(host), counts(host, "job/ticks")):
        assert found == list(range(1, len(found) + 1)), "each once and in order, at the site and at central"
    assert "connected to the site" in host.homeport("logs", f"node/{node}")
    assert "node connected" in host.homeport("logs", "site/north")
    assert host.homeport("logs", "central")
    host.homeport("deployments", "delete", "counter@north", "--wait")
    # A Podman that is ended while it removes a container forgets it and leaves its processes.
    host.wait_for(lambda: not podman("ps", "--all", "--quiet", "--filter", "label=homeport.job-run=ticks.1"))


def test_a_line_is_at_central_within_two_seconds_of_its_own_clock(
    host: Machine, image: str, node_prefix: str, tmp_path: Path
) -> None:
    """Awaited, not timed: a machine with other things to do may delay some lines, and a path that always takes longer
    never has twenty in a row. `tests/unit/core/logs/test_pauses.py` adds up what the path waits for by itself."""
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    central = fleet.central()
    fleet.site("north")
    node = f"{node_prefix}-n1"
    fleet.node(node, "north", runtime="podman")
    host.wait_for(lambda: len(host.json("nodes", "list")["nodes"]) == 1)
    job = ("--image", image, "--id", "clock", "--entrypoint", "/bin/busybox", "--", "sh", "-c", CLOCK)
    with central.open("/api/v1/logs?follow=true") as stream:
        host.homeport("jobs", "run", "--detach", "--site", "north", *job)
        in_a_row: Counter[str] = Counter()
        deadline = time.monotonic() + 90
        for kind, seconds in ages(stream):
            in_a_row[kind] = in_a_row[kind] + 1 if seconds < VISIBLE_SECONDS else 0
            if in_a_row["job"] >= 20 and in_a_row["node"] >= 1:
                break
            assert time.monotonic() < deadline, (in_a_row, seconds)
    host.homeport("jobs", "cancel", "clock")
    host.wait_for(lambda: host.json("jobs", "show", "clock")["state"] == "CANCELLED")


def ages(stream: Any) -> Iterator[tuple[str, float]]:
    """The kind of each line of a job or a node as it arrives, and how long ago it was written."""
    for line in stream:
        if not line.startswith(b'data: {"id"'):
            continue
        entry = json.loads(line[6:])
        kind = entry["source"].partition("/")[0]
        if kind == "job" and (said := re.fullmatch(r"up ([\d.]+)", entry["text"])):
            yield kind, float(Path("/proc/uptime").read_text().split()[0]) - float(said[1])
        elif kind == "node":
            yield kind, (datetime.now(UTC) - datetime.fromisoformat(entry["at"])).total_seconds()
