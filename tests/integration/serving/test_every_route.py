"""Every route of central and of a site, asked by every kind of caller: who may, who may not, what is seen of another
site, and what the audit trail says afterwards. What is expected follows from the table of actions; the rest of this
file only plants one of everything at the site `hidden`, and says with which body a change succeeds."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from yarl import URL

from homeport.adapters.git import create_bare
from homeport.central.app import web as central_web
from homeport.core.access.actions import Action, ActionTable, Audit, Level, Scope
from homeport.core.jobs.job import Job, JobSpec, JobType
from homeport.core.model.caller import INTERNAL, Role
from homeport.identity.tokens import Tokens
from homeport.ports import Clock, Store, Transaction
from homeport.serving.routes.health import Metrics
from homeport.serving.server.run import Stopping
from homeport.site.app import _web as site_web
from homeport.site.app import open_site
from homeport.site.capabilities import CAPABILITIES
from homeport.site.settings import SiteSettings
from homeport.vocabulary import JobId, JobState, SiteName
from tests.integration.central.test_bad_calls import NOW, as_bytes, good_calls
from tests.support.routes import table_of
from tests.support.running_central import FakeSite, node_changed, running_central, write_app

pytestmark = pytest.mark.anyio

HIDDEN = SiteName("hidden")
SECRET = "s3cr3t-value-of-hidden"
TOLD = ("/api/v1/audit/export", "/api/v1/events/export", "/api/v1/history/export")
UUID = "6b1f0f6e-30c1-4d4f-9d0c-0000000000aa"
PIPELINE = "name: hidden-pipe\nsite: hidden\nsteps:\n  one:\n    job: {command: ['true']}\n"
TASK = {
    "task_id": UUID, "session_id": UUID, "workload": "completion", "model_ref": "m", "engine": "llamacpp", "ctx": 1,
    "priority": "batch", "max_tokens": 1, "deadline_ms": 1000, "prompt": "x",
}  # fmt: skip
DEPLOY = {"app_name": "hello", "name": "more", "sites": [{"site_id": "hidden"}]}
HOLD = {"reason": "why", "lasts_seconds": 60}
CHANGES: dict[str, Any] = {
    "POST /api/v1/deployments": DEPLOY,
    "POST /api/v1/deployments/{deployment_id}/rollback": {"to": "before"},
    "POST /api/v1/jobs": {"site": "hidden", "command": ["true"], "type": "command"},
    "POST /api/v1/nodes/{node_id}/drain": {"reason": "why"},
    "PATCH /api/v1/nodes/{node_id}/settings": {"labels": {"a": "b"}},
    "POST /api/v1/pipeline-runs": {"source": PIPELINE},
    "POST /api/v1/pipelines": {"source": PIPELINE},
    "POST /v2/artifacts": {"kind": "other", "content": {}},
    "POST /v2/tasks": TASK,
    "POST /v1/{path:path}": {"model": "m", "messages": []},
}
"""Bodies with which an administrator may change something of `hidden`; those that are not here need none."""
OWN = frozenset(
    {"POST /v2/artifacts", "POST /v2/sessions/{id}", "DELETE /v2/sessions/{id}", "POST /v2/tasks/{id}/cancel"}
)
"""Belong to the key that made them, and to no site."""
NOTHING_TO_SEE = frozenset(
    {
        "/v2/meta/capabilities", "/v2/meta/version", "/v2/usage", "/v2/queue", "/v2/queue/events",
        "/v2/sessions", "/v2/sessions/{id}", "/v2/tasks/{id}/events", "/v2/tasks/{id}/why",
        "/v1/models", "/v1/models/{model:path}", "/v1/{path:path}", "/v2/pools/{id}/health", "/api/v1/overview",
        "/api/v1/rollouts", "/api/v1/rollouts/{rollout}",  # seen by `tests/integration/central/test_rollouts.py`
        "/api/v1/deployments/{deployment_id}/exec", "/api/v1/deployments/{deployment_id}/port-forward",
        "/api/logs", "/api/v1/jobs/{job}/artifacts/{path:path}", "/api/v1/jobs/{job}/output",
        "/api/v1/pipeline-runs/{run}/steps/{step}", "/api/v1/deployments/{deployment_id}/telemetry",
        "/api/v1/nodes/{node_id}/telemetry", "/api/v1/nodes/{node_id}/heartbeats", "/api/v1/nodes/{node_id}/volumes",
        "/api/v1/deployments/{deployment_id}/diff",
        "/api/v1/deployments/{deployment_id}/history", "/api/v1/deployments/{deployment_id}/revisions",
        "/api/v1/history/export", "/api/v1/deployments/{deployment_id}/events",
        "/api/v1/deployments/{deployment_id}/stream",
    }
)  # fmt: skip
"""Read through `SEEN`, and not saying `hidden` even to an administrator here."""


@dataclass(frozen=True)
class Asker:
    name: str
    rank: int
    sites: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


RANKS = {
    Level.OPEN: 0,
    Level.KNOWN: 1,
    Level.VIEWER: 1,
    Level.OPERATOR: 2,
    Level.ADMIN: 3,
    Level.MACHINE: 3,
}


def expected(asker: Asker, action: Action) -> int | None:
    """The status of a refusal; None where the table lets the request through."""
    if action.least is Level.OPEN:
        return None
    if not asker.rank:
        return 401
    is_elsewhere = bool(asker.sites) and action.scope in {Scope.FLEET, Scope.SITE}
    if action.least is Level.MACHINE_ONLY or asker.rank < RANKS[action.least] or is_elsewhere:
        return 403
    return None


async def askers(store: Store, clock: Clock) -> list[Asker]:
    tokens, made = Tokens(store, clock), [Asker("nobody", 0)]
    for name, role, sites in (
        ("viewer", Role.VIEWER, ()),
        ("operator", Role.OPERATOR, ()),
        ("viewer elsewhere", Role.VIEWER, ("elsewhere",)),
        ("operator elsewhere", Role.OPERATOR, ("elsewhere",)),
        ("admin elsewhere", Role.ADMIN, ("elsewhere",)),
        ("admin", Role.ADMIN, ()),
    ):
        text = (await tokens.create(INTERNAL, name=name, role=role, sites=[SiteName(each) for each in sites])).text
        rank = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}[role]
        made.append(Asker(name, rank, sites, {"Authorization": f"Bearer {text}"}))
    return made


@dataclass
class Served:
    """A role that serves, and what there is at its site `hidden`."""

    url: str
    table: ActionTable
    names: Mapping[str, str]
    askers: list[Asker]

    def path(self, template: str) -> str:
        special = {
            "/v2/pools/": "hidden-pool",
            "/v2/artifacts/": self.names["artifact"],
            "/api/v1/pipelines/": "hidden-pipe",
        }
        own = next((value for start, value in special.items() if template.startswith(start)), None)

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return own if own is not None and name in {"id", "name"} else self.names.get(name, "x")

        return re.sub(r"\{(\w+)(?::path)?\}", value, template)

    async def ask(self, session: aiohttp.ClientSession, asker: Asker, method: str, template: str) -> tuple[int, str]:
        """The status, and what is sent at once: streams never end."""
        body = CHANGES.get(f"{method} {template}", {}) if method not in {"GET", "DELETE"} else None
        async with session.request(
            method, self.url + self.path(template), json=body, headers=asker.headers
        ) as answer:
            content = b""
            with anyio.move_on_after(0.1 if "event-stream" in answer.headers.get("content-type", "") else 10):
                async for chunk in answer.content.iter_any():
                    content += chunk
            return answer.status, content.decode(errors="replace")


async def put_a_job(tx: Transaction) -> None:
    spec = JobSpec(JobType.COMMAND, command=("hidden-program",))
    job = Job(JobId("ab-1"), HIDDEN, spec, JobState.PENDING, 1, NOW, "ann", NOW)
    await tx.put_jobs([job])


@asynccontextmanager
async def central(data: Path) -> AsyncIterator[Served]:
    registry = data / "registry"
    write_app(registry, version="1.0.0")
    async with running_central(data / "central") as (app, client):
        site = FakeSite(client, HIDDEN)
        await site.join()
        await FakeSite(client, "elsewhere").join()
        await client.post("/api/v1/apps", {"repository": str(registry)})
        deployed = await client.deploy(HIDDEN, name="hidden-app")
        assert deployed.status == 202, deployed.body
        await site.say(node_changed("hidden-node", HIDDEN))
        calls = good_calls()
        calls["replicas"]["replicas"][0] |= {"pool_id": "hidden-pool"}
        calls["jobs.sync"]["reports"][0]["body"]["job"] |= {"id": "ab-1", "site": HIDDEN}
        for topic in ("telemetry", "jobs.sync", "replicas", "logs"):
            answer = await client.call(
                "POST", f"/api/v1/sites/{HIDDEN}/calls?topic={topic}", data=as_bytes(calls[topic])
            )
            assert answer.status == 200, (topic, answer.body)
        assert (await client.put(f"/api/v1/sites/{HIDDEN}/secrets/hidden-secret", {"value": SECRET})).status < 300
        assert (await client.post("/api/v1/pipelines", {"source": PIPELINE})).status == 200
        run = await client.post("/api/v1/pipeline-runs", {"source": PIPELINE})
        kept = await client.post("/v2/artifacts", {"kind": "other", "content": {"a": "hidden"}, "tags": ["hidden"]})
        names = {
            "site": HIDDEN, "node_id": "hidden-node", "deployment_id": deployed.body["deployment_ids"][0],
            "thing": deployed.body["deployment_ids"][0], "job": "ab-1", "run": run.body["id"], "step": "one",
            "artifact": kept.body["id"], "id": UUID, "name": "hidden-node", "model": "m", "path": "x",
        }  # fmt: skip
        parts = app.parts
        table = table_of(central_web(parts, Stopping(), Metrics("central", parts.store, parts.clock)))
        yield Served(client.url, table, names, await askers(parts.store, parts.clock))


@asynccontextmanager
async def a_site(data: Path) -> AsyncIterator[Served]:
    create_bare(data / "deployments.git", "main")
    settings = SiteSettings(
        name=HIDDEN,
        data=data / "site",
        git_url=str(data / "deployments.git"),
        http_address=("127.0.0.1", 0),
        grpc_address=None,
    )
    async with open_site(settings, capabilities=CAPABILITIES) as site:
        await site.parts.store.write(put_a_job)
        names = {"site": HIDDEN, "job": "ab-1", "id": UUID, "artifact": "0" * 64, "node_id": "hidden-node"}
        parts = site.parts
        url = f"http://127.0.0.1:{site.http_port}"
        yield Served(url, table_of(site_web(parts, Stopping())), names, await askers(parts.store, parts.clock))


UNRECORDED = frozenset(
    {
        "openai.call", "tasks.submit",  # accounted for in /v2/usage; an entry for each would be a disk write for each
        "sites.join", "sites.report",  # what machines say all the time, recorded where it is refused
        "pipelines.read", "git.fetch", "git.nudge", "logins.end",  # change nothing
    }
)  # fmt: skip
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Findings:
    """Compares answers with what the table says."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.shown: set[str] = set()
        self.done: set[str] = set()

    def look(self, asker: Asker, method: str, template: str, action: Action, status: int, body: str) -> None:
        row, refused = f"{asker.name}: {method} {template}", expected(asker, action)
        is_scoped = action.scope in {Scope.SEEN, Scope.NAMED}
        if status >= 500 and status not in {501, 503, 507}:
            self.wrong.append(f"{row} failed: {status} {body[:200]}")
        elif refused is not None:
            if status != refused:
                self.wrong.append(f"{row} is to be refused with {refused}, and was answered {status}")
        elif asker.sites and is_scoped:
            is_change = method in CHANGING and f"{method} {template}" not in OWN
            if status < 400 and ("hidden" in body or is_change):
                self.wrong.append(f"{row} was answered {status} {body[:300]}")
        elif status in {401, 403} and action.least is not Level.OPEN:
            self.wrong.append(f"{row} is allowed, and was refused: {body[:200]}")
        elif asker.name == "admin" and method in CHANGING and is_scoped and status in {400, 405, 415, 422}:
            if "no-node-fits" not in body:
                self.wrong.append(f"{row} needs a good body in CHANGES: {status} {body[:300]}")
        elif status < 400:
            self.shown |= {template} if "hidden" in body else set()
            self.done |= {action.name} if method in CHANGING and action.audit is not Audit.NONE else set()


@pytest.mark.parametrize("opened", [central, a_site])
async def test_each_caller_is_answered_as_the_table_of_actions_says(opened: Any, tmp_path: Path) -> None:
    found = Findings()
    async with opened(tmp_path) as role, aiohttp.ClientSession() as session:
        # Reads first and deletions last: what is asked about is there until then.
        rows = sorted(role.table.rows.items(), key=lambda row: (row[0][0] == "DELETE", row[0][0] != "GET", row[0][1]))
        for (method, template), action in rows:
            if template.startswith("/git/") or template == "/api/v1/logins":
                continue  # Their own answers: tests/integration/central/test_git_http.py and test_dashboard.py
            for asker in role.askers if action.least is not Level.OPEN else role.askers[:1]:
                found.look(asker, method, template, action, *await role.ask(session, asker, method, template))
        told = [(await role.ask(session, role.askers[-1], "GET", path))[1] for path in TOLD]
        changing = [action for (method, _), action in rows if method in CHANGING]
        seen = {path for (method, path), action in rows if action.scope is Scope.SEEN and method == "GET"}
    assert not found.wrong, "\n".join(found.wrong)
    assert {action.name for action in changing if action.audit is Audit.NONE} <= UNRECORDED
    assert not [name for name in found.done if f'"{name}"' not in told[0]], "each change has its entry"
    assert not [text for text in told if SECRET in text], "and no secret is in it, or in events"
    if opened is central:
        assert seen - found.shown <= NOTHING_TO_SEE, "plant something there, so that it can be seen to be hidden"
        assert len(found.done) > 10


BAD_VALUES = ("0001-01-01T00:00:00+14:00", "-1", "9" * 20, "%00%ED%A0%80")


@pytest.mark.parametrize("opened", [central, a_site])
async def test_no_value_of_a_parameter_is_an_internal_error(opened: Any, tmp_path: Path) -> None:
    failed: list[str] = []
    async with opened(tmp_path) as role, aiohttp.ClientSession() as session:
        async with session.get(f"{role.url}/openapi.json") as answer:
            document = await answer.json()
        for template, operations in document["paths"].items():
            for parameter in operations.get("get", {}).get("parameters", ()):
                for value in BAD_VALUES:
                    name, path = parameter["name"], role.path(template)
                    if parameter["in"] == "path":
                        path = role.path(template.replace(f"{{{name}}}", "@@")).replace("@@", value)
                    url = URL(f"{role.url}{path}" + f"?{name}={value}" * (parameter["in"] == "query"), encoded=True)
                    async with session.get(url, headers=role.askers[-1].headers) as answer:
                        if answer.status >= 500 and answer.status != 503:
                            failed.append(f"{url}: {answer.status}"[:300])
    assert not failed, "\n".join(failed)
