"""What a real machine and a real container use, as a person sees it at central."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import psutil

from tests.support.processes import Machine, start_up


def test_a_person_sees_what_a_node_and_its_containers_use(
    host: Machine, apps: Path, node_prefix: str, port: int
) -> None:
    node = f"{node_prefix}-laptop"
    up = start_up(host, node=node)
    host.homeport("nodes", "set", node, "--telemetry", "1s")
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "hello@1.0.0", "--site", "home", "--set", f"port={port}", "--wait")
    (deployment,) = host.json("deployments", "list")["deployments"]

    host.wait_for(lambda: any(each["cpu_percent"] is not None for each in up.get("/api/v1/telemetry")["containers"]))
    (use,) = host.json("top", "nodes")["nodes"]
    assert use["node"] == node
    assert 0 < use["memory_used_bytes"] < psutil.virtual_memory().total == use["memory_bytes"]
    assert 0 <= use["cpu_percent"] <= 100
    (container,) = host.json("top", "deployments")["containers"]
    assert (container["deployment"], container["component"], container["node"]) == ("hello", "web", node)
    assert container["memory_bytes"] > 0
    assert "hello@home" in host.homeport("top", "deployments", "--once")
    assert node in host.homeport("top", "--once")

    told = up.get(
        f"/api/v1/nodes/{node}/telemetry?metric=cpu_percent&metric=memory_used_bytes&step=1&from={five_minutes_ago()}"
    )
    assert {series["metric"] for series in told["series"]} == {"cpu_percent", "memory_used_bytes"}
    assert all(any(value is not None for value in series["average"]) for series in told["series"])
    assert all(len(series["average"]) == len(told["times"]) for series in told["series"])
    of_app = up.get(f"/api/v1/deployments/{deployment['id']}/telemetry?metric=container_memory_bytes&step=5")
    (series,) = of_app["series"]
    assert series["labels"]["deployment"] == deployment["id"]

    beats = up.get(f"/api/v1/nodes/{node}/heartbeats")
    assert [each["state"] for each in beats["intervals"]] == ["live"]
    assert "live 100.0 %" in host.homeport("nodes", "show", node)

    name = container["container"]

    def metrics() -> str:
        with up.open("/metrics") as answer:
            return str(answer.read().decode())

    host.wait_for(lambda: f'homeport_container_memory_bytes{{component="web",container="{name}"' in metrics())
    assert f'homeport_node_cpu_percent{{node="{node}",site="home"}}' in metrics()


def five_minutes_ago() -> str:
    return quote((datetime.now(UTC) - timedelta(minutes=5)).isoformat())
