"""A real HTTP server with canned answers, built from the very bodies that central and sites answer with."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from homeport.rollouts.routes import MemberBody, RolloutDetailBody
from homeport.serving.bodies.apps import AppBody, AppDetailBody, AppsBody
from homeport.serving.bodies.body import Body
from homeport.serving.bodies.deployments import (
    Deploy,
    DeployedBody,
    DeploymentBody,
    DeploymentsBody,
    InstanceBody,
    InstanceFailureBody,
)
from homeport.serving.bodies.events import EventBody
from homeport.serving.bodies.fleet import (
    CapabilitiesBody,
    NodeBody,
    OverviewBody,
    SiteBody,
    SiteCountsBody,
    SitesBody,
)
from homeport.serving.bodies.health import HealthBody
from homeport.serving.bodies.problem import ProblemBody

A_DAY_AGO = datetime.now(UTC) - timedelta(days=1)  # Shown with its date, whatever the time is.
HELLO = "0e2f7c1a-6d0b-4f83-9a2e-2f6f0b8f5d11"
OTHER = "7b9e41d2-1111-4c1c-8f7e-9d9d3f0a2222"


def app(version: str = "1.0.0", *, name: str = "hello", category: str = "demo") -> AppBody:
    return AppBody(
        id=f"{category}-{name}-{version}",
        category=category,
        app_name=name,
        version=version,
        margo_id=f"com.example.{name}",
        name=name.title(),
        vendor="Homeport",
        description="Says hello",
        tags=["demo"],
        repository="/registry",
        commit="a" * 40,
        added_at=A_DAY_AGO,
        added_by="anonymous",
    )


def app_detail(shown: AppBody) -> AppDetailBody:
    schema = [
        {"name": "text", "dataType": "string"},
        {"name": "port", "dataType": "integer", "minValue": 1, "maxValue": 65535},
    ]
    settings = [
        {"parameter": "greeting", "name": "Greeting", "schema": "text"},
        {"parameter": "port", "name": "Port", "schema": "port"},
    ]
    return AppDetailBody(
        **shown.model_dump(),
        profiles=[],
        parameters={"greeting": {"value": "Hello", "targets": []}, "port": {"value": 80, "targets": []}},
        configuration={"schema": schema, "sections": [{"name": "General", "settings": settings}]},
    )


def instance(state: str = "INSTALLED", **other: Any) -> InstanceBody:
    given: dict[str, Any] = {
        "node_id": "this-laptop",
        "state": state,
        "step": "",
        "revision": "sha256:2222",
        "running_revision": "sha256:2222",
        "generation": 1,
        "attempt": 1,
        "failure": None,
        "reachable": True,
        "updated_at": A_DAY_AGO,
    }
    return InstanceBody(**given | other)


def deployment(state: str = "INSTALLED", *instances: InstanceBody, **other: Any) -> DeploymentBody:
    given: dict[str, Any] = {
        "id": HELLO,
        "name": "hello",
        "site": "home",
        "app_name": "hello",
        "app_category": "demo",
        "app_version": "1.1.0",
        "margo_app_id": "com.example.hello",
        "profile": "compose",
        "profile_type": "compose",
        "state": state,
        "wanted": True,
        "revision": "sha256:2222",
        "commit": "c" * 40,
        "rollout_id": None,
        "parameters": {"greeting": "Ahoy"},
        "instances": instances or (instance(state),),
        "note": "",
        "problem": None,
        "created_at": A_DAY_AGO,
        "created_by": "anonymous",
        "updated_at": datetime.now(UTC) - timedelta(minutes=4, seconds=2),
        "archived_at": None,
    }
    return DeploymentBody(**given | other)


def site(name: str = "home", **other: Any) -> SiteBody:
    given: dict[str, Any] = {
        "name": name,
        "joined_at": A_DAY_AGO,
        "last_seen": A_DAY_AGO,
        "reachable": True,
        "applied_commit": "c" * 40,
        "problem": None,
        "software_version": "0.1.0",
        "protocol": 2,
        "nodes": 3,
        "nodes_live": 2,
        "deployments": {"INSTALLED": 2},
    }
    return SiteBody(**given | other)


def rollout(state: str) -> RolloutDetailBody:
    member = MemberBody(site="home", standing="installed", wave=1, why="")
    return RolloutDetailBody(
        id="r",
        name="hello",
        app_name="hello",
        app_category="demo",
        app_version="1.1.0",
        profile="compose",
        state=state,
        note="installed at 1 site",
        selector="",
        threshold="100%",
        bake="",
        bake_ends_at=None,
        sites=1,
        counts={"installed": 1},
        waves=[],
        failing=[],
        held=[],
        created_at=A_DAY_AGO,
        created_by="anonymous",
        updated_at=A_DAY_AGO,
        members=[member],
    )


def node(node_id: str = "this-laptop") -> NodeBody:
    return NodeBody(
        id=node_id,
        hostname="laptop",
        site="home",
        liveness="live",
        last_seen=A_DAY_AGO,
        registered_at=A_DAY_AGO,
        labels={"room": "attic"},
        software_version="0.1.0",
        protocol=2,
        features=["notice", "orphans"],
        capabilities=CapabilitiesBody(
            cpu_cores=8,
            memory_bytes=16_000_000_000,
            disk_bytes=500_000_000_000,
            disk_free_bytes=71_000_000_000,
            os="linux",
            architecture="amd64",
            engine="podman",
            engine_version="4.3.1",
            profile_types=["compose"],
            gpus=[],
        ),
    )


def progress(event_id: int, step: str, message: str = "", **data: Any) -> EventBody:
    return _event(event_id, "deployment.progress", message or step, {"step": step, "message": message, **data})


def moved(
    event_id: int, before: str, after: str, reason: str = "", failure: InstanceFailureBody | None = None
) -> EventBody:
    data = {"before": before, "after": after, "reason": reason, "failure": failure and failure.model_dump()}
    return _event(event_id, "instance.state", f"{before} → {after}", data)


def _event(event_id: int, kind: str, message: str, data: dict[str, Any]) -> EventBody:
    return EventBody(
        id=event_id,
        kind=kind,
        at=A_DAY_AGO,
        message=message,
        site="home",
        deployment_id=HELLO,
        node_id="this-laptop",
        subject=f"deployment/{HELLO}",
        data=data,
    )


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Any


Answer = Body | ProblemBody | tuple[int, bytes]


@dataclass
class Canned:
    """The server's state; a test changes it before it runs a command, or while one runs."""

    apps: list[AppBody] = field(default_factory=lambda: [app("1.0.0"), app("1.1.0")])
    deployments: list[DeploymentBody] = field(default_factory=lambda: [deployment()])
    events: list[EventBody] = field(default_factory=list)
    answers: dict[str, Callable[[Request], Answer]] = field(default_factory=dict)
    """By `METHOD path`; asked before the usual answers."""
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    def sent(self, method: str, path: str) -> Request:
        return next(request for request in self.requests if (request.method, request.path) == (method, path))

    def deploys(self, *events: EventBody, result: DeploymentBody) -> None:
        """POST accepts the deployment, the stream then tells `events`, and it ends as `result`."""

        def accept(request: Request) -> Answer:
            Deploy.model_validate(request.body)
            self.events += events
            self.deployments = [result]
            return DeployedBody(rollout_id="r", deployment_ids=[result.id], commit="d" * 40)

        self.answers["POST /api/v1/deployments"] = accept

    def answer(self, request: Request) -> Answer:
        special = self.answers.get(f"{request.method} {request.path}")
        if special is not None:
            return special(request)
        if request.path.startswith("/api/v1/deployments/"):
            wanted = unquote(request.path.rsplit("/", 1)[1])
            return _one([item for item in self.deployments if _is_meant(item, wanted)], wanted)
        if request.path.startswith("/api/v1/apps/"):
            return next(app_detail(each) for each in self.apps if request.path.endswith(each.id))
        if request.path == "/api/v1/events/export":
            after, site = int(request.query.get("after", 0)), request.query.get("site")
            found = [each for each in self.events if each.id > after and site in (None, each.site)]
            return 200, b"".join(each.model_dump_json().encode() + b"\n" for each in found)
        usual: dict[str, Answer] = {
            "/healthz": HealthBody(status="ok", role="central", version="0.1.0"),
            "/api/v1/apps": AppsBody(apps=[each for each in self.apps if _is_asked_for(each, request.query)]),
            "/api/v1/deployments": DeploymentsBody(
                deployments=[] if request.query.get("archived") == "true" else self.deployments
            ),
            "/api/v1/sites": SitesBody(sites=[]),
            "/api/v1/overview": OverviewBody(
                version="0.1.0",
                role="central",
                commit=None,
                sites=SiteCountsBody(count=0, reachable=0),
                nodes={},
                deployments={},
                jobs={},
                attention=[],
                attention_counts={},
                last_event_id=max((event.id for event in self.events), default=0),
            ),
        }
        return usual.get(request.path, missing("page", request.path))


def _one(found: Sequence[DeploymentBody], text: str) -> Answer:
    if len(found) > 1:
        names = ", ".join(f"{item.name}@{item.site}" for item in found)
        return problem(409, "conflict", f'"{text}" fits several deployments.', hint=f"Name one of  {names}")
    return found[0] if found else missing("deployment", text)


def _is_meant(item: DeploymentBody, text: str) -> bool:
    return item.id.startswith(text) or text in {item.name, f"{item.name}@{item.site}"}


def _is_asked_for(item: AppBody, query: Mapping[str, str]) -> bool:
    return all(getattr(item, name) == query.get(name, getattr(item, name)) for name in ("app_name", "version"))


def missing(what: str, name: str) -> ProblemBody:
    return problem(404, "not-found", f'There is no {what} "{name}".', hint="List them.")


def problem(status: int, code: str, detail: str, **other: Any) -> ProblemBody:
    return ProblemBody(type="about:blank", title=code, status=status, detail=detail, code=code, **other)


@contextmanager
def serving(canned: Canned) -> Iterator[Canned]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(canned))
    canned.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield canned
    finally:
        canned.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(canned: Canned) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if urlsplit(self.path).path == "/api/v1/events":
                self._stream(int(self.headers.get("Last-Event-ID") or 0))
            else:
                self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_DELETE(self) -> None:
            self._answer()

        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            body = json.loads(content) if content else None
            request = Request(self.command, parts.path, dict(parse_qsl(parts.query)), body)
            canned.requests.append(request)
            answer = canned.answer(request)
            status, text = 200, b""
            if isinstance(answer, tuple):
                status, text = answer
            else:
                text = answer.model_dump_json().encode()
                status = answer.status if isinstance(answer, ProblemBody) else 200
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _stream(self, last: int) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b": hello\n\n")
            while not canned.stopping.wait(0.02):
                for event in [event for event in canned.events if event.id > last]:
                    last = event.id
                    data = event.model_dump_json()
                    try:
                        self.wfile.write(f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n".encode())
                    except OSError:
                        return

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name for it
            """A test's output is for failures."""

    return Handler
