"""The node's three pages, asked over a real socket."""

import http.client
import json
import os
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from homeport.errors import Conflict
from homeport.node.pages import http as node_http
from tests.integration.node.conftest import Bench
from tests.support.disks import filled, small_disk
from tests.support.orders import a_component, to_apply
from tests.support.ports import free_port

pytestmark = pytest.mark.anyio


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type", ""), answer.read()
    finally:
        connection.close()


async def asked(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
    return await run_sync(partial(ask, port, path, method, **headers))


def say(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(text)
        answer = b""
        while part := connection.recv(4096):
            answer += part
        return answer


def on_port(bench: Bench) -> tuple[Bench, int]:
    port = free_port()
    return bench.with_settings(http_address=f"127.0.0.1:{port}"), port


async def test_healthz_says_who_it_is(bench: Bench) -> None:
    bench, port = on_port(bench)
    async with bench.node():
        status, kind, body = await asked(port, "/healthz")
        assert (status, kind) == (200, "application/json")
        assert json.loads(body) == {
            "status": "ok",
            "role": "node",
            "version": "0.1.0",
            "node_id": "node-under-test",
            "runtime": "null",
            "engine_version": "1",
        }
        status, _, body = await asked(port, "/healthz", "HEAD")
        assert (status, body) == (200, b"")


async def test_readyz_follows_the_connection_to_the_site(bench: Bench) -> None:
    bench, port = on_port(bench)
    async with bench.node():
        status, _, body = await asked(port, "/readyz")
        checks = json.loads(body)["checks"]
        assert status == 503
        assert checks["engine"] == "ok"
        async with bench.site.serving(bench.port):
            await until_ready_is(200, port)
        await until_ready_is(503, port, because="cannot reach the site")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
async def test_readyz_says_that_the_disk_is_full_until_there_is_space(bench: Bench, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 4) as disk:
        bench, port = on_port(bench.with_settings(data=disk))
        async with bench.connected():
            await until_ready_is(200, port)
            with filled(disk):
                await until_ready_is(503, port)
                _, _, body = await asked(port, "/readyz")
                checks = json.loads(body)["checks"]
                assert "is full" in checks["disk"] and checks["site"] == "ok"
                assert (await asked(port, "/healthz"))[0] == 200
            await until_ready_is(200, port)


async def until_ready_is(status: int, port: int, *, because: str = "") -> None:
    """Asks until the answer has this status, and this as the state of the connection to the site."""
    with anyio.fail_after(60):
        while True:
            found, _, body = await asked(port, "/readyz")
            if found == status and because in json.loads(body)["checks"]["site"]:
                return
            await anyio.sleep(0.02)


async def test_metrics_count_orders_failures_and_what_waits(bench: Bench) -> None:
    bench, port = on_port(bench)
    bench.site.acknowledges = False
    async with bench.connected():
        await bench.site.order(to_apply(1))
        await bench.site.order(to_apply(1))
        await bench.site.order(to_apply(2, a_component(revision="2.0.0", fail="IMAGE_PULL_FAILED")))
        status, kind, body = await asked(port, "/metrics")
        assert status == 200
        assert kind.startswith("text/plain")
        lines = body.decode().splitlines()
        for line in (
            'homeport_node_orders_total{verdict="accepted"} 2.0',
            'homeport_node_orders_total{verdict="repeated"} 1.0',
            'homeport_node_failures_total{code="IMAGE_PULL_FAILED"} 1.0',
            'homeport_node_deployments{state="failed"} 1.0',
            'homeport_node_order_seconds_count{kind="apply"} 2.0',
            "homeport_node_outbox 1.0",
            "homeport_node_connected 1.0",
            "homeport_node_restores_total 0.0",
        ):
            assert line in lines


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/", "GET", {}, 404),
        ("/healthz/x", "GET", {}, 404),
        ("/healthz", "POST", {}, 405),
        ("/healthz", "GET", {"Host": "evil.example"}, 403),
        ("/healthz", "GET", {"Host": "localhost:8082"}, 200),
        ("/healthz?x=1", "GET", {"Host": "[::1]:8082"}, 200),
        ("/healthz", "GET", {"X-Long": "x" * 20000}, 431),
    ],
)
async def test_what_is_not_there_or_not_allowed_is_a_problem_document(
    bench: Bench, path: str, method: str, headers: dict[str, Any], status: int
) -> None:
    bench, port = on_port(bench)
    async with bench.node():
        answered, kind, body = await asked(port, path, method, **headers)
        assert answered == status
        if status != 200:
            assert kind == "application/problem+json"
            assert json.loads(body)["status"] == status


async def test_what_is_not_http_or_too_large_is_refused(bench: Bench) -> None:
    bench, port = on_port(bench)
    async with bench.node():
        assert b" 400 " in await run_sync(say, port, b"nonsense\r\n\r\n")
        body = b"x" * 100_000
        large = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        with anyio.fail_after(60):
            # Closed before all of it was sent is refused as well.
            with suppress(ConnectionResetError):
                assert b" 413 " in await run_sync(say, port, large)
        assert (await asked(port, "/healthz"))[0] == 200


async def test_a_slow_client_is_cut_off_and_others_are_served(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_http, "REQUEST_SECONDS", 0.3)
    bench, port = on_port(bench)
    async with bench.node():
        with anyio.fail_after(60):
            stream = await anyio.connect_tcp("127.0.0.1", port)
            async with stream:
                await stream.send(b"GET /healthz HTT")
                assert (await asked(port, "/healthz"))[0] == 200
                with pytest.raises(anyio.EndOfStream):
                    await stream.receive()


async def test_no_more_than_so_many_connections_are_held(bench: Bench) -> None:
    bench, port = on_port(bench)
    async with bench.node():
        # They are accepted in the order in which they came.
        streams = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(node_http.CONNECTIONS_MAX)]
        extra = await anyio.connect_tcp("127.0.0.1", port)
        async with extra:
            with pytest.raises(anyio.EndOfStream), anyio.fail_after(60):
                await extra.receive()
        for stream in streams:
            await stream.aclose()
        await until_ready_is(503, port)


async def test_a_busy_port_is_said_in_a_sentence(bench: Bench) -> None:
    bench, port = on_port(bench)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(Conflict, match=f"Cannot listen on 127.0.0.1:{port}"):
            async with node_http.serve_http("127.0.0.1", port, None):  # type: ignore[arg-type]
                pass
