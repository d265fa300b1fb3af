"""The site's link to central over HTTP. The site dials out; nothing behind its NAT need be reachable."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

import aiohttp

from homeport.errors import PeerUnavailable
from homeport.ports import FromCentral, Moved, Outgoing, RemoveNode
from homeport.vocabulary import Commit, NodeId, SiteName

CALL_SECONDS_MAX: Final = 15.0
SILENCE_SECONDS_MAX: Final = 30.0
"""Central pings the watch stream every 10 s; three missed pings mean that the link is cut."""


class HttpCentralLink:
    """`ports.CentralLink` against central's `/api/v1/sites`."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url.rstrip("/")
        self._session = session

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

    async def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS_MAX, sock_read=SILENCE_SECONDS_MAX)
        try:
            async with self._session.get(f"{self._url}/api/v1/sites/{site}/watch", timeout=timeout) as answer:
                if answer.status != 200:
                    raise PeerUnavailable(await _refusal(answer))
                async for line in answer.content:
                    if line.startswith(b"data:"):
                        call = _call(json.loads(line[5:]))
                        if call is not None:
                            yield call
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PeerUnavailable(self._unreachable(error)) from error

    async def _last_sequence(self, method: str, path: str, body: Mapping[str, Any]) -> int:
        try:
            async with self._session.request(method, self._url + path, json=body) as answer:
                if answer.status >= 300:
                    raise PeerUnavailable(await _refusal(answer))
                return int((await answer.json())["last_sequence"])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            raise PeerUnavailable(self._unreachable(error)) from error

    def _unreachable(self, error: BaseException) -> str:
        return f"central at {self._url} cannot be reached: {str(error) or type(error).__name__}"


def _call(data: Mapping[str, str]) -> FromCentral | None:
    """None for something that a newer central says and this site does not know yet."""
    if "commit" in data:
        return Moved(Commit(data["commit"]))
    return RemoveNode(NodeId(data["node_id"])) if "node_id" in data else None


@asynccontextmanager
async def open_central_link(url: str) -> AsyncIterator[HttpCentralLink]:
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS_MAX)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield HttpCentralLink(url, session)


async def _refusal(answer: aiohttp.ClientResponse) -> str:
    """Central's own words, when it gave any."""
    try:
        problem = await answer.json(content_type=None)
        return f"central answered {answer.status}: {problem['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"central answered {answer.status}"
