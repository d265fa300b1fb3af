"""Access tokens over HTTP: roles, limits to sites, revocation on open streams, and every route behind its action."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from homeport.central.app import CentralApp
from homeport.core.model.caller import INTERNAL, Role
from tests.support.running_central import Answer, Client, FakeSite, node_changed, running_central, write_app
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

ADMIN_ONLY = [("GET", "/api/v1/tokens"), ("GET", "/api/v1/audit"), ("GET", "/api/v1/identities")]


async def make(client: Client, name: str, role: str, **other: Any) -> dict[str, str]:
    """A token of this role, as headers."""
    made = await client.post("/api/v1/tokens", {"name": name, "role": role, **other})
    assert made.status == 201, made.body
    assert made.headers["cache-control"] == "no-store"
    return {"Authorization": f"Bearer {made.body['token']}"}


async def test_a_token_is_shown_once_and_kept_as_a_hash(client: Client, tmp_path: Path) -> None:
    made = (await client.post("/api/v1/tokens", {"name": "anna", "role": "operator"})).body
    listed = await client.get("/api/v1/tokens")
    assert made["token"] not in str(listed.body)
    secret = made["token"].rpartition("_")[2]
    assert not holders(tmp_path, secret.encode())


def holders(folder: Path, text: bytes) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and text in file.read_bytes()]


async def test_what_a_token_is_for_is_told_to_its_holder(client: Client) -> None:
    headers = await make(client, "anna", "operator", sites=["home"])
    me = await client.get("/api/v1/tokens/self", headers=headers)
    assert me.body == {"name": "anna", "role": "operator", "sites": ["home"], "kind": "token"}
    key = {"X-Api-Key": headers["Authorization"].removeprefix("Bearer ")}
    async with aiohttp.ClientSession() as session:
        assert (await Client(client.url, session).get("/api/v1/tokens/self", headers=key)).body["name"] == "anna"


async def test_each_role_is_answered_what_it_may_ask_and_403_otherwise(client: Client, registry: Path) -> None:
    viewer, operator = await make(client, "v", "viewer"), await make(client, "o", "operator")
    admin = await make(client, "a", "admin")
    for headers in (viewer, operator, admin):
        assert (await client.get("/api/v1/deployments", headers=headers)).status == 200
    adding = {"repository": str(registry)}
    refused = await client.post("/api/v1/apps", adding, headers=viewer)
    assert (refused.status, refused.body["code"]) == (403, "not-authorized")
    assert refused.body["detail"] == "This needs the role operator, and v has the role viewer."
    for repository in (str(registry), f"file://{registry}", "https://169.254.169.254/x", "git@127.1:x"):
        refused = await client.post("/api/v1/apps", {"repository": repository}, headers=operator)
        assert (refused.status, refused.body["code"]) == (403, "not-authorized"), repository
        assert "Only an administrator" in refused.body["detail"]
    assert (await client.post("/api/v1/apps", adding, headers=admin)).status == 201
    for method, path in ADMIN_ONLY:
        assert (await client.call(method, path, headers=operator)).status == 403, path
        assert (await client.call(method, path, headers=admin)).status == 200, path


@pytest.mark.parametrize(
    "given",
    [
        {"Authorization": "Bearer hp_0011223344ff_" + "0" * 64},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": ""},
        {"X-Api-Key": "x" * 5000},
    ],
)
async def test_a_wrong_token_is_refused_whatever_it_looks_like(client: Client, given: dict[str, str]) -> None:
    async with aiohttp.ClientSession() as session:
        answer = await Client(client.url, session).get("/api/v1/sites", headers=given)
    assert (answer.status, answer.body["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_token_in_a_url_is_refused_and_on_record(client: Client) -> None:
    headers = await make(client, "anna", "admin")
    text = headers["Authorization"].removeprefix("Bearer ")
    for path in (f"/api/v1/sites?token={text}", f"/api/v1/sites?x={text}", f"/api/v1/nodes/{text}"):
        answer = await client.get(path)
        assert (answer.status, answer.body["code"]) == (400, "token-in-url")
        assert text not in str(answer.body)
    trail = (await client.get("/api/v1/audit")).body
    assert "token-in-url" in str(trail)
    assert text.rpartition("_")[2] not in str(trail)


async def test_an_expired_token_says_since_when(client: Client, central: CentralApp) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)
    headers = await make(client, "brief", "viewer", expires_at=soon.isoformat())

    async def refused() -> Answer | None:
        answer = await client.get("/api/v1/sites", headers=headers)
        return answer if answer.status == 401 else None

    answer = await eventually(refused, what="the token to expire")
    assert datetime.now(UTC) >= soon
    assert answer.body["detail"].startswith('The access token "brief" expired on ')
    past = await client.post("/api/v1/tokens", {"name": "x", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"})
    assert (past.status, past.fields) == (422, ["expires_at"])
    naive = await client.post("/api/v1/tokens", {"name": "x", "role": "viewer", "expires_at": "2090-01-01T00:00:00"})
    assert naive.status == 422


async def test_a_name_is_taken_while_its_token_is_good(client: Client) -> None:
    await make(client, "anna", "viewer")
    assert (await client.post("/api/v1/tokens", {"name": "anna", "role": "admin"})).status == 409
    assert (await client.delete("/api/v1/tokens/anna")).status == 200
    await make(client, "anna", "admin")
    assert (await client.delete("/api/v1/tokens/nobody")).status == 404


async def test_use_is_noted_and_does_not_undo_a_revocation(client: Client) -> None:
    headers = await make(client, "anna", "viewer")
    assert (await client.get("/api/v1/sites", headers=headers)).status == 200
    [token] = (await client.get("/api/v1/tokens")).body["tokens"]
    assert token["last_used_at"] is not None
    assert (await client.get("/api/v1/sites", headers=headers)).status == 200
    [again] = (await client.get("/api/v1/tokens")).body["tokens"]
    assert again["last_used_at"] == token["last_used_at"]
    revoked = await client.delete(f"/api/v1/tokens/{token['id']}")
    assert revoked.body["revoked_at"] is not None
    answer = await client.get("/api/v1/sites", headers=headers)
    assert (answer.status, answer.body["detail"][:31]) == (401, 'The access token "anna" was rev')


async def test_revoking_ends_the_open_streams_of_the_holder_and_nobody_elses(client: Client) -> None:
    anna, bob = await make(client, "anna", "viewer"), await make(client, "bob", "viewer")
    ended: list[str] = []

    async def listen(name: str, headers: dict[str, str], started: anyio.Event) -> None:
        timeout = aiohttp.ClientTimeout(total=30)
        async with client.session.get(client.url + "/api/v1/events", headers=headers, timeout=timeout) as answer:
            started.set()
            async for _ in answer.content:
                pass
        ended.append(name)

    async with anyio.create_task_group() as tasks:
        for name, headers in (("anna", anna), ("bob", bob)):
            started = anyio.Event()
            tasks.start_soon(listen, name, headers, started)
            await started.wait()
        assert (await client.delete("/api/v1/tokens/anna")).status == 200
        with anyio.fail_after(60):
            while not ended:  # noqa: ASYNC110 - the other side of a socket
                await anyio.sleep(0.01)
        await anyio.sleep(1.2)
        assert ended == ["anna"]
        tasks.cancel_scope.cancel()


async def test_an_expiring_token_ends_its_stream_by_itself(client: Client) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=6)
    headers = await make(client, "brief", "viewer", expires_at=soon.isoformat())
    with anyio.fail_after(60):
        async for _ in client.events("/api/v1/events", **headers):
            pass


@asynccontextmanager
async def two_sites(data: Path, registry: Path) -> AsyncIterator[tuple[Client, dict[str, str]]]:
    async with running_central(data) as (_, client):
        assert (await client.post("/api/v1/apps", {"repository": str(registry)})).status == 201
        for name in ("home", "line-7"):
            site = FakeSite(client, name)
            await site.join()
            await site.say(node_changed(f"node-{name}", name))
        assert (await client.deploy("home", "line-7")).status == 202
        yield client, await make(client, "anna", "operator", sites=["home"])


async def test_a_limited_token_sees_its_own_sites_only(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    write_app(registry)
    async with two_sites(tmp_path / "central", registry) as (client, anna):

        async def seen(path: str) -> Any:
            return (await client.get(path, headers=anna)).body

        assert [site["name"] for site in (await seen("/api/v1/sites"))["sites"]] == ["home"]
        assert [node["id"] for node in (await seen("/api/v1/nodes"))["nodes"]] == ["node-home"]
        assert [item["site"] for item in (await seen("/api/v1/deployments"))["deployments"]] == ["home"]
        overview = await seen("/api/v1/overview")
        assert (overview["sites"]["count"], overview["nodes"]["live"]) == (1, 1)
        assert overview["deployments"] == {"PENDING": 1}
        everything = (await client.get("/api/v1/deployments")).body["deployments"]
        elsewhere = next(item["id"] for item in everything if item["site"] == "line-7")
        for path in (f"/api/v1/deployments/{elsewhere}", f"/api/v1/deployments/{elsewhere[:12]}/history"):
            assert (await client.get(path, headers=anna)).status == 404
        assert (await client.get("/api/v1/nodes/node-line-7", headers=anna)).status == 404
        assert (await client.get("/api/v1/sites/line-7", headers=anna)).status == 403
        heard = []
        async for sent in client.events("/api/v1/events?after=0", **anna):
            heard.append(sent.data.get("site"))
            if len(heard) >= 3:
                break
        assert set(heard) <= {"home", None}


async def test_a_limited_token_changes_its_own_sites_only(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    write_app(registry)
    async with two_sites(tmp_path / "central", registry) as (client, anna):

        async def deploy(*sites: str) -> Answer:
            body = {"app_name": "hello", "name": "mine", "sites": [{"site_id": site} for site in sites]}
            return await client.post("/api/v1/deployments", body, headers=anna)

        refused = await deploy("home", "line-7")
        assert (refused.status, refused.body["code"]) == (403, "not-authorized")
        assert "anna is limited to site home" in refused.body["detail"]
        assert (await deploy("home")).status == 202
        assert (await client.delete("/api/v1/deployments/hello@line-7", headers=anna)).status == 404
        assert (await client.delete("/api/v1/deployments/hello@home", headers=anna)).status == 202
        assert (await client.post("/api/v1/apps", {"repository": str(registry)}, headers=anna)).status == 403
        left = (await client.get("/api/v1/deployments?name=hello")).body["deployments"]
        assert {item["site"]: item["wanted"] for item in left} == {"home": False, "line-7": True}


@pytest.mark.parametrize(
    ("repository", "what"),
    [
        ("{here}", "a folder of central's machine"),
        ("{here}/nothing-there", "a folder of central's machine"),
        ("file://{here}", "a folder of central's machine"),
        ("http://169.254.169.254/latest", "the private address 169.254.169.254"),
        ("https://127.0.0.1:1/closed.git", "the private address 127.0.0.1"),
        ("git@10.0.0.7:team/apps.git", "the private address 10.0.0.7"),
    ],
)
async def test_an_operator_cannot_feel_out_centrals_disk_or_network_by_adding_apps(
    client: Client, tmp_path: Path, repository: str, what: str
) -> None:
    """One answer, whether anything is there or not."""
    headers = await make(client, "otto", "operator")
    refused = await client.post("/api/v1/apps", {"repository": repository.format(here=tmp_path)}, headers=headers)
    assert (refused.status, refused.body["code"]) == (403, "not-authorized")
    assert refused.body["detail"] == f"Only an administrator may add apps from {what}."


async def test_a_closed_loopback_asks_for_a_token_everywhere_but_where_it_is_open(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central", is_local=False) as (central, client):
        assert (await client.get("/healthz")).status == 200
        # Just started it may not be ready; either way it says so itself, to anybody.
        assert (await client.get("/readyz")).body["status"] in {"ready", "not ready"}
        for method, path in (("GET", "/api/v1/sites"), ("POST", "/api/v1/apps"), ("GET", "/nowhere")):
            answer = await client.call(method, path)
            assert (answer.status, answer.body["code"]) == (401, "unauthenticated"), path
        made = await central.parts.authenticator.tokens.create(INTERNAL, name="anna", role=Role.VIEWER)
        headers = {"Authorization": f"Bearer {made.text}"}
        assert (await client.get("/api/v1/sites", headers=headers)).status == 200


async def test_metrics_need_a_viewer_where_that_is_asked_for(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central", is_local=False, open_metrics=False) as (central, client):
        answer = await client.get("/metrics")
        assert (answer.status, answer.body["code"]) == (401, "unauthenticated")
        assert (await client.get("/metrics", headers={"Authorization": "Bearer hp_00000000_00"})).status == 401
        made = await central.parts.authenticator.tokens.create(INTERNAL, name="prometheus", role=Role.VIEWER)
        headers = {"Authorization": f"Bearer {made.text}"}
        assert "homeport_info{" in (await client.get("/metrics", headers=headers)).body


@pytest.mark.parametrize("setting", [True, None], ids=["asked for", "on loopback"])
async def test_metrics_are_open_to_everybody_where_that_is_asked_for_and_on_loopback(
    tmp_path: Path, *, setting: bool | None
) -> None:
    async with running_central(tmp_path / "central", is_local=False, open_metrics=setting) as (_, client):
        assert "homeport_info{" in (await client.get("/metrics")).body
        assert (await client.get("/api/v1/sites")).status == 401


async def test_the_description_of_the_api_is_open_for_a_browser_sends_no_token(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central", is_local=False) as (_, client):
        for path in ("/docs", "/openapi.json"):
            assert (await client.get(path)).status == 200, path


async def test_over_http_there_is_a_trust_bundle_and_nothing_that_leads_margo_clients_to_it(client: Client) -> None:
    """They may fetch it over https only."""
    refused = await client.get("/.well-known/margo")
    assert refused.status == 404 and refused.headers["content-type"] == "application/problem+json"
    assert refused.body["type"].endswith("specification/problem-types#discovery-document-not-found")
    assert (await client.get("/.well-known/spiffe/bundle.json")).status == 200


async def test_metrics_count_every_site_so_a_limited_token_does_not_see_them(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central", open_metrics=False) as (_, client):
        headers = await make(client, "anna", "viewer", sites=["home"])
        refused = await client.get("/metrics", headers=headers)
        assert (refused.status, refused.body["code"]) == (403, "not-authorized")
        assert "every site" in refused.body["detail"]
        assert (await client.get("/openapi.json", headers=headers)).status == 200


PROXIED: tuple[dict[str, str], ...] = (
    {},  # nginx with its defaults, whatever passes on bytes (ssh -R, socat), a container on the host's network
    {"X-Forwarded-For": "198.51.100.7"},
    {"X-Forwarded-Host": "example.com"},
    {"CF-Connecting-IP": "198.51.100.7"},
    {"Forwarded": "for=198.51.100.7"},
)


@pytest.mark.parametrize("headers", PROXIED)
async def test_being_reached_on_loopback_makes_nobody_local(tmp_path: Path, headers: dict[str, str]) -> None:
    async with running_central(tmp_path / "central", is_local=False) as (_, client):
        answer = await client.get("/api/v1/tokens/self", headers=headers)
    assert (answer.status, answer.body["hint"]) == (
        401,
        "Run the command as the user who started Homeport, or log in:  homeport login URL",
    )


async def test_a_forged_certificate_header_makes_nobody_a_machine(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central", is_local=False) as (_, client):
        forged = {"Client-Cert": ":MIIB:", "X-Client-Cert": "x", "X-Forwarded-Client-Cert": "URI=spiffe://x/y"}
        assert (await client.get("/api/v1/sites", headers=forged)).status == 401
