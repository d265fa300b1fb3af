"""Log lines of sites at central: how they are stored, asked for, followed, limited to what a caller may see, and sent
on to other systems."""

import asyncio
import gc
import gzip
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from homeport.central.app import CentralApp
from homeport.core.logs.line import LogLine, Origin, StoredLine
from homeport.core.logs.settings import LogSettings
from homeport.errors import Refused
from homeport.serving.server.limits import Limits
from homeport.vocabulary import SiteName
from homeport.wire.logs import decode_stored, encode_batch
from homeport.wire.orchion.v1 import orchestrator_pb2 as orchion
from homeport.wire.v1 import logs_pb2 as pb
from tests.integration.central.test_tokens import make
from tests.support.local import local_channel, local_key, person_key
from tests.support.running_central import Client, FakeSite, node_changed, running_central
from tests.support.stubs import logs_pb2_grpc, orchestrator_pb2_grpc
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
FOLLOWERS = 1_000
STALLED = 20


def batch(
    first: int, last: int, *, source: str = "deployment/d-1/web", level: str = "info", text: str = "line"
) -> bytes:
    lines = [
        StoredLine(
            number, Origin("", "n1", source), LogLine(NOW, source, level, f"{text} {number}", {"n": str(number)})
        )
        for number in range(first, last + 1)
    ]
    return encode_batch("buffer", first - 1, lines)


async def send(central: CentralApp, body: bytes, site: str = "home") -> int:
    return decode_stored(await central.link.call(SiteName(site), "logs", body))


async def texts(client: Client, query: str, **options: Any) -> list[str]:
    answer = await client.get(f"/api/v1/logs?{query}", **options)
    assert answer.status == 200, answer.body
    return [line["text"] for line in answer.body["lines"]]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[CentralApp, Client]]:
    async with running_central(tmp_path / "central", grpc_address="127.0.0.1:0") as (central, client):
        yield central, client


async def test_lines_are_paged_filtered_and_survive_being_sent_twice(running: tuple[CentralApp, Client]) -> None:
    central, client = running
    assert await send(central, batch(1, 250)) == 250
    assert await send(central, batch(1, 250)) == 250
    assert await send(central, batch(300, 310)) == 250, "a hole is asked for"
    first = (await client.get("/api/v1/logs?site=home&limit=100&order=oldest")).body
    second = (await client.get(f"/api/v1/logs?site=home&limit=200&order=oldest&cursor={first['next']}")).body
    found = [line["text"] for line in (*first["lines"], *second["lines"])]
    assert found == [f"line {number}" for number in range(1, 251)]
    assert first["lines"][0] | {"id": 0} == {
        "id": 0,
        "at": "2026-05-01T12:00:00.000+00:00",
        "level": "info",
        "site": "home",
        "node": "n1",
        "source": "deployment/d-1/web",
        "deployment": "d-1",
        "component": "web",
        "job": "",
        "text": "line 1",
        "fields": {"n": "1"},
    }
    assert await texts(client, "node=n1&component=web&text=LINE%20250") == ["line 250"]
    assert await texts(client, "site=elsewhere") == []
    assert await texts(client, "site=home&since=2026-05-02T00:00:00Z") == []


async def test_the_filter_language_finds_lines_by_what_a_deployment_is_now(
    central: CentralApp, client: Client, home: FakeSite
) -> None:
    await home.say(node_changed("n1"))
    assert (await client.deploy("home", name="talker")).status == 202
    (row,) = (await client.get("/api/v1/deployments")).body["deployments"]
    await send(central, batch(1, 2, source=f"deployment/{row['id']}/web"))
    labelled = await client.call("PATCH", "/api/v1/sites/home", json={"labels": {"region": "north"}})
    assert labelled.status == 200, labelled.body
    both = ["line 2", "line 1"]
    for query, expected in {
        f"app:{row['app_name']}": both,
        f"-app:{row['app_name']} site:home": [],
        "state:PENDING": both,
        "state:FAILED": [],
        "deployment:talker@ho*": both,
        "deployment:talker": both,
        "deployment:other@home": [],
        "label:region=north line": both,
        "label:region=south": [],
        '"line 2"': ["line 2"],
    }.items():
        assert await texts(client, f"filter={quote(query)}") == expected, query


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("filter=" + "x" * 301, "filter"),
        ("filter=label:%2A", "filter"),
        ("since=yesterday", "since"),
        ("limit=100000", "limit"),
        ("level=loud", "level"),
        ("kind=cloud", "kind"),
        ("cursor=abc", "cursor"),
        ("tail=-1", "tail"),
        ("text=" + "x" * 400, "text"),
    ],
)
async def test_a_wrong_question_names_its_field(running: tuple[CentralApp, Client], query: str, name: str) -> None:
    answer = await running[1].get(f"/api/v1/logs?{query}")
    assert answer.status == 422
    assert name in answer.fields[0]


async def test_an_unknown_deployment_is_not_found_and_rubbish_from_a_site_is_refused(
    running: tuple[CentralApp, Client],
) -> None:
    central, client = running
    assert (await client.get("/api/v1/logs?deployment=nothing@home")).status == 404
    for query in ("node=nowhere", "node=nowhere&follow=true"):
        missing = await client.get(f"/api/v1/logs?{query}")
        assert (missing.status, missing.body["detail"]) == (404, 'There is no node "nowhere".')
    with pytest.raises(Refused):
        await send(central, b"\xff\xff rubbish")


async def test_a_limited_token_sees_the_lines_of_its_sites_and_no_others(running: tuple[CentralApp, Client]) -> None:
    central, client = running
    await send(central, batch(1, 2), "home")
    await send(central, batch(1, 3), "away")
    headers = await make(client, "anna", "viewer", sites=["away"])
    assert len(await texts(client, "limit=1000", headers=headers)) == 3
    assert await texts(client, "site=home", headers=headers) == []
    assert (await Client(client.url, client.session).get("/api/v1/logs?kind=central", headers=headers)).body[
        "lines"
    ] == []


async def test_a_follower_gets_the_tail_then_live_lines_and_resumes_where_it_was(
    running: tuple[CentralApp, Client],
) -> None:
    central, client = running
    await send(central, batch(1, 20))
    seen = []
    with anyio.fail_after(30):
        async with aclosing(client.events("/api/v1/logs?follow=true&tail=3&site=home")) as events:
            async for event in events:
                if event.event == "live":
                    await send(central, batch(21, 22))
                else:
                    seen.append(event)
                if len(seen) == 5:
                    break
    assert [event.data["text"] for event in seen] == [f"line {number}" for number in (18, 19, 20, 21, 22)]
    await send(central, batch(23, 24))
    headers = {"Last-Event-ID": str(seen[3].id)}
    resumed = []
    with anyio.fail_after(30):
        async with aclosing(client.events("/api/v1/logs?follow=true&site=home", **headers)) as events:
            async for event in events:
                resumed += [event.data["text"]] if event.event == "log" else []
                if len(resumed) == 3:
                    break
    assert resumed == ["line 22", "line 23", "line 24"]


class Follower(asyncio.Protocol):
    """A client that counts lines, or stops reading."""

    def __init__(self, request: bytes, *, reads: bool) -> None:
        self._request = request
        self._reads = reads
        self._end = b""
        self.live = False
        self.lines = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        text = self._end + data
        self.lines += text.count(b"event: log\n")
        self.live |= b"live\n" in text
        self._end = text[-10:]
        if self.live and not self._reads:
            self.transport.pause_reading()


async def followers(central: CentralApp, site: str, count: int, *, reads: bool = True) -> list[Follower]:
    key = local_key(central)["Authorization"]
    request = (
        f"GET /api/v1/logs?follow=true&site={site} HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{central.http_port}\r\nAuthorization: {key}\r\n\r\n"
    ).encode()
    loop = asyncio.get_running_loop()
    made: list[Follower] = []
    for _ in range(count):
        client = socket.socket()
        client.setblocking(False)
        if not reads:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(client, ("127.0.0.1", central.http_port))
        _, follower = await loop.create_connection(lambda: Follower(request, reads=reads), sock=client)
        made.append(follower)
    await eventually(lambda: all(each.live for each in made), what="all streams to be live")
    return made


def waiting_bytes() -> list[int]:
    """What the server has taken for clients that have not got it yet, for each connection that has some."""
    found = [each for each in gc.get_objects() if type(each).__name__ == "_SelectorSocketTransport"]
    return [size for each in found if (size := each.get_write_buffer_size())]


async def test_slow_followers_cost_a_thousand_others_nothing_and_no_memory_to_speak_of(tmp_path: Path) -> None:
    """Over real sockets: those that have stopped reading are kept in one slice each, and the others get each line."""
    many = Limits(connections_per_address_max=2 * FOLLOWERS)
    async with running_central(tmp_path / "central", limits=many) as (central, client):
        stalled = await followers(central, "noisy", STALLED, reads=False)
        quick = await followers(central, "home", FOLLOWERS)
        try:
            long = "x" * 10_000
            for first in range(1, 1001, 200):
                await send(central, batch(first, first + 199, text=long), "noisy")
            await eventually(lambda: len(waiting_bytes()) >= STALLED, what="the stalled ones to be behind")
            for first in (1, 21, 41):
                began = anyio.current_time()
                await send(central, batch(first, first + 19))
                last = first + 19
                await eventually(lambda last=last: all(each.lines == last for each in quick), what=f"line {last}")  # type: ignore[misc]
                assert anyio.current_time() - began < 20
            assert (await client.get("/healthz")).status == 200
            # What asyncio takes before it asks to wait, and one slice.
            assert max(waiting_bytes()) <= 4 * 64 * 1024, "of 10 MB that each of them could have had"
            assert all(each.lines < 1000 for each in stalled)
        finally:
            for each in (*stalled, *quick):
                each.transport.abort()


async def test_clients_of_orchion_follow_logs_over_http(running: tuple[CentralApp, Client]) -> None:
    central, client = running
    kinds: list[Any] = []
    with anyio.fail_after(30):
        async with client.session.get(client.url + "/api/logs") as answer:
            async for line in answer.content:
                if not line.startswith(b"data: "):
                    continue
                kinds.append(json.loads(line[6:]))
                if kinds[-1]["type"] == "connected":
                    await send(central, batch(1, 1, source="node", level="warning"))
                elif kinds[-1]["type"] == "log" and kinds[-1]["entry"]["message"] == "line 1":
                    break
    entry = kinds[-1]["entry"]
    assert kinds[0] == {"type": "connected"}
    assert (entry["source"], entry["level"], entry["timestamp"]) == ("node-agent:n1", "warn", 1777636800000)


async def test_programs_stream_logs_over_grpc(running: tuple[CentralApp, Client]) -> None:
    central, _ = running
    await send(central, batch(1, 10))
    async with local_channel(central) as channel:
        ours = logs_pb2_grpc.LogStreamerStub(channel)  # type: ignore[no-untyped-call]
        request = pb.StreamLogsRequest(site="home", tail=3, no_follow=True)
        entries = [reply.entry async for reply in ours.StreamLogs(request, metadata=person_key(central))]
        assert [entry.text for entry in entries] == ["line 8", "line 9", "line 10"]
        assert (entries[0].node, entries[0].fields["n"], entries[0].level) == ("n1", "8", pb.LOG_LEVEL_INFO)
        theirs = orchestrator_pb2_grpc.LogStreamerStub(channel)  # type: ignore[no-untyped-call]
        call = theirs.StreamLogs(orchion.StreamLogsRequest(), metadata=person_key(central))
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:

                async def feed() -> None:
                    number = 11
                    while True:
                        await send(central, batch(number, number))
                        number += 1
                        await anyio.sleep(0.2)

                tasks.start_soon(feed)
                reply = await call.read()
                tasks.cancel_scope.cancel()
        assert reply.entry.message.startswith("line ")


@dataclass
class Receiver:
    bodies: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """What it answers next; 204 after that."""
    poison: bytes = b"nothing"
    """What it refuses for good."""


@contextmanager
def receiver() -> Iterator[tuple[str, Receiver]]:
    """Takes what is posted to it, as JSON, compressed."""
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            status = received.answers.pop(0) if received.answers else 204
            if status < 300 and received.poison in gzip.decompress(raw):
                status = 400
            if status < 300:
                received.bodies.append((self.path, dict(self.headers), json.loads(gzip.decompress(raw))))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_lines_go_on_to_an_otlp_collector_and_to_loki(tmp_path: Path) -> None:
    with receiver() as (url, received):
        received.answers[:] = [503, 503]
        logs = LogSettings(
            otlp_url=f"{url}/v1/logs", loki_url=f"{url}/loki/api/v1/push", headers={"X-Scope-OrgID": "home"}
        )
        async with running_central(tmp_path / "central", logs=logs) as (central, _):
            # A receiver that is new gets what is written from now on.
            await anyio.sleep(0.5)
            await send(central, batch(1, 3, level="warning"))
            await eventually(lambda: len(received.bodies) >= 2, what="both receivers to have lines")
    by_path = {path: (headers, body) for path, headers, body in received.bodies}
    headers, otlp = by_path["/v1/logs"]
    assert headers["X-Scope-OrgID"] == "home"
    request = ParseDict(otlp, ExportLogsServiceRequest())
    (resource,) = request.resource_logs
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert attributes["homeport.site"] == "home"
    assert attributes["service.name"] == "web"
    records = resource.scope_logs[0].log_records
    assert [record.body.string_value for record in records] == ["line 1", "line 2", "line 3"]
    assert (records[0].severity_number, records[0].time_unix_nano) == (13, 1777636800 * 10**9)
    (stream,) = by_path["/loki/api/v1/push"][1]["streams"]
    assert stream["stream"] == {
        "job": "homeport",
        "site": "home",
        "node": "n1",
        "source": "deployment",
        "deployment": "d-1",
        "component": "web",
        "level": "warning",
    }
    assert stream["values"][0] == [str(1777636800 * 10**9), "line 1", {"n": "1"}]


async def test_a_wrong_token_loses_no_line_and_a_line_that_is_refused_harms_no_other(tmp_path: Path) -> None:
    with receiver() as (url, received):
        received.answers[:], received.poison = [401], b'"line 7"'
        logs = LogSettings(loki_url=f"{url}/loki/api/v1/push")
        async with running_central(tmp_path / "central", logs=logs) as (central, _):
            await anyio.sleep(0.5)  # A receiver that is new gets what is written from now on.
            await send(central, batch(1, 20))
            await eventually(lambda: len(_texts(received)) == 19, what="all lines but one")
    assert _texts(received) == [f"line {number}" for number in range(1, 21) if number != 7]


def _texts(received: Receiver) -> list[str]:
    streams = [stream for _, _, body in received.bodies for stream in body["streams"]]
    return [value[1] for stream in streams for value in stream["values"]]
