"""HTTP to one registry, blocking, with the standard library: a node must stay small.

Knows plain HTTP on loopback and TLS elsewhere, redirects, proxies, and the two ways a registry asks for
credentials. Whatever goes wrong becomes one of our errors, with the registry's own words and without secrets.
"""

import http.client
import json
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urljoin, urlsplit

from homeport.adapters.registry.credentials import Credentials, find_credentials
from homeport.adapters.registry.reference import Reference, is_loopback
from homeport.errors import InvalidInput, NotFound, PeerUnavailable, Refused, TooLarge

TIMEOUT_SECONDS: Final = 30.0
READ_SECONDS_MAX: Final = 600.0
REDIRECTS_MAX: Final = 5
TOKEN_SIZE_MAX: Final = 2**20


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    url: str


class Torn(PeerUnavailable):
    """The line broke while an answer was being read."""

    def __init__(self, message: str, *, status: int, received: bytes) -> None:
        super().__init__(message)
        self.status = status
        self.received = received


@dataclass(slots=True)
class Connection:
    """Requests for one reference; remembers the token between them."""

    reference: Reference
    scope: str
    """`pull` or `pull,push`, as token services understand it."""
    auth_files: Sequence[Path] = ()
    plain_http_hosts: frozenset[str] = frozenset()
    timeout_seconds: float = TIMEOUT_SECONDS
    _authorization: str | None = field(default=None, repr=False)

    @property
    def base(self) -> str:
        host = self.reference.host
        return f"{'http' if self._is_plain(host) else 'https'}://{host}/v2/{self.reference.name}/"

    def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        size_max: int = TOKEN_SIZE_MAX,
        expect: Sequence[int] = (200,),
    ) -> Answer:
        """`url` may be relative to the repository. Statuses not in `expect` become errors."""
        url = urljoin(self.base, url)
        answer = self._send(method, url, body, headers or {}, size_max)
        if answer.status == 401 and self._authorization is None:
            self._authorization = self._authorize(answer)
            answer = self._send(method, url, body, headers or {}, size_max)
        if answer.status not in expect:
            raise self._error(answer)
        return answer

    def _is_plain(self, host: str) -> bool:
        return is_loopback(host) or host in self.plain_http_hosts

    def _may_be_plain(self, host: str) -> bool:
        """A registry with TLS may not send us to a place without, least of all to this very machine."""
        return self._is_plain(host) and self._is_plain(self.reference.host)

    def _send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], size_max: int) -> Answer:
        for _ in range(REDIRECTS_MAX + 1):
            answer = self._send_once(method, url, body, self._with_authorization(url, headers), size_max)
            if answer.status not in (301, 302, 303, 307, 308) or "location" not in answer.headers:
                return answer
            url = urljoin(url, answer.headers["location"])
        raise PeerUnavailable(f"The registry {self.reference.host} redirects without end.")

    def _with_authorization(self, url: str, headers: Mapping[str, str]) -> dict[str, str]:
        """Credentials are for the registry alone, not for the storage it redirects to."""
        ours = urlsplit(url).netloc == self.reference.host
        extra = {"Authorization": self._authorization} if ours and self._authorization else {}
        return {"User-Agent": "homeport", **headers, **extra}

    def _send_once(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], size_max: int
    ) -> Answer:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and self._may_be_plain(parts.netloc)):
            raise Refused(f"The registry {self.reference.host} sends us to {parts.netloc}, which has no TLS.")
        request = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
        try:
            with _opener(direct=is_loopback(parts.netloc)).open(request, timeout=self.timeout_seconds) as response:
                return _answer(response, url, size_max, self.reference)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error, url, size_max, self.reference)
        except urllib.error.URLError as error:
            raise self._unreachable(parts.netloc, error.reason) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(parts.netloc, error) from error

    def _unreachable(self, host: str, reason: object) -> PeerUnavailable:
        if isinstance(reason, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted: {reason.verify_message}"
        elif isinstance(reason, ssl.SSLError):
            why = "it does not speak TLS"
        elif isinstance(reason, TimeoutError | socket.timeout):
            why = f"no answer within {self.timeout_seconds:g} s"
        elif isinstance(reason, OSError) and reason.strerror:
            why = reason.strerror.lower()
        else:
            why = str(reason) or type(reason).__name__
        return PeerUnavailable(f"The registry {host} cannot be reached ({why}).")

    def _authorize(self, answer: Answer) -> str:
        challenge = answer.headers.get("www-authenticate", "")
        scheme, _, rest = challenge.partition(" ")
        credentials = find_credentials(self.auth_files, self.reference.host, self.reference.name)
        if scheme.lower() == "basic" and credentials is not None:
            return credentials.basic
        if scheme.lower() != "bearer":
            raise self._error(answer)
        return "Bearer " + self._token(dict(re.findall(r'(\w+)="([^"]*)"', rest)), credentials)

    def _token(self, asked: Mapping[str, str], credentials: Credentials | None) -> str:
        url = asked.get("realm", "")
        scope = asked.get("scope") or f"repository:{self.reference.name}:{self.scope}"
        query = {"service": asked.get("service", ""), "scope": scope}
        body, headers = None, {}
        if credentials is not None and credentials.identity_token:
            form = query | {"grant_type": "refresh_token", "refresh_token": credentials.identity_token}
            body = urlencode(form | {"client_id": "homeport"}).encode()
        else:
            url += ("&" if "?" in url else "?") + urlencode(query)
            headers = {"Authorization": credentials.basic} if credentials else {}
        answer = self._send_once("POST" if body else "GET", url, body, headers, TOKEN_SIZE_MAX)
        if answer.status != 200:
            raise self._error(answer)
        try:
            given = json.loads(answer.body)
            token = given.get("token") or given["access_token"]
        except (ValueError, KeyError, AttributeError) as error:
            raise PeerUnavailable(f"The token service of {self.reference.host} gave an unusable answer.") from error
        return str(token)

    def _error(self, answer: Answer) -> NotFound | Refused | PeerUnavailable | InvalidInput | TooLarge:
        host, said = self.reference.host, _said(answer)
        if answer.status == 404:
            return NotFound(f"The registry {host} has no {self.reference.name}:{self.reference.tag}.")
        if answer.status in (401, 403):
            return Refused(
                f"The registry {host} does not let us {self.scope.rpartition(',')[2]} {self.reference.name}{said}.",
                hint=f"Log in with: podman login {host}",
            )
        if answer.status == 413:
            return TooLarge(f"The registry {host} finds {self.reference} too large{said}.")
        if answer.status == 429 or answer.status >= 500:
            error = PeerUnavailable(f"The registry {host} cannot answer now (HTTP {answer.status}{said}).")
            wait = answer.headers.get("retry-after", "")
            error.retry_after_seconds = min(float(wait), 300.0) if wait.isdigit() else 5.0
            return error
        return InvalidInput(
            f"The registry {host} refused the request for {self.reference} (HTTP {answer.status}{said})."
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are followed by the connection itself, which knows where credentials may go."""

    def redirect_request(self, *_: object) -> None:
        return None


def _opener(*, direct: bool) -> urllib.request.OpenerDirector:
    proxies = urllib.request.ProxyHandler({}) if direct else urllib.request.ProxyHandler()
    return urllib.request.build_opener(proxies, _NoRedirects())


def _answer(
    response: http.client.HTTPResponse | urllib.error.HTTPError, url: str, size_max: int, of: Reference
) -> Answer:
    body = _read(response, size_max + 1, of)
    if len(body) > size_max:
        raise TooLarge(f"The registry {of.host} sends more for {of} than the {size_max} bytes that are accepted.")
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(int(response.status or 0), headers, body, url)


def _read(response: http.client.HTTPResponse | urllib.error.HTTPError, size_max: int, of: Reference) -> bytes:
    """The socket's timeout bounds each wait; this bounds all of them, for a peer that sends a byte at a time.

    Read as it comes: a read that waits for more loses what it had when the line breaks.
    """
    deadline = time.monotonic() + READ_SECONDS_MAX
    chunks: list[bytes] = []
    promised = response.headers.get("Content-Length", "")
    left = min(size_max, int(promised)) if promised.isdigit() else size_max
    try:
        while left and (chunk := response.read1(min(left, 2**18))):
            chunks.append(chunk)
            left -= len(chunk)
            if time.monotonic() > deadline:
                raise TimeoutError
    except (OSError, http.client.HTTPException) as error:
        why = "it fell silent" if isinstance(error, TimeoutError) else "the connection broke"
        message = f"The registry {of.host} did not send all of {of} ({why})."
        raise Torn(message, status=int(response.status or 0), received=b"".join(chunks)) from error
    return b"".join(chunks)


def _said(answer: Answer) -> str:
    """The registry's own words, from the error body of the distribution API."""
    try:
        first = json.loads(answer.body)["errors"][0]
        words = str(first.get("message") or first.get("code") or "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    return f": {words[:200].rstrip('.')}" if words else ""
