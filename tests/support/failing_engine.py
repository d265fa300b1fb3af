"""A socket that answers as a container engine with two running containers does, until it dies or refuses.

async with failing_engine(path, deployment) as engine:
    engine.dies_at = "/stop"          # whoever asks for this is hung up on
    engine.refuses = "/containers"    # whoever asks for this hears 500 and the sentence
    engine.refusals = 1               # so many times; without end if not set
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from homeport.adapters.runtime.compose.files import LABEL_COMPONENT, LABEL_DEPLOYMENT, LABEL_DIGEST, LABEL_NODE
from homeport.adapters.runtime.helm.kube_pods import LABEL_CONTAINERS
from homeport.vocabulary import DeploymentId
from tests.support.listening import outliving

REFUSAL = "the storage is locked by another program"
CONTAINERS = ("pod-web", "pod-db")


class FailingEngine:
    def __init__(self, deployment_id: DeploymentId) -> None:
        self.dies_at: str | None = None
        self.refuses: str | None = None
        self.refusals: float = float("inf")
        self._labels = {
            LABEL_DEPLOYMENT: deployment_id, LABEL_COMPONENT: "web", LABEL_NODE: "n1", LABEL_DIGEST: "sha256:0",
            LABEL_CONTAINERS: "pod/web,pod/db",
        }  # fmt: skip

    async def serve(self, connection: anyio.abc.SocketStream) -> None:
        request = (await connection.receive()).split(b" ", 2)[1].decode()
        if self.dies_at is not None and self.dies_at in request:
            return
        is_refused = self.refuses is not None and self.refuses in request and self.refusals > 0
        self.refusals -= is_refused
        body = json.dumps({"message": REFUSAL} if is_refused else self._answer(request)).encode()
        status = b"500 Internal Server Error" if is_refused else b"200 OK"
        await connection.send(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

    def _answer(self, path: str) -> Any:
        if "/containers/json" in path:
            created: Any = "2026-01-01T00:00:00Z" if "/libpod/" in path else 1
            common = {"Image": "demo", "State": "running", "Created": created, "Labels": self._labels}
            return [{"Id": name, "Names": [name], **common} for name in CONTAINERS]
        if path.endswith("/json"):
            return {"State": {"Running": True}, "Config": {"Healthcheck": {"Test": ["CMD", "true"]}}}
        return {"Version": "0.0.0"} if path.endswith("/version") else []


@asynccontextmanager
async def failing_engine(path: Path, deployment_id: DeploymentId) -> AsyncIterator[FailingEngine]:
    engine = FailingEngine(deployment_id)
    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, outliving(engine.serve))
        yield engine
        tasks.cancel_scope.cancel()
