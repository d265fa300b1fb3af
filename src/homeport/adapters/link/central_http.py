"""The site's link to central over HTTP. The site dials out; nothing behind its NAT need be reachable.

With TLS each end shows its certificate, and the site says nothing before it knows that central is its own.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler

from homeport.core.addresses import is_loopback
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.core.secrets import SecretsThere, SecretValue
from homeport.errors import InvalidInput, PeerUnavailable, Refused
from homeport.ports import (
    DrainNode,
    ExpectNode,
    FromCentral,
    LiftHold,
    Moved,
    NodeIdentities,
    Outgoing,
    RemoveNode,
    RollBack,
    SecretsChanged,
    SetHold,
)
from homeport.vocabulary import Commit, NodeId, SiteName
from homeport.wire.join_tokens import decode as decode_token
from homeport.wire.reports import decode_hold

CALL_SECONDS_MAX: Final = 15.0
SILENCE_SECONDS_MAX: Final = 30.0
"""Central pings the watch stream every 10 s; three missed pings mean that the link is cut."""
KNOWN_CHARACTERS_MAX: Final = 4_000
CONNECTION_SECONDS_MAX: Final = 600.0
"""How long a connection is used again, so that a renewed certificate is shown in time."""
NOT_BELIEVED: Final = frozenset({401, 403})

NewContext = Callable[[], ssl.SSLContext]
VerifyCentral = Callable[[ssl.SSLObject], object]
"""Raises Refused unless the machine at the other end is the central that this site belongs to."""


@asynccontextmanager
async def open_central_link(
    url: str, *, tls: NewContext | None = None, verify: VerifyCentral | None = None
) -> AsyncIterator["HttpCentralLink"]:
    """`tls` is asked anew for each connection, so that a renewed certificate is used from the next one on.

    Raises Refused for a URL that would send the site's news in the clear.
    """
    assert (tls is None) == (verify is None), "TLS without a look at the certificate proves nothing"
    _require_safe(url, has_identity=tls is not None)
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS_MAX)

    def new_session() -> aiohttp.ClientSession:
        connector = None if tls is None or verify is None else _VerifyingConnector(tls, verify)
        return aiohttp.ClientSession(timeout=timeout, connector=connector)

    link = HttpCentralLink(url, new_session)
    try:
        yield link
    finally:
        await link.close()


def _require_safe(url: str, *, has_identity: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" and not has_identity:
        raise Refused(
            f"Central at {url} can only be spoken to by a site that has joined it.",
            hint="An administrator of central has the line to join with:  homeport sites join-command",
        )
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise Refused(
            f"Refusing to talk to central at {url} without TLS.", hint="Use its https:// address, and join it first."
        )


class HttpCentralLink:
    """`ports.CentralLink` against central's `/api/v1/sites`."""

    def __init__(self, url: str, new_session: Callable[[], aiohttp.ClientSession]) -> None:
        self._url = url.rstrip("/")
        self._new_session = new_session
        self._session = new_session()

    async def close(self) -> None:
        await self._session.close()

    async def join(self, site: SiteName, *, epoch: str, software_version: str) -> int:
        body = {"epoch": epoch, "software_version": software_version}
        return await self._last_sequence("PUT", f"/api/v1/sites/{site}", body)

    async def report(
        self, site: SiteName, reports: Sequence[Outgoing], *, epoch: str, seen: Mapping[NodeId, datetime]
    ) -> int:
        body = {
            "epoch": epoch,
            "reports": [{"sequence": item.sequence, "body": item.body} for item in reports],
            "seen": {node_id: at.isoformat() for node_id, at in seen.items()},
        }
        return await self._last_sequence("POST", f"/api/v1/sites/{site}/reports", body)

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        query = [("known", f"{name}:{version}") for name, version in sorted(known.items())]
        # Too many for an address: then all of them are sent again, which is harmless.
        query = query if sum(len(text) for _, text in query) <= KNOWN_CHARACTERS_MAX else []
        try:
            async with self._request("GET", f"/api/v1/sites/{site}/secrets/values", params=query) as answer:
                if answer.status >= 300:
                    raise await self._refused(answer)
                body = await answer.json()
                changed = {
                    name: SecretValue(int(each["version"]), str(each["value"]))
                    for name, each in body["changed"].items()
                }
                return SecretsThere({name: int(version) for name, version in body["versions"].items()}, changed)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PeerUnavailable(self._unreachable(error)) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Not the error's own words: they could quote what was sent.
            raise PeerUnavailable("central sent secrets that cannot be read") from error

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        try:
            async with self._request("POST", f"/api/v1/sites/{site}/answers/{question}", json=answer) as received:
                if received.status >= 300:
                    raise await self._refused(received)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PeerUnavailable(self._unreachable(error)) from error

    async def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS_MAX, sock_read=SILENCE_SECONDS_MAX)
        try:
            async with self._request("GET", f"/api/v1/sites/{site}/watch", timeout=timeout) as answer:
                if answer.status != 200:
                    raise await self._refused(answer)
                async for line in answer.content:
                    if line.startswith(b"data:"):
                        call = _call(json.loads(line[5:]))
                        if call is not None:
                            yield call
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PeerUnavailable(self._unreachable(error)) from error

    def _request(self, method: str, path: str, **options: Any) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Asks for central's SVID by name, for people may be shown another certificate there."""
        return self._session.request(method, self._url + path, server_hostname=SERVER_NAME, **options)

    async def _last_sequence(self, method: str, path: str, body: Mapping[str, Any]) -> int:
        try:
            async with self._request(method, path, json=body) as answer:
                if answer.status >= 300:
                    raise await self._refused(answer)
                return int((await answer.json())["last_sequence"])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            raise PeerUnavailable(self._unreachable(error)) from error

    async def _refused(self, answer: aiohttp.ClientResponse) -> PeerUnavailable:
        """Whoever is not believed opens a new connection for the next call, with the certificate that is then the
        newest."""
        why = await _refusal(answer)
        if answer.status in NOT_BELIEVED:
            before, self._session = self._session, self._new_session()
            await before.close()
        return PeerUnavailable(why)

    def _unreachable(self, error: BaseException) -> str:
        return f"central at {self._url} cannot be reached: {str(error) or type(error).__name__}"


def _call(data: Mapping[str, Any]) -> FromCentral | None:
    """None for something that a newer central says and this site does not know yet."""
    read = next((reader for name, reader in _READERS.items() if name in data), None)
    if read is None:
        return None
    try:
        return read(data)
    except (InvalidInput, KeyError, TypeError):
        return None


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], FromCentral]]] = {
    "commit": lambda data: Moved(Commit(data["commit"])),
    "secrets": lambda data: SecretsChanged(),
    "expect": lambda data: ExpectNode(decode_token(data["expect"])),
    "question": lambda data: NodeIdentities(
        **{name: str(data.get(name, "")) for name in ("question", "step", "name", "by")}
    ),
    "drain": lambda data: DrainNode(NodeId(data["drain"]["node_id"]), data["drain"]["reason"]),
    "hold": lambda data: SetHold(decode_hold(data["hold"])),
    "release": lambda data: LiftHold(data["release"]["deployment_id"], data["release"]["by"]),
    "roll_back": lambda data: RollBack(**data["roll_back"]),
    "node_id": lambda data: RemoveNode(NodeId(data["node_id"])),
}
"""By the field that a word of central's is known by."""


class _VerifyingConnector(aiohttp.TCPConnector):
    """Looks at central's certificate before anything is sent on a new connection."""

    def __init__(self, tls: NewContext, verify: VerifyCentral) -> None:
        super().__init__()
        self._tls = tls
        self._verify = verify

    def _get_ssl_context(self, req: aiohttp.ClientRequest) -> ssl.SSLContext | None:
        return self._tls() if req.is_ssl() else None

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        protocol = await super()._create_connection(req, traces, timeout)
        assert protocol.transport is not None
        try:
            self._verify(protocol.transport.get_extra_info("ssl_object"))
        except Refused as error:
            protocol.abort()
            raise aiohttp.ClientConnectionError(f"what answers there is not trusted: {error}") from error
        asyncio.get_running_loop().call_later(CONNECTION_SECONDS_MAX, protocol.force_close)
        return protocol


async def _refusal(answer: aiohttp.ClientResponse) -> str:
    """Central's own words, when it gave any."""
    try:
        problem = await answer.json(content_type=None)
        return f"central answered {answer.status}: {problem['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"central answered {answer.status}"
