"""Certificates of every kind, the wrong ones too, and meetings of two machines over real TLS on loopback."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509.oid import NameOID

from homeport.adapters.identity.authority import (
    FileAuthority,
    SiteAuthority,
    install_site_authority,
    open_authority,
    request_site_authority,
)
from homeport.adapters.identity.certificates import to_der, to_pem
from homeport.adapters.identity.files import PRIVATE, PUBLIC, write_whole
from homeport.adapters.identity.keys import PrivateKey, key_pem
from homeport.adapters.identity.tls import Credentials
from homeport.core.identity import spiffe
from homeport.core.model.identity import Peer
from homeport.errors import HomeportError
from homeport.ports import Authority

DOMAIN = "homeport.internal"
WFM = "central"
CENTRAL = spiffe.central_id(DOMAIN, WFM)
CLIENT = spiffe.client_id(DOMAIN, WFM, "line-7")
LIMIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Made:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: PrivateKey

    @property
    def der(self) -> bytes:
        return to_der(self.certificate)


def forge(
    signer: Made | None = None,
    *,
    uris: Sequence[str] = (CLIENT,),
    addresses: Sequence[str] = (),
    name: str = "forged",
    is_ca: bool = False,
    signs: bool | None = None,
    key: PrivateKey | None = None,
    begins: timedelta = timedelta(hours=-1),
    ends: timedelta = timedelta(hours=1),
    path_length: int | None = None,
    pss: bool = False,
) -> Made:
    """Any certificate at all, signed by `signer` or by itself. `begins` and `ends` count from now."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    above = signer.key.public_key() if signer else key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.certificate.subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=path_length), critical=True)
        .add_extension(_usage(is_ca if signs is None else signs), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(above), critical=False)
    )
    if uris:
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        hosts = [x509.IPAddress(ip_address(each)) for each in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName([*names, *hosts]), critical=False)
    hand = signer.key if signer else key
    digest = None if isinstance(hand, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    scheme = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH) if pss else None
    return Made(builder.sign(hand, digest, rsa_padding=scheme), key)


def forge_root(domain: str = DOMAIN, *, name: str = "root", key: PrivateKey | None = None) -> Made:
    return forge(uris=[f"spiffe://{domain}"], name=name, is_ca=True, key=key, ends=timedelta(days=30))


def rsa_key(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def write_files(folder: Path, leaf: Made, *, above: Sequence[Made] = (), anchors: Sequence[Made]) -> Path:
    """As somebody else's tool writes them; existing files are replaced."""
    chain = to_pem(leaf.certificate, *(each.certificate for each in above))
    write_whole(folder / "svid-key.pem", key_pem(leaf.key), mode=PRIVATE)
    write_whole(folder / "svid-cert.pem", chain, mode=PUBLIC)
    write_whole(folder / "svid-ca.pem", to_pem(*(each.certificate for each in anchors)), mode=PUBLIC)
    return folder


def context_of(folder: Path, leaf: Made, *, above: Sequence[Made] = ()) -> ssl.SSLContext:
    """A client that believes everybody and shows what it is given: whoever wants to get in."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "any.pem").write_bytes(to_pem(leaf.certificate, *(each.certificate for each in above)))
    (folder / "any.key").write_bytes(key_pem(leaf.key))
    context = trusting_context()
    context.load_cert_chain(folder / "any.pem", folder / "any.key")
    return context


def trusting_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Household:
    """An authority and whoever it has certified, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority: FileAuthority = open_authority(folder / "authority", domain=DOMAIN)

    def credentials(
        self,
        name: str,
        spiffe_id: str,
        *,
        authority: Authority | None = None,
        lifetime_seconds: float = 3600.0,
        now: datetime | None = None,
    ) -> Credentials:
        credentials = Credentials(self.folder / name, domain=DOMAIN, wfm=WFM)
        self.renew(credentials, spiffe_id, authority=authority, lifetime_seconds=lifetime_seconds, now=now)
        return credentials

    def renew(
        self,
        credentials: Credentials,
        spiffe_id: str | None = None,
        *,
        authority: Authority | None = None,
        lifetime_seconds: float = 3600.0,
        now: datetime | None = None,
    ) -> None:
        issued = (authority or self.authority).issue(
            credentials.request(),
            spiffe_id=spiffe_id or credentials.spiffe_id,
            lifetime_seconds=lifetime_seconds,
            now=now or datetime.now(UTC),
        )
        credentials.install(issued.chain, self.authority.bundle())

    def central(self) -> Credentials:
        return self.credentials("central", CENTRAL)

    def site_authority(self, site: str, *, lifetime_seconds: float = 86400.0) -> SiteAuthority:
        folder = self.folder / f"authority-{site}"
        issued = self.authority.issue_intermediate(
            request_site_authority(folder, site=site),
            spiffe_id=spiffe.site_authority_id(DOMAIN, site),
            lifetime_seconds=lifetime_seconds,
            now=datetime.now(UTC),
        )
        return install_site_authority(
            folder, domain=DOMAIN, site=site, chain=issued.chain, bundle=self.authority.bundle()
        )


@dataclass(slots=True)
class Meeting:
    """What came of two machines meeting."""

    client: Peer | None = None
    """As the server sees it."""
    server: Peer | None = None
    """As the client sees it."""
    refusal: str = ""
    """What either said against the other's certificate."""
    broken: bool = False
    """The TLS layer would not have it."""
    version: str | None = None

    @property
    def succeeded(self) -> bool:
        return not self.refusal and not self.broken


Judge = Callable[[ssl.SSLObject], Peer | None]


async def meet(
    server_context: ssl.SSLContext,
    client_context: ssl.SSLContext,
    *,
    judge_client: Judge,
    judge_server: Judge | None = None,
) -> Meeting:
    """One connection on loopback, each side judging the other before the first byte."""
    meeting = Meeting()
    done = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            meeting.client = judge_client(writer.get_extra_info("ssl_object"))
            writer.write(b"welcome")
            await writer.drain()
        except HomeportError as error:
            meeting.refusal = str(error)
        except OSError:
            pass
        finally:
            await _close(writer)
            done.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            await _visit(server.sockets[0].getsockname()[1], client_context, judge_server, meeting)
            if not meeting.broken:
                await done.wait()
    finally:
        server.close()
        await server.wait_closed()
    return meeting


async def _visit(port: int, context: ssl.SSLContext, judge: Judge | None, meeting: Meeting) -> None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        meeting.broken = True
        return
    try:
        found = writer.get_extra_info("ssl_object")
        meeting.version = found.version()
        if judge is not None:
            meeting.server = judge(found)
        greeting = await reader.read()
        meeting.broken = greeting != b"welcome" and not meeting.refusal
    except HomeportError as error:
        meeting.refusal = str(error)
    except OSError:
        meeting.broken = not meeting.refusal
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
