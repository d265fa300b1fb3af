"""Two sites over Margo and one over Git, from one central: they converge to the same state."""

from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.identity.keys import key_pem, make_csr, new_key
from homeport.cli.local.issuing import anchors_pem, write_files
from homeport.core.model.caller import INTERNAL
from homeport.vocabulary import State
from tests.support.margo import WfmStand, running_wfm
from tests.support.margo_sites import running_site
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def issued(wfm: WfmStand, name: str) -> dict[str, Any]:
    """The options of a site with files that central has issued for it."""
    key, parts = new_key(), wfm.central.parts
    grant = await parts.registrar.issue(name, make_csr(key, name), INTERNAL)
    folder = wfm.folder / f"svid-{name}"
    folder.mkdir()
    anchors = anchors_pem(parts.identity.authority.bundle())
    write_files(folder, key=key_pem(key), chain=grant.svid.chain, anchors=anchors)
    return {"svid_folder": folder, "wfm_url": wfm.url}


async def test_three_sites_run_the_same_whatever_way_their_desired_state_takes(tmp_path: Path) -> None:
    async with running_wfm(tmp_path, base="/v1alpha2/margo") as wfm:
        margo = [await issued(wfm, name) for name in ("south", "west")]
        repository = str(wfm.central.parts.settings.own_repository)
        url = f"http://127.0.0.1:{wfm.central.http_port}"
        async with (
            running_site(tmp_path, "north", git_url=repository, central_url=url) as north,
            running_site(tmp_path, "south", **margo[0]) as south,
            running_site(tmp_path, "west", **margo[1]) as west,
        ):
            sites = {"north": north, "south": south, "west": west}

            async def known() -> bool:
                listed = (await wfm.api.get("/api/v1/sites")).body["sites"]
                return {each["name"] for each in listed} >= set(sites)

            await eventually(known)
            await wfm.deploy(*sites, parameters={"greeting": "Moin"})

            async def all_installed() -> bool:
                rows = (await wfm.api.get("/api/v1/deployments")).body["deployments"]
                return len(rows) == 3 and {row["state"] for row in rows} == {State.INSTALLED.value}

            await eventually(all_installed, what="all three to be INSTALLED at central")
            found = {
                name: [
                    (desired.app_version, desired.parameters, desired.release.components)
                    for desired in site.parts.conductor.memory.files.values()
                ]
                for name, site in sites.items()
            }
            assert found["north"] == found["south"] == found["west"]
            (row,) = (await wfm.api.get("/api/v1/deployments?site=south")).body["deployments"]
            await wfm.api.delete(f"/api/v1/deployments/{row['id']}")
            await eventually(lambda: not south.parts.conductor.memory.wanted)
            assert west.parts.conductor.memory.wanted and north.parts.conductor.memory.wanted
