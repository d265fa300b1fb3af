"""A real central on loopback, with a client that speaks to it, a registry to add apps from and a site to be."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from homeport.capability.central import CentralCapability
from homeport.central.app import CentralApp, open_central
from homeport.central.capabilities import CAPABILITIES
from homeport.central.settings import CentralSettings
from homeport.core.model.instance import Failure, Transition
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.core.model.report import NodeChanged, Report
from homeport.vocabulary import (
    Actor,
    DeploymentId,
    Digest,
    Generation,
    Incarnation,
    Liveness,
    NodeId,
    ProfileType,
    SiteName,
    Trigger,
)
from homeport.wire.reports import encode
from tests.support.local import local_key
from tests.support.waiting import eventually

AT = datetime(2026, 1, 1, tzinfo=UTC)

MARGO = """\
apiVersion: v1
id: {margo_id}
metadata:
  name: {name}
  description: Says hello.
  version: "{version}"
  catalog:
    organization:
      - name: Acme
    application:
      tags: [demo]
deploymentProfiles:
  - type: compose
    id: {margo_id}-compose
    components:
      - name: web
        properties:
          repository: oci://127.0.0.1:5000/web
          revision: "{version}"
      - name: cache
        properties:
          repository: oci://127.0.0.1:5000/cache
          revision: 1.0.0
parameters:
  greeting:
    value: Hello
    targets:
      - pointer: GREETING
        components: [web]
  port:
    value: 18080
    targets:
      - pointer: PORT
        components: [web]
configuration:
  sections:
    - name: General
      settings:
        - parameter: greeting
          name: Greeting
          schema: text
        - parameter: port
          name: Port
          immutable: true
          schema: port
  schema:
    - name: text
      dataType: string
      maxLength: 20
    - name: port
      dataType: integer
      minValue: 1024
      maxValue: 65535
"""


def write_app(root: Path, app: str = "hello", version: str = "1.0.0", *, category: str = "demo") -> Path:
    folder = root / category / app / version
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "margo.yaml"
    file.write_text(MARGO.format(margo_id=f"{category}-{app}", name=app, version=version))
    return file


@dataclass
class Answer:
    status: int
    body: Any
    headers: Any

    @property
    def fields(self) -> list[str]:
        return [error["field"] for error in self.body["errors"]]


@dataclass
class Client:
    """Speaks to a running central as any program would."""

    url: str
    session: aiohttp.ClientSession
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every call, beside those of the session."""

    async def call(self, method: str, path: str, **options: Any) -> Answer:
        options["headers"] = {**self.headers, **options.get("headers", {})}
        async with self.session.request(method, self.url + path, **options) as answer:
            text = await answer.read()
            kind = answer.headers.get("content-type", "")
            is_json = "json" in kind and "ndjson" not in kind
            return Answer(answer.status, json.loads(text) if is_json else text.decode(), answer.headers)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any, **options: Any) -> Answer:
        return await self.call("POST", path, json=body, **options)

    async def put(self, path: str, body: Any) -> Answer:
        return await self.call("PUT", path, json=body)

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self.call("DELETE", path, **options)

    async def deploy(self, *sites: str, app: str = "hello", **body: Any) -> Answer:
        wanted = {"app_name": app, "sites": [{"site_id": site} for site in sites or ("home",)], **body}
        return await self.post("/api/v1/deployments", wanted)

    async def events(self, path: str = "/api/v1/events", **headers: str) -> AsyncGenerator["Sent", None]:
        """Server-sent events, as a client that knows nothing of us reads them."""
        async with self.session.get(
            self.url + path, headers=headers, timeout=aiohttp.ClientTimeout(total=30)
        ) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["content-type"].startswith("text/event-stream")
            sent: dict[str, str] = {}
            async for line in answer.content:
                text = line.decode().rstrip("\n")
                if text.startswith(":"):
                    continue
                if text:
                    name, _, value = text.partition(": ")
                    sent[name] = value
                elif "data" in sent:
                    yield Sent(sent.get("id"), sent["event"], json.loads(sent["data"]))
                    sent = {}


@dataclass
class Sent:
    id: str | None
    event: str
    data: Any


class FakeSite:
    """The reporting half of a site: it joins and numbers what it says."""

    def __init__(self, client: Client, name: str = "home", epoch: str = "epoch-1") -> None:
        self.client = client
        self.name = name
        self.epoch = epoch
        self.sequence = 0

    async def join(self) -> Answer:
        answer = await self.client.put(f"/api/v1/sites/{self.name}", {"epoch": self.epoch, "software_version": "1"})
        assert answer.status == 200, answer.body
        return answer

    async def say(self, *reports: Report, expect: int = 200) -> Answer:
        return await self.say_bodies([encode(report) for report in reports], expect=expect)

    async def say_bodies(self, bodies: Sequence[dict[str, Any]], *, expect: int = 200) -> Answer:
        items = [{"sequence": self.sequence + 1 + number, "body": body} for number, body in enumerate(bodies)]
        body = {"epoch": self.epoch, "reports": items, "seen": {}}
        answer = await self.client.post(f"/api/v1/sites/{self.name}/reports", body)
        assert answer.status == expect, answer.body
        if answer.status == 200:
            self.sequence = answer.body["last_sequence"]
        return answer


def transition(
    deployment_id: str,
    trigger: Trigger,
    *,
    node: str = "node-a",
    revision: str | None = None,
    incarnation: int = 1,
    generation: int = 1,
    failure: Failure | None = None,
) -> Transition:
    by_node = trigger in (Trigger.HEALTHY, Trigger.GAVE_UP, Trigger.REMOVED)
    return Transition(
        deployment_id=DeploymentId(deployment_id),
        node_id=NodeId(node),
        incarnation=Incarnation(incarnation),
        trigger=trigger,
        actor=Actor.NODE if by_node else Actor.SITE,
        reason=f"it {trigger}",
        at=AT,
        generation=Generation(generation),
        revision=None if revision is None else Digest(revision),
        failure=failure,
    )


def node_changed(node_id: str = "node-a", site: str = "home", liveness: Liveness = Liveness.LIVE) -> NodeChanged:
    capabilities = Capabilities(
        cpu_cores=4,
        memory_bytes=8 * 2**30,
        disk_bytes=2**40,
        disk_free_bytes=2**39,
        os="linux",
        architecture="amd64",
        engine="podman",
        engine_version="4.3.1",
        profile_types=(ProfileType.COMPOSE,),
    )
    info = NodeInfo(NodeId(node_id), f"{node_id}.local", capabilities)
    return NodeChanged(Node(info, SiteName(site), liveness, datetime.now(UTC), AT))


async def indexed(client: Client, commit: str) -> None:
    """Waits until central shows a commit."""

    async def shows() -> bool:
        return bool((await client.get("/api/v1/overview")).body["commit"] == commit)

    await eventually(shows, what=f"commit {commit[:8]} to be shown")


@asynccontextmanager
async def running_central(
    data: Path,
    *,
    is_local: bool = True,
    capabilities: Sequence[CentralCapability] = CAPABILITIES,
    **settings: Any,
) -> AsyncIterator[tuple[CentralApp, Client]]:
    """With `is_local` its client is the user who started it, and nobody otherwise."""
    given: dict[str, Any] = {"http_address": ("127.0.0.1", 0), "grpc_address": None, **settings}
    async with (
        open_central(CentralSettings(data=data, **given), capabilities=capabilities) as central,
        aiohttp.ClientSession(headers=local_key(central) if is_local else {}) as session,
    ):
        yield central, Client(f"http://127.0.0.1:{central.http_port}", session)
