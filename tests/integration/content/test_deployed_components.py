"""What the cache of a site keeps for deployments: components of every release that runs or can be gone back to."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from homeport.adapters.store.open import open_store
from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.content.cache import deployed
from homeport.content.cache.deployed import DeployedComponents
from homeport.core.model.deployment import Pin, Revision
from homeport.core.model.event import Deployment
from homeport.fleet.site.platform import SitePlatform
from homeport.ports import Store, Transaction
from homeport.vocabulary import Commit, DeploymentId, Digest, SiteName
from tests.conformance.store import records
from tests.support.deployment_files import deployment_file

pytestmark = pytest.mark.anyio

HOME = SiteName("home")
NOW = datetime(2026, 3, 1, tzinfo=UTC)
IDS = [DeploymentId(f"00000000-0000-4000-8000-{number:012}") for number in range(7)]


class Site:
    site = HOME

    def __init__(self, store: Store) -> None:
        self.store = store


def content_of(id_: DeploymentId, version: str) -> bytes:
    return deployment_file(name=f"app-{id_[-2:]}", version=version, deployment_id=id_)[1].encode()


def users_of(id_: DeploymentId, version: str) -> set[str]:
    desired = parse_deployment(content_of(id_, version), deployment_path(HOME, id_), HOME)
    return {spec.content_user for spec in desired.release.components}


def kept(id_: DeploymentId, version: str, minute: int) -> Revision:
    digest = Digest(f"sha256:{id_}-{version}")
    at = NOW + timedelta(minutes=minute)
    return Revision(id_, digest, version, content_of(id_, version), Commit("c" * 40), "ada", at)


def deployment(id_: DeploymentId) -> Deployment:
    return records.deployment(id=id_, site=HOME, name=f"app-{id_[-2:]}")


async def test_every_release_that_can_be_gone_back_to_is_alive_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployed, "DEPLOYMENTS_READ", 3)
    async with open_store(str(tmp_path / "site.db")) as store:

        async def write(tx: Transaction) -> None:
            await tx.put_deployments([deployment(each) for each in IDS])
            both = [kept(each, version, n) for each in IDS for n, version in enumerate(("1.0.0", "2.0.0"))]
            await tx.put_revisions(both, keep=2)
            pinned = content_of(IDS[0], "0.9.0")
            await tx.put_pin(Pin(IDS[0], Digest("sha256:p"), pinned, Digest("sha256:o"), "", "ada", NOW))

        await store.write(write)
        alive = DeployedComponents(cast(SitePlatform, Site(store)))
        wanted = {user for each in IDS for version in ("1.0.0", "2.0.0") for user in users_of(each, version)}
        assert set(await alive()) == wanted | users_of(IDS[0], "0.9.0")

        await store.write(lambda tx: tx.put_revisions([kept(IDS[1], "3.0.0", 3)], keep=2))
        changed = set(await alive())
        assert users_of(IDS[1], "3.0.0") <= changed
        assert not users_of(IDS[1], "1.0.0") & changed
