"""The audit trail of a running central: every change, every refusal, across crashes and in the hands of forgers."""

import json
import os
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from homeport.adapters.store.open import open_store
from homeport.adapters.system import SystemClock
from homeport.central.app import CentralApp
from homeport.core.audit.chain import first_fault
from homeport.core.model.access import AuditResult, NewAudit
from homeport.errors import TransientError
from homeport.identity.audit import Auditor
from homeport.serving.bodies.problem import ProblemBody
from tests.support import forks
from tests.support.ports import free_port
from tests.support.processes import Process, machine
from tests.support.running_central import Answer, Client, FakeSite, running_central, write_app

pytestmark = pytest.mark.anyio

OLD = datetime.now(UTC) - timedelta(days=500)


async def trail(client: Client, **query: Any) -> list[Any]:
    answer = await client.get("/api/v1/audit", params=query)
    assert answer.status == 200, answer.body
    entries: list[Any] = answer.body["entries"]
    return entries


async def verdict(client: Client) -> Any:
    return (await client.get("/api/v1/audit/verify")).body


def homeport(*arguments: str, url: str = "http://127.0.0.1:9") -> "subprocess.CompletedProcess[str]":
    return forks.run_homeport(arguments, environment={"PATH": os.environ["PATH"], "HOMEPORT_URL": url})


async def run_homeport(client: Client, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return await anyio.to_thread.run_sync(lambda: homeport(*arguments, url=client.url))


def tamper(data: Path, *statements: str) -> None:
    with closing(sqlite3.connect(data / "central.db", timeout=60)) as database, database:
        for statement in statements:
            database.execute(statement)


async def some_changes(client: Client, count: int = 5) -> None:
    for number in range(count):
        assert (await client.delete(f"/api/v1/apps/no-such-app-{number}")).status == 404
        assert (await client.delete("/api/v1/deployments/no-such-one")).status == 404


class Unwritable:
    """A database whose disk has gone, in front of one that is still there for reading."""

    async def write(self, work: Any) -> Any:
        raise TransientError("The disk is gone.")


async def test_a_deployment_leaves_an_entry_that_names_it(client: Client, home: FakeSite) -> None:
    deployed = await client.deploy("home")
    assert deployed.status == 202
    (entry,) = await trail(client, action="deployments.create")
    assert (entry["actor"], entry["role"], entry["address"]) == ("local", "admin", "127.0.0.1")
    assert entry["result"] == "done"
    assert entry["target"] == deployed.body["deployment_ids"][0]
    assert entry["detail"] == {
        "status": 202,
        "request_id": deployed.headers["x-request-id"],
        "rollout_id": deployed.body["rollout_id"],
        "commit": deployed.body["commit"],
    }


async def test_added_apps_are_named_as_people_name_them(client: Client, home: FakeSite) -> None:
    (entry,) = await trail(client, action="apps.add")
    assert entry["target"] == "hello@1.0.0,hello@1.1.0"


@pytest.mark.parametrize("query", ["plan=true", "plan=1", "plan=True"])
async def test_a_plan_leaves_no_entry(client: Client, home: FakeSite, query: str) -> None:
    """It is read, like a list: whoever opens the dialog of a deletion has deleted nothing."""
    body = {"app_name": "hello", "sites": [{"site_id": "home"}]}
    assert (await client.post(f"/api/v1/deployments?{query}", body)).status == 200
    assert (await client.post(f"/api/v1/deployments?{query}", {**body, "app_name": "nothing"})).status == 404
    deployed = await client.deploy("home")
    deployment = deployed.body["deployment_ids"][0]
    assert (await client.delete(f"/api/v1/deployments/{deployment}?{query}")).status == 200
    (entry,) = await trail(client, action="deployments")
    assert entry["detail"]["request_id"] == deployed.headers["x-request-id"]


async def test_a_plan_that_is_not_permitted_is_recorded(client: Client, home: FakeSite) -> None:
    made = await client.post("/api/v1/tokens", {"name": "vera", "role": "viewer"})
    viewer = {"Authorization": f"Bearer {made.body['token']}"}
    body = {"app_name": "hello", "sites": [{"site_id": "home"}]}
    assert (await client.post("/api/v1/deployments?plan=true", body, headers=viewer)).status == 403
    (entry,) = await trail(client, action="deployments")
    assert (entry["actor"], entry["result"]) == ("vera", "refused")


@pytest.mark.parametrize("query", ["xplan=true", "plan=false", "other=plan=true", "plan=false&x=plan=true"])
async def test_a_deployment_is_never_called_a_plan_by_what_its_query_says(
    client: Client, home: FakeSite, query: str
) -> None:
    body = {"app_name": "hello", "sites": [{"site_id": "home"}]}
    assert (await client.post(f"/api/v1/deployments?{query}", body)).status == 202
    (entry,) = await trail(client, action="deployments")
    assert "plan" not in entry["detail"]
    assert entry["detail"]["commit"]


async def test_what_fails_is_there_with_its_code(client: Client) -> None:
    assert (await client.delete("/api/v1/deployments/nothing-like-it")).status == 404
    (entry,) = await trail(client)
    assert (entry["action"], entry["target"], entry["result"]) == ("deployments.delete", "nothing-like-it", "failed")
    assert entry["detail"]["code"] == "not-found"


async def test_reading_and_a_sites_reports_leave_nothing(client: Client) -> None:
    site = FakeSite(client)
    await site.join()
    await site.say()
    await client.get("/api/v1/deployments")
    await client.post("/api/v1/webhooks/git", {})
    assert [(entry["actor"], entry["action"]) for entry in await trail(client)] == [("homeport", "git.push")]


async def test_a_refused_attempt_is_there_with_its_address(client: Client) -> None:
    refused = await client.get("/api/v1/nodes", headers={"Origin": "http://evil.example"})
    assert refused.status == 403
    (entry,) = await trail(client)
    assert (entry["action"], entry["result"], entry["address"]) == ("nodes.read", "refused", "127.0.0.1")
    assert entry["detail"]["code"] == "foreign-origin"


async def test_a_misdirected_change_is_refused_and_recorded(client: Client) -> None:
    refused = await client.delete("/api/v1/nodes/node-a", headers={"Host": "evil.example"})
    assert refused.status == 421
    (entry,) = await trail(client)
    assert (entry["action"], entry["result"], entry["detail"]["code"]) == ("nodes.remove", "refused", "misdirected")


async def test_a_wrong_token_is_recorded_but_never_the_token(client: Client) -> None:
    secret = "hp_0123456789abcdef_0123456789abcdef0123456789abcdef0123456789abcdef"
    refused = await client.get("/api/v1/nodes", headers={"Authorization": f"Bearer {secret}"})
    assert refused.status == 401
    await client.get(f"/api/v1/nodes?token={secret}")
    await client.post(f"/api/v1/nothing/{secret}", {})
    entries = await trail(client)
    assert entries[0]["result"] == "refused"
    assert (entries[0]["actor"], entries[0]["role"], entries[0]["address"]) == ("anonymous", "", "127.0.0.1")
    assert [entry["detail"]["code"] for entry in entries[1:]] == ["token-in-url", "token-in-url"]
    assert {entry["result"] for entry in entries} == {"refused"}
    assert "89abcdef01234567" not in json.dumps(entries)


async def test_what_is_refused_before_it_is_a_request_is_there_too(central: CentralApp, client: Client) -> None:
    refused = await client.get("/api/v1/nodes", headers={"X-Long": "x" * 40_000})
    assert refused.status == 431
    ProblemBody.model_validate(refused.body)
    await central.parts.auditor.write_counted()
    (entry,) = await trail(client)
    assert (entry["action"], entry["result"], entry["address"]) == ("connect", "refused", "127.0.0.1")
    assert entry["detail"]["code"] == "head-too-large"


async def test_a_flood_of_refusals_becomes_a_count(central: CentralApp, client: Client) -> None:
    async def knock() -> None:
        for _ in range(50):
            assert (await client.get("/api/v1/nodes", headers={"Origin": "http://evil.example"})).status == 403

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(knock)
    assert len(await trail(client)) == 1
    await central.parts.auditor.write_counted(all_of_it=True)
    first, counted = await trail(client)
    assert counted["detail"]["count"] == 199
    assert counted["detail"]["since"] == first["at"].replace("Z", "+00:00")
    assert (await verdict(client))["ok"]


async def test_counted_refusals_are_written_when_central_stops(tmp_path: Path) -> None:
    async with running_central(tmp_path) as (_, client):
        for _ in range(3):
            await client.get("/api/v1/nodes", headers={"Origin": "http://evil.example"})
    async with running_central(tmp_path) as (_, client):
        assert [entry["detail"].get("count") for entry in await trail(client)] == [None, 2]


async def test_entries_can_be_picked_by_person_action_and_time(central: CentralApp, client: Client) -> None:
    note = central.parts.auditor.note
    await note(action="tokens.create", actor="ada", target="ci")
    await note(action="tokens.revoke", actor="bob", target="ci")
    await note(action="tokens_other", actor="bob")
    assert [entry["actor"] for entry in await trail(client, action="tokens")] == ["ada", "bob"]
    assert [entry["action"] for entry in await trail(client, actor="ada")] == ["tokens.create"]
    assert [entry["position"] for entry in await trail(client, limit=2)] == [2, 3]
    assert [entry["position"] for entry in await trail(client, after=0, limit=2)] == [1, 2]
    assert await trail(client, since="2999-01-01") == []
    assert len(await trail(client, since="2020-01-01T00:00:00Z")) == 3


async def test_a_wrong_question_is_answered_with_the_field(client: Client) -> None:
    answer = await client.get("/api/v1/audit", params={"limit": 0, "since": "yesterday"})
    assert answer.status == 422
    assert sorted(answer.fields) == ["limit", "since"]


async def test_a_change_that_cannot_be_recorded_is_not_acknowledged(
    central: CentralApp, client: Client, home: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(central.parts.auditor, "_store", Unwritable())
    answer: Answer = await client.deploy("home")
    assert (answer.status, answer.body["code"]) == (503, "transient")
    monkeypatch.undo()
    assert (await client.get("/api/v1/deployments")).body["deployments"] == []
    refused = await client.get("/api/v1/nodes", headers={"Origin": "http://evil.example"})
    assert refused.status == 403, "who is refused stays refused, recorded or not"


async def test_many_writers_make_one_chain(central: CentralApp, client: Client) -> None:
    async def write(name: str) -> None:
        for number in range(100):
            await central.parts.auditor.note(action="tokens.create", actor=name, target=str(number))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(write, f"writer-{number}")
    checked = await verdict(client)
    assert (checked["ok"], checked["count"]) == (True, 2000)


async def test_an_entry_is_written_although_its_request_is_cancelled(central: CentralApp, client: Client) -> None:
    async def write(number: int) -> None:
        await central.parts.auditor.note(action="tokens.create", actor=str(number))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(write, number)
        await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    checked = await verdict(client)
    assert (checked["ok"], checked["count"]) == (True, 50)


async def test_what_is_exported_verifies_on_another_machine(client: Client, tmp_path: Path) -> None:
    await some_changes(client)
    file = tmp_path / "trail.jsonl"
    exported = await run_homeport(client, "audit", "export", "--out", str(file))
    assert exported.returncode == 0, exported.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    offline = homeport("audit", "verify", str(file), "-o", "json")
    assert json.loads(offline.stdout)["ok"] is True
    online = await run_homeport(client, "audit", "verify")
    assert online.returncode == 0, online.stderr
    assert "the audit trail holds" in online.stdout
    printed = await run_homeport(client, "audit", "export")
    assert printed.stdout == file.read_text()


async def test_a_forged_file_is_refused_with_the_first_fault(client: Client, tmp_path: Path) -> None:
    await some_changes(client)
    file = tmp_path / "trail.jsonl"
    await run_homeport(client, "audit", "export", "--out", str(file))
    file.write_text(file.read_text().replace("not-found", "all-is-well", 1))
    checked = homeport("audit", "verify", str(file))
    assert checked.returncode == 1
    assert "The audit trail does not hold: entry 1 was changed after it was written." in checked.stderr


async def test_a_file_that_is_no_trail_is_refused_by_line(tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"
    file.write_text('\n{"position": 1}\n')
    checked = homeport("audit", "verify", str(file))
    assert checked.returncode == 1
    assert "Line 2 of" in checked.stderr


async def test_a_mark_noted_earlier_finds_a_trail_made_anew(client: Client, tmp_path: Path) -> None:
    await some_changes(client)
    mark = json.loads((await run_homeport(client, "audit", "verify", "-o", "json")).stdout)["head"]
    await client.delete("/api/v1/deployments/one-more")
    assert (await run_homeport(client, "audit", "verify", "--head", mark)).returncode == 0
    position, _, _ = mark.partition(":")
    forged = await run_homeport(client, "audit", "verify", "--head", f"{position}:{'f' * 64}")
    assert forged.returncode == 1
    assert f"entry {position} is not the one that was written there" in forged.stderr
    assert (await run_homeport(client, "audit", "verify", "--head", "nonsense")).returncode == 1


async def test_the_list_is_for_scanning(client: Client) -> None:
    await some_changes(client, 1)
    listed = await run_homeport(client, "audit", "list")
    assert listed.stdout.splitlines()[0].split() == [
        "ENTRY",
        "AGE",
        "WHO",
        "FROM",
        "ACTION",
        "RESULT",
        "CODE",
        "TARGET",
    ]
    assert "apps.remove" in listed.stdout
    assert "no-such-app-0" in listed.stdout


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE audit SET actor = 'nobody' WHERE position = 2", "entry 2 was changed after it was written"),
        ("UPDATE audit SET result = 'fine' WHERE position = 2", "entry 2 was changed after it was written"),
        ("UPDATE audit SET detail = '{' WHERE position = 2", "entry 2 was changed after it was written"),
        ("DELETE FROM audit WHERE position = 2", "entry 2 is missing"),
        ("DELETE FROM audit WHERE position = 1", "entry 1 is missing"),
        ("DELETE FROM audit WHERE position > 2", "entries 3 to 4 are missing at the end"),
        ("DELETE FROM audit", "entries 1 to 4 are missing at the end"),
    ],
)
async def test_tampering_with_the_database_is_found(tmp_path: Path, statement: str, fault: str) -> None:
    async with running_central(tmp_path) as (_, client):
        await some_changes(client, 4)
    tamper(tmp_path, statement)
    async with running_central(tmp_path) as (_, client):
        checked = await verdict(client)
        assert (checked["ok"], checked["fault"]) == (False, fault)
        command = await run_homeport(client, "audit", "verify")
        assert command.returncode == 1
        assert fault in command.stderr


async def test_two_entries_swapped_in_the_database_are_found(tmp_path: Path) -> None:
    async with running_central(tmp_path) as (_, client):
        await some_changes(client, 4)
    tamper(
        tmp_path,
        "UPDATE audit SET position = 99 WHERE position = 1",
        "UPDATE audit SET position = 1 WHERE position = 2",
        "UPDATE audit SET position = 2 WHERE position = 99",
    )
    async with running_central(tmp_path) as (_, client):
        assert not (await verdict(client))["ok"]


async def test_old_entries_are_forgotten_and_the_rest_still_holds(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "central.db")) as store:
        old = [NewAudit(OLD, "ada", "admin", "", "tokens.create", str(n), AuditResult.DONE) for n in range(5)]
        await store.write(lambda tx: tx.append_audit(old))
        auditor = Auditor(store, SystemClock())
        await auditor.note(action="tokens.revoke", actor="ada")
        await auditor.trim(SystemClock().now() - timedelta(days=400))
    async with running_central(tmp_path) as (_, client):
        assert [entry["position"] for entry in await trail(client)] == [6]
        assert (await verdict(client))["ok"]
        assert (await run_homeport(client, "audit", "verify")).returncode == 0
    tamper(tmp_path, "UPDATE role_values SET value = '0:' || substr(value, 3) WHERE key = 'audit_base'")
    async with running_central(tmp_path) as (_, client):
        assert (await verdict(client))["fault"] == "entries 1 to 5 are missing"


async def test_the_newest_entry_stays_whatever_its_age(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "central.db")) as store:
        old = [NewAudit(OLD, "ada", "admin", "", "tokens.create", str(n), AuditResult.DONE) for n in range(3)]
        await store.write(lambda tx: tx.append_audit(old))
        await Auditor(store, SystemClock()).trim(SystemClock().now() - timedelta(days=400))
        async with store.read() as reader:
            left, ends = await reader.audit(after=0, limit=10), await reader.audit_ends()
    assert [entry.position for entry in left] == [3]
    assert first_fault(left, ends) is None


def test_pulling_the_plug_loses_no_entry_of_an_acknowledged_change(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    for number in range(40):
        write_app(registry, f"app-{number}")
    http, grpc = (f"127.0.0.1:{free_port()}" for _ in range(2))
    start = ("central", "--data", str(tmp_path / "data"), "--http", http, "--grpc", grpc)
    with machine(tmp_path / "machine") as here:
        central = here.start("central", *start)
        central.wait_ready()
        acknowledged = _change_until_killed(central, registry)
        assert acknowledged, "nothing was acknowledged before the plug was pulled"
        central = here.start("central again", *start)
        central.wait_ready()
        requests = {entry["detail"]["request_id"] for entry in _all_entries(central)}
        assert acknowledged <= requests
        assert central.get("/api/v1/audit/verify")["ok"]


def _change_until_killed(central: Process, registry: Path) -> set[str]:
    """The request ids of what was acknowledged, asked for by several at once while the process is killed."""
    acknowledged: set[str] = set()

    def change(first: int) -> None:
        for number in range(first, 1000, 4):
            body = json.dumps({"repository": str(registry), "app_name": f"app-{number % 40}"}).encode()
            try:
                with central.open("/api/v1/apps", data=body, headers={"content-type": "application/json"}) as answer:
                    acknowledged.add(answer.headers["x-request-id"])
            except (OSError, HTTPException):
                return

    with ThreadPoolExecutor(4) as pool:
        for first in range(4):
            pool.submit(change, first)
        deadline = time.monotonic() + 60
        while len(acknowledged) < 40 and time.monotonic() < deadline:
            time.sleep(0.01)
        central.kill()
    return acknowledged


def _all_entries(central: Process) -> list[Any]:
    with central.open("/api/v1/audit/export") as lines:
        return [json.loads(line) for line in lines]
