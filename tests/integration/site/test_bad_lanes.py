"""Whatever a node sends on the lanes of logs, measurements and replicas harms itself alone, at a real site with all
its capabilities: each value of a good message becomes a bad one."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import aiohttp
import anyio
import pytest
from google.protobuf.descriptor import FieldDescriptor

from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel, to_data
from homeport.jobs.node.output import FIELD_ATTEMPT, FIELD_OFFSET
from homeport.ports import Beat, FromNode, Hello, LogsStored, ToNode
from homeport.site.app import SiteApp
from homeport.site.capabilities import CAPABILITIES
from homeport.vocabulary import NodeId
from homeport.wire import nodes as convert
from homeport.wire.v1 import nodes_pb2 as pb
from tests.integration.site.conftest import OpenSite
from tests.support.builders import a_node
from tests.support.git import Person
from tests.support.local import local_key
from tests.support.spoiling import DEEP, spoiled
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC)
NOW_MS = int(NOW.timestamp() * 1000)
HANDOFF = to_data(Handoff(engine=EngineName.OPENAI, url="http://127.0.0.1:9", model=HandoffModel("m"), pool_id="p"))
BAD_BY_TYPE: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.TYPE_INT64: (0, -1, 2**63 - 1, -(2**63)),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_DOUBLE: (float("nan"), float("inf"), -1e308),
    FieldDescriptor.TYPE_STRING: (
        "",
        "\x00",
        "x" * 70_000,
        "/",
        "job/",
        "job/j-1",
        "central",
        "9" * 5_000,
        "\x1b[2J",
        "[]",
    ),
}


def logs(text: str = "ahoy", source: str = "node", **fields: str) -> Any:
    line = pb.LogLine(at_ms=NOW_MS, source=source, level="info", text=text, fields=fields, sequence=1)
    return pb.FromNode(logs=pb.Logs(lines=[line], buffer="b"))


def good_messages() -> list[Any]:
    sample = pb.Sample(name="cpu_used_ratio", value=0.5, labels={"a": "b"})
    telemetry = pb.Telemetry(at_ms=NOW_MS, samples=[sample])
    job = logs("out", "job/j-1", **{FIELD_OFFSET: "0", FIELD_ATTEMPT: "1"})
    replicas = pb.Replicas(handoffs_json=[json.dumps(HANDOFF)], network="n")
    return [logs(), job, pb.FromNode(telemetry=telemetry), pb.FromNode(replicas=replicas)]


def spoiled_messages(good: Any) -> Iterator[Any]:
    """With each field, of each message inside, set to each bad value of its type."""

    def change(path: tuple[Any, ...], name: str, bad: Any) -> Any:
        made = type(good).FromString(good.SerializeToString())
        place = made
        for step in path:
            place = place[step] if isinstance(step, int) else getattr(place, step)
        found = getattr(place, name)
        if hasattr(found, "update"):
            found.update({bad: bad})
            for key in list(found):
                found[key] = bad
        elif hasattr(found, "extend"):
            found.extend([bad] * 3)
        else:
            setattr(place, name, bad)
        return made

    def walk(message: Any, path: tuple[Any, ...]) -> Iterator[Any]:
        for field, value in message.ListFields():
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            if field.message_type is None or is_map:
                kind = FieldDescriptor.TYPE_STRING if is_map else field.type
                yield from (change(path, field.name, bad) for bad in BAD_BY_TYPE[kind])
            elif field.is_repeated:
                yield from walk(value[0], (*path, field.name, 0))
            else:
                yield from walk(value, (*path, field.name))

    yield from walk(good, ())


def all_spoiled() -> list[Any]:
    found = [bad for good in good_messages() for bad in spoiled_messages(good)]
    records = [body.decode(errors="replace") for body in spoiled(HANDOFF)]
    found += [pb.FromNode(replicas=pb.Replicas(handoffs_json=[record])) for record in (*records, DEEP.decode())]
    return found


class Node:
    """A node's end of a stream."""

    def __init__(self, name: str, said: list[Any]) -> None:
        self.name = name
        self._said = said
        self.stored: list[LogsStored] = []

    async def send(self, message: ToNode) -> None:
        if isinstance(message, LogsStored):
            self.stored.append(message)

    async def __aiter__(self) -> Any:
        yield Hello(replace(a_node(self.name).info, id=NodeId(self.name)), ())
        while self._said:
            yield read(self._said.pop())
            await anyio.lowlevel.checkpoint()
        while True:
            yield Beat()
            await anyio.sleep(0.1)


def read(message: Any) -> FromNode:
    return convert.from_node_from_proto(pb.FromNode.FromString(message.SerializeToString()))


async def asked(site: SiteApp, path: str) -> Any:
    url = f"http://127.0.0.1:{site.http_port}{path}"
    async with aiohttp.ClientSession(headers=local_key(site)) as session, session.get(url) as answer:
        assert answer.status == 200, (path, await answer.text())
        return await answer.json() if "json" in answer.content_type else await answer.text()


async def kept(site: SiteApp, node: str) -> list[Any]:
    return list((await asked(site, f"/api/v1/logs?node={node}&limit=500"))["lines"])


async def serve(site: SiteApp, node: Node) -> None:
    await site.parts.sessions.serve(node, site.parts.conductor)


async def test_no_line_measurement_or_replica_of_a_node_ends_its_site_or_is_taken_for_anothers(
    person: Person, start: OpenSite
) -> None:
    async with start(capabilities=CAPABILITIES) as site, anyio.create_task_group() as tasks:
        said = all_spoiled()
        evil, honest = Node("evil", said), Node("honest", [logs("all is well")])
        tasks.start_soon(serve, site, evil)
        tasks.start_soon(serve, site, honest)
        await eventually(lambda: honest.stored, what="the lines of an honest node to be stored")
        await eventually(lambda: not said, what="everything to be sent")
        late = Node("late", [logs("late but well")])
        tasks.start_soon(serve, site, late)
        await eventually(lambda: late.stored, what="lines after that to be stored")
        await eventually(partial(kept, site, "late"), what="lines after that to be read")
        sources = {line["source"].partition("/")[0] for line in await kept(site, "evil")}
        assert sources == {"node", "deployment", "job"} & sources, "never the site, or central"
        for path in ("/metrics", "/api/v1/nodes", "/api/v1/telemetry", "/v2/pools", "/api/v1/overview"):
            await asked(site, path)
        tasks.cancel_scope.cancel()
