"""The certificates of one https port: a machine is shown the SVID, a person the certificate of a public authority.

The name that a client asks for decides (SNI), before anything is said. Our own machines ask for `SERVER_NAME`,
whatever address they dialled. With files for people, whoever asks for a name of their certificate, or by a bare
address for none, is shown it; every other name is answered with the SVID, as a Margo client expects.
"""

import fnmatch
import logging
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

log = logging.getLogger("homeport.identity")

Files = tuple[Path, Path]
"""A certificate with its chain, and its key."""


class Door:
    """`context` is what the port serves. `refresh` follows the files; it changes it, so it runs on its loop."""

    def __init__(self, credentials: Credentials, files: Files | None, *, client: ClientCertificates) -> None:
        self._svid = credentials.server_context(client)
        self._files = files
        self._shown: bytes = b""
        self._names: frozenset[str] = frozenset()
        if files is None:
            self.context = self._svid
            return
        # Everything but the certificate is the same, for OpenSSL takes only that from the second context.
        self.context = credentials.server_context(client, present=False)
        self.refresh()
        self.context.sni_callback = self._choose

    def refresh(self) -> bool:
        """True when other files are shown from here on. InvalidInput leaves the ones before in use."""
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


async def follow_doors(doors: Sequence[Door]) -> None:
    """One look at the files of each: whoever renews them need not restart us."""
    for door in doors:
        try:
            if door.refresh():
                log.info("certificate for people taken over")
        except InvalidInput as error:
            log.warning("certificate for people not taken over", extra={"why": str(error)})


def load_files(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Tried on another context first: one that took half of the files would show nothing any more."""
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
    """A star stands for one label."""
    return known == asked or (known.count(".") == asked.count(".") and fnmatch.fnmatchcase(asked, known))
