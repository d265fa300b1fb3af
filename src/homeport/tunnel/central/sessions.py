"""Sessions of people: `homeport exec` and `homeport port-forward`, joined to streams of the site's tunnel.

Each session is in the audit trail when it begins, before anything is started, and when it ends.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from typing import Any, Final
from urllib.parse import parse_qs

import anyio
from starlette.types import Receive, Scope, Send

from homeport.core.access.actions import Action, Audit, Level
from homeport.core.access.actions import Scope as Reach
from homeport.core.model.access import AuditResult
from homeport.core.model.caller import Caller
from homeport.core.model.event import Deployment
from homeport.core.tunnel.choosing import RunsOn, choose_node
from homeport.core.tunnel.command_text import shown_command
from homeport.core.tunnel.targets import ExecTarget, ForwardTarget
from homeport.errors import HomeportError, InvalidInput, Problem
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.overview import find_deployment, view_deployments
from homeport.fleet.shared.scope import seen_by
from homeport.identity.audit import Auditor
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import IncomingStream, TunnelStream
from homeport.serving.middleware.audit import AUDITOR
from homeport.tunnel.central.upgrading import tunnel_of_person
from homeport.tunnel.relaying import relay
from homeport.vocabulary import NodeId
from homeport.wire.tunnel import decode_command, decode_size

log = get_log("homeport.tunnel")

EXEC: Final = Action("deployments.exec", Level.OPERATOR, Reach.SEEN, Audit.OWN)
PORT_FORWARD: Final = Action("deployments.port-forward", Level.OPERATOR, Reach.SEEN, Audit.OWN)
PORTS_MAX: Final = 20
TEXT_MAX: Final = 253
END_SECONDS_MAX: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Place:
    """What a session is about."""

    deployment: Deployment
    node_id: NodeId
    component: str


@dataclass(slots=True)
class _Record:
    """The entries of one session."""

    auditor: Auditor
    caller: Caller
    action: str
    place: _Place
    began: float = field(default_factory=anyio.current_time)
    streams: int = 0

    async def begin(self, detail: Mapping[str, Any]) -> None:
        self.began = anyio.current_time()
        await self._note(AuditResult.DONE, {"phase": "begin", **detail})

    async def end(self, error: HomeportError | None) -> None:
        detail: dict[str, Any] = {"phase": "end", "seconds": round(anyio.current_time() - self.began, 1)}
        if self.streams:
            detail["connections"] = self.streams
        if error is not None:
            detail |= {"code": error.code, "why": str(error)[:200]}
        with anyio.move_on_after(END_SECONDS_MAX, shield=True):
            try:
                await self._note(AuditResult.DONE if error is None else AuditResult.FAILED, detail)
            except HomeportError as lost:
                log.warning("session end missing from the audit log", why=str(lost))

    async def _note(self, result: AuditResult, detail: Mapping[str, Any]) -> None:
        place = self.place
        target = f"{place.deployment.name}@{place.deployment.site}"
        about = {"deployment": place.deployment.id, "node": place.node_id, "component": place.component}
        await self.auditor.note_by(self.caller, self.action, target, result, {**about, **detail})


class _Sessions:
    def __init__(self, central: CentralPlatform) -> None:
        self._central = central

    async def _place(self, scope: Scope, caller: Caller, query: Mapping[str, Sequence[str]]) -> _Place:
        """Raises NotFound for what the caller may not see, and PeerUnavailable before the protocol is switched."""
        central, reference = self._central, scope["path_params"]["deployment_id"]
        async with seen_by(caller, central.store).read() as reader:
            found = await find_deployment(reader, reference)
            (view,) = await view_deployments(reader, [found], central.reachability, central.clock.now())
        running = [
            RunsOn(each.instance.node_id, each.instance.running_revision is not None, each.reachable)
            for each in view.instances
        ]
        node_id = choose_node(f"{found.name}@{found.site}", running, _only(query, "node"))
        await central.tunnels.require(found.site)
        return _Place(found, node_id, _only(query, "component"))

    def _record(self, scope: Scope, action: Action, place: _Place) -> _Record:
        state = scope["state"]
        return _Record(state[AUDITOR], state["caller"], action.name, place)

    @asynccontextmanager
    async def _joined(
        self, stream: IncomingStream, place: _Place, target: ExecTarget | ForwardTarget
    ) -> AsyncIterator[TunnelStream]:
        async with self._central.tunnels.open(place.deployment.site, target) as onwards:
            await stream.accept(onwards.accepted)
            yield onwards


class ExecSessions(_Sessions):
    """One command for each stream of the WebSocket."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = _query(scope)
        place = await self._place(scope, scope["state"]["caller"], query)

        async def answer(stream: IncomingStream) -> None:
            await self._execute(stream, place, self._record(scope, EXEC, place))

        async with tunnel_of_person(scope) as connection:
            await connection.serve(answer)

    async def _execute(self, stream: IncomingStream, place: _Place, record: _Record) -> None:
        header = stream.header
        if header.get("kind") != "exec":
            raise InvalidInput(problems=[Problem("kind", 'must be "exec" here')])
        size = header.get("terminal")
        target = ExecTarget(
            place.deployment.id,
            place.node_id,
            decode_command(header),
            place.component,
            None if size is None else decode_size(size),
            header.get("input") is True,
        )
        await record.begin({"command": shown_command(target.command), "terminal": target.terminal is not None})
        error: HomeportError | None = None
        try:
            async with self._joined(stream, place, target) as onwards:
                await relay(stream, onwards)
        except HomeportError as raised:
            error = raised
            raise
        finally:
            await record.end(error)


class PortForwards(_Sessions):
    """One connection to a port for each stream of the WebSocket; the ports are named when it is opened."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = _query(scope)
        ports = _ports(query)
        place = await self._place(scope, scope["state"]["caller"], query)
        record = self._record(scope, PORT_FORWARD, place)

        async def answer(stream: IncomingStream) -> None:
            port = stream.header.get("port")
            if stream.header.get("kind") != "forward" or not isinstance(port, int) or port not in ports:
                raise InvalidInput(problems=[Problem("port", "must be one that the session was opened for")])
            record.streams += 1
            target = ForwardTarget(place.deployment.id, place.node_id, port, place.component)
            async with self._joined(stream, place, target) as onwards:
                await relay(stream, onwards)

        await record.begin({"ports": sorted(ports)})
        try:
            async with tunnel_of_person(scope) as connection:
                await connection.serve(answer)
        finally:
            await record.end(None)


def _query(scope: Scope) -> Mapping[str, Sequence[str]]:
    try:
        return parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=2 * PORTS_MAX)
    except ValueError as error:
        raise InvalidInput(problems=[Problem("query", f"has more than {2 * PORTS_MAX} fields")]) from error


def _only(query: Mapping[str, Sequence[str]], name: str) -> str:
    given = query.get(name, [""])
    if len(given) > 1 or len(given[0]) > TEXT_MAX:
        raise InvalidInput(problems=[Problem(name, f"must be one text of at most {TEXT_MAX} characters")])
    return given[0]


def _ports(query: Mapping[str, Sequence[str]]) -> frozenset[int]:
    given = query.get("port", [])
    numbers = {int(each) for each in given if each.isascii() and each.isdigit() and len(each) <= 5}
    if not given or len(given) > PORTS_MAX or len(numbers) < len({*given}) or not all(0 < n < 65536 for n in numbers):
        raise InvalidInput(problems=[Problem("port", f"must be 1 to {PORTS_MAX} numbers from 1 to 65535")])
    return frozenset(numbers)
