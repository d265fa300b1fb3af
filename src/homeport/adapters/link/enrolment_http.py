"""How a machine asks to join and to be renewed: a few JSON calls over the standard library's client, so that a node
stays light. Calls block; they run in a thread.

No client certificate is presented: the first call has none, and an expired one would end the handshake. The proof is
in the body. Who answers is checked before a word is said.
"""

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Final
from urllib.parse import urlsplit

from homeport.core.identity.spiffe import SERVER_NAME
from homeport.errors import Conflict, HomeportError, InvalidInput, NotFound, PeerUnavailable, Refused, TransientError

CALL_SECONDS_MAX: Final = 15.0
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024

Check = Callable[[ssl.SSLSocket], None]
"""Raises Refused unless the right one is at the other end."""


class Distrusted(PeerUnavailable):
    """Whoever answers is not the one that was expected; nothing was said to it."""

    code = "distrusted"


class _Connection(http.client.HTTPSConnection):
    """Asks for the SVID, where a server also has a certificate for people."""

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._context.wrap_socket(self.sock, server_hostname=SERVER_NAME)  # type: ignore[attr-defined]


class EnrolmentHttp:
    def __init__(self, url: str, context: ssl.SSLContext, check: Check) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise InvalidInput(
                f'"{url}" is not an address to join at.', hint="Give a URL such as https://central.example:8080 ."
            )
        self._url = url.rstrip("/")
        self._address = (parts.hostname, parts.port or 443)
        self._context = context
        self._check = check

    def get(self, path: str) -> dict[str, Any]:
        return self._call("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("POST", path, body)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        host, port = self._address
        connection = _Connection(host, port, timeout=CALL_SECONDS_MAX, context=self._context)
        with closing(connection):
            try:
                self._open(connection)
                headers = {"Accept": "application/json", "Content-Type": "application/json"}
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                content = answer.read(ANSWER_BYTES_MAX)
            except (OSError, http.client.HTTPException) as error:
                raise PeerUnavailable(f"{self._url} cannot be reached: {_reason(error)}") from error
        return _understood(answer.status, content, self._url)

    def _open(self, connection: http.client.HTTPSConnection) -> None:
        try:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            self._check(connection.sock)
        except ssl.SSLError as error:
            raise Distrusted(f"{self._url} is not who it should be: {error.reason or error}") from error
        except Refused as error:
            raise Distrusted(f"{self._url} is not who it should be: {error}", hint=error.hint) from error


def _understood(status: int, content: bytes, url: str) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise PeerUnavailable(f"Something answers at {url}, but it is not Homeport.")
    if status < 300:
        return body
    kind = _BY_STATUS.get(status, TransientError if status >= 500 or status == 429 else PeerUnavailable)
    hint = body.get("hint")
    raise kind(str(body.get("detail") or f"{url} answered {status}."), hint=str(hint) if hint else None)


_BY_STATUS: Final[Mapping[int, type[HomeportError]]] = {
    400: InvalidInput,
    401: Refused,
    403: Refused,
    404: NotFound,
    409: Conflict,
    422: InvalidInput,
}


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
