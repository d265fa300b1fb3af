"""Sites and nodes join, are renewed and are sent away, over real TLS sockets."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import jsonschema
import pytest

from homeport.adapters.identity.keys import key_pem, make_csr, new_key
from homeport.adapters.identity.membership import JoinCommand, Membership
from homeport.adapters.identity.tls import Credentials
from homeport.adapters.link.enrolment_http import Distrusted
from homeport.cli.main import run
from homeport.core.identity.joining import reach_mark
from homeport.core.model.caller import INTERNAL
from homeport.errors import PeerUnavailable, Refused
from homeport.node.link.identity import open_identity
from homeport.site.app import open_site
from homeport.vocabulary import SiteName
from tests.support.joining import Fleet, JoinedSite, running_fleet, running_node
from tests.support.running_central import Client, running_central
from tests.support.vectors import load_json
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


def a_csr(name: str = "x") -> str:
    return make_csr(new_key(), name).decode()


async def standings(client: Any) -> dict[str, str]:
    return {
        each["spiffe_id"]: each["standing"] for each in (await client.get("/api/v1/identities")).body["identities"]
    }


async def test_a_site_and_a_node_join_and_the_node_is_seen_at_central(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site, fleet.node(site, "n1"):

        async def seen() -> bool:
            nodes = (await fleet.client.get("/api/v1/nodes")).body["nodes"]
            return [node["id"] for node in nodes] == ["n1"]

        await eventually(seen, what="the node to be seen")
        assert await standings(fleet.client) == {
            "spiffe://homeport.internal/margo/wfm/central/client/north": "accepted",
            "spiffe://homeport.internal/homeport/site/north": "accepted",
        }
        assert await standings(site.client) == {"spiffe://homeport.internal/homeport/site/north/node/n1": "accepted"}
        for folder in ("north/identity", "north/identity/authority", "north/identity/server", "n1/identity"):
            assert (tmp_path / folder / "key.pem").stat().st_mode & 0o777 == 0o600


async def test_whoever_has_joined_needs_neither_token_nor_pin_again(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        async with fleet.site() as site, fleet.node(site, "n1"):
            pass
        async with fleet.site() as site, fleet.node(site, "n1") as settings:
            assert (settings.join_token, settings.pin) == (None, None)


async def test_a_node_joins_and_is_renewed_with_central_gone(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        async with fleet.site():
            pass
        settings = fleet.site_settings(svid_seconds=2.0)
    async with open_site(settings) as app:
        site = JoinedSite(app, fleet.client)
        identity, registrar = app.parts.identity, app.parts.registrar
        assert identity is not None and registrar is not None
        answer = await registrar.invite(SiteName("north"), INTERNAL)
        ticket = {"api": f"https://127.0.0.1:{app.http_port}", "token": answer.text, "pin": identity.server.pin}
        node = fleet.node_settings("n1", ticket, f"127.0.0.1:{app.grpc_port}")
        async with running_node(node):
            await eventually(lambda: Fleet.is_connected(site, "n1"), what="the node")
            chain = tmp_path / "n1" / "identity" / "chain.pem"
            first = chain.read_bytes()
            await eventually(lambda: chain.read_bytes() != first, what="a renewed certificate")
            await eventually(lambda: Fleet.is_connected(site, "n1"), what="the node again")


async def test_a_removed_node_loses_its_stream_at_once_and_does_not_come_back(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site, fleet.node(site, "n1"), fleet.node(site, "n2"):
        answer = await site.client.delete("/api/v1/identities/n1")
        assert answer.status == 200, answer.body
        assert not await Fleet.is_connected(site, "n1")
        await anyio.sleep(1.5)
        assert not await Fleet.is_connected(site, "n1")
        assert await Fleet.is_connected(site, "n2"), "others are unaffected"


async def test_a_removed_site_is_refused_with_its_next_request(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site:
        parts = site.app.parts
        assert parts.central is not None
        await parts.central.join(SiteName("north"), epoch="e", software_version="1")
        assert (await fleet.client.delete("/api/v1/identities/north")).status == 200
        reasons = []
        for _ in range(5):
            with pytest.raises(PeerUnavailable) as refused:
                await parts.central.join(SiteName("north"), epoch="e", software_version="1")
            reasons.append(str(refused.value))
        assert any("not accepted" in reason for reason in reasons), reasons
        with pytest.raises(Refused, match="was removed"):
            await anyio.to_thread.run_sync(parts.identity.renew_client)  # type: ignore[union-attr]


async def test_a_request_that_was_kept_cannot_send_the_nodes_of_a_site_elsewhere(tmp_path: Path) -> None:
    """A request to renew proves the key, and can be sent again by whoever has seen it: the addresses beside it count
    only where the same key has signed them."""
    async with running_fleet(tmp_path) as fleet, fleet.site() as site:
        identity, store = site.app.parts.identity, fleet.central.parts.store
        assert identity is not None and identity.membership is not None
        elsewhere = {"nodes": "evil.example:1", "api": "https://evil.example", "pin": "sha256:" + "0" * 64}

        async def remembered() -> str:
            async with store.read() as reader:
                return str(await reader.value("reach:north"))

        signed = identity.client.request(reach_mark(identity.reach)).decode()
        body = {"spiffe_id": identity.client.spiffe_id, "csr": signed}
        before = await remembered()
        assert (await fleet.client.post("/api/v1/identity/renew", {**body, "reach": elsewhere})).status == 200
        assert await remembered() == before != "None"
        identity.membership.reach = {**identity.reach, "nodes": "north.example:50052"}
        await anyio.to_thread.run_sync(identity.renew_client)
        assert "north.example:50052" in await remembered(), "the site itself may move"


async def test_a_site_speaks_for_itself_alone(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site:
        parts = site.app.parts
        assert parts.central is not None
        with pytest.raises(PeerUnavailable, match="403"):
            await parts.central.join(SiteName("south"), epoch="e", software_version="1")


async def test_a_token_works_once_and_for_its_own_site_only(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        ticket = await fleet.site_ticket("north")

        async def enrol(name: str, csr: str) -> Any:
            return await fleet.client.post("/api/v1/enrolments", {"name": name, "csr": csr, "token": ticket["token"]})

        stolen = await enrol("south", a_csr())
        assert (stolen.status, "for site north" in stolen.body["detail"]) == (403, True)
        assert (await enrol("north", a_csr())).body["standing"] == "accepted"
        replayed = await enrol("north2", a_csr())
        assert (replayed.status, "used" in replayed.body["detail"]) == (403, True)
        other_key = await enrol("north", a_csr())
        assert other_key.status in {403, 409}
        forged = await fleet.client.post(
            "/api/v1/enrolments", {"name": "north", "csr": a_csr(), "token": ticket["token"][:-4] + "0000"}
        )
        assert forged.status in {403, 409}
        assert list(await standings(fleet.client)) == ["spiffe://homeport.internal/margo/wfm/central/client/north"]


async def test_of_ten_who_come_with_one_token_at_once_one_joins(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        ticket = await fleet.site_ticket("north")
        answers: list[int] = []

        async def enrol() -> None:
            body = {"name": "north", "csr": a_csr(), "token": ticket["token"]}
            answers.append((await fleet.client.post("/api/v1/enrolments", body)).status)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(enrol)
        assert sorted(answers)[0] == 200
        assert all(status in {403, 409} for status in sorted(answers)[1:])


async def test_an_expired_token_and_a_broken_request_are_refused(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        ticket = await fleet.site_ticket("north", lifetime_seconds=1)
        broken = await fleet.client.post(
            "/api/v1/enrolments", {"name": "north", "csr": "nonsense", "token": ticket["token"]}
        )
        assert broken.status == 422
        await anyio.sleep(1.1)
        late = await fleet.client.post(
            "/api/v1/enrolments", {"name": "north", "csr": a_csr(), "token": ticket["token"]}
        )
        assert (late.status, "expired" in late.body["detail"]) == (403, True)
        assert await standings(fleet.client) == {}


async def test_a_site_without_a_token_waits_until_somebody_approves_it(tmp_path: Path) -> None:
    keys, up = list[str](), anyio.Event()
    async with running_fleet(tmp_path) as fleet:
        pin = fleet.central.parts.identity.pin
        settings = fleet.site_settings(pin=pin)
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                async with open_site(settings, on_waiting=keys.append) as app:
                    assert app.parts.identity is not None
                    up.set()

            tasks.start_soon(run)
            await eventually(lambda: keys, what="the site to wait")
            waiting = (await fleet.client.get("/api/v1/identities")).body["identities"]
            assert {each["standing"] for each in waiting} == {"pending"}
            assert keys[0] in {each["key"] for each in waiting}
            wrong = await fleet.client.post("/api/v1/identities/north/approve", {"key": "sha256:" + "0" * 64})
            assert (wrong.status, keys[0] in wrong.body["detail"]) == (409, True)
            assert set((await standings(fleet.client)).values()) == {"pending"}, "the server compares, not the client"
            assert (await fleet.client.post("/api/v1/identities/north/approve", {"key": keys[0]})).status == 200
            with anyio.fail_after(60):
                await up.wait()
        assert set((await standings(fleet.client)).values()) == {"accepted"}


async def test_a_node_waits_for_approval_and_a_denied_one_gives_up(tmp_path: Path) -> None:
    keys: list[str] = []
    async with running_fleet(tmp_path) as fleet, fleet.site() as site:
        identity = site.app.parts.identity
        assert identity is not None
        ticket = {"api": f"https://127.0.0.1:{site.app.http_port}", "token": None, "pin": identity.server.pin}
        settings = fleet.node_settings("n1", ticket, f"127.0.0.1:{site.app.grpc_port}")
        with pytest.raises(ExceptionGroup) as ended:
            async with anyio.create_task_group() as tasks:

                async def run() -> None:
                    await open_identity(settings, on_waiting=keys.append)

                tasks.start_soon(run)
                await eventually(lambda: keys, what="the node to wait")
                assert (await site.client.delete("/api/v1/identities/n1")).status == 200
        assert "no longer accepted" in str(ended.value.exceptions[0])


async def test_a_certificate_that_ended_is_renewed_by_the_same_key_and_no_other(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, svid_seconds=1.0) as fleet:
        ticket = await fleet.site_ticket("north")
        membership = Membership(tmp_path / "machine")
        asked = JoinCommand(url=fleet.url, pin=ticket["pin"], token=ticket["token"])
        assert await anyio.to_thread.run_sync(lambda: membership.join(asked, name="north", site="north"))
        credentials = membership.credentials()
        first = credentials.not_after
        await eventually(lambda: datetime.now(UTC) > first, what="the certificate to end")
        await anyio.to_thread.run_sync(membership.renew, credentials)
        assert credentials.not_after > first
        stranger = {"spiffe_id": credentials.spiffe_id, "csr": a_csr()}
        refused = await fleet.client.post("/api/v1/identity/renew", stranger)
        assert (refused.status, "another key" in refused.body["detail"]) == (403, True)


async def test_nothing_is_said_to_a_server_with_another_key(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        membership = Membership(tmp_path / "machine")
        asked = JoinCommand(url=fleet.url, pin=f"sha256:{'0' * 64}", token="hpj_secret")
        with pytest.raises(Distrusted, match="does not match the pin"):
            await anyio.to_thread.run_sync(lambda: membership.join(asked, name="north", site="north"))
        assert await standings(fleet.client) == {}


async def test_a_node_needs_an_identity_to_leave_this_machine(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        settings = fleet.site_settings(central_url=None, grpc_address="0.0.0.0:0")
        with pytest.raises(Refused, match="without an identity") as refused:
            async with open_site(settings):
                pass
        assert refused.value.hint is not None and "sites join-command north" in refused.value.hint
        with pytest.raises(Refused, match="known by its pin"):
            async with open_site(fleet.site_settings(join_token="hpj_x")):
                pass


async def test_the_bundle_and_where_it_is_can_be_asked_for_and_cached(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        found = await fleet.client.get("/.well-known/margo")
        assert found.body == {
            "trustDomain": "homeport.internal",
            "trustBundleUri": f"{fleet.url}/.well-known/spiffe/bundle.json",
        }
        bundle = await fleet.client.get("/.well-known/spiffe/bundle.json")
        assert fleet.url.startswith("https://")
        jsonschema.validate(found.body, load_json("discovery-document.schema"))
        jsonschema.validate(bundle.body, load_json("spiffe-bundle.schema"))
        assert [key["use"] for key in bundle.body["keys"]] == ["x509-svid"]
        for path, first in (("/.well-known/margo", found), ("/.well-known/spiffe/bundle.json", bundle)):
            etag = first.headers["etag"]
            assert (first.headers["content-type"], first.headers["cache-control"]) == ("application/json", "no-cache")
            assert re.fullmatch(r'"[0-9a-f]+"', etag)
            for condition, status in ((etag, 304), (f'"x", W/{etag}', 304), ("*", 304), ('"x"', 200)):
                again = await fleet.client.get(path, headers={"If-None-Match": condition})
                assert (again.status, again.headers["etag"]) == (status, etag), (path, condition)


async def test_the_authority_is_rotated_while_everybody_works(tmp_path: Path) -> None:
    async with (
        running_fleet(tmp_path, bundle_refresh_seconds=3) as fleet,
        fleet.site(svid_seconds=5.0) as site,
        fleet.node(site, "n1"),
    ):

        async def step(name: str) -> Any:
            return await fleet.client.post("/api/v1/authority/rotation", {"step": name})

        begun = (await step("begin")).body
        # A refresh of the sites, and then one of their nodes.
        assert (begun["anchors"], 3 < begun["wait_seconds"] <= 6) == (2, True)
        hasty = await step("switch")
        assert (hasty.status, "new root yet" in hasty.body["detail"]) == (403, True)
        identity = site.app.parts.identity
        assert identity is not None
        await eventually(lambda: len(identity.client.bundle.anchors) == 2, what="both anchors at the site")

        async def switched() -> bool:
            return bool((await step("switch")).body.get("phase") == "switched")

        await eventually(switched, what="the new root to sign")

        async def finished() -> bool:
            return bool((await step("finish")).status == 200)

        await eventually(finished, what="everybody to leave the old root")
        await eventually(lambda: len(identity.client.bundle.anchors) == 1, what="one anchor at the site")
        await anyio.sleep(3)
        await eventually(lambda: Fleet.is_connected(site, "n1"), what="the node with certificates of the new root")
        assert site.app.parts.central is not None
        await site.app.parts.central.join(SiteName("north"), epoch="e", software_version="1")


async def test_a_rotation_waits_for_a_machine_that_holds_a_certificate_of_the_old_root(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, bundle_refresh_seconds=1) as fleet:
        async with fleet.site():
            pass  # it has joined, and cannot renew any more

        async def step(name: str, **options: Any) -> Any:
            return await fleet.client.post("/api/v1/authority/rotation", {"step": name, **options})

        async def switched() -> bool:
            return bool((await step("switch")).body.get("phase") == "switched")

        await step("begin")
        await eventually(switched, what="the new root to sign")
        early = await step("finish")
        assert (early.status, "old root" in str(early.body)) == (403, True), early.body
        assert (await step("finish", force=True)).status == 200


async def test_somebody_elses_client_gets_a_certificate_that_is_accepted(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, aiohttp.ClientSession() as session:
        machine, key = Client(fleet.client.url, session), new_key()
        issued = await fleet.client.post(
            "/api/v1/identities", {"name": "line-7", "csr": make_csr(key, "line-7").decode()}
        )
        assert issued.body["spiffe_id"] == "spiffe://homeport.internal/margo/wfm/central/client/line-7"
        (tmp_path / "cert.pem").write_text(issued.body["chain"])
        (tmp_path / "key.pem").write_bytes(key_pem(key))
        context = fleet.central.parts.identity.credentials.client_context(present=False)
        context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
        own = {"epoch": "e", "software_version": "1"}
        answer = await machine.call("PUT", "/api/v1/sites/line-7", json=own, ssl=context)
        assert answer.status == 200, answer.body
        other = await machine.call("PUT", "/api/v1/sites/north", json=own, ssl=context)
        assert (other.status, other.body["code"]) == (403, "not-authorized")
        admin = await machine.call("GET", "/api/v1/identities", ssl=context)
        assert admin.status == 403, "a machine is nobody's administrator"


async def test_the_certificate_of_a_machine_that_was_replaced_no_longer_counts(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.site() as site:
        parts = site.app.parts
        assert parts.central is not None
        assert (await fleet.client.delete("/api/v1/identities/north")).status == 200
        ticket = await fleet.site_ticket("north")
        body = {"name": "north", "csr": a_csr(), "token": ticket["token"]}
        assert (await fleet.client.post("/api/v1/enrolments", body)).status == 200
        with pytest.raises(PeerUnavailable):
            await parts.central.join(SiteName("north"), epoch="e", software_version="1")


async def test_whoever_tries_tokens_is_slowed_down_and_a_good_one_still_works(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        ticket = await fleet.site_ticket("north")
        csr = a_csr()
        statuses = [
            (
                await fleet.client.post(
                    "/api/v1/enrolments", {"name": "north", "csr": csr, "token": f"hpj_{'ab' * 6}_{number:064x}"}
                )
            ).status
            for number in range(15)
        ]
        assert statuses[0] == 403
        assert statuses[-1] == 429
        good = await fleet.client.post("/api/v1/enrolments", {"name": "north", "csr": csr, "token": ticket["token"]})
        assert good.body["standing"] == "accepted"
        entries = (await fleet.client.get("/api/v1/audit")).body["entries"]
        assert ("identities.enrol", "refused") in {(each["action"], each["result"]) for each in entries}
        assert ticket["token"].rpartition("_")[2] not in str(entries)


async def test_the_command_line_writes_three_files_for_a_foreign_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_central(tmp_path / "central") as (_, client):
        out = tmp_path / "svid"

        def issue(name: str, folder: Path) -> int:
            return run(["identity", "issue", "--client", name, "--out", str(folder), "--url", client.url])

        assert await anyio.to_thread.run_sync(issue, "line-7", out) == 0
        assert {path.name for path in out.iterdir()} == {"svid-cert.pem", "svid-key.pem", "svid-ca.pem"}
        assert (out / "svid-key.pem").stat().st_mode & 0o777 == 0o600
        credentials = Credentials(out, domain="homeport.internal", wfm="central")
        assert credentials.spiffe_id == "spiffe://homeport.internal/margo/wfm/central/client/line-7"
        assert await anyio.to_thread.run_sync(issue, "line-8", out) != 0, "nothing is overwritten"
        assert "exists already" in capsys.readouterr().err
