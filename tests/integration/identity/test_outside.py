"""A fleet whose identities come from an authority outside: central, a site and a node over real sockets, with files
that somebody else writes and replaces while they run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from homeport.central.app import CentralApp, open_central
from homeport.central.settings import CentralSettings
from homeport.errors import HomeportError, InvalidInput, Refused
from homeport.log import fields_of
from homeport.node.link.identity import named_by_certificate, open_identity
from homeport.node.settings import NodeSettings
from homeport.site.app import SiteApp, open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import NodeId, SiteName
from tests.support.certificates import trusting_context
from tests.support.joining import running_node
from tests.support.local import local_key
from tests.support.outside import CENTRAL, DOMAIN, WFM, ForeignAuthority, node_id, site_id
from tests.support.running_central import Client
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@dataclass
class Plant:
    """`at_central` and `at_site` are an administrator on that machine."""

    authority: ForeignAuthority
    central: CentralApp
    site: SiteApp
    at_central: Client
    at_site: Client

    async def site_is_reachable(self) -> bool:
        sites = (await self.at_central.get("/api/v1/sites")).body["sites"]
        return any(site["name"] == "north" and site["reachable"] for site in sites)

    def connected(self) -> frozenset[NodeId]:
        return self.site.parts.sessions.connected

    async def standing(self, client: Client, name: str) -> str | None:
        known = (await client.get("/api/v1/identities")).body["identities"]
        return next((str(each["standing"]) for each in known if each["name"] == name), None)

    async def let_in(self, client: Client, name: str) -> None:
        answer = await client.post(f"/api/v1/identities/{name}/approve", {})
        assert answer.status == 200, answer.body


@asynccontextmanager
async def plant(folder: Path) -> AsyncIterator[Plant]:
    """Central and a site that it does not know yet."""
    authority = ForeignAuthority(folder / "svids")
    async with (
        open_central(central_settings(folder, authority.issue("central", CENTRAL))) as central,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting_context())) as session,
    ):
        url = f"https://127.0.0.1:{central.http_port}"
        settings = site_settings(
            folder,
            authority.issue("north", site_id()),
            central_url=url,
            git_url=str(central.parts.settings.own_repository),
        )
        async with open_site(settings) as site:
            at_site = Client(f"https://127.0.0.1:{site.http_port}", session, local_key(site))
            yield Plant(authority, central, site, Client(url, session, local_key(central)), at_site)


def central_settings(folder: Path, svid: Path, **options: Any) -> CentralSettings:
    given: dict[str, Any] = {
        "http_address": ("127.0.0.1", 0),
        "grpc_address": None,
        "tls": True,
        "trust_domain": DOMAIN,
        "wfm_id": WFM,
        **options,
    }
    return CentralSettings(data=folder / "central", svid_folder=svid, **given)


def site_settings(folder: Path, svid: Path, **options: Any) -> SiteSettings:
    given: dict[str, Any] = {
        "name": SiteName("north"),
        "data": folder / "north",
        "git_url": str(folder / "deployments.git"),
        "http_address": ("127.0.0.1", 0),
        "grpc_address": "127.0.0.1:0",
        "heartbeat_seconds": 0.2,
        "report_seconds": 0.2,
        **options,
    }
    return SiteSettings(svid_folder=svid, **given)


def node_settings(folder: Path, svid: Path, port: int | None, **options: Any) -> NodeSettings:
    given: dict[str, Any] = {
        "data": folder / "n1",
        "site_address": f"127.0.0.1:{port or 1}",
        "http_address": None,
        "runtime": "null",
        "heartbeat_seconds": 0.2,
        "reconnect_max_seconds": 0.5,
        "wfm_id": WFM,
        **options,
    }
    return named_by_certificate(NodeSettings(svid_folder=svid, **given))


async def test_certified_machines_wait_for_a_person_and_are_then_served(tmp_path: Path) -> None:
    async with plant(tmp_path) as fleet:
        await eventually(lambda: is_pending(fleet, fleet.at_central, "north"), what="the site on the list")
        assert not await fleet.site_is_reachable()
        await fleet.let_in(fleet.at_central, "north")
        await eventually(fleet.site_is_reachable, what="the site at central")

        settings = node_settings(tmp_path, fleet.authority.issue("n1", node_id()), fleet.site.grpc_port)
        assert settings.node_id == "n1", "its certificate names it"
        async with running_node(settings):
            await eventually(lambda: is_pending(fleet, fleet.at_site, "n1"), what="the node on the list")
            assert not fleet.connected()
            await fleet.let_in(fleet.at_site, "n1")
            await eventually(fleet.connected, what="the node at its site")

            assert (await fleet.at_site.delete("/api/v1/identities/n1")).status == 200
            assert not fleet.connected(), "removal holds at once"
            removed = await fleet.at_central.delete("/api/v1/identities/north")
            assert removed.body["standing"] == "removed"
            await fleet.let_in(fleet.at_site, "n1")
            await eventually(fleet.connected, what="the node back")


async def is_pending(fleet: Plant, client: Client, name: str) -> bool:
    return await fleet.standing(client, name) == "pending"


async def test_renewals_with_new_keys_and_a_new_root_are_taken_over_while_running(tmp_path: Path) -> None:
    async with plant(tmp_path) as fleet:
        await fleet.let_in(fleet.at_central, "north")  # before it came: a name is enough
        await fleet.let_in(fleet.at_site, "n1")
        settings = node_settings(tmp_path, fleet.authority.issue("n1", node_id()), fleet.site.grpc_port)
        async with running_node(settings):
            await eventually(fleet.site_is_reachable, what="the site at central")
            await eventually(fleet.connected, what="the node at its site")
            keys = seen_keys(fleet)

            fleet.authority.renew_all()
            await eventually(lambda: not set(seen_keys(fleet)) & set(keys), what="new keys in use")
            await reported_anew(fleet)

            fleet.authority.new_root("second")
            fleet.authority.announce()
            await eventually(lambda: anchors(fleet) == [2, 2], what="both roots trusted")
            fleet.authority.renew_all()
            fleet.authority.forget_old_roots()
            fleet.authority.announce()
            await eventually(lambda: anchors(fleet) == [1, 1], what="the old root forgotten")
            await reported_anew(fleet)
            bundle = (await fleet.at_central.get("/.well-known/spiffe/bundle.json")).body
            assert len(bundle["keys"]) == 1


def seen_keys(fleet: Plant) -> list[str]:
    central, site = fleet.central.parts.identity, fleet.site.parts.identity
    assert site is not None
    return [central.credentials.spki, site.client.spki]


def anchors(fleet: Plant) -> list[int]:
    central, site = fleet.central.parts.identity, fleet.site.parts.identity
    assert site is not None
    return [len(central.credentials.bundle.anchors), len(site.client.bundle.anchors)]


async def reported_anew(fleet: Plant) -> None:
    """The site speaks to central and the node to its site, with whatever they have now."""

    async def at_central() -> Any:
        return (await fleet.at_central.get("/api/v1/sites")).body["sites"][0]["last_seen"]

    async def at_site() -> Any:
        nodes = (await fleet.at_site.get("/api/v1/nodes")).body["nodes"]
        return nodes[0]["last_seen"] if nodes and fleet.connected() else None

    for look in (at_central, at_site):
        before = await look()

        async def is_newer(look: Any = look, before: Any = before) -> bool:
            now = await look()
            return now is not None and now != before

        await eventually(is_newer, what=f"news ({look.__name__})")


async def test_wrong_files_leave_what_was_in_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with plant(tmp_path) as fleet:
        own = fleet.central.parts.identity.credentials
        before = own.spki
        (own.folder / "svid-key.pem").write_text("half a key")
        await eventually(lambda: "holds no private key" in said(caplog), what="a word about the key")
        assert own.spki == before and (await fleet.at_central.get("/healthz")).status == 200
        fleet.authority.issue("central", site_id("south"))
        await eventually(lambda: f"is for {site_id('south')}" in said(caplog), what="a word about the name")
        assert own.spki == before and (await fleet.at_central.get("/healthz")).status == 200
        anchors = own.bundle.anchors
        fleet.authority.issue("central", CENTRAL)
        (own.folder / "svid-ca.pem").write_text("no anchor at all")
        await eventually(lambda: "svid-ca.pem" in said(caplog), what="a word about the anchors")
        assert own.bundle.anchors == anchors and (await fleet.at_central.get("/healthz")).status == 200
        fleet.authority.issue("central", CENTRAL)
        await eventually(lambda: own.spki != before, what="the next good files")


def said(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(str(fields_of(record).get("why", "")) for record in caplog.records)


async def test_nobody_joins_where_an_authority_outside_certifies(tmp_path: Path) -> None:
    async with plant(tmp_path) as fleet:
        enrolment = {"name": "south", "csr": "-"}
        for client, path, body in (
            (fleet.at_central, "/api/v1/enrolments", enrolment),
            (fleet.at_central, "/api/v1/identity/renew", {"spiffe_id": site_id(), "csr": "-"}),
            (fleet.at_central, "/api/v1/identities", enrolment),
            (fleet.at_central, "/api/v1/sites/south/join-token", {}),
            (fleet.at_central, "/api/v1/sites/north/nodes/join-token", {}),
            (fleet.at_site, "/api/v1/enrolments", enrolment),
            (fleet.at_site, "/api/v1/sites/north/nodes/join-token", {}),
        ):
            answer = await client.post(path, body)
            assert answer.status == 403, (path, answer.body)
            assert answer.body["detail"].startswith("Machines do not join here: an authority outside"), path
            assert "--svid-dir" in answer.body["hint"]
        assert (await fleet.at_central.get(f"/api/v1/enrolments/{'0' * 64}")).status == 403
        rotation = await fleet.at_central.post("/api/v1/authority/rotation", {"step": "begin"})
        assert "come from an authority outside" in rotation.body["detail"]
        shown = (await fleet.at_central.get("/api/v1/authority")).body
        assert (shown["phase"], shown["anchors"], shown["domain"]) == ("outside", 1, DOMAIN)


@pytest.mark.parametrize(
    ("held", "sentence"),
    [
        (site_id(), f"is for {site_id()}, but {CENTRAL} is required."),
        ("spiffe://other.example/margo/wfm/hq", "is for spiffe://other.example/margo/wfm/hq, but"),
    ],
)
async def test_central_refuses_an_identity_that_is_not_its_own(tmp_path: Path, held: str, sentence: str) -> None:
    svid = ForeignAuthority(tmp_path / "svids").issue("central", held)
    with pytest.raises(Refused) as refused:
        async with open_central(central_settings(tmp_path, svid)):
            pass
    assert sentence in str(refused.value) and refused.value.hint


async def test_a_site_and_a_node_refuse_an_identity_that_is_not_their_own(tmp_path: Path) -> None:
    authority = ForeignAuthority(tmp_path / "svids")
    with pytest.raises(Refused, match="which is not site north"):
        async with open_site(site_settings(tmp_path, authority.issue("south", site_id("south")))):
            pass
    with pytest.raises(Refused, match="which is not a node"):
        node_settings(tmp_path, authority.issue("n1", site_id()), None)
    with pytest.raises(Refused, match="which is not node n2"):
        await open_identity(node_settings(tmp_path, authority.issue("n1", node_id()), None, node_id=NodeId("n2")))


async def test_missing_files_and_contradicting_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"svid-ca.pem is missing"):
        async with open_central(central_settings(tmp_path, tmp_path / "nothing")):
            pass
    for settings in (
        lambda: site_settings(tmp_path, tmp_path, pin="sha256:00"),
        lambda: NodeSettings(data=tmp_path, svid_folder=tmp_path, pin="sha256:00"),
    ):
        with pytest.raises(InvalidInput, match="excludes joining"):
            settings()


async def test_an_identity_that_has_ended_admits_nobody(tmp_path: Path) -> None:
    """As when the tool that renews it has died. The others go on."""
    async with plant(tmp_path) as fleet:
        await fleet.let_in(fleet.at_site, "n1")
        svid = fleet.authority.issue("n1", node_id(), ends=timedelta(minutes=-30))
        async with running_node(node_settings(tmp_path, svid, fleet.site.grpc_port)):
            await eventually(lambda: refused_once(fleet), what="the refusal in the audit trail")
            assert not fleet.connected()
            fleet.authority.issue("n1", node_id())
            await eventually(fleet.connected, what="the node once its certificate is good")


async def refused_once(fleet: Plant) -> bool:
    try:
        entries = (await fleet.at_site.get("/api/v1/audit")).body["entries"]
    except HomeportError:
        return False
    return any("expired" in str(entry) for entry in entries)
