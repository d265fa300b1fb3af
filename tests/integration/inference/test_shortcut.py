"""Admissions are taken at their connection. Whatever the shortcut answers, the application answers alike, and what is
unusual is left to the application."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.central.app import CentralApp
from homeport.core.inference.engines.handoff import EngineName
from homeport.core.inference.settings import InferenceSettings
from homeport.core.inference.task import Task
from homeport.core.model.caller import INTERNAL, Role
from homeport.errors import TransientError
from tests.integration.inference.conftest import TASK, bind, handoff
from tests.support.running_central import Client, running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def central(tmp_path: Path) -> AsyncIterator[tuple[CentralApp, Client]]:
    """With a pool whose only slot is free, and room for one task behind it."""
    settings = InferenceSettings(queue_capacity=1, allow_fake=True)
    async with running_central(tmp_path / "central", inference=settings) as (app, client):
        await bind(client, app, handoff("fake:", engine=EngineName.FAKE, slots_total=1))
        yield app, client


def a_task(**changes: Any) -> dict[str, Any]:
    ids = {"task_id": str(uuid.uuid4()), "session_id": str(uuid.uuid4())}
    return {**TASK, "engine": "fake", "model_ref": "tiny", **ids, **changes}


async def token_of(app: CentralApp, role: Role = Role.VIEWER) -> str:
    """One that was just used: the shortcut takes callers that are known."""
    text = (await app.parts.authenticator.tokens.create(INTERNAL, name=f"test {role}", role=role)).text
    for _ in range(3):
        await app.parts.authenticator.tokens.check(text)
    return text


class Line:
    """A connection, with bytes as they are sent and answers as they come."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "Line":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._writer.close()

    def send(self, content: bytes) -> None:
        self._writer.write(content)

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        with anyio.fail_after(20):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return int(lines[0].split()[1]), headers, json.loads(body) if body else None

    async def is_closed(self) -> bool:
        with anyio.fail_after(20):
            return await self._reader.read() == b""


def request(port: int, body: bytes, token: str, *lines: str) -> bytes:
    head = ["POST /v2/tasks HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {token}", *lines]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def answers_of_both(app: CentralApp, body: bytes, *lines: str) -> list[tuple[int, dict[str, str], Any]]:
    """The shortcut's and the application's: a page of the server's own origin is allowed, and not usual."""
    port, token = app.http_port or 0, await token_of(app)
    found = []
    async with Line(port) as line:
        for more in ((), (f"Origin: http://127.0.0.1:{port}",)):
            line.send(request(port, body, token, *lines, *more))
            found.append(await line.answer())
    return found


BAD = {
    "not JSON": b"{",
    "not UTF-8": b'{"task_id": "\xff\xfe"}',
    "empty": b"",
    "a field missing": json.dumps({"task_id": str(uuid.uuid4())}).encode(),
    "a negative context": json.dumps(a_task(ctx=-1)).encode(),
    "no deadline": json.dumps(a_task(deadline_ms=0)).encode(),
    "no such model": json.dumps(a_task(model_ref="none")).encode(),
    "no such pool": json.dumps(a_task(placement={"mode": "pin", "pin_pool_id": "none"})).encode(),
    "another engine": json.dumps(a_task(engine="vllm")).encode(),
}


@pytest.mark.parametrize("name", BAD)
async def test_both_ways_refuse_alike(central: tuple[CentralApp, Client], name: str) -> None:
    short, long = await answers_of_both(central[0], BAD[name], "X-Correlation-Id: mine", "X-Request-Id: r-1")
    assert (short[0], short[2]) == (long[0], long[2])
    assert 400 <= short[0] < 600
    names = set(short[1]) - {"vary"}
    assert names == {name for name in long[1] if not name.startswith("access-control-")} - {"vary"}
    for header in ("x-correlation-id", "x-request-id", "retry-after", "x-backoff-ms", "content-type"):
        assert short[1].get(header) == long[1].get(header)


async def test_both_ways_admit_alike(central: tuple[CentralApp, Client]) -> None:
    """The second is the same task again, so that its answer is the first one's."""
    short, long = await answers_of_both(central[0], json.dumps(a_task()).encode(), "X-Budget-Tokens: 50")
    assert short[0] == long[0] == 202
    assert short[2] == long[2]
    assert short[1]["x-budget-tokens-remaining"] == "50"
    assert re.fullmatch(r"[0-9a-f-]{36}", short[1]["x-correlation-id"])
    assert set(short[1]) == set(long[1])


async def test_a_body_may_come_in_pieces_and_requests_behind_each_other(central: tuple[CentralApp, Client]) -> None:
    app, _ = central
    port, token = app.http_port or 0, await token_of(app)
    whole = request(port, json.dumps(a_task(model_ref="none")).encode(), token)
    async with Line(port) as line:
        for piece in (whole[:30], whole[30:-100], whole[-100:-1], whole[-1:]):
            line.send(piece)
            await anyio.sleep(0.02)
        assert (await line.answer())[0] == 503
        tasks = [a_task(), a_task(model_ref="none"), a_task(ctx=-1)]
        line.send(b"".join(request(port, json.dumps(each).encode(), token) for each in tasks))
        assert [(await line.answer())[0] for _ in tasks] == [202, 503, 400], "in their order"


async def test_who_asks_to_close_is_answered_and_closed(central: tuple[CentralApp, Client]) -> None:
    app, _ = central
    port, token = app.http_port or 0, await token_of(app)
    async with Line(port) as line:
        line.send(request(port, json.dumps(a_task()).encode(), token, "Connection: close"))
        assert (await line.answer())[0] == 202
        assert await line.is_closed()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("Host: 127.0.0.1", 400),
        ("Origin: http://elsewhere.example", 403),
        ("Authorization: Bearer hp_00000000_0000000000000000", 401),
    ],
)
async def test_what_is_unusual_is_refused_and_recorded(
    central: tuple[CentralApp, Client], line: str, status: int
) -> None:
    """A second Host, a page of another origin, a second token of which nobody knows."""
    app, client = central
    port, token = app.http_port or 0, await token_of(app)
    async with Line(port) as connection:
        connection.send(request(port, json.dumps(a_task()).encode(), token, line))
        found = await connection.answer()
    assert found[0] == status
    assert "code" in found[2]
    assert "x-correlation-id" in found[1]
    entries = (await client.get("/api/v1/audit?limit=5")).body["entries"]
    assert any(each["result"] in {"refused", "failed"} and each["detail"]["status"] == status for each in entries)


async def test_a_revoked_token_admits_nothing_any_more(central: tuple[CentralApp, Client]) -> None:
    app, _ = central
    port, token = app.http_port or 0, await token_of(app)
    async with Line(port) as line:
        line.send(request(port, json.dumps(a_task()).encode(), token))
        assert (await line.answer())[0] == 202
        await app.parts.authenticator.tokens.revoke(INTERNAL, f"test {Role.VIEWER}")
        line.send(request(port, json.dumps(a_task()).encode(), token))
        assert (await line.answer())[0] == 401


async def test_a_failure_of_our_own_is_an_internal_error(
    central: tuple[CentralApp, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = central
    plane: Any = app.parts.inference.tasks

    def fail(task: Task, **_: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(plane._plane.scheduler, "admit", fail)
    short, long = await answers_of_both(app, json.dumps(a_task()).encode())
    assert (short[0], short[2]["code"]) == (500, "INTERNAL")
    assert short[2] == long[2]
    assert "secret" not in str(short)


async def test_what_cannot_be_written_is_not_acknowledged_and_gives_its_place_back(
    central: tuple[CentralApp, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, client = central
    plane: Any = app.parts.inference.tasks
    journal = plane._plane.journal

    async def fail(*_: Any) -> None:
        raise TransientError("The disk is full.")

    monkeypatch.setattr(journal, "_apply", fail)
    short, long = await answers_of_both(app, json.dumps(a_task()).encode())
    assert short[0] == long[0] == 503
    assert short[2]["retriable"] is True
    assert "Retry-After".lower() in short[1]
    monkeypatch.undo()

    async def is_free() -> bool:
        return bool((await client.get("/v2/pools/default/health")).body["metrics"]["slots_free"] == 1)

    await eventually(is_free, what="the slot to be free again")
