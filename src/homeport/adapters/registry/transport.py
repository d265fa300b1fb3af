"""HTTP to one registry: plain on loopback and TLS elsewhere, redirects, proxies, and both authentication schemes of
registries. Every failure becomes one of our errors, with the registry's own message and without secrets: an invalid
response is the registry's fault, and is not retried.
"""

import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

from anyio.to_thread import run_sync

from homeport.adapters.network.http_client import (
    Address,
    BodyTooLarge,
    BodyTorn,
    ExchangeFailed,
    ForwardProxyAddress,
    Streaming,
    TlsAddress,
    parse_json,
    proxy_for,
    reason_of,
    route_to,
    small_number,
    stream,
)
from homeport.adapters.registry.credentials import RegistryCredentials, find_credentials
from homeport.adapters.registry.reference import OciReference
from homeport.core.values.addresses import host_of, is_loopback
from homeport.errors import InvalidInput, NotFound, PeerUnavailable, Refused, TooLarge
from homeport.lazy_dataclass import dataclass

TIMEOUT_SECONDS: Final = 30.0
READ_SECONDS_MAX: Final = 600.0
REDIRECTS_MAX: Final = 5
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
TOKEN_SIZE_MAX: Final = 2**20


class Trust(NamedTuple):
    """How a server is authenticated."""

    context: ssl.SSLContext
    check: Callable[[ssl.SSLObject | ssl.SSLSocket], object] | None = None
    """Called on a new connection before anything is sent."""
    server_name: str = ""
    """The server name (SNI) to request; empty means the host."""


@dataclass(frozen=True, slots=True)
class RegistryAnswer:
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
class RegistryConnection:
    """Requests for one reference; caches the token between them."""

    reference: OciReference
    scope: str
    """`pull` or `pull,push`, as in token services."""
    auth_files: Sequence[Path] = ()
    plain_http_hosts: frozenset[str] = frozenset()
    timeout_seconds: float = TIMEOUT_SECONDS
    trust: Trust | None = None
    """For the registry itself; others are authenticated by the system's authorities."""
    login: RegistryCredentials | None = None
    """Overrides the credential files, and is sent without a challenge."""
    login_hosts: Sequence[str] = ()
    """Other names of the host in the credential files."""
    folder: str = ""
    """The path below which the host serves its registry, as in /content; empty for the root."""
    _authorization: str | None = field(default=None, repr=False)
    _context: ssl.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.login is not None:
            self._authorization = self.login.basic

    @property
    def base(self) -> str:
        host = self.reference.host
        return f"{'http' if self._is_plain(host) else 'https'}://{host}{self.folder}/v2/{self.reference.name}/"

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        size_max: int = TOKEN_SIZE_MAX,
        expect: Sequence[int] = (200,),
    ) -> RegistryAnswer:
        """`url` may be relative to the repository. Statuses not in `expect` become errors."""
        url = urljoin(self.base, url)
        answer = await self._send(method, url, body, headers or {}, size_max)
        if answer.status == 401 and self._authorization is None:
            self._authorization = await self._authorize(answer)
            answer = await self._send(method, url, body, headers or {}, size_max)
        if answer.status not in expect:
            raise self._error(answer)
        return answer

    @asynccontextmanager
    async def stream(
        self, url: str, *, headers: Mapping[str, str] | None = None, expect: Sequence[int] = (200,)
    ) -> AsyncIterator[Streaming]:
        """A response whose body is read piece by piece. The reader translates its errors, with `reading`."""
        url = urljoin(self.base, url)
        for is_last in (False, True):
            async with self._followed(url, headers or {}) as answer:
                if answer.status in expect:
                    yield answer
                    return
                with self.reading(self.reference.host):
                    body = await answer.read(TOKEN_SIZE_MAX, seconds_max=READ_SECONDS_MAX)
            refused = RegistryAnswer(answer.status, answer.headers, body, url)
            if refused.status != 401 or self._authorization is not None or is_last:
                raise self._error(refused)
            self._authorization = await self._authorize(refused)

    @asynccontextmanager
    async def _followed(self, url: str, headers: Mapping[str, str]) -> AsyncIterator[Streaming]:
        for _ in range(REDIRECTS_MAX + 1):
            async with self._exchange("GET", url, b"", self._with_authorization(url, headers)) as answer:
                if answer.status not in REDIRECTS or "location" not in answer.headers:
                    yield answer
                    return
                url = self._resolved(url, answer.headers["location"]).geturl()
        raise PeerUnavailable(f"The registry {self.reference.host} redirects without end.")

    @contextmanager
    def reading(self, host: str) -> Iterator[None]:
        """Translates the errors of a connection."""
        try:
            yield
        except BodyTooLarge:
            raise
        except BodyTorn as torn:
            message = f"The registry {host} did not send all of {self.reference} ({torn})."
            raise Torn(message, status=torn.status, received=torn.received) from torn
        except (OSError, ExchangeFailed) as error:
            raise PeerUnavailable(
                f"The registry {host} cannot be reached ({reason_of(error)}).",
                hint=f"See whether it runs, and whether {host} is its name.",
            ) from error

    def _is_plain(self, host: str) -> bool:
        if self.trust is not None and host == self.reference.host:
            return False
        return is_loopback(host_of(host)) or host in self.plain_http_hosts

    def _may_be_plain(self, host: str) -> bool:
        """A registry with TLS must not redirect us to an address without, least of all to this machine."""
        return self._is_plain(host) and self._is_plain(self.reference.host)

    async def _send(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], size_max: int
    ) -> RegistryAnswer:
        for _ in range(REDIRECTS_MAX + 1):
            answer = await self._send_once(method, url, body, self._with_authorization(url, headers), size_max)
            if answer.status not in REDIRECTS or "location" not in answer.headers:
                return answer
            url = self._resolved(url, answer.headers["location"]).geturl()
        raise PeerUnavailable(f"The registry {self.reference.host} redirects without end.")

    def _with_authorization(self, url: str, headers: Mapping[str, str]) -> dict[str, str]:
        """Credentials are only sent to the registry, not to the storage it redirects to."""
        ours = urlsplit(url).netloc == self.reference.host
        extra = {"Authorization": self._authorization} if ours and self._authorization else {}
        return {"User-Agent": "homeport", **headers, **extra}

    async def _send_once(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str], size_max: int
    ) -> RegistryAnswer:
        try:
            async with self._exchange(method, url, body, headers) as answer:
                with self.reading(self.reference.host):
                    content = await answer.read(size_max, seconds_max=READ_SECONDS_MAX)
                return RegistryAnswer(answer.status, answer.headers, content, url)
        except BodyTooLarge as error:
            raise TooLarge(
                f"The registry {self.reference.host} sends more for {self.reference} than the {size_max} bytes that "
                "are accepted."
            ) from error

    @asynccontextmanager
    async def _exchange(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[Streaming]:
        parts = self._resolved(self.base, url)
        address = await self._address(parts)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if isinstance(address, ForwardProxyAddress):
            target, headers = parts._replace(fragment="").geturl(), {**headers, "Host": parts.netloc}
        async with AsyncExitStack() as stack:
            with self.reading(parts.netloc):
                answer = await stack.enter_async_context(
                    stream(address, method, target, body=body, headers=headers, silence_seconds=self.timeout_seconds)
                )
            yield answer

    def _resolved(self, base: str, url: str) -> SplitResult:
        try:
            parts = urlsplit(urljoin(base, url))
            _ = parts.port
        except ValueError as error:
            message = f"The registry {self.reference.host} sends us to {url[:100]!r}, which is not an address."
            raise PeerUnavailable(message) from error
        return parts

    async def _address(self, parts: SplitResult) -> Address:
        """Raises Refused for an address without TLS."""
        if parts.scheme != "https" and not (parts.scheme == "http" and self._may_be_plain(parts.netloc)):
            raise Refused(f"The registry {self.reference.host} sends us to {parts.netloc}, which has no TLS.")
        if parts.scheme == "http":
            return route_to(parts, ssl.create_default_context)
        host = parts.hostname or ""
        proxy = proxy_for(host, parts.scheme)
        if self.trust is not None and parts.netloc == self.reference.host:
            trust = self.trust
            return TlsAddress(
                host,
                parts.port or 443,
                trust.context,
                server_name=trust.server_name,
                check=trust.check,
                proxy=proxy,
            )
        if self._context is None:
            self._context = await run_sync(ssl.create_default_context)
        return TlsAddress(host, parts.port or 443, self._context, proxy=proxy)

    async def _authorize(self, answer: RegistryAnswer) -> str:
        challenge = answer.headers.get("www-authenticate", "")
        scheme, _, rest = challenge.partition(" ")
        hosts = (self.reference.host, *self.login_hosts)
        found = (find_credentials(self.auth_files, host, self.reference.name) for host in hosts)
        credentials = next((each for each in found if each is not None), None)
        if scheme.lower() == "basic" and credentials is not None:
            return credentials.basic
        if scheme.lower() != "bearer":
            raise self._error(answer)
        return "Bearer " + await self._token(dict(re.findall(r'(\w+)="([^"]*)"', rest)), credentials)

    async def _token(self, asked: Mapping[str, str], credentials: RegistryCredentials | None) -> str:
        url = asked.get("realm", "")
        service = self._resolved(self.base, url).netloc
        foreign = credentials is not None and not is_same_site(service, self.reference.host)
        known = None if foreign else credentials
        scope = asked.get("scope") or f"repository:{self.reference.name}:{self.scope}"
        query = {"service": asked.get("service", ""), "scope": scope}
        body, headers = b"", {}
        if known is not None and known.identity_token:
            form = query | {"grant_type": "refresh_token", "refresh_token": known.identity_token}
            body = urlencode(form | {"client_id": "homeport"}).encode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
        else:
            url += ("&" if "?" in url else "?") + urlencode(query)
            headers = {"Authorization": known.basic} if known else {}
        answer = await self._send_once("POST" if body else "GET", url, body, headers, TOKEN_SIZE_MAX)
        if answer.status != 200 and foreign:
            raise Refused(
                f"The registry {self.reference.host} sends us to {service} for a token. "
                "Credentials are not sent there, because it is another site.",
                hint=f"Log in at a registry whose token service is its own, or make {self.reference.name} public.",
            )
        if answer.status != 200:
            raise self._error(answer)
        try:
            given = parse_json(answer.body)
            token = str(given.get("token") or given["access_token"])
        except (ValueError, KeyError, AttributeError) as error:
            raise PeerUnavailable(f"The token service of {self.reference.host} gave an unusable answer.") from error
        if not token.isascii() or not token.isprintable():
            raise PeerUnavailable(f"The token service of {self.reference.host} gave an unusable answer.")
        return token

    def _error(self, answer: RegistryAnswer) -> NotFound | Refused | PeerUnavailable | InvalidInput | TooLarge:
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
            wait = small_number(answer.headers.get("retry-after", ""))
            error.retry_after_seconds = 5.0 if wait is None else min(float(wait), 300.0)
            return error
        return InvalidInput(
            f"The registry {host} refused the request for {self.reference} (HTTP {answer.status}{said})."
        )


def is_same_site(realm: str, registry: str) -> bool:
    """Whether a token service belongs to the registry: the same host, or one of the same organization, as
    auth.docker.io is for registry-1.docker.io. On loopback each port may belong to another user."""
    ours, theirs = host_of(registry).lower(), host_of(realm).lower()
    if is_loopback(ours) or is_loopback(theirs):
        return realm.lower() == registry.lower()
    return ours == theirs or (_site(ours) is not None and _site(ours) == _site(theirs))


def _site(host: str) -> str | None:
    """The registrable domain, without a list of all suffixes: `example.com`, `example.co.uk`. None for addresses and
    single names."""
    labels = host.rstrip(".").split(".")
    if labels[-1].isdigit() or host.startswith("["):
        return None
    count = 3 if len(labels[-1]) == 2 and len(labels) > 1 and len(labels[-2]) <= 3 else 2
    return ".".join(labels[-count:]) if len(labels) >= count else None


def _said(answer: RegistryAnswer) -> str:
    """The registry's own message, from the error body of the distribution API."""
    try:
        first = parse_json(answer.body)["errors"][0]
        words = str(first.get("message") or first.get("code") or "")
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    return f": {words[:200].rstrip('.')}" if words else ""
