"""Authenticates the server: by the system's authorities, by a given one, or by its pinned key."""

import base64
import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from homeport.errors import HomeportError, InvalidInput, Refused

Check = Callable[[ssl.SSLObject | ssl.SSLSocket], None]


def trust(*, ca: str = "", pin: str = "") -> tuple[ssl.SSLContext, Check | None]:
    """A context, and the check to call on a new connection before the first byte is sent."""
    if pin:
        from homeport.adapters.identity.pins import pinned_context  # noqa: PLC0415 - start-up time

        context, check = pinned_context(pin)
        return context, check
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_verify_locations(cadata=ca)
        except ssl.SSLError as error:
            raise InvalidInput("The authority's file holds no certificate in PEM form.") from error
    return context, None


def pem_of_bundle(bundle: Mapping[str, Any]) -> str:
    """The authorities of a trust bundle, as git, podman and curl read them."""
    try:
        anchors = [base64.b64decode(key["x5c"][0], validate=True) for key in bundle["keys"] if "x5c" in key]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidInput("The server's trust bundle cannot be read.") from error
    return "".join(ssl.DER_cert_to_PEM_cert(anchor) for anchor in anchors)


def untrusted(url: str, host: str, port: int, error: ssl.SSLCertVerificationError) -> Refused:
    """Why a server is not trusted, with its key to compare: its operator can read the same key there."""
    reason = error.verify_message or "it is not trusted"
    pin = shown_pin(host, port)
    hint = "Log in with the authority's certificate:  homeport login URL --ca FILE"
    if pin:
        hint = (
            f"It shows the key {pin}.\n"
            f"  If that is what the server itself printed at its start:  homeport login {url} --pin {pin}"
        )
    return Refused(f"The certificate of {url} is not trusted: {reason}.", hint=hint)


def shown_pin(host: str, port: int) -> str:
    """The pin of the server's key. Nothing is trusted and nothing is sent."""
    from homeport.adapters.identity.certificates import view  # noqa: PLC0415 - start-up time
    from homeport.adapters.identity.pins import pin_of  # noqa: PLC0415

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        contextlib.suppress(OSError, HomeportError),
        socket.create_connection((host, port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname=host) as secured,
    ):
        der = secured.getpeercert(binary_form=True)
        return pin_of(view(der).spki) if der else ""
    return ""
