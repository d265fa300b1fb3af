"""What sites have used, at central."""

import json
from typing import Any

import pytest

from homeport.central.app import CentralApp
from homeport.core.model.caller import INTERNAL, Role
from homeport.inference.tasks.site_usage import ROWS_MAX
from tests.integration.inference.conftest import bind, handoff
from tests.support.running_central import Client, FakeSite

pytestmark = pytest.mark.anyio


async def tell(client: Client, *rows: Any, site: str = "home", body: bytes | None = None) -> int:
    content = json.dumps({"usage": rows}).encode() if body is None else body
    path = f"/api/v1/sites/{site}/calls?topic=inference.usage"
    return (await client.call("POST", path, data=content)).status


async def shown(client: Client, **changes: Any) -> list[tuple[Any, ...]]:
    rows = (await client.get("/v2/usage?days=366")).body["usage"]
    return [tuple(row[name] for name in ("site", "name", "model", "requests", "tokens_out")) for row in rows]


async def test_what_sites_answered_by_themselves_is_shown_once_beside_what_central_answered(
    empty: tuple[CentralApp, Client], llama: str
) -> None:
    central, client = empty
    for name in ("home", "north"):
        await FakeSite(client, name).join()
    today = central.parts.clock.now().date().isoformat()
    await bind(client, central, handoff(llama))
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    assert (await client.post("/v1/chat/completions", chat)).status == 200
    token = await central.parts.authenticator.tokens.create(INTERNAL, name="ada", role=Role.VIEWER)

    for requests in (1, 3, 3, 2):  # also again, and late
        assert await tell(client, [token.token.id, today, "tiny", requests, 10 * requests, 5 * requests]) == 200
    assert await tell(client, ["local", today, "tiny", 7, 7, 7], site="north") == 200
    assert sorted(await shown(client), key=str) == [
        ("home", "ada", "tiny", 3, 15),
        ("north", "local", "tiny", 7, 7),
        (None, "local", "tiny", 1, 4),
    ]
    ada = Client(client.url, client.session, {"Authorization": f"Bearer {token.text}"})
    assert await shown(ada) == [("home", "ada", "tiny", 3, 15)], "everybody sees their own"


ROW = ["k", "2026-03-01", "m", 1, 2, 3]


@pytest.mark.parametrize(
    "row",
    [
        [*ROW[:3], -1, 2, 3],
        [*ROW[:3], 1 << 60, 2, 3],
        [*ROW[:3], 1.5, 2, 3],
        [*ROW[:3], True, 2, 3],
        ROW[:5],
        [*ROW, 4],
        ["k", "yesterday", *ROW[2:]],
        ["k" * 1000, *ROW[1:]],
        ["k\0", *ROW[1:]],
        ["\ud800", *ROW[1:]],
        [None, *ROW[1:]],
        "row",
        None,
    ],
)
async def test_a_report_that_cannot_be_true_changes_nothing(empty: tuple[CentralApp, Client], row: Any) -> None:
    _, client = empty
    await FakeSite(client).join()
    assert await tell(client, ROW, row) == 422
    assert await shown(client) == []
    assert await tell(client, *([ROW] * (ROWS_MAX + 1))) == 422
    for body in (b"", b"{}", b'{"usage": 1}', b"[" * 100_000, b"\xff"):
        assert await tell(client, body=body) == 422
    assert await tell(client, ROW) == 200
