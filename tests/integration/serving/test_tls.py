"""TLS at central's door: for people with tokens, for machines with certificates, and for nobody without either."""

import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from homeport.adapters.identity.tls import Credentials
from homeport.adapters.system import SystemClock
from homeport.central.app import CentralApp, open_central
from homeport.central.identity import open_identity
from homeport.central.settings import CentralSettings
from homeport.core.identity.spiffe import client_id
from homeport.core.model.caller import INTERNAL, Role
from homeport.core.model.identity import IdentityKind, IdentityRecord, IdentityStatus
from homeport.errors import InvalidInput, Refused
from homeport.vocabulary import SiteName
from tests.support.local import local_key
from tests.support.running_central import Client
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

DOMAIN, WFM = "homeport.internal", "central"


@asynccontextmanager
async def secured(
    data: Path, host: str = "127.0.0.1", *, is_local: bool = True, **settings: Any
) -> AsyncIterator[tuple[CentralApp, Client]]:
    """A central with TLS, and a client that trusts its authority."""
    given = {"http_address": (host, 0), "grpc_address": None, "tls": True, **settings}
    async with open_central(CentralSettings(data=data, **given)) as central:
        connector = aiohttp.TCPConnector(ssl=trusting(central))
        headers = local_key(central) if is_local else {}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            yield central, Client(f"https://127.0.0.1:{central.http_port}", session)


def ca_of(central: CentralApp) -> str:
    anchors = central.parts.identity.authority.bundle().anchors
    pem = serialization.Encoding.PEM
    return "".join(x509.load_der_x509_certificate(der).public_bytes(pem).decode() for der in anchors)


def trusting(central: CentralApp) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca_of(central))
    return context


async def join(
    central: CentralApp, folder: Path, name: str, standing: IdentityStatus = IdentityStatus.ACCEPTED
) -> Credentials:
    """A machine with a certificate, and with a line in the list of the accepted."""
    now, spiffe_id = datetime.now(UTC), client_id(DOMAIN, WFM, name)
    own = Credentials(folder, domain=DOMAIN, wfm=WFM)
    authority = central.parts.identity.authority
    issued = authority.issue(own.request(), spiffe_id=spiffe_id, lifetime_seconds=600, now=now)
    own.install(issued.chain, authority.bundle())
    record = IdentityRecord(
        spiffe_id=spiffe_id,
        kind=IdentityKind.CLIENT,
        name=name,
        site=SiteName(name),
        spki=own.spki,
        standing=standing,
        csr=None,
        not_after=issued.not_after,
        address="",
        requested_at=now,
        decided_at=now,
        decided_by="test",
    )
    await central.parts.store.write(lambda tx: tx.put_identity(record))
    central.parts.registrar.policy.learn(record)
    return own


def as_machine(central: CentralApp, own: Credentials) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=own.client_context()))


JOINING = {"epoch": "e-1", "software_version": "1"}


async def test_people_speak_https_by_name_or_address(tmp_path: Path) -> None:
    async with secured(tmp_path / "central") as (central, client):
        for host in ("127.0.0.1", "localhost"):
            url = f"https://{host}:{central.http_port}"
            async with client.session.get(url + "/api/v1/sites", headers={"Origin": url}) as answer:
                assert answer.status == 200


async def test_older_protocols_and_plain_text_get_no_answer(tmp_path: Path) -> None:
    async with secured(tmp_path / "central") as (central, client):
        old = trusting(central)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get("/healthz", ssl=old)
        with pytest.raises(aiohttp.ClientError):
            await client.call("GET", "", data=None, allow_redirects=False, ssl=ssl.create_default_context())
        async with aiohttp.ClientSession() as plain:
            with pytest.raises(aiohttp.ClientError):
                await plain.get(client.url.replace("https", "http") + "/healthz")


async def test_a_bind_outside_loopback_needs_a_token_and_is_then_https_only(tmp_path: Path) -> None:
    data = tmp_path / "central"
    with pytest.raises(Refused) as refused:
        async with secured(data, "0.0.0.0", tls=False):
            pass
    assert str(refused.value) == "Refusing to listen on 0.0.0.0 without access control."
    assert f"homeport tokens create --role admin --name NAME --data {data}" in str(refused.value.hint)
    async with secured(data) as (central, _):
        made = await central.parts.authenticator.tokens.create(INTERNAL, name="anna", role=Role.ADMIN)
    async with secured(data, "0.0.0.0", tls=False) as (central, client):
        headers = {"Authorization": f"Bearer {made.text}"}
        assert (await client.get("/api/v1/sites", headers=headers)).status == 200
        await central.parts.authenticator.tokens.revoke(INTERNAL, "anna")
    with pytest.raises(Refused):
        async with secured(data, "0.0.0.0"):
            pass


async def test_a_token_for_reading_or_for_one_site_does_not_open_the_door(tmp_path: Path) -> None:
    data = tmp_path / "central"
    async with secured(data) as (central, _):
        tokens = central.parts.authenticator.tokens
        await tokens.create(INTERNAL, name="viewer", role=Role.VIEWER)
        await tokens.create(INTERNAL, name="limited", role=Role.ADMIN, sites=[SiteName("home")])
    with pytest.raises(Refused):
        async with secured(data, "0.0.0.0"):
            pass


async def test_a_machine_acts_for_itself_alone(tmp_path: Path) -> None:
    async with secured(tmp_path / "central", is_local=False) as (central, client):
        own = await join(central, tmp_path / "home", "home")
        async with as_machine(central, own) as session:
            machine = Client(client.url, session)
            assert (await machine.put("/api/v1/sites/home", JOINING)).status == 200
            refused = await machine.put("/api/v1/sites/line-7", JOINING)
            assert (refused.status, refused.body["code"]) == (403, "not-authorized")
            assert refused.body["detail"] == "home is limited to site home and may not act at site line-7."
            for method, path in (
                ("GET", "/api/v1/sites"),
                ("GET", "/api/v1/tokens"),
                ("POST", "/api/v1/deployments"),
            ):
                assert (await machine.call(method, path)).status == 403, path
        assert (await client.put("/api/v1/sites/home", JOINING)).status == 401


async def test_beyond_loopback_the_registry_has_tls_and_knows_a_machine_by_its_certificate(tmp_path: Path) -> None:
    data, content = tmp_path / "central", bytes(1_000_000)
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    async with secured(data) as (central, _):
        made = await central.parts.authenticator.tokens.create(INTERNAL, name="anna", role=Role.ADMIN)
    async with secured(data, "127.0.0.1", registry_address=("0.0.0.0", 0)) as (central, client):
        address = central.parts.registry.address
        assert address is not None
        assert address.is_tls
        url = f"https://localhost:{address.host.rpartition(':')[2]}"
        headers = {"Authorization": f"Bearer {made.text}"}
        person = Client(url, client.session, headers)
        pushed = await person.call("POST", f"/v2/app/blobs/uploads/?digest={digest}", data=content)
        assert pushed.status == 201
        own = await join(central, tmp_path / "home", "home")
        async with as_machine(central, own) as session:
            async with session.get(f"{url}/v2/app/blobs/{digest}") as answer:
                assert (answer.status, await answer.read() == content) == (200, True)
            refused = await Client(url, session).call("POST", "/v2/app/blobs/uploads/")
            assert (refused.status, refused.body["errors"][0]["code"]) == (403, "DENIED")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(central))) as session:
            assert (await Client(url, session).get("/v2/")).status == 401


@pytest.mark.parametrize("standing", [IdentityStatus.PENDING, IdentityStatus.REMOVED])
async def test_a_certificate_alone_admits_nobody(tmp_path: Path, standing: IdentityStatus) -> None:
    async with secured(tmp_path / "central", is_local=False) as (central, client):
        own = await join(central, tmp_path / "home", "home", standing)
        async with as_machine(central, own) as session:
            machine = Client(client.url, session)
            refused = await machine.put("/api/v1/sites/home", JOINING)
            assert (refused.status, refused.body["code"]) == (403, "not-authorized")
            assert (await machine.get("/healthz")).status == 200


async def test_a_removed_machine_is_cut_off_on_its_open_connection_and_stream(tmp_path: Path) -> None:
    async with secured(tmp_path / "central", is_local=False) as (central, client):
        own = await join(central, tmp_path / "home", "home")
        async with as_machine(central, own) as session:
            machine = Client(client.url, session)
            assert (await machine.put("/api/v1/sites/home", JOINING)).status == 200
            async with session.get(client.url + "/api/v1/sites/home/watch") as stream:
                assert stream.status == 200
                await join(central, tmp_path / "home", "home", IdentityStatus.REMOVED)
                with anyio.fail_after(60):
                    async for _ in stream.content:
                        pass
            assert (await machine.put("/api/v1/sites/home", JOINING)).status == 403


async def test_certificates_of_a_stranger_do_not_pass_the_handshake(tmp_path: Path) -> None:
    async with secured(tmp_path / "central") as (central, client), secured(tmp_path / "other") as (other, _):
        stranger = await join(other, tmp_path / "stranger", "home")
        context = trusting(central)
        context.load_cert_chain(tmp_path / "stranger" / "chain.pem", tmp_path / "stranger" / "key.pem")
        assert stranger.exists
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await client.get("/healthz", ssl=context)
        assert (await client.get("/healthz")).status == 200


async def test_people_are_shown_the_files_that_were_given(tmp_path: Path) -> None:
    async with secured(tmp_path / "other") as (other, _):
        ca = trusting(other)
        files = (tmp_path / "other/identity/central/chain.pem", tmp_path / "other/identity/central/key.pem")
    async with secured(tmp_path / "central", tls=False, tls_files=files) as (_, client):
        assert (await client.get("/healthz", ssl=ca)).status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await client.get("/healthz")
    with pytest.raises(InvalidInput, match="cannot be used"):
        async with secured(tmp_path / "central", tls_files=(files[0], files[0])):
            pass


async def test_centrals_certificate_is_renewed_in_place_with_the_same_key(tmp_path: Path) -> None:
    async with secured(tmp_path / "central", svid_seconds=60) as (central, client):
        identity = central.parts.identity
        before, pin = identity.credentials.not_after, identity.pin
        async with client.session.get(client.url + "/healthz") as kept:
            assert kept.status == 200

        def is_renewed() -> bool:
            identity.keep_up(at_once=True)
            return identity.credentials.not_after > before

        await eventually(is_renewed, what="a certificate that ends a second later")
        assert identity.pin == pin
        assert (await client.get("/healthz")).status == 200


@dataclass
class SetClock(SystemClock):
    """A real clock that somebody has set wrongly."""

    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


def test_a_certificate_made_while_the_clock_was_ahead_is_replaced_when_it_is_right_again(tmp_path: Path) -> None:
    clock = SetClock()
    identity = open_identity(CentralSettings(data=tmp_path), clock)
    clock.ahead = timedelta(days=365)
    identity.keep_up()
    assert identity.credentials.not_before > SystemClock().now()
    clock.ahead = timedelta()
    identity.keep_up()
    assert identity.credentials.not_before < SystemClock().now() < identity.credentials.not_after
