"""Pages of other origins: refused unless their origin was allowed."""

from collections.abc import Sequence

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from homeport.serving.middleware.guards import Guard, GuardSettings

pytestmark = pytest.mark.anyio

PAGE = "https://dashboard.example"


async def ask(
    origins: Sequence[str], method: str = "GET", origin: str | None = PAGE, wants: str | None = None
) -> tuple[int, dict[str, str]]:
    """Status and headers of a response."""
    given = {"host": "127.0.0.1:8080", "origin": origin, "access-control-request-method": wants}
    headers = [(name.encode(), value.encode()) for name, value in given.items() if value is not None]
    scope: Scope = {"type": "http", "method": method, "path": "/api/nodes", "headers": headers, "scheme": "http"}
    sent: list[dict[str, object]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("served")(scope, receive, send)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b""}

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        sent.append(message)

    await Guard(app, GuardSettings(cors_origins=tuple(origins)))(scope, receive, send)
    raw = sent[0]["headers"]
    assert isinstance(raw, list)
    status = sent[0]["status"]
    assert isinstance(status, int)
    return status, {name.decode(): value.decode() for name, value in raw}


async def test_by_default_a_page_of_another_origin_is_refused() -> None:
    for method, wants in (("GET", None), ("OPTIONS", "GET")):
        status, headers = await ask((), method, wants=wants)
        assert (status, "access-control-allow-origin" in headers) == (403, False)


async def test_an_allowed_page_may_read_and_its_preflight_is_answered() -> None:
    status, headers = await ask([PAGE])
    assert (status, headers["access-control-allow-origin"], headers["vary"]) == (200, PAGE, "Origin")
    assert "Link" in headers["access-control-expose-headers"]
    status, headers = await ask([PAGE], "OPTIONS", wants="POST")
    assert (status, headers["access-control-allow-origin"]) == (200, PAGE)
    assert "Authorization" in headers["access-control-allow-headers"]
    assert "POST" in headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in headers


async def test_another_page_is_refused_all_the_same() -> None:
    status, headers = await ask([PAGE], origin="https://evil.example")
    assert (status, "access-control-allow-origin" in headers) == (403, False)


async def test_a_star_lets_every_page_read_and_change_nothing() -> None:
    assert (await ask(["*"]))[0] == 200
    assert (await ask(["*"], "OPTIONS", wants="GET"))[0] == 200
    assert (await ask(["*"], "POST"))[0] == 403
    assert (await ask(["*"], "OPTIONS", wants="DELETE"))[0] == 403


async def test_our_own_page_and_programs_need_no_such_header() -> None:
    for origin in ("http://127.0.0.1:8080", None):
        status, headers = await ask([PAGE], origin=origin)
        assert (status, "access-control-allow-origin" in headers) == (200, False)
