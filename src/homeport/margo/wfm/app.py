"""The management interface as a plain ASGI application: mutual TLS outside, prepared bytes inside.

A client is who its certificate says, is accepted by the list at each request, and sees only what is its own; whatever
else a request claims is not read. Every answer that is not a success is a problem document.
"""

import json
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from homeport.core.access.actions import Action, Actions, ActionTable, Audit, Level
from homeport.core.access.actions import Scope as Reach
from homeport.core.margo.body import Malformed, read_body
from homeport.core.margo.manifest import BUNDLE_TYPE, MANIFEST_TYPE, YAML_TYPE, etag_of, is_digest
from homeport.core.margo.problems import RETRY_AFTER_SECONDS, problem
from homeport.core.margo.records import ManifestArtifact
from homeport.core.margo.text import accepts, is_not_modified, site_of_client
from homeport.core.model.access import AuditResult
from homeport.core.model.identity import IdentityKind, Peer
from homeport.errors import HomeportError, InvalidInput, Problem, TransientError
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.audit import Auditor
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.margo.wfm.contacts import Contacts
from homeport.margo.wfm.devices import GatewayUnknown, put_device, remove_device
from homeport.margo.wfm.manifests import Manifests
from homeport.margo.wfm.rendering import Prepared
from homeport.margo.wfm.statuses import take_status
from homeport.ports import Clock, Store
from homeport.serving.middleware.guards import OnAnswer
from homeport.serving.server.connections import PEER
from homeport.vocabulary import Digest, SiteName

BODY_BYTES_MAX: Final = 256 * 1024
REPORTS_MAX: Final = 32
"""How many reports of one client may be under way at the same time. A client sends one after the other; of one that
floods, the rest waits, and others do not wait for it."""
TARGET_MAX: Final = 200
MANIFEST_BYTES: Final = MANIFEST_TYPE.encode()
PROBLEM_JSON: Final = b"application/problem+json"
IMMUTABLE: Final = b"private, max-age=31536000, immutable"
MANIFEST: Final = "/api/v1/deployments"
DEPLOYMENT: Final = "/api/v1/deployments/{deploymentId}/{digest}"
BUNDLE: Final = "/api/v1/bundles/{digest}"
STATUS: Final = "/api/v1/deployments/{deploymentId}/status"
DEVICE: Final = "/api/v1/capabilities/{deviceId:path}"


def _action(name: str, audit: Audit = Audit.NONE) -> Action:
    """Each is a machine's own: a client reaches nothing that is not its own."""
    return Action(name, Level.MACHINE_ONLY, Reach.NONE, audit)


ACTIONS: Final[Actions] = {
    ("GET", MANIFEST): _action("margo.manifest"),
    ("GET", DEPLOYMENT): _action("margo.deployment"),
    ("GET", BUNDLE): _action("margo.bundle"),
    ("POST", STATUS): _action("margo.status"),
    ("PUT", DEVICE): _action("margo.device-report", Audit.ASYNC),
    ("DELETE", DEVICE): _action("margo.device-remove", Audit.ASYNC),
}

_HOST: Final = re.compile(rb"([\w.~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?")
_CHANCE: Final = random.Random()
"""Spreads clients that are asked to retry: up to twice the usual time."""

log = get_log("homeport.margo")


class Declined(Exception):
    """Answered with a problem document."""

    def __init__(
        self,
        name: str | int,
        detail: str,
        errors: Sequence[Problem] = (),
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(detail)
        self.name, self.detail, self.errors, self.headers = name, detail, errors, headers


@dataclass(frozen=True, slots=True)
class MargoRequest:
    """One request of an accepted client."""

    site: SiteName
    client: str
    headers: Mapping[bytes, bytes]
    params: Mapping[str, str]
    receive: Receive


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Sequence[tuple[bytes, bytes]] = ()
    body: bytes = b""
    ignored_as: str = ""
    """Why it changed nothing although it is answered with a success, for the audit trail."""


class Wfm:
    def __init__(
        self,
        *,
        manifests: Manifests,
        contacts: Contacts,
        store: Store,
        clock: Clock,
        policy: AcceptedClients,
        auditor: Auditor,
        base: str = "",
        takes_unknown_types: bool = False,
        on_answer: OnAnswer | None = None,
        on_unknown_peer: Callable[[Peer], None] = lambda peer: None,
    ) -> None:
        """`base` is a path in front of `/api/v1`; URLs in manifests never have it. With `takes_unknown_types`, a
        runtime or deployment type that the contract does not name counts as `custom`."""
        self._manifests = manifests
        self._contacts = contacts
        self._store = store
        self._clock = clock
        self._policy = policy
        self._auditor = auditor
        self._takes_unknown_types = takes_unknown_types
        self._reports: Counter[SiteName] = Counter()
        """Under way, of each client."""
        self._base = base.rstrip("/")
        self._manifest_path = self._base + MANIFEST
        self._manifest_target = self._manifest_path.encode()
        self._on_answer = on_answer
        self._on_unknown_peer = on_unknown_peer
        self._table = ActionTable([ACTIONS])
        self._handlers: Mapping[tuple[str, str], Callable[[MargoRequest], Awaitable[Answer]]] = {
            ("GET", MANIFEST): self._manifest,
            ("GET", DEPLOYMENT): self._deployment,
            ("GET", BUNDLE): self._bundle,
            ("POST", STATUS): self._status,
            ("PUT", DEVICE): self._put_device,
            ("DELETE", DEVICE): self._delete_device,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = time.perf_counter()
        template, answer = await self._answered(scope, receive)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})
        if self._on_answer is not None:
            self._on_answer(scope["method"], template, answer.status, time.perf_counter() - started)

    def prompt(
        self, peer: Peer | None, method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> tuple[int, bytes] | None:
        """The poll of an accepted client whose manifest is in memory: most of all requests. Anything else is left to
        the application, which also refuses and records."""
        if target != self._manifest_target or method != b"GET":
            return None
        started = time.perf_counter()
        if peer is None or peer.kind is not IdentityKind.CLIENT or self._policy.refusal(peer) is not None:
            return None
        site = site_of_client(peer.name)
        prepared = self._manifests.ready(site)
        if prepared is None:
            return None
        condition, host, hosts = None, b"", 0
        for name, value in headers:
            if name == b"if-none-match":
                condition = value
            elif name == b"host":
                host, hosts = value, hosts + 1
            elif name == b"accept" and value != MANIFEST_BYTES:
                return None
        if hosts != 1 or not _is_host(host) or (condition is not None and condition != prepared.etag):
            return None
        self._contacts.seen(site)
        status, rest = (200, prepared.whole) if condition is None else (304, prepared.unchanged)
        if self._on_answer is not None:
            self._on_answer("GET", MANIFEST, status, time.perf_counter() - started)
        return status, rest

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[str, Answer]:
        template = "other"
        peer = scope.get("extensions", {}).get(PEER)
        try:
            site = await self._admit(peer, scope)
            self._contacts.seen(site)
            _check_http(scope)
            if scope["path"] == self._manifest_path and scope["method"] in {"GET", "HEAD"}:
                # The hot path: no table, no header mapping.
                template = MANIFEST
                return MANIFEST, _manifest_answer(await self._current(site), scope["headers"])
            template, params = self._found(scope)
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            asked = MargoRequest(site, peer.name, _joined(scope["headers"]), params, receive)
            answer = await self._handled(asked, method, template)
            if answer.ignored_as:
                await self._record(peer.name, scope, template, AuditResult.REFUSED, {"code": answer.ignored_as})
            elif self._table.rows[method, template].audit is not Audit.NONE:
                await self._record(peer.name, scope, template, AuditResult.DONE, {"status": answer.status})
        except Declined as declined:
            answer = _problem(declined, scope)
            if declined.name != "not-authorized":
                code = str(declined.name)
                await self._record(peer.name, scope, template, AuditResult.REFUSED, {"code": code})
        except TransientError as error:
            log.warning("margo request rejected, temporarily unavailable", path=scope["path"], why=str(error))
            answer = _problem(Declined(503, str(error)), scope)
        except Exception:  # last resort: the client must still get an answer
            log.exception("margo request failed with an internal error", path=scope["path"])
            answer = _problem(Declined(500, "The fleet manager has failed to answer; its log says why."), scope)
        return template, answer

    async def _handled(self, asked: MargoRequest, method: str, template: str) -> Answer:
        handler = self._handlers[method, template]
        if method == "GET":
            return await handler(asked)
        if self._reports[asked.site] >= REPORTS_MAX:
            raise Declined(429, f"{REPORTS_MAX} reports of this client are under way. Send one after the other.")
        self._reports[asked.site] += 1
        try:
            return await handler(asked)
        finally:
            self._reports[asked.site] -= 1
            if not self._reports[asked.site]:
                del self._reports[asked.site]

    async def _admit(self, peer: Peer | None, scope: Scope) -> SiteName:
        """Asked at each request: taking a client off the list works on a connection that is open."""
        if peer is not None and peer.kind is IdentityKind.CLIENT and self._policy.refusal(peer) is None:
            return site_of_client(peer.name)
        name = "anonymous" if peer is None else peer.spiffe_id
        if peer is not None and peer.kind is IdentityKind.CLIENT:
            self._on_unknown_peer(peer)
        address = str(scope["client"][0]) if scope.get("client") else ""
        await self._auditor.record_soon(
            self._auditor.entry(
                action="margo.connect",
                target="",
                result=AuditResult.REFUSED,
                actor=name,
                role="machine" if peer else "",
                address=address,
                detail={"code": "not-authorized"},
            )
        )
        raise Declined("not-authorized", f"{name} is not an accepted client of this fleet manager.")

    def _found(self, scope: Scope) -> tuple[str, Mapping[str, str]]:
        path = scope["path"]
        inner = path.removeprefix(self._base) if path.startswith(f"{self._base}/") else ""
        # A path of the contract that is spelt out comes before one with a variable, whatever the method.
        is_status = inner.endswith("/status") and self._table.find("POST", inner) is not None
        found = self._table.find("POST" if is_status else scope["method"], inner)
        if found is not None and (not is_status or scope["method"] == "POST"):
            return found.template, found.params
        if allowed := ["POST"] if is_status else self._table.methods(inner):
            allow = ", ".join([*allowed, *(["HEAD"] if "GET" in allowed else [])])
            headers = [(b"allow", allow.encode())]
            raise Declined(405, f"{scope['method']} is not possible here.", headers=headers)
        raise Declined(404, "There is nothing at this path.")

    async def _current(self, site: SiteName) -> Prepared:
        return self._manifests.ready(site) or await self._manifests.current(site)

    async def _manifest(self, asked: MargoRequest) -> Answer:
        raise AssertionError("answered before the table is asked")

    async def _deployment(self, asked: MargoRequest) -> Answer:
        deployment_id, digest = asked.params["deploymentId"], asked.params["digest"]
        found = await self._artifact(asked.site, digest)
        if found is None or found.deployment_id != deployment_id:
            raise Declined("deployment-not-found", "This client has no such deployment with this digest.")
        # Whatever the condition: the contract lists a 304 for bundles and none here.
        return _immutable(found, YAML_TYPE)

    async def _bundle(self, asked: MargoRequest) -> Answer:
        found = await self._artifact(asked.site, asked.params["digest"])
        if found is None or found.deployment_id is not None:
            raise Declined("invalid-bundle", "This client has no bundle with this digest.")
        return _immutable(found, BUNDLE_TYPE, condition=asked.headers.get(b"if-none-match", b""))

    async def _artifact(self, site: SiteName, digest: str) -> ManifestArtifact | None:
        return await self._manifests.artifact(site, Digest(digest)) if is_digest(digest) else None

    async def _status(self, asked: MargoRequest) -> Answer:
        body = await _json(asked)
        published = (await self._current(asked.site)).version
        try:
            taken = await take_status(
                self._store, self._clock, asked.site, asked.params["deploymentId"], body, published=published
            )
        except InvalidInput as error:
            raise _semantic(error) from error
        answer = _empty(201 if taken.is_first else 200)
        return replace(answer, ignored_as="stale-report") if taken.is_stale else answer

    async def _put_device(self, asked: MargoRequest) -> Answer:
        body = await _json(asked)
        try:
            is_new = await put_device(
                self._store,
                self._clock,
                asked.site,
                asked.params["deviceId"],
                body,
                takes_unknown_types=self._takes_unknown_types,
            )
        except InvalidInput as error:
            raise _semantic(error) from error
        except GatewayUnknown as error:
            raise Declined("gateway-not-found", str(error)) from error
        return _empty(201 if is_new else 200)

    async def _delete_device(self, asked: MargoRequest) -> Answer:
        if not await remove_device(self._store, self._clock, asked.site, asked.params["deviceId"]):
            raise Declined("device-not-found", "This client has no such device.")
        return Answer(204)

    async def _record(
        self, client: str, scope: Scope, template: str, result: AuditResult, detail: Mapping[str, Any]
    ) -> None:
        """Repeats of a refusal are counted, not written each: a client decides how many there are."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await self._auditor.record_soon(
            self._auditor.entry(
                action=row.name if (row := self._table.rows.get((method, template))) else "margo.request",
                target=scope["path"].removeprefix(self._base).removeprefix("/api/v1/")[:TARGET_MAX],
                result=result,
                actor=client,
                role="machine",
                address=str(scope["client"][0]) if scope.get("client") else "",
                detail=detail,
            )
        )


async def refuse_while_stopping(scope: Scope, receive: Receive, send: Send, why: str, code: str) -> None:
    """A 503 with the hints of the contract."""
    answer = _problem(Declined(503, why), scope)
    headers = [*answer.headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def problem_below(status: int, detail: str, code: str) -> Mapping[str, Any]:
    """Of what is refused before it is a request: what cannot be parsed, and a certificate that is no longer
    trusted."""
    registered: Mapping[int, str] = {400: "invalid-request", 403: "not-authorized"}
    return problem(registered.get(status, status), detail)


def _manifest_answer(prepared: Prepared, headers: Sequence[tuple[bytes, bytes]]) -> Answer:
    unchanged, ranges = False, b""
    for name, value in headers:
        # A field may come in several lines, which are one list.
        if name == b"if-none-match":
            unchanged = unchanged or is_not_modified(value.decode("latin-1"), prepared.etag.decode())
        elif name == b"accept":
            ranges = ranges + b"," + value if ranges else value
    # A condition is looked at only where the answer would be a manifest.
    if ranges != MANIFEST_BYTES and not accepts(ranges.decode("latin-1"), MANIFEST_TYPE):
        raise Declined("server-cannot-generate-response", f"A manifest is only available as {MANIFEST_TYPE}.")
    return Answer(304, prepared.headers_unchanged) if unchanged else Answer(200, prepared.headers, prepared.body)


def _check_http(scope: Scope) -> None:
    """HTTP/1.1, which demands a Host, once; and HTTP/1.0, which does not know it."""
    if scope["http_version"] not in {"1.1", "1.0"}:
        raise Declined(505, "This is served over HTTP/1.1.")
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
        count = len(hosts) or "no"
        raise Declined("invalid-request", f"The request has {count} Host headers; it needs exactly one.")
    if hosts and not _is_host(hosts[0]):
        raise Declined("invalid-request", "The Host header is not a name or an address, with or without a port.")


@lru_cache(maxsize=64)
def _is_host(value: bytes) -> bool:
    """Of all polls, nearly each names the same."""
    return _HOST.fullmatch(value) is not None


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """A field that comes in several lines is one list."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        found[name] = found[name] + b", " + value if name in found else value
    return found


def _immutable(found: ManifestArtifact, media_type: str, *, condition: bytes = b"") -> Answer:
    etag = etag_of(found.digest)
    caching = ((b"etag", etag.encode()), (b"cache-control", IMMUTABLE), (b"vary", b"Accept-Encoding"))
    if is_not_modified(condition.decode("latin-1"), etag):
        return Answer(304, caching)
    length = str(len(found.content)).encode()
    return Answer(200, ((b"content-type", media_type.encode()), (b"content-length", length), *caching), found.content)


async def _json(asked: MargoRequest) -> Mapping[str, Any]:
    """The body of a request, bounded. Raises Declined."""
    if _codings(asked, b"content-encoding") - {b"identity"}:
        detail = "The body is compressed. Send it as it is, without Content-Encoding."
        raise Declined(415, detail, headers=[(b"accept-encoding", b"identity")])
    if _codings(asked, b"transfer-encoding") - {b"chunked"}:
        raise Declined(501, "The body may be sent in chunks, and with no other Transfer-Encoding.")
    length = asked.headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > BODY_BYTES_MAX:
        raise Declined(413, f"The body is larger than the {BODY_BYTES_MAX // 1024} KiB that are accepted here.")
    content = b""
    while True:
        message = await asked.receive()
        if message["type"] == "http.disconnect":
            raise Declined("invalid-request", "The body is cut short.")
        content += message.get("body", b"")
        if len(content) > BODY_BYTES_MAX:
            raise Declined(413, f"The body is larger than the {BODY_BYTES_MAX // 1024} KiB that are accepted here.")
        if not message.get("more_body"):
            break
    try:
        return read_body(content)
    except Malformed as error:
        raise Declined("invalid-request", str(error)) from error
    except InvalidInput as error:
        raise _semantic(error) from error


def _codings(asked: MargoRequest, field: bytes) -> set[bytes]:
    return {each.strip().lower() for each in asked.headers.get(field, b"").split(b",")} - {b""}


def _semantic(error: HomeportError) -> Declined:
    problems = error.problems if isinstance(error, InvalidInput) else ()
    return Declined("semantic-error", str(error)[:1_000], problems)


def _empty(status: int) -> Answer:
    return Answer(status, ((b"content-type", b"application/json"), (b"content-length", b"2")), b"{}")


def _problem(declined: Declined, scope: Scope) -> Answer:
    path = scope.get("raw_path") or scope["path"].encode()
    retry_after = RETRY_AFTER_SECONDS + _CHANCE.randrange(RETRY_AFTER_SECONDS + 1)
    body = problem(
        declined.name,
        declined.detail,
        # As it was sent, percent-encoded: this is a URI.
        instance=path.partition(b"?")[0].decode("ascii", "ignore")[:500],
        errors=[{"field": each.field, "message": each.message} for each in declined.errors],
        retry_after_seconds=retry_after,
    )
    content = json.dumps(body, separators=(",", ":")).encode()
    headers = [
        (b"content-type", PROBLEM_JSON),
        (b"content-length", str(len(content)).encode()),
        # A cache may keep a 404 by itself, and what is missing now may come.
        (b"cache-control", b"no-store"),
        *declined.headers,
    ]
    if body["retryable"]:
        headers.append((b"retry-after", str(retry_after).encode()))
    if any(name == b"expect" for name, _ in scope.get("headers", ())):
        # Whether the body comes is for the client to decide, so what follows may not be a request.
        headers.append((b"connection", b"close"))
    return Answer(body["status"], headers, content)
