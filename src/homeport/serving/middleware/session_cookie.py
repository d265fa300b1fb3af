"""Sessions of browsers: a cookie that is useless without a key, and a key that is useless without the cookie.

The cookie holds the access token, encrypted with a key that only the page has: the page keeps it in the storage of
its origin and sends it in a header. Browsers send cookies to every port of a host, so an app that is deployed on the
same machine may see the cookie, but not the key. A script in the page may read the key, but not the cookie. A page of
another origin can send neither. Nothing is stored here, so every replica accepts a session of any other (ADR 0072).
"""

import base64
import binascii
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from http.cookies import CookieError, SimpleCookie
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from homeport.errors import Unauthenticated
from homeport.lazy_dataclass import dataclass

COOKIE: Final = "homeport_session"
KEY_HEADER: Final = "x-homeport-session"
KEY_PROTOCOL: Final = "homeport.key."
LIFETIME: Final = timedelta(hours=12)
_CONTEXT: Final = b"homeport session 1"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_LENGTH_MAX: Final = 2_048


@dataclass(frozen=True, slots=True)
class BrowserSession:
    cookie: str
    key: str
    expires_at: datetime


def begin(token: str, now: datetime) -> BrowserSession:
    expires_at = now + LIFETIME
    key, nonce = os.urandom(_KEY_BYTES), os.urandom(_NONCE_BYTES)
    sealed = AESGCM(key).encrypt(nonce, f"{int(expires_at.timestamp())}:{token}".encode(), _CONTEXT)
    return BrowserSession(_text(nonce + sealed), _text(key), expires_at)


def token_of(headers: Mapping[str, str], now: datetime) -> str | None:
    """The token of the session that the request belongs to; None for a request without one. Raises Unauthenticated
    for one that has expired or cannot be read."""
    key, cookies = headers.get(KEY_HEADER) or _offered(headers), headers.get("cookie")
    if key is None or cookies is None or len(key) + len(cookies) > _LENGTH_MAX * 4:
        return None
    try:
        morsel = SimpleCookie(cookies).get(COOKIE)
    except CookieError:
        return None
    if morsel is None:
        return None
    try:
        sealed, secret = _bytes(morsel.value), _bytes(key)
        opened = AESGCM(secret).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _CONTEXT).decode()
        # A client that sends both may have made both: the content proves nothing, and the token is checked as usual.
        written, _, token = opened.partition(":")
        expires = int(written)
    except (ValueError, binascii.Error, InvalidTag) as error:
        raise Unauthenticated("This session is not valid.", hint="Log in again.") from error
    if now.timestamp() >= expires:
        raise Unauthenticated("This session has expired.", hint="Log in again.")
    return token


def _offered(headers: Mapping[str, str]) -> str | None:
    """A page can send no header with a WebSocket, only the names of protocols."""
    offered = (each.strip() for each in headers.get("sec-websocket-protocol", "")[:_LENGTH_MAX].split(","))
    return next((each.removeprefix(KEY_PROTOCOL) for each in offered if each.startswith(KEY_PROTOCOL)), None)


def set_cookie(session: BrowserSession, *, is_tls: bool) -> str:
    return _cookie(session.cookie, seconds=int(LIFETIME.total_seconds()), is_tls=is_tls)


def clear_cookie(*, is_tls: bool) -> str:
    return _cookie("", seconds=0, is_tls=is_tls)


def _cookie(value: str, *, seconds: int, is_tls: bool) -> str:
    secure = "; Secure" if is_tls else ""
    return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    if len(text) > _LENGTH_MAX:
        raise ValueError("too long")
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
