"""The client of enrolment and renewal: a few JSON calls. Calls block; they run in a thread, each with its own event
loop.

No client certificate is presented: the first call has none, and an expired one would end the handshake. The proof is
in the body. The server is authenticated before anything is sent.
"""

import json
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import anyio

from homeport.adapters.network.http_client import ExchangeFailed, HttpResponse, TlsAddress, ask, parse_json, reason_of
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.errors import Conflict, HomeportError, InvalidInput, NotFound, PeerUnavailable, Refused, TransientError

CALL_SECONDS_MAX: Final = 15.0
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024

Check = Callable[[ssl.SSLObject], None]
"""Raises Refused unless the server is the expected one."""


class Distrusted(PeerUnavailable):
    """The server is not the expected one; nothing was sent to it."""

    code = "distrusted"


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
        content = b"" if body is None else json.dumps(body).encode()
        answer = anyio.run(partial(self._exchange, method, path, content))
        return _understood(answer.status, answer.body, self._url)

    async def _exchange(self, method: str, path: str, content: bytes) -> HttpResponse:
        host, port = self._address
        # Requests the SVID, where a server also has a public certificate.
        address = TlsAddress(host, port, self._context, server_name=SERVER_NAME, check=self._check)
        try:
            return await ask(
                address,
                method,
                path,
                body=content,
                headers={"Accept": "application/json"},
                seconds=CALL_SECONDS_MAX,
                size_max=ANSWER_BYTES_MAX,
            )
        except ssl.SSLError as error:
            raise Distrusted(f"{self._url} has an unexpected identity: {error.reason or error}") from error
        except Refused as error:
            raise Distrusted(f"{self._url} has an unexpected identity: {error}", hint=error.hint) from error
        except (OSError, ExchangeFailed) as error:
            raise PeerUnavailable(f"{self._url} cannot be reached: {reason_of(error)}") from error


def _understood(status: int, content: bytes, url: str) -> dict[str, Any]:
    try:
        body = parse_json(content)
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
