"""`homeport sites devices`: what a client has reported, and which devices may take an app. `homeport deploy
--device`: to one of them."""

import json
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from anyio.to_thread import run_sync

from homeport.cli.exits import Exit
from tests.support.forks import run_homeport
from tests.support.margo import MargoClient, WfmStand, device, gateway, is_site, running_wfm, status
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
CHANGES = int(Exit.CHANGES)


async def test_devices_are_listed_shown_and_matched(tmp_path: Path) -> None:
    async with running_wfm(tmp_path) as wfm, wfm.client("line-7") as client:
        await client.put_device(gateway("gw1"))
        await client.put_device(device("gw1/press-1", supportedDeploymentTypes=["helm"]))
        await client.put_device(device("gw1/press-2"))
        await is_site(wfm, "line-7")
        (deployment_id,) = await wfm.deploy("line-7")
        version = (await client.listed(1))["manifestVersion"]
        await client.report(deployment_id, status(deployment_id, version, deviceId="gw1/press-2"))

        listed = await homeport(wfm, "line-7")
        assert listed.returncode == 0, listed.stderr
        assert [line.split()[0] for line in listed.stdout.splitlines()] == [
            "DEVICE",
            "gw1",
            "gw1/press-1",
            "gw1/press-2",
        ]
        assert "hosts nothing" in listed.stdout
        shown = await homeport(wfm, "line-7", "gw1/press-2")
        assert "Acme P4 0042" in shown.stdout and f"{deployment_id}   installed, manifest {version}" in shown.stdout
        data = json.loads((await homeport(wfm, "line-7", "gw1/press-2", "-o", "json")).stdout)
        assert data["statuses"][0]["state"] == "installed"
        matched = await homeport(wfm, "line-7", "--app", "hello@1.0.0")
        assert (
            "supports helm, not compose" in matched.stdout
            and "gw1/press-2  demo-hello-compose  yes" in matched.stdout
        )
        unknown = await homeport(wfm, "line-7", "gw9")
        assert unknown.returncode == 3 and "Known devices: gw1" in unknown.stderr
        assert (await homeport(wfm, "nowhere")).returncode == 3
        assert (await homeport(wfm, "line-7", "gw1", "--app", "hello")).returncode == 2


async def test_a_client_is_shown_with_its_devices_where_sites_and_nodes_are(tmp_path: Path) -> None:
    """It has no nodes, which would read as a site where nothing is."""
    async with running_wfm(tmp_path) as wfm, wfm.client("line-7") as client:
        await client.manifest()
        await is_site(wfm, "line-7")
        bare = await command(wfm, "sites", "show", "line-7")
        assert "0 of 0 live" in bare.stdout and "devices" not in bare.stdout
        assert "devices" not in (await command(wfm, "status")).stdout
        await client.put_device(gateway("gw1"))
        await client.put_device(device("gw1/press-1"))
        shown = await command(wfm, "sites", "show", "line-7")
        assert (
            "2 of a Margo client; see  homeport sites devices line-7" in shown.stdout and "live" not in shown.stdout
        )
        nodes = await command(wfm, "nodes", "list")
        assert "homeport sites devices SITE" in nodes.stdout + nodes.stderr
        fleet = await command(wfm, "status")
        assert "devices" in fleet.stdout and "2 of Margo clients; see  homeport sites devices SITE" in fleet.stdout
        assert (await wfm.api.get("/api/v1/overview")).body["devices"] == 2


async def test_a_device_is_chosen_planned_kept_and_refused_with_a_reason(tmp_path: Path) -> None:
    async with running_wfm(tmp_path) as wfm, wfm.client("line-7") as client:
        await client.put_device(gateway("gw1"))
        for name, types in (("a", ["compose"]), ("b", ["compose"]), ("c", ["helm"])):
            await client.put_device(device(f"gw1/{name}", supportedDeploymentTypes=types))
        await is_site(wfm, "line-7")
        before = await client.manifest()

        planned = await deploy(wfm, "--device", "gw1/b", "--plan")
        assert planned.returncode == CHANGES and "    device        gw1/b" in planned.stdout.splitlines()
        assert "has no node" not in planned.stdout
        for options, code, why in (
            (("--device", "gw1/c"), 1, 'gw1/c of "line-7" cannot take it: it supports helm, not compose'),
            (("--device", "gw1/c", "--plan"), 1, "These can: gw1/a, gw1/b."),
            (("--device", "gw1/x", "--plan"), 1, "was not reported by this client"),
            (("--device", "a b"), 1, "device_id"),
            (("--device", "gw1/b", "--site", "other"), 2, "--device gw1/b is for one site"),
        ):
            refused = await deploy(wfm, *options)
            assert refused.returncode == code and why in refused.stderr, refused
        assert (await client.manifest()).body == before.body  # nothing was written

        assert (await deploy(wfm, "--device", "gw1/b")).returncode == 0
        assert await device_of(client, await client.listed(1)) == "gw1/b"
        again = await deploy(wfm, "--device", "gw1/b")
        assert again.returncode == 0 and "already as asked for" in again.stdout
        # An update keeps the device; another one is only moved to when it is asked for.
        version = (await client.manifest()).json["manifestVersion"]
        assert (await deploy(wfm, "--set", "greeting=Moin")).returncode == 0
        changed = await newer(client, version)
        assert await device_of(client, changed) == "gw1/b"
        moved = await deploy(wfm, "--device", "gw1/a")
        assert moved.returncode == 0, moved.stderr
        assert await device_of(client, await newer(client, changed["manifestVersion"])) == "gw1/a"


async def newer(client: MargoClient, version: int) -> dict[str, Any]:
    async def found() -> dict[str, Any] | None:
        manifest: dict[str, Any] = (await client.manifest()).json
        return manifest if manifest["manifestVersion"] > version else None

    newest: dict[str, Any] = await eventually(found)
    return newest


async def device_of(client: MargoClient, manifest: dict[str, Any]) -> str:
    (listed,) = manifest["deployments"]
    return str(yaml.safe_load((await client.get(listed["url"])).body)["metadata"]["deviceId"])


async def deploy(wfm: WfmStand, *options: str) -> subprocess.CompletedProcess[str]:
    return await command(wfm, "deploy", "hello", "--site", "line-7", "--no-wait", *options)


async def homeport(wfm: WfmStand, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await command(wfm, "sites", "devices", *arguments)


async def command(wfm: WfmStand, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOMEPORT_URL": wfm.api.url}
    return await run_sync(partial(run_homeport, arguments, environment=environment))
