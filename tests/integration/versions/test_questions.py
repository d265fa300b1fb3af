"""What a site of another version answers to central's questions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from homeport.adapters.link import central_http
from homeport.central.app import CentralApp
from homeport.core.model.protocol import OWN, VERSION
from homeport.errors import NotFound, PeerUnavailable, UnknownKind
from homeport.fleet.central.sites.queries import ANSWER_SECONDS_MAX
from homeport.ports import DrainNode
from homeport.site.app import SiteApp, open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId, SiteName
from homeport.wire.site_messages import decode
from tests.support.local import local_key
from tests.support.running_central import Answer, Client, FakeSite, running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

IDENTITIES = "/api/v1/sites/home/nodes/identities"
IDENTITY = {
    **{"spiffe_id": "spiffe://homeport.internal/x", "kind": "node", "name": "n", "site": "home", "key": "any"},
    **{"standing": "pending", "not_after": None, "address": "", "decided_at": None, "decided_by": ""},
    "requested_at": "2030-01-01T00:00:00Z",
}


async def answered(client: Client, answer: Any) -> Answer:
    """What whoever asks central gets when the site answers so."""
    found: list[Answer] = []

    async def ask() -> None:
        async def is_asked() -> bool:
            found[:] = [await client.get(IDENTITIES)]
            return found[0].status != 503  # the site does not listen yet

        await eventually(is_asked, what="an answer")
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        async for sent in client.events("/api/v1/sites/home/watch"):
            if sent.event == "node-identities":
                await client.post(f"/api/v1/sites/home/answers/{sent.data['question']}", answer)
    return found[0]


@pytest.mark.parametrize(
    "answer", [{}, {"identities": 5}, {"identities": [{"name": "n"}]}, {"identities": [{**IDENTITY, "kind": 1}]}]
)
async def test_an_answer_of_another_form_is_the_sites_fault_and_says_so(tmp_path: Path, answer: Any) -> None:
    async with running_central(tmp_path) as (_, client):
        await FakeSite(client).join()
        got = await answered(client, answer)
    assert (got.status, got.body["code"]) == (502, "bad-answer")
    assert got.body["detail"].startswith("Site home answered in a form that this central cannot read: identities")
    assert "upgrade" in got.body["hint"]


async def test_fields_that_a_newer_site_adds_to_an_answer_are_passed_over(tmp_path: Path) -> None:
    async with running_central(tmp_path) as (_, client):
        await FakeSite(client).join()
        got = await answered(client, {"identities": [{**IDENTITY, "mood": "good"}], "more": 1})
    assert (got.status, [each["name"] for each in got.body["identities"]]) == (200, ["n"])


@asynccontextmanager
async def real_site(tmp_path: Path, central: CentralApp, client: Client) -> AsyncIterator[SiteApp]:
    settings = SiteSettings(
        name=SiteName("home"),
        data=tmp_path / "site",
        git_url=central.parts.git.url,
        central_url=client.url,
        http_address=("127.0.0.1", 0),
        grpc_address=None,
    )
    async with open_site(settings) as site:
        yield site


async def test_a_request_that_only_a_newer_site_knows_is_counted_and_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only as the site reads it: for central it is a request like any other.
    monkeypatch.setattr(central_http, "decode", lambda data: decode({**data, "kind": f"new-{data['kind']}"}))
    async with (
        running_central(tmp_path / "central") as (central, client),
        real_site(tmp_path, central, client) as site,
    ):
        home = SiteName("home")

        async def asked() -> Exception | None:
            try:
                with anyio.fail_after(ANSWER_SECONDS_MAX):  # sooner than an asker without an answer gives up
                    await central.parts.questions.confirm(home, DrainNode(NodeId("a"), "x"), anyio.sleep_forever, "x")
            except UnknownKind as error:
                return error
            except PeerUnavailable:
                return None
            return None

        refused = await eventually(asked, what="the refusal")
        assert str(refused).startswith('Site home runs version 0.1.0 and cannot do "new-drain-node"')
        assert refused.hint == "Upgrade the site, then ask again."
        async with aiohttp.ClientSession(headers=local_key(site)) as session:
            metrics = (await Client(f"http://127.0.0.1:{site.http_port}", session).get("/metrics")).body
    assert 'homeport_messages_refused_total{code="unknown-kind"} 0.0' not in metrics


async def test_what_a_site_refuses_reaches_whoever_asked_at_once(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central") as (central, client), real_site(tmp_path, central, client):
        home = SiteName("home")

        async def asked() -> Exception | None:
            try:
                with anyio.fail_after(60):
                    await central.parts.questions.confirm(home, DrainNode(NodeId("a"), "x"), anyio.sleep_forever, "x")
            except NotFound as error:
                return error
            except PeerUnavailable:
                return None
            return None

        assert "node a" in str(await eventually(asked, what="the refusal"))


async def test_a_report_that_central_does_not_know_is_kept_counted_and_answered(tmp_path: Path) -> None:
    async with running_central(tmp_path) as (_, client):
        site = FakeSite(client)
        await site.join()
        answer = await site.say_bodies([{"kind": "dance"}, {"kind": "sync-failed", "message": 5}])
        assert answer.body["last_sequence"] == 2
        asides = [(each["sequence"], each["code"]) for each in answer.body["set_aside"]]
        assert asides == [(1, "unknown-kind"), (2, "invalid-input")]
        metrics = (await client.get("/metrics")).body
        assert 'homeport_messages_refused_total{code="unknown-kind"} 1.0' in metrics
        assert (await site.say_bodies([])).body["set_aside"] == []


async def test_a_site_too_many_releases_apart_is_refused_shown_and_let_in_after_its_upgrade(
    tmp_path: Path,
) -> None:
    async with running_central(tmp_path) as (_, client):
        body = {"epoch": "e", "software_version": "9"}
        await client.put(f"/api/v1/sites/home?protocol={VERSION + 2}", body)
        refused = await client.put(f"/api/v1/sites/home?protocol={VERSION + 2}", body)
        assert (refused.status, refused.body["code"]) == (409, "version-skew")
        assert "Upgrade central, one release at a time." in refused.body["detail"]
        shown = (await client.get("/api/v1/sites/home")).body
        assert (shown["problem"], shown["protocol"]) == (refused.body["detail"], VERSION + 2)
        overview = (await client.get("/api/v1/overview")).body
        assert overview["last_event_id"] == 1, "said once"
        answer = await client.put(f"/api/v1/sites/home?protocol={VERSION + 1}&features=replies&features=new", body)
        assert (answer.status, answer.body["protocol"], answer.body["features"]) == (200, VERSION, list(OWN.features))
        shown = (await client.get("/api/v1/sites/home")).body
        assert (shown["problem"], shown["protocol"], shown["features"]) == (None, VERSION + 1, ["new", "replies"])
        metrics = (await client.get("/metrics")).body
        assert f'homeport_peers{{protocol="{VERSION + 1}",role="site"}} 1.0' in metrics
        assert (await client.put("/api/v1/sites/old", body)).status == 200, "the release before does not say"
