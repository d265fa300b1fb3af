"""The dashboard over HTTP: its pages, and how a browser logs in and out."""

import base64
import re

import aiohttp
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from homeport.serving.middleware.session_cookie import COOKIE, KEY_HEADER
from tests.support.running_central import Answer, Client

pytestmark = pytest.mark.anyio


async def token_of(client: Client, role: str) -> str:
    return str((await client.post("/api/v1/tokens", {"name": role, "role": role})).body["token"])


async def browser_call(client: Client, method: str, path: str, **options: object) -> Answer:
    """With nothing but what is given: neither the local key nor cookies of an earlier call."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        return await Client(client.url, session).call(method, path, **options)


def session_headers(answer: Answer) -> dict[str, str]:
    found = re.search(rf"{COOKIE}=([^;]+)", answer.headers["set-cookie"])
    assert found is not None
    return {"Cookie": f"{COOKIE}={found[1]}", KEY_HEADER: answer.body["key"]}


async def test_a_browser_logs_in_with_a_token_and_has_its_role(client: Client) -> None:
    given = await browser_call(client, "POST", "/api/v1/logins", json={"token": await token_of(client, "viewer")})
    assert (given.status, given.body["role"], given.headers["cache-control"]) == (201, "viewer", "no-store")
    headers = session_headers(given)
    me = await browser_call(client, "GET", "/api/v1/tokens/self", headers=headers)
    assert me.body["name"] == "viewer"
    refused = await browser_call(client, "POST", "/api/v1/apps", headers=headers, json={"repository": "/nowhere"})
    assert (refused.status, refused.body["detail"]) == (
        403,
        "This needs the role operator, and viewer has the role viewer.",
    )


async def test_cookie_and_key_are_nothing_alone(client: Client) -> None:
    given = await browser_call(client, "POST", "/api/v1/logins", json={"token": await token_of(client, "viewer")})
    headers = session_headers(given)
    for name in ("Cookie", KEY_HEADER):
        answer = await browser_call(client, "GET", "/api/v1/overview", headers={name: headers[name]})
        assert answer.status == 401, name


@pytest.mark.parametrize(
    "inside", ["", "never", "1:", "-1:x", f"{10**12}:", f"{10**12}:\x00", f"{10**12}:é", "²:x", ":"]
)
async def test_a_session_that_somebody_made_is_no_login(client: Client, inside: str) -> None:
    """Cookie and key are made by the same caller: whatever they hold has to be read with care."""
    key, nonce = bytes(32), bytes(12)
    sealed = AESGCM(key).encrypt(nonce, inside.encode(), b"homeport session 1")
    cookie, header = (base64.urlsafe_b64encode(each).decode().rstrip("=") for each in (nonce + sealed, key))
    headers = {"Cookie": f"{COOKIE}={cookie}", KEY_HEADER: header}
    assert (await browser_call(client, "GET", "/api/v1/overview", headers=headers)).status == 401


async def test_a_revoked_token_ends_its_sessions(client: Client) -> None:
    given = await browser_call(client, "POST", "/api/v1/logins", json={"token": await token_of(client, "viewer")})
    assert (await client.delete("/api/v1/tokens/viewer")).status == 200
    answer = await browser_call(client, "GET", "/api/v1/overview", headers=session_headers(given))
    assert answer.status == 401


async def test_a_wrong_token_is_refused_with_a_sentence_and_recorded(client: Client) -> None:
    answer = await browser_call(client, "POST", "/api/v1/logins", json={"token": "hp_00000000_" + "0" * 40})
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)
    neither = await browser_call(client, "POST", "/api/v1/logins", json={})
    assert neither.status == 422
    entries = (await client.get("/api/v1/audit?limit=500")).body["entries"]
    assert any(each["action"] == "logins.create" and each["result"] == "refused" for each in entries)


async def test_a_code_logs_in_once_with_the_rights_of_whoever_asked_for_it(client: Client) -> None:
    headers = {"Authorization": f"Bearer {await token_of(client, 'operator')}"}
    code = (await browser_call(client, "POST", "/api/v1/logins/codes", headers=headers, json={})).body["code"]
    given = await browser_call(client, "POST", "/api/v1/logins", json={"code": code})
    assert given.body["role"] == "operator"
    again = await browser_call(client, "POST", "/api/v1/logins", json={"code": code})
    assert (again.status, again.body["hint"]) == (401, "Run  homeport dashboard  again.")
    assert (await browser_call(client, "POST", "/api/v1/logins/codes", json={})).status == 401


async def test_logging_out_takes_the_cookie_away(client: Client) -> None:
    answer = await browser_call(client, "DELETE", "/api/v1/logins")
    assert (answer.status, "Max-Age=0" in answer.headers["set-cookie"]) == (204, True)


async def test_pages_are_one_document_with_a_strict_policy_and_hold_nothing_of_the_fleet(client: Client) -> None:
    first = await browser_call(client, "GET", "/")
    deep = await browser_call(client, "GET", "/deployments/home/hello?tab=why")
    assert (first.status, deep.status, first.body) == (200, 200, deep.body)
    policy = first.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert (await browser_call(client, "GET", "/_app/../../../etc/passwd")).status in {401, 404}
    assert (await browser_call(client, "GET", "/_app/nothing.js")).status == 404
    assert (await browser_call(client, "GET", "/elsewhere")).status == 401
    worker = await browser_call(client, "GET", "/service-worker.js")
    assert (worker.status, worker.headers["content-security-policy"], worker.headers["cache-control"]) == (
        200,
        "default-src 'none'; connect-src 'self'",
        "no-cache",
    ), "its next version is asked for each time"
