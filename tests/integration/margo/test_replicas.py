"""Two centrals on one PostgreSQL are one fleet manager: the same versions and bytes, whichever a client asks."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from homeport.adapters.identity.contexts import bare_client, show_chain
from homeport.adapters.identity.keys import key_pem, make_csr, new_key
from homeport.central.app import CentralApp
from homeport.cli.local.issuing import anchors_pem
from homeport.core.model.caller import INTERNAL
from tests.support.margo import MargoClient, Reply, status
from tests.support.postgres import PostgresServer
from tests.support.replicas import two_centrals
from tests.support.running_central import write_app
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def certified(central: CentralApp, name: str) -> ssl.SSLContext:
    key = new_key()
    grant = await central.parts.registrar.issue(name, make_csr(key, name), INTERNAL)
    context = bare_client()
    context.load_verify_locations(cadata=anchors_pem(central.parts.identity.authority.bundle()).decode())
    show_chain(context, grant.svid.chain, key_pem(key))
    return context


@asynccontextmanager
async def asking(central: CentralApp, context: ssl.SSLContext) -> AsyncIterator[MargoClient]:
    address = central.parts.margo.address
    assert address is not None, central.parts.margo.why_off
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        yield MargoClient("line-7", f"https://127.0.0.1:{address[1]}", session)


async def test_both_replicas_serve_the_same_manifest_and_its_version_only_grows(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    name = await postgres.copy_database()
    options = {"margo_address": ("127.0.0.1", 0), "margo_is_required": True}
    try:
        async with two_centrals(tmp_path, postgres.url(name), **options) as two:
            write_app(tmp_path / "registry")
            await two.any.post("/api/v1/apps", {"repository": str(tmp_path / "registry")})
            first, second = two.apps
            context = await certified(first, "line-7")
            async with asking(first, context) as one, asking(second, context) as other:
                await eventually(lambda: accepted(other), what="both to accept the client")
                replies = [await one.manifest(), await other.manifest()]
                assert same(replies) and replies[0].json["manifestVersion"] == 1

                async def is_site() -> bool:
                    return (await two.any.get("/api/v1/sites/line-7")).status == 200

                await eventually(is_site)
                versions, listed = [1], [replies[0].json]
                for number in range(4):
                    deployed = await two.any.deploy("line-7", name=f"app-{number}")
                    assert deployed.status in (200, 201, 202), deployed.body
                    listed = [await each.listed(number + 1) for each in (other, one)]
                    assert listed[0] == listed[1]
                    replies = [await one.manifest(), await other.manifest()]
                    assert same(replies)
                    versions.append(replies[0].json["manifestVersion"])
                    etag = replies[0].headers["etag"]
                    assert (await other.manifest(**{"If-None-Match": etag})).status == 304
                    # What one has rendered, the other serves byte for byte.
                    bundle = listed[0]["bundle"]["url"]
                    assert (await one.get(bundle)).body == (await other.get(bundle)).body
                assert versions == sorted(set(versions))
                deployment_id = listed[0]["deployments"][0]["deploymentId"]
                assert (await one.report(deployment_id, status(deployment_id, versions[-1]))).status == 201
                assert (await other.report(deployment_id, status(deployment_id, versions[-1]))).status == 200
    finally:
        await postgres.drop_database(name)


def same(replies: list[Reply]) -> bool:
    return replies[0].body == replies[1].body and replies[0].headers["etag"] == replies[1].headers["etag"]


async def accepted(client: MargoClient) -> bool:
    return (await client.call("GET", "/api/v1/deployments")).status == 200
