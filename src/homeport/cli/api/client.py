"""A small HTTP client over the standard library: JSON in, JSON out, and server-sent events.

A web client library would cost more start-up time than all commands together take. Failures are raised as
`homeport.errors`, so that one place of the command line prints them.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from homeport.adapters.local_access import KeyKind, default_folder, find
from homeport.cli.api.contexts import Context, credentials_for, trace_above
from homeport.core.values.addresses import is_loopback
from homeport.errors import (
    Conflict,
    HomeportError,
    InvalidInput,
    NotFound,
    PeerUnavailable,
    Problem,
    Refused,
    TooLarge,
    TransientError,
)
from homeport.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse
    from ssl import SSLContext

    from homeport.cli.api.trust import Check

Json = dict[str, Any]

TIMEOUT_SECONDS: Final = 60.0
"""Registering apps clones a repository and deploying pushes to one: both may take long."""
STREAM_SILENCE_SECONDS: Final = 35.0
"""The server sends a comment every ten seconds; three missed ones mean that the connection is dead."""
PAGE_ITEMS: Final = 500
UNANSWERED: Final = "Interrupted before Homeport answered: it may have made the change.  See  homeport status"
START_HINT: Final = "Start it with  homeport up , or give another address with --url or HOMEPORT_URL."


@dataclass(frozen=True, slots=True)
class ServerSent:
    id: str
    name: str
    data: Json


class Client:
    """Sends the credentials that were stored for this URL; `context` passes others, as during login."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS, context: Context | None = None) -> None:
        self.url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidInput(
                f'"{url}" is not an address of Homeport.', hint="Give a URL such as http://127.0.0.1:8080 ."
            )
        self._check: Callable[[Any], None] | None = None
        self._secure = parts.scheme == "https"
        self._address = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path
        self._host, self._port = parts.hostname, parts.port or (443 if self._secure else 80)
        self._context = credentials_for(self.url) if context is None else context
        if self._context.token and not self._secure and not is_loopback(parts.hostname):
            raise Refused(
                f"Refusing to send an access token to {self.url}, where anyone on the network could read it.",
                hint="Use https.",
            )

    @property
    def host(self) -> str:
        """The server's host, without the port."""
        return self._host

    def get(self, path: str, **query: Any) -> Json:
        return self._call("GET", path, query)

    def pages(self, path: str, key: str, *, limit: int | None = None, **query: Any) -> Json:
        """A whole list, or its first `limit` items, however many pages that takes; with `next` where there is more.
        A server without pagination returns all at once."""
        items: list[Json] = []
        cursor = None
        while True:
            size = PAGE_ITEMS if limit is None else min(PAGE_ITEMS, limit - len(items))
            answer = self.get(path, limit=size, cursor=cursor, **query)
            items += answer[key]
            cursor = answer.get("next")
            if cursor is None or (limit is not None and len(items) >= limit):
                return {**answer, key: items[:limit]}

    def post(self, path: str, body: Mapping[str, Any], **query: Any) -> Json:
        return self._call("POST", path, query, body)

    def put(self, path: str, body: Mapping[str, Any], **query: Any) -> Json:
        return self._call("PUT", path, query, body)

    def patch(self, path: str, body: Mapping[str, Any], **query: Any) -> Json:
        return self._call("PATCH", path, query, body)

    def delete(self, path: str, **query: Any) -> Json:
        return self._call("DELETE", path, query)

    def stream(self, path: str, *, last_event_id: str | None = None, **query: Any) -> Iterator[ServerSent]:
        """Events until the server ends the stream; raises PeerUnavailable when the connection breaks."""
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        with self._request("GET", path, query, headers=headers, timeout_seconds=STREAM_SILENCE_SECONDS) as response:
            yield from parse_events(response)

    def lines(self, path: str, **query: Any) -> Iterator[bytes]:
        """A response of many lines, as they arrive."""
        headers = {"Accept": "application/x-ndjson"}
        with self._request("GET", path, query, headers=headers, timeout_seconds=self._timeout_seconds) as response:
            yield from response

    def converse(self, path: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        """The lines of a response that grows while it is read, such as an answer of a model."""
        headers = {"Accept": "text/event-stream"}
        seconds = self._timeout_seconds
        with self._request("POST", path, {}, body=body, headers=headers, timeout_seconds=seconds) as response:
            yield from response

    def _call(self, method: str, path: str, query: Mapping[str, Any], body: Mapping[str, Any] | None = None) -> Json:
        headers = {"Accept": "application/json"}
        with self._request(
            method, path, query, body=body, headers=headers, timeout_seconds=self._timeout_seconds
        ) as response:
            return self._decode(response.read())

    @contextmanager
    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        *,
        headers: Mapping[str, str],
        timeout_seconds: float,
        body: Mapping[str, Any] | None = None,
    ) -> "Iterator[HTTPResponse]":
        import http.client  # noqa: PLC0415 - half of the time that --help takes

        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers = {**headers, "Content-Type": "application/json"}
        if trace := trace_above():
            headers = {**headers, "traceparent": trace}
        self.token()  # a local key also says which address is meant
        with closing(self._connection(timeout_seconds)) as connection:
            try:
                self._connect(connection)
                # Read once connected: a role that was started just now has published its keys before it listens.
                if token := self.token():
                    headers = {**headers, "Authorization": f"Bearer {token}"}
                response = self._response(connection, method, self._target(path, query), content, headers)
                if response.status >= 400:
                    raise problem_of(response.status, response.read(), self.url)
                yield response
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error

    def _response(
        self,
        connection: "HTTPConnection",
        method: str,
        target: str,
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> "HTTPResponse":
        """Ctrl-C meanwhile does not take back what was sent, and the interrupt says so."""
        try:
            connection.request(method, target, content, dict(headers))
            return connection.getresponse()
        except KeyboardInterrupt as interrupt:
            if method != "GET":
                interrupt.add_note(UNANSWERED)
            raise

    def _unreachable(self, error: Exception) -> PeerUnavailable:
        if getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":
            # Over http, a token is sent to no other machine.
            plain = f"Try  --url http{self.url.removeprefix('https')}"
            hint = plain if is_loopback(self._host) else "Check the port."
            return PeerUnavailable(f"What answers at {self.url} does not speak https.", hint=hint)
        return PeerUnavailable(f"Cannot reach Homeport at {self.url} ({reason_of(error)}).", hint=START_HINT)

    def token(self) -> str:
        """The token to send to the server; "" for none."""
        return self._context.token or self._local_key()

    def authority(self) -> str:
        """PEM of the authority behind the server's certificate, for git and other programs; "" where the system's
        authorities are trusted. A server that is known by its pin is asked for it."""
        if not self._secure or not (self._context.ca or self._context.pin):
            return ""
        if self._context.ca:
            return self._context.ca
        from homeport.cli.api.trust import pem_of_bundle  # noqa: PLC0415 - start-up time

        return pem_of_bundle(self.get("/.well-known/spiffe/bundle.json"))

    def trust(self) -> "tuple[SSLContext, Check | None] | None":
        """How this server is authenticated, for its other ports; None where the system's authorities decide."""
        if not self._secure or not (self._context.ca or self._context.pin):
            return None
        from homeport.cli.api.trust import trust  # noqa: PLC0415 - start-up time

        return trust(ca=self._context.ca, pin=self._context.pin)

    def door(self, path: str, query: Mapping[str, Any]) -> Json:
        """How a WebSocket is opened: the fields of `adapters.tunnel.dial.Door`."""
        token = self.token()
        address = urlsplit(f"//{self._address}")
        door = {
            "host": address.hostname or self._host,
            "port": self._port,
            "path": self._target(path, query),
            "headers": {"Authorization": f"Bearer {token}"} if token else {},
        }
        if not self._secure:
            return door
        from homeport.cli.api.trust import trust  # noqa: PLC0415 - start-up time

        context, check = trust(ca=self._context.ca, pin=self._context.pin)
        return {**door, "tls": context, "verify": check}

    def _local_key(self) -> str:
        """The local key, which authenticates the user who started the role on this machine; "" where there is none.
        Read for each request, because it changes with each start."""
        if not is_loopback(self._host):
            return ""
        found = find(default_folder(os.environ), self._port, KeyKind.PERSON)
        if found is None or not found.opens(self._host):
            return ""
        if self._host == "localhost" and not self._secure:
            # Not any address that the name resolves to: another user may listen there.
            host = f"[{found.address}]" if ":" in found.address else found.address
            self._address = f"{host}:{self._port}"
        return found.key

    def _connection(self, timeout_seconds: float) -> "HTTPConnection":
        import http.client  # noqa: PLC0415 - start-up time

        if not self._secure:
            return http.client.HTTPConnection(self._address, timeout=timeout_seconds)
        from homeport.cli.api.trust import trust  # noqa: PLC0415 - start-up time

        context, self._check = trust(ca=self._context.ca, pin=self._context.pin)
        return http.client.HTTPSConnection(self._address, timeout=timeout_seconds, context=context)

    def _connect(self, connection: "HTTPConnection") -> None:
        """Raises Refused for the wrong server, before anything was sent."""
        if not self._secure:
            connection.connect()
            return
        import ssl  # noqa: PLC0415 - start-up time

        from homeport.cli.api.trust import untrusted  # noqa: PLC0415

        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise untrusted(self.url, self._host, self._port, error) from error
        if self._check is not None:
            self._check(connection.sock)

    def _target(self, path: str, query: Mapping[str, Any]) -> str:
        given = [
            (name, _text(each))
            for name, value in query.items()
            for each in (value if isinstance(value, list | tuple) else [value])
            if each is not None
        ]
        _check_names(path)
        target = self._prefix + quote(path)
        return f"{target}?{urlencode(given)}" if given else target

    def _decode(self, content: bytes) -> Json:
        if not content:
            return {}
        try:
            answer = json.loads(content)
        except (RecursionError, ValueError):
            answer = None
        if not isinstance(answer, dict):
            raise _not_homeport(self.url)
        return answer


def _check_names(path: str) -> None:
    """What people typed stands in the path. A name that is empty, as one in a variable that is not set, would make it
    another one. Raises InvalidInput."""
    names = path[1:].partition("/artifacts/")[0].split("/")
    if "" in names:
        raise InvalidInput("A name is empty.", hint="Give one; a variable that it comes from may not be set.")
    odd = next((each for each in names if not each.isprintable()), None)
    if odd is not None:
        raise InvalidInput(f"{odd!r} is not a name: it has control characters.")


def parse_events(lines: "Iterator[bytes] | HTTPResponse") -> Iterator[ServerSent]:
    """The event stream format: fields until an empty line; a line that begins with a colon is a comment."""
    event_id, name, data = "", "message", list[str]()
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield ServerSent(event_id, name, json.loads("\n".join(data)))
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            event_id = value
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)


def problem_of(status: int, content: bytes, url: str) -> HomeportError:
    """A problem+json response as the error that the server raised."""
    try:
        body = json.loads(content)
    except (RecursionError, ValueError):
        body = None
    if isinstance(body, dict) and "code" in body and "message" in body:
        body = {**body, "detail": body["message"], "retryable": body.get("retriable")}  # the envelope of /v2
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = {"detail": body["error"].get("message"), "retryable": status in {429, 503}}  # the shape of /v1
    if not isinstance(body, dict) or "detail" not in body:
        return _not_homeport(url) if status < 500 else HomeportError(f"{url} failed with HTTP {status}.")
    detail, hint = str(body["detail"]), body.get("hint")
    if status in {400, 422}:
        return InvalidInput(detail, problems=[_problem(entry) for entry in body.get("errors") or ()], hint=hint)
    kind = _BY_STATUS.get(status, TransientError if body.get("retryable") else HomeportError)
    return kind(detail, hint=hint)


_BY_STATUS: Final[Mapping[int, type[HomeportError]]] = {
    401: Refused,
    403: Refused,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    429: Refused,
}


def _problem(entry: Mapping[str, Any]) -> Problem:
    return Problem(
        str(entry.get("field") or ""), str(entry.get("message") or ""), entry.get("path"), entry.get("line")
    )


def _not_homeport(url: str) -> HomeportError:
    return PeerUnavailable(f"Something answers at {url}, but it is not Homeport.", hint=START_HINT)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def reason_of(error: Exception) -> str:
    """Why a connection failed, in two or three words."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if type(error).__name__ == "gaierror":
        return "unknown host"
    if isinstance(error, ConnectionError) or not isinstance(error, OSError):
        return "connection lost"
    return error.strerror or str(error)
