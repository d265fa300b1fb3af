"""What stands before every route, tried over real sockets against a running central."""

import io
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.support.running_central import Client, running_central

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with running_central(tmp_path / "central", allowed_hosts=("homeport.example",)) as (_, client):
        yield client


def port_of(client: Client) -> int:
    return int(client.url.rpartition(":")[2])


async def raw(client: Client, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Sends bytes as they are and reads one answer."""

    def talk() -> bytes:
        with socket.create_connection(("127.0.0.1", port_of(client)), timeout=60) as connection:
            connection.sendall(request)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
            return answer

    answer = await anyio.to_thread.run_sync(talk)
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("[::1]:{port}", 200),
        ("homeport.example", 200),
        ("HomePort.example:443", 200),
        ("127.0.0.1:1", 421),
        ("evil.example:{port}", 421),
        ("localhost.evil.example:{port}", 421),
        ("", 421),
    ],
)
async def test_only_our_own_names_are_answered(client: Client, host: str, status: int) -> None:
    name = host.format(port=port_of(client))
    answer = await raw(client, f"GET /healthz HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
    assert answer[0] == status
    assert answer[1]["x-request-id"]
    if status == 421:
        assert answer[1]["content-type"] == "application/problem+json"
        assert json.loads(answer[2])["code"] == "misdirected"


async def test_pages_of_other_origins_are_refused(client: Client) -> None:
    assert (await client.get("/healthz", headers={"Origin": client.url})).status == 200
    for origin in ("http://evil.example", "null", "http://localhost:3000", client.url.replace("http", "https")):
        answer = await client.get("/healthz", headers={"Origin": origin})
        assert (answer.status, answer.body["code"]) == (403, "foreign-origin")


async def test_a_request_id_is_echoed_when_it_is_one_and_made_otherwise(client: Client) -> None:
    answer = await client.get("/api/v1/nothing", headers={"X-Request-Id": "mine-42"})
    assert (answer.status, answer.headers.getall("x-request-id")) == (404, ["mine-42"])
    answer = await client.get("/healthz", headers={"X-Request-Id": "not\tone at all"})
    assert len(answer.headers["x-request-id"]) == 32


async def test_a_body_of_100_megabytes_is_refused_at_once(client: Client) -> None:
    huge = io.BytesIO(b"x" * (100 * 1024 * 1024))
    answer = await client.call("POST", "/api/v1/apps", data=huge, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.body["code"]) == (413, "too-large")
    assert huge.closed or huge.tell() < 50 * 1024 * 1024, "most of it was never sent"


async def test_an_endless_body_without_a_length_is_stopped_at_the_limit(client: Client) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 65536

    answer = await client.call("POST", "/api/v1/apps", data=endless(), headers={"Content-Type": "application/json"})
    assert (answer.status, answer.headers["content-type"]) == (413, "application/problem+json")


async def test_a_wrong_method_says_which_are_right(client: Client) -> None:
    answer = await client.call("PATCH", "/api/v1/apps")
    assert (answer.status, answer.body["code"]) == (405, "method-not-allowed")
    assert answer.headers["allow"]


async def test_health_readiness_and_metrics_answer(client: Client) -> None:
    health = (await client.get("/healthz")).body
    assert (health["status"], health["role"]) == ("ok", "central")
    with anyio.fail_after(60):
        while (ready := await client.get("/readyz")).status != 200:  # noqa: ASYNC110
            await anyio.sleep(0.02)
    assert ready.body["checks"] == {"git": "ok", "disk": "ok"}
    metrics = (await client.get("/metrics")).body
    assert 'homeport_deployments{state="INSTALLED"} 0.0' in metrics
    assert 'homeport_http_requests_total{method="GET",route="/healthz",status="200"}' in metrics


async def test_the_docs_page_needs_nothing_from_outside(client: Client) -> None:
    page = await client.get("/docs")
    assert page.status == 200
    assert "https://" not in page.body
    assert "http://" not in page.body
    assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_the_openapi_document_says_every_way_to_fail(client: Client) -> None:
    document = (await client.get("/openapi.json")).body
    assert document["openapi"].startswith("3.1")
    ours = {path: each for path, each in document["paths"].items() if not path.startswith(("/v1/", "/v2/"))}
    for path, operations in ours.items():
        for method, operation in operations.items():
            place = f"{method} {path}"
            assert operation["summary"], place
            assert {"422", "500", "503"} <= operation["responses"].keys(), place
            for status, response in operation["responses"].items():
                if int(status) >= 400 and path != "/readyz":
                    assert "application/problem+json" in response["content"], place
            if "requestBody" in operation:
                assert {"400", "413", "415"} <= operation["responses"].keys(), place
    stream = document["paths"]["/api/v1/events"]["get"]["responses"]["200"]["content"]
    assert list(stream) == ["text/event-stream"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
