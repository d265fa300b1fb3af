"""One https port for people and machines: each is shown the certificate that it can believe."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from homeport.adapters.identity.certificates import to_pem, view
from homeport.adapters.identity.contexts import presented_chain
from homeport.adapters.identity.https_certificates import ServerTls
from homeport.adapters.identity.keys import key_pem
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.core.model.caller import INTERNAL, Role
from homeport.errors import InvalidInput, Refused
from homeport.site.app import open_site
from homeport.site.settings import SiteSettings
from homeport.vocabulary import SiteName
from tests.support.certificates import CENTRAL, Household, Made, forge_root, meet, trusting_context
from tests.support.joining import Fleet, JoinedSite, running_fleet
from tests.support.local import local_key
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

PEOPLE = ("central.example", "*.apps.example", "localhost")


def write_public(folder: Path, names: tuple[str, ...] = PEOPLE) -> tuple[tuple[Path, Path], ssl.SSLContext]:
    """A certificate as a public authority makes it, and a browser that trusts that authority."""
    root = forge_root("public.example", name="public")
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
        .issuer_name(root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
    )
    folder.mkdir(parents=True, exist_ok=True)
    made = Made(builder.sign(root.key, hashes.SHA256()), key)
    (folder / "tls.crt").write_bytes(to_pem(made.certificate))
    (folder / "tls.key").write_bytes(key_pem(made.key))
    browser = ssl.create_default_context(cadata=to_pem(root.certificate).decode())
    return (folder / "tls.crt", folder / "tls.key"), browser


async def shown(door: ServerTls, name: str | None) -> tuple[str, ...]:
    """The URI names of the certificate that whoever asks for `name` is shown; the public one has none."""
    seen: list[bytes] = []
    context = trusting_context()
    ask = context.wrap_bio
    # `meet` dials an address, which says no name; the name is put in here.
    context.wrap_bio = lambda *given, **named: ask(*given, **{**named, "server_hostname": name})  # type: ignore[method-assign]
    await meet(
        door.context,
        context,
        judge_client=lambda _: None,
        judge_server=lambda found: seen.extend(presented_chain(found)),
    )
    return view(seen[0]).uri_sans


@pytest.mark.parametrize(
    ("asked", "is_svid"),
    [
        (SERVER_NAME, True),
        ("central.example", False),
        ("CENTRAL.example", False),
        ("one.apps.example", False),
        ("one.two.apps.example", True),
        ("machines.example", True),
        (None, False),
    ],
)
async def test_the_name_that_is_asked_for_chooses_the_certificate(
    tmp_path: Path, asked: str | None, is_svid: bool
) -> None:
    files, _ = write_public(tmp_path)
    door = ServerTls(Household(tmp_path).central(), files, client="optional")
    assert await shown(door, asked) == ((CENTRAL,) if is_svid else ())


async def test_without_files_everybody_is_shown_the_svid(tmp_path: Path) -> None:
    door = ServerTls(Household(tmp_path).central(), None, client="optional")
    assert [await shown(door, name) for name in (None, SERVER_NAME, "central.example")] == [(CENTRAL,)] * 3


async def test_files_for_people_are_taken_over_when_they_change(tmp_path: Path) -> None:
    files, _ = write_public(tmp_path)
    door = ServerTls(Household(tmp_path).central(), files, client="optional")
    assert not door.refresh()
    write_public(tmp_path, names=("new.example",))
    assert door.refresh()
    assert await shown(door, "new.example") == ()
    assert await shown(door, "central.example") == (CENTRAL,), "a name that is no longer theirs"
    files[1].write_text("half a key")
    with pytest.raises(InvalidInput, match="cannot be used"):
        door.refresh()
    assert await shown(door, "new.example") == ()


async def test_people_and_machines_use_one_port_of_central_and_of_a_site(tmp_path: Path) -> None:
    files, browser = write_public(tmp_path / "files")
    connector = aiohttp.TCPConnector(ssl=browser)
    async with (
        running_fleet(tmp_path, tls_files=files) as fleet,
        aiohttp.ClientSession(connector=connector) as people,
    ):
        fleet.client.headers = local_key(fleet.central)
        fleet.client.session, fleet.client.url = people, f"https://localhost:{fleet.central.http_port}"
        assert (await fleet.client.get("/api/v1/sites")).status == 200
        async with fleet.site("north", tls_files=files) as site:
            await eventually(lambda: is_reachable(fleet, "north"), what="the site at central")
            site.client.headers = local_key(site.app)
            site.client.session, site.client.url = people, f"https://localhost:{site.app.http_port}"
            assert (await site.client.get("/api/v1/nodes")).status == 200
            async with fleet.node(site, "n1"):
                await eventually(lambda: has_node(site, "n1"), what="the node on the list")


async def has_node(site: JoinedSite, name: str) -> bool:
    return [node["id"] for node in (await site.client.get("/api/v1/nodes")).body["nodes"]] == [name]


async def is_reachable(fleet: Fleet, name: str) -> bool:
    sites = (await fleet.client.get("/api/v1/sites")).body["sites"]
    return any(site["name"] == name and site["reachable"] for site in sites)


async def test_a_site_listens_elsewhere_only_with_a_token_of_its_own(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        with pytest.raises(Refused) as refused:
            async with fleet.site("north", http_address=("0.0.0.0", 0)):
                pass
        assert str(refused.value) == "Refusing to listen on 0.0.0.0 without access control."
        assert f"homeport tokens create --role admin --name NAME --data {tmp_path / 'north'}" in str(
            refused.value.hint
        )
        async with fleet.site("north") as site:
            made = await site.app.parts.authenticator.tokens.create(INTERNAL, name="anna", role=Role.ADMIN)
        async with fleet.site("north", http_address=("0.0.0.0", 0)) as site:
            headers = {"Authorization": f"Bearer {made.text}"}
            assert (await site.client.get("/api/v1/nodes", headers=headers)).status == 200


async def test_files_for_people_need_a_site_with_an_identity(tmp_path: Path) -> None:
    files, _ = write_public(tmp_path / "files")
    settings = SiteSettings(
        name=SiteName("north"),
        data=tmp_path / "north",
        git_url=str(tmp_path / "deployments.git"),
        http_address=("127.0.0.1", 0),
        grpc_address=None,
        tls_files=files,
    )
    with pytest.raises(Refused, match="Only a site with an identity serves https"):
        async with open_site(settings):
            pass
