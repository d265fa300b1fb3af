"""A Margo client in the dashboard, in a real browser: a site with devices instead of nodes."""

import os
import re
from functools import partial
from pathlib import Path

import pytest
from anyio.to_thread import run_sync
from playwright.sync_api import expect

from tests.support.dashboard import WAIT_MILLISECONDS, chromium, shown, visit
from tests.support.forks import run_homeport
from tests.support.margo import device, gateway, is_site, running_wfm, status

pytestmark = pytest.mark.anyio


async def test_a_margo_client_is_shown_with_its_devices(tmp_path: Path) -> None:
    async with running_wfm(tmp_path) as wfm, wfm.client("line-7") as client:
        await client.put_device(gateway("gw1"))
        await client.put_device(device("gw1/press-1", supportedDeploymentTypes=["compose", "helm"]))
        await is_site(wfm, "line-7")
        (deployment_id,) = await wfm.deploy("line-7")
        version = (await client.listed(1))["manifestVersion"]
        await client.report(deployment_id, status(deployment_id, version, deviceId="gw1/press-1"))
        environment = {"PATH": os.environ["PATH"], "HOMEPORT_URL": wfm.api.url}
        asked = await run_sync(partial(run_homeport, ("dashboard", "--print-url"), environment=environment))
        assert asked.returncode == 0, asked.stderr
        await run_sync(_look, asked.stdout.strip())


def _look(login_url: str) -> None:
    expect.set_options(timeout=WAIT_MILLISECONDS)
    with chromium() as browser, shown(browser, login_url) as page:
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        visit(page, "/sites/line-7")
        expect(page.get_by_text("A Margo client with 2 devices.")).to_be_visible()
        devices = page.get_by_role("region", name="Devices")
        expect(devices.get_by_role("listitem")).to_contain_text(
            [re.compile("gw1.*hosts no workloads"), re.compile("gw1/press-1.*compose, helm")]
        )
        expect(page.get_by_role("region", name="Deployments")).to_contain_text("INSTALLED")
        assert not page.get_by_text("No node has joined yet").count()
        assert not page.get_by_role("button", name="Add a machine").count()
