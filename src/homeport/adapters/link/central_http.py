"""The site's link to central over HTTP. The site connects outwards; nothing behind its NAT need be reachable.

With TLS each end presents its certificate, and the site sends nothing before central is authenticated.
"""

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
import anyio
from aiohttp.client_proto import ResponseHandler

from homeport.adapters.local_access import KeyKind, find
from homeport.adapters.network.http_client import reason_of
from homeport.adapters.network.lost_connection import LOST
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.core.model.protocol import OWN, PeerProtocol
from homeport.core.secrets import SecretsThere, SecretValue
from homeport.core.values.addresses import is_loopback
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import NotFound, PeerIncompatible, PeerUnavailable, Refused, UnknownKind
from homeport.log import get_log
from homeport.ports import ROLLED_BACK_MAX, Ahead, FromCentral, JoinAnswer, Lineage, Outgoing
from homeport.vocabulary import Generation, Incarnation, NodeId, SiteName
from homeport.wire.reports import decode_rolled_back
from homeport.wire.site_messages import decode

T = TypeVar("T")

log = get_log(__name__)

CALL_SECONDS_MAX: Final = 15.0
SILENCE_SECONDS_MAX: Final = 30.0
"""Central pings the watch stream every 10 s; three missed pings mean that the connection is dead."""
KNOWN_CHARACTERS_MAX: Final = 4_000
CONNECTION_SECONDS_MAX: Final = 600.0
"""The maximum age of a reused connection, so that a renewed certificate is presented in time."""
NOT_BELIEVED: Final = frozenset({401, 403})
NOT_BELIEVED_BACKOFF: Final = BackoffPolicy(first_seconds=1.0, max_seconds=10.0)
NOT_BELIEVED_FREE: Final = 3
"""So many refusals in a row cost no waiting: the next connection may show a certificate that was renewed."""
REFUSALS: Final = frozenset({400, 404, 409, 413, 422, 501})
"""What repeating the same call will not change."""
NO_ANSWER_THERE: Final = frozenset({UnknownKind.code, NotFound.code})
"""A central that does not know the topic, or is too old to know the route."""
BYTES: Final = {"Content-Type": "application/octet-stream"}
UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading an answer raises that is not one of central's: on loopback another program may have its port."""

NewContext = Callable[[], ssl.SSLContext]
VerifyCentral = Callable[[ssl.SSLObject], object]
"""Raises Refused unless the peer is the central that this site belongs to."""


@asynccontextmanager
async def open_central_link(
    url: str,
    *,
    tls: NewContext | None = None,
    verify: VerifyCentral | None = None,
    local_keys: Path | None = None,
) -> AsyncIterator["HttpCentralLink"]:
    """`tls` is called for each connection, so that the next one uses a renewed certificate.

    Without it, central is on this machine, and its machine key is read from the folder `local_keys` at each call,
    because it changes with each start of central. Raises Refused for a URL that would send reports
    unencrypted.
    """
    assert (tls is None) == (verify is None), "TLS without a look at the certificate proves nothing"
    _require_safe(url, has_identity=tls is not None)
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS_MAX)

    def new_session() -> aiohttp.ClientSession:
        connector = None if tls is None or verify is None else VerifyingConnector(tls, verify)
        return aiohttp.ClientSession(timeout=timeout, connector=connector)

    link = HttpCentralLink(url, new_session, local_keys if tls is None else None)
    try:
        yield link
    finally:
        await link.close()


def _require_safe(url: str, *, has_identity: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" and not has_identity:
        raise Refused(
            f"Central at {url} only accepts sites that have joined it.",
            hint="An administrator of central has the line to join with:  homeport sites join-command",
        )
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise Refused(
            f"Refusing to talk to central at {url} without TLS.", hint="Use its https:// address, and join it first."
        )


class HttpCentralLink:
    """`ports.CentralLink` against central's `/api/v1/sites`."""

    def __init__(
        self, url: str, new_session: Callable[[], aiohttp.ClientSession], local_keys: Path | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._local_keys = local_keys
        self._new_session = new_session
        self._session = new_session()
        self._under_way: dict[aiohttp.ClientSession, int] = {}
        """How many requests each session serves, also one whose certificate was refused since."""
        self._disbelief = _Disbelief()

    async def close(self) -> None:
        for session in {self._session, *self._under_way}:
            await session.close()

    async def join(
        self, site: SiteName, *, epoch: str, software_version: str, lineage: Lineage | None = None
    ) -> JoinAnswer:
        body = {"epoch": epoch, "software_version": software_version}
        # Not in the body: an earlier version of central refuses unknown fields there.
        parameters: list[tuple[str, object]] = []
        if lineage is not None:
            parameters += [*(("starts", each) for each in lineage.starts), ("given", lineage.given)]
        parameters += [("protocol", OWN.version), *(("features", each) for each in OWN.features)]
        query = urlencode(parameters)
        return await self._send("PUT", f"/api/v1/sites/{site}?{query}", body, _joined)

    async def report(
        self,
        site: SiteName,
        reports: Sequence[Outgoing],
        *,
        epoch: str,
        seen: Mapping[NodeId, datetime],
        start: str = "",
    ) -> int:
        body = {
            "epoch": epoch,
            "reports": [{"sequence": item.sequence, "body": item.body} for item in reports],
            "seen": {node_id: at.isoformat() for node_id, at in seen.items()},
        }
        # Beside the body, for a central of the release before knows no further field.
        path = f"/api/v1/sites/{site}/reports?{urlencode({'start': start})}"
        return await self._send("POST", path, body, _reported)

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        query = [("known", f"{name}:{version}") for name, version in sorted(known.items())]
        # Too long for a URL: then all of them are sent again, which is harmless.
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
        except LOST as error:
            raise PeerUnavailable(self._unreachable(error)) from error
        except UNREADABLE as error:
            # Not the error's own message: it could quote what was sent.
            raise PeerUnavailable("central sent secrets that cannot be read") from error

    async def call(self, site: SiteName, topic: str, body: bytes) -> bytes:
        try:
            async with self._request(
                "POST", f"/api/v1/sites/{site}/calls", params={"topic": topic}, data=body, headers=BYTES
            ) as received:
                if received.status in REFUSALS:
                    code, why = await _refusal(received)
                    raise PeerIncompatible(why) if code in NO_ANSWER_THERE else Refused(why)
                if received.status >= 300:
                    raise await self._refused(received)
                return await received.read()
        except LOST as error:
            raise PeerUnavailable(self._unreachable(error)) from error

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        try:
            async with self._request("POST", f"/api/v1/sites/{site}/answers/{question}", json=answer) as received:
                if received.status >= 300:
                    raise await self._refused(received)
        except LOST as error:
            raise PeerUnavailable(self._unreachable(error)) from error

    async def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS_MAX, sock_read=SILENCE_SECONDS_MAX)
        try:
            async with self._request("GET", f"/api/v1/sites/{site}/watch", timeout=timeout) as answer:
                if answer.status != 200:
                    raise await self._refused(answer)
                async for line in answer.content:
                    if line.startswith(b"data:"):
                        yield decode(json.loads(line[5:]))
        except (*LOST, *UNREADABLE) as error:
            raise PeerUnavailable(self._unreachable(error)) from error

    def git(self, method: str, path: str, **options: Any) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A request of git itself to central's repository; a large one may take as long as bytes flow."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS_MAX, sock_read=SILENCE_SECONDS_MAX)
        return self._ask(method, f"/git/deployments.git/{path}", timeout=timeout, auto_decompress=False, **options)

    @asynccontextmanager
    async def _request(self, method: str, path: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """Raises PeerUnavailable without asking while central does not accept this site at all."""
        self._disbelief.admit(anyio.current_time())
        async with self._ask(method, path, **options) as answer:
            self._disbelief.heard(answer.status)
            yield answer

    @asynccontextmanager
    async def _ask(self, method: str, path: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """Requests central's SVID by SNI, because browsers may get another certificate there.

        After a refused certificate the next request opens a new connection, with the certificate that is then the
        newest. The session before is closed with its last request: aiohttp does not wake its readers, and
        the watch stream would be waited for forever.
        """
        options["headers"] = {**options.get("headers", {}), **self._local_key()}
        session = self._session
        self._under_way[session] = self._under_way.get(session, 0) + 1
        try:
            async with session.request(method, self._url + path, server_hostname=SERVER_NAME, **options) as answer:
                if answer.status in NOT_BELIEVED and session is self._session:
                    self._session = self._new_session()
                yield answer
        finally:
            self._under_way[session] -= 1
            if not self._under_way[session]:
                del self._under_way[session]
                if session is not self._session:
                    with anyio.CancelScope(shield=True):
                        await session.close()

    def _local_key(self) -> Mapping[str, str]:
        parts = urlsplit(self._url)
        found = find(self._local_keys, parts.port or 80, KeyKind.MACHINE)
        is_for_it = found is not None and found.opens(parts.hostname or "")
        return {"Authorization": f"Bearer {found.key}"} if found is not None and is_for_it else {}

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]
    ) -> T:
        try:
            async with self._request(method, path, json=body) as answer:
                if answer.status >= 300:
                    raise await self._refused(answer)
                return read(await answer.json())
        except (*LOST, *UNREADABLE) as error:
            raise PeerUnavailable(self._unreachable(error)) from error

    async def _refused(self, answer: aiohttp.ClientResponse) -> PeerUnavailable:
        code, why = await _refusal(answer)
        self._disbelief.why = why
        return PeerIncompatible(why) if code == PeerIncompatible.code else PeerUnavailable(why)

    def _unreachable(self, error: BaseException) -> str:
        return f"central at {self._url} cannot be reached: {reason_of(error)}"


class _Disbelief:
    """A site that was removed asks less and less often, however many of its loops have something to tell."""

    def __init__(self) -> None:
        self.why = "central does not accept this site"
        self._refusals = 0
        self._until = 0.0

    def admit(self, now: float) -> None:
        if self._refusals < NOT_BELIEVED_FREE:
            return
        if now < self._until:
            raise PeerUnavailable(self.why)
        # One request finds out; until it has been answered, the others need not ask the same.
        attempt = self._refusals - NOT_BELIEVED_FREE + 1
        self._until = now + NOT_BELIEVED_BACKOFF.delay_seconds(attempt, chance=random.random())

    def heard(self, status: int) -> None:
        self._refusals = self._refusals + 1 if status in NOT_BELIEVED else 0


def _joined(answer: Mapping[str, Any]) -> JoinAnswer:
    highest, features, ahead = answer.get("ahead"), answer.get("features"), None
    if highest is not None:
        ahead = Ahead(
            Generation(int(highest["generation"])),
            Incarnation(int(highest["incarnation"])),
            decode_rolled_back(highest.get("rolled_back"))[:ROLLED_BACK_MAX],
        )
    return JoinAnswer(
        int(answer["last_sequence"]),
        ahead,
        is_let_in=bool(answer.get("is_let_in", True)),
        protocol=PeerProtocol.said(answer.get("protocol"), features if isinstance(features, list) else ()),
    )


def _reported(answer: Mapping[str, Any]) -> int:
    """Central keeps reports that it cannot process, for a version that can."""
    for item in answer.get("set_aside") or ():
        log.warning("report set aside by central", sequence=item["sequence"], code=item["code"], why=item["why"])
    return int(answer["last_sequence"])


class VerifyingConnector(aiohttp.TCPConnector):
    """Verifies the server's certificate before anything is sent on a new connection."""

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
            raise aiohttp.ClientConnectionError(f"the server there is not trusted: {error}") from error
        asyncio.get_running_loop().call_later(CONNECTION_SECONDS_MAX, protocol.force_close)
        return protocol


async def _refusal(answer: aiohttp.ClientResponse) -> tuple[str, str]:
    """Central's own error code and message, if any."""
    try:
        problem = await answer.json(content_type=None)
        return str(problem.get("code")), f"central answered {answer.status}: {problem['detail']}"
    except UNREADABLE:
        return "", f"central answered {answer.status}"
