"""The certificates of one https port: machines get the SVID, people the certificate of a public authority.

The server name that a client requests (SNI) decides. Our own machines request `SERVER_NAME`, whatever address they
dialled. Where a public certificate is configured, clients that request one of its names, or none (a bare address),
get it; every other name gets the SVID, as a Margo client expects.
"""

import fnmatch
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from homeport.adapters.identity.certificates import read_chain
from homeport.adapters.identity.contexts import show_chain
from homeport.adapters.identity.files import read_needed
from homeport.adapters.identity.tls import ClientCertificates, Credentials
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.errors import InvalidInput
from homeport.log import get_log

log = get_log("homeport.identity")

Files = tuple[Path, Path]
"""A certificate with its chain, and its key."""


class ServerTls:
    """`context` is what the port serves. `refresh` reloads the files; it modifies the context, so it runs on its
    loop."""

    def __init__(
        self,
        credentials: Credentials,
        files: Files | None,
        *,
        client: ClientCertificates,
        anchors: Sequence[bytes] | None = None,
    ) -> None:
        """`anchors` (DER) are trusted for clients instead of the bundle's."""
        self._svid = credentials.server_context(client, anchors)
        self._files = files
        self._shown: bytes = b""
        self._names: frozenset[str] = frozenset()
        if files is None:
            self.context = self._svid
            return
        # Everything but the certificate is equal, because OpenSSL takes only that from the second context.
        self.context = credentials.server_context(client, anchors, present=False)
        self.refresh()
        self.context.sni_callback = self._choose

    @property
    def contexts(self) -> list[ssl.SSLContext]:
        return [self.context] if self.context is self._svid else [self.context, self._svid]

    def refresh(self) -> bool:
        """True when changed files were loaded. After InvalidInput the previous ones stay in use."""
        if self._files is None:
            return False
        content = b"\n".join(map(read_needed, self._files))
        if content == self._shown:
            return False
        names = _names(self._files[0])
        load_files(self.context, *self._files)
        self._names, self._shown = names, content
        return True

    def _choose(self, handshake: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        asked = "" if name is None else name.lower().rstrip(".")
        is_for_people = not asked or any(_covers(known, asked) for known in self._names)
        if asked == SERVER_NAME or not is_for_people:
            handshake.context = self._svid


async def reload_changed_certificates(tls_servers: Sequence[ServerTls]) -> None:
    """Reloads changed files of each, so that renewed certificates need no restart."""
    for server_tls in tls_servers:
        try:
            if server_tls.refresh():
                log.info("https certificate loaded")
        except InvalidInput as error:
            log.warning("https certificate load failed", why=str(error))


def load_files(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Tried on another context first: a context with only half of a pair would present nothing any more."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        show_chain(context, read_needed(certificate), read_needed(key))
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"The certificate {certificate} and the key {key} cannot be used: {error.strerror or error}.",
            hint="Give PEM files: the certificate with its chain, and the key that belongs to it.",
        ) from error


def _names(certificate: Path) -> frozenset[str]:
    leaf = read_chain(read_needed(certificate), str(certificate))[0]
    try:
        sans = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    return frozenset(name.lower() for name in sans.get_values_for_type(x509.DNSName))


def _covers(known: str, asked: str) -> bool:
    """A wildcard matches one label."""
    return known == asked or (known.count(".") == asked.count(".") and fnmatch.fnmatchcase(asked, known))
