"""Who gets in, over real TLS on loopback: the right machines do, and each wrong certificate meets its sentence."""

import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from homeport.adapters.identity.tls import Credentials
from homeport.core.identity import spiffe
from homeport.core.model.identity import IdentityKind, Peer
from homeport.errors import Refused
from tests.support.certificates import (
    CENTRAL,
    CLIENT,
    DOMAIN,
    WFM,
    Household,
    Judge,
    Made,
    Meeting,
    context_of,
    forge,
    forge_root,
    meet,
    rsa_key,
    trusting_context,
    write_files,
)

pytestmark = pytest.mark.anyio


def judging(credentials: Credentials) -> Judge:
    return lambda found: credentials.verify(found, datetime.now(UTC))


def judging_server(credentials: Credentials) -> Judge:
    return lambda found: credentials.verify_server(found, datetime.now(UTC))


async def both(server: Credentials, client: Credentials) -> Meeting:
    return await meet(
        server.server_context("required"),
        client.client_context(),
        judge_client=judging(server),
        judge_server=judging_server(client),
    )


async def test_a_site_and_central_know_each_other_over_tls_1_3(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central, site = household.central(), household.credentials("site", CLIENT)
    meeting = await both(central, site)
    assert meeting.client is not None
    assert (meeting.client.kind, meeting.client.name) == (IdentityKind.CLIENT, "line-7")
    assert meeting.client.chain[0].spki == site.spki
    assert meeting.server is not None
    assert (meeting.server.spiffe_id, meeting.version) == (CENTRAL, "TLSv1.3")


async def test_a_node_and_its_site_know_each_other_while_central_is_gone(tmp_path: Path) -> None:
    """The site trusts its own intermediate for nodes, and shows them a certificate that it made for itself."""
    household = Household(tmp_path)
    home = household.site_authority("home")
    site = household.credentials("site", home.spiffe_id, authority=home)
    node = household.credentials("node", spiffe.node_id(DOMAIN, "home", "n1"), authority=home)
    context = site.server_context("required", home.anchors)  # held, for what it trusts goes with it
    meeting = await meet(
        context,
        node.client_context(),
        judge_client=judging(site),
        judge_server=judging_server(node),
    )
    assert meeting.client is not None
    assert (meeting.client.name, meeting.client.site, len(meeting.client.chain)) == ("n1", "home", 2)
    assert site.recheck(meeting.client, datetime.now(UTC)) == meeting.client


async def test_a_node_known_before_its_sites_intermediate_was_renewed_is_still_known(tmp_path: Path) -> None:
    household = Household(tmp_path)
    first = household.site_authority("home")
    site = household.credentials("site", first.spiffe_id, authority=first)
    node = household.credentials("node", spiffe.node_id(DOMAIN, "home", "n1"), authority=first)
    context = site.server_context("required", first.anchors)
    second = household.site_authority("home", lifetime_seconds=2 * 86400)
    site.trust(context, second.anchors)
    meeting = await meet(context, node.client_context(), judge_client=judging(site))
    assert meeting.client is not None
    assert meeting.client.name == "n1"


async def test_the_neighbours_node_does_not_get_in(tmp_path: Path) -> None:
    household = Household(tmp_path)
    home, away = household.site_authority("home"), household.site_authority("away")
    site = household.credentials("site", home.spiffe_id, authority=home)
    node = household.credentials("node", spiffe.node_id(DOMAIN, "away", "n1"), authority=away)
    context = site.server_context("required", home.anchors)
    meeting = await meet(context, node.client_context(), judge_client=judging(site))
    assert meeting.broken


async def test_without_a_certificate_one_is_nobody_or_does_not_get_in(tmp_path: Path) -> None:
    central = Household(tmp_path).central()
    for mode, client in (("none", trusting_context()), ("optional", trusting_context())):
        meeting = await meet(central.server_context(mode), client, judge_client=judging(central))  # type: ignore[arg-type]
        assert meeting.succeeded
        assert meeting.client is None
    required = await meet(central.server_context("required"), trusting_context(), judge_client=judging(central))
    assert required.broken


async def test_tls_1_2_is_refused_on_both_sides(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central, site = household.central(), household.credentials("site", CLIENT)
    old = trusting_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert (await meet(central.server_context(), old, judge_client=judging(central))).broken
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(central.folder / "chain.pem", central.folder / "key.pem")
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    assert (await meet(server, site.client_context(), judge_client=lambda _: None)).broken


ROOT = forge_root()
OTHER = forge_root(name="stranger")
HOME = forge(ROOT, uris=[spiffe.site_authority_id(DOMAIN, "home")], name="home", is_ca=True, path_length=0)
MIDDLE = forge(ROOT, uris=[f"spiffe://{DOMAIN}"], name="middle", is_ca=True)
BROAD = forge(ROOT, uris=[], name="broad", is_ca=True, key=rsa_key(3072))
DAY = timedelta(days=1)
TLS = "(the TLS layer)"
NODE = spiffe.node_id(DOMAIN, "home", "n1")


def leaf_signer() -> Made:
    return forge(ROOT, uris=[NODE], name="leaf that signs", is_ca=False, signs=True)


# fmt: off
WRONG: list[tuple[str, Callable[[], list[Made]], str]] = [
    ("expired",                    lambda: [forge(ROOT, begins=-2 * DAY, ends=-DAY)], "expired on"),
    ("not yet valid",              lambda: [forge(ROOT, begins=DAY, ends=2 * DAY)], "not valid before"),
    ("expired intermediate",       lambda: under(forge(ROOT, uris=[], is_ca=True, begins=-2 * DAY, ends=-DAY)),
     "expired on"),
    ("another domain",             lambda: [forge(ROOT, uris=["spiffe://other.example/margo/wfm/central/client/a"])],
     "other.example"),
    ("two URI names",              lambda: [forge(ROOT, uris=[CLIENT, CENTRAL])], "this one has 2"),
    ("no URI name",                lambda: [forge(ROOT, uris=[])], "has none"),
    ("an https name",              lambda: [forge(ROOT, uris=["https://homeport.internal/x"])], "not a SPIFFE ID"),
    ("a domain only",              lambda: [forge(ROOT, uris=[f"spiffe://{DOMAIN}"])], "not a machine"),
    ("another wfm",                lambda: [forge(ROOT, uris=[f"spiffe://{DOMAIN}/margo/wfm/x/client/a"])], "WFM x"),
    ("an authority as leaf",       lambda: [forge(ROOT, is_ca=True)], "that of an authority"),
    ("a leaf that signs",          lambda: [forge(ROOT, signs=True)], "may sign others"),
    ("RSA of 2048 bits",           lambda: [forge(ROOT, key=rsa_key(2048))], "at least 3072"),
    ("signed by a stranger",       lambda: [forge(OTHER)], TLS),
    ("stranger with our name",     lambda: [forge(forge_root(name="root"))], TLS),
    ("self-signed",                lambda: [forge()], TLS),
    ("missing intermediate",       lambda: under(MIDDLE)[:1], TLS),
    ("signed by a leaf",           lambda: under(leaf_signer()), TLS),
    ("authority below a site's",   lambda: [*under(forge(HOME, uris=[], name="sub", is_ca=True)), HOME], TLS),
    ("client minted by a site",    lambda: under(HOME), "may not vouch for"),
    ("central minted by a site",   lambda: under(HOME, CENTRAL), "may not vouch for"),
    ("neighbour's node minted by a site", lambda: under(HOME, spiffe.node_id(DOMAIN, "away", "n1")), "may not vouch"),
]
# fmt: on


def under(authority: Made, name: str = CLIENT) -> list[Made]:
    return [forge(authority, uris=[name]), authority]


@pytest.fixture
def server(tmp_path: Path) -> Credentials:
    """Central with a certificate from somebody else's authority."""
    folder = write_files(tmp_path / "central", forge(ROOT, uris=[CENTRAL], name="central"), anchors=[ROOT])
    return Credentials(folder, domain=DOMAIN, wfm=WFM)


@pytest.mark.parametrize(("chain", "sentence"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
async def test_a_wrong_certificate_does_not_get_in(
    server: Credentials, tmp_path: Path, chain: Callable[[], list[Made]], sentence: str
) -> None:
    leaf, *above = chain()
    meeting = await meet(
        server.server_context("optional"),
        context_of(tmp_path / "client", leaf, above=above),
        judge_client=judging(server),
    )
    assert meeting.client is None
    assert not meeting.succeeded
    if sentence == TLS:
        assert meeting.broken
    else:
        assert sentence in meeting.refusal


@pytest.mark.parametrize(
    "chain",
    [
        lambda: [forge(ROOT)],
        lambda: under(MIDDLE),
        lambda: under(HOME, NODE),
        lambda: [forge(ROOT, key=rsa_key(3072))],
        lambda: [forge(ROOT), ROOT],
        lambda: [forge(ROOT, ends=timedelta(seconds=-20))],
        lambda: [forge(ROOT, key=ec.generate_private_key(ec.SECP384R1()))],
        lambda: [forge(ROOT, key=ed25519.Ed25519PrivateKey.generate())],
        lambda: [forge(BROAD, pss=True), BROAD],
        lambda: [forge(BROAD), BROAD],
    ],
    ids=[
        "plain",
        "intermediate sent along",
        "node of a site",
        "RSA of 3072 bits",
        "root sent along",
        "clock skew",
        "P-384",
        "Ed25519",
        "signed by RSA with PSS",
        "signed by RSA with PKCS #1 v1.5",
    ],
)
async def test_a_right_certificate_gets_in(
    server: Credentials, tmp_path: Path, chain: Callable[[], list[Made]]
) -> None:
    leaf, *above = chain()
    client = context_of(tmp_path / "client", leaf, above=above)
    meeting = await meet(server.server_context("required"), client, judge_client=judging(server))
    assert meeting.succeeded
    assert meeting.client is not None


@pytest.mark.parametrize(
    ("leaf", "sentence"),
    [
        (lambda: forge(ROOT, uris=[spiffe.central_id(DOMAIN, "other")]), "is of the WFM other"),
        (lambda: forge(ROOT, uris=[CLIENT]), "The server is"),
        (lambda: forge(ROOT, uris=[NODE]), "The server is"),
        (lambda: forge(ROOT, uris=[CENTRAL], begins=-2 * DAY, ends=-DAY), "expired on"),
        (lambda: forge(OTHER, uris=[CENTRAL]), TLS),
    ],
    ids=["another wfm", "a client", "a node", "expired", "stranger"],
)
async def test_a_client_leaves_before_the_first_byte_when_the_server_is_another(
    tmp_path: Path, leaf: Callable[[], Made], sentence: str
) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made = leaf()
    write_files(tmp_path / "server", made, anchors=[ROOT])
    server.load_cert_chain(tmp_path / "server" / "svid-cert.pem", tmp_path / "server" / "svid-key.pem")
    client = Credentials(write_files(tmp_path / "client", forge(ROOT), anchors=[ROOT]), domain=DOMAIN, wfm=WFM)
    meeting = await meet(
        server, client.client_context(), judge_client=lambda _: None, judge_server=judging_server(client)
    )
    assert meeting.server is None
    assert meeting.broken if sentence == TLS else sentence in meeting.refusal


async def test_a_peer_of_an_open_connection_is_refused_once_its_time_is_over(tmp_path: Path) -> None:
    household = Household(tmp_path)
    central, site = household.central(), household.credentials("site", CLIENT, lifetime_seconds=600)
    peer = (await both(central, site)).client
    assert isinstance(peer, Peer)
    assert central.recheck(peer, datetime.now(UTC)) == peer
    with pytest.raises(Refused, match="expired on"):
        central.recheck(peer, datetime.now(UTC) + timedelta(minutes=12))


def test_a_session_is_never_resumed(tmp_path: Path) -> None:
    """So that every connection proves itself anew, however hard the client asks for less."""
    server, client = Household(tmp_path).central().server_context(), trusting_context()
    first = shaken(server, client, None)
    assert first.session is None or not first.session.has_ticket
    assert not shaken(server, client, first.session).session_reused


def shaken(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext, session: ssl.SSLSession | None
) -> ssl.SSLObject:
    """The client's end of a handshake through memory, where an earlier session can be offered."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(down, up, session=session)
    server = server_context.wrap_bio(up, down, server_side=True)
    for _ in range(3):
        for end in (client, server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    with suppress(ssl.SSLWantReadError):
        client.read(1)
    return client
