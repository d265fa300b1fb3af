"""Every call of the .proto files, at central's gRPC port and at a site's, made by every kind of caller.

`CENTRAL` and `SITE` say who may; a call that no row names fails the test, and so does one that is served and should
not be. Beyond who may, nothing is said here: a request is as empty as it can be, and an answer about its fields means
that the caller was let in.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message_factory import GetMessageClass

from homeport.adapters.git import create_bare
from homeport.core.model.caller import INTERNAL, Role
from homeport.identity.tokens import Tokens
from homeport.site.app import open_site
from homeport.site.capabilities import CAPABILITIES
from homeport.site.settings import SiteSettings
from homeport.vocabulary import SiteName
from homeport.wire.orchion.v1 import orchestrator_pb2
from homeport.wire.v1 import jobs_pb2, logs_pb2, nodes_pb2
from tests.integration.central.test_grpc_access import certified_channel, token, trail, two_sites
from tests.support.local import machine_key, person_key

pytestmark = pytest.mark.anyio

Metadata = Any


class Who(Enum):
    NOBODY, VIEWER, OPERATOR, ADMIN, MACHINE, OWNER = range(6)
    """`OWNER` is who started the role, with the local key."""


PEOPLE = frozenset({Who.VIEWER, Who.OPERATOR, Who.ADMIN, Who.OWNER})
OPERATORS = frozenset({Who.OPERATOR, Who.ADMIN, Who.OWNER})
MACHINES = frozenset({Who.MACHINE, Who.OWNER})
REGISTRY = ("RegisterNode", "Heartbeat", "UpdateNode", "UnregisterNode")
SHARED: dict[str, frozenset[Who]] = {
    **{f"homeport.v1.Nodes/{name}": MACHINES for name in (*REGISTRY, "Connect")},
    **{f"orchion.v1.Orchestrator/{name}": MACHINES for name in REGISTRY},
    "homeport.v1.Jobs/SubmitJob": OPERATORS,
    "homeport.v1.Jobs/CancelJob": OPERATORS,
    "homeport.v1.Jobs/GetJob": PEOPLE,
    "homeport.v1.Jobs/ListJobs": PEOPLE,
    "homeport.v1.LogStreamer/StreamLogs": PEOPLE,
    "orchion.v1.LogStreamer/StreamLogs": PEOPLE,
    "orchion.v1.Orchestrator/SubmitJob": PEOPLE,
    "orchion.v1.Orchestrator/GetJobStatus": PEOPLE,
    "orchion.v1.OrchionLLM/ChatCompletion": PEOPLE,
    "orchion.v1.OrchionLLM/Embeddings": PEOPLE,
    "orchion.v1.NodeAgent/ChatCompletion": PEOPLE,
    "orchion.v1.NodeAgent/Embeddings": PEOPLE,
}
LISTS = ("homeport.v1.Nodes/ListNodes", "orchion.v1.Orchestrator/ListNodes")
CENTRAL = SHARED | dict.fromkeys(LISTS, PEOPLE | MACHINES)
SITE = SHARED | dict.fromkeys(LISTS, MACHINES)
RECORDED = {
    *(f"nodes.{name}" for name in ("register", "beat", "update", "unregister", "connect", "read")),
    *(f"orchion.{name}" for name in ("register", "beat", "update", "unregister")),
    *("jobs.submit", "jobs.cancel", "jobs.read", "logs.read", "tasks.submit", "openai.call"),
}
REFUSED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
FAULTS = frozenset({"UNKNOWN", "INTERNAL", "UNIMPLEMENTED", "UNAVAILABLE"})


def every_method() -> Iterator[Any]:
    for module in (nodes_pb2, jobs_pb2, logs_pb2, orchestrator_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def name_of(method: Any) -> str:
    return f"{method.containing_service.full_name}/{method.name}"


async def status(channel: grpc.aio.Channel, method: Any, metadata: Metadata) -> tuple[str, bytes]:
    """The status of the call, and what it answers first. A stream that has nothing to say yet is let in: OK."""
    make = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, True): channel.stream_stream,
    }[method.client_streaming, method.server_streaming]
    multi: Any = make(f"/{name_of(method)}", request_serializer=None, response_deserializer=None)
    request = GetMessageClass(method.input_type)().SerializeToString()
    options = {"metadata": metadata, "wait_for_ready": True, "timeout": 1.5 if method.server_streaming else 60}
    try:
        if not method.server_streaming:
            return "OK", await multi(request, **options)
        call = multi(**options) if method.client_streaming else multi(request, **options)
        first = await call.read()
        return "OK", first if isinstance(first, bytes) else b""
    except grpc.aio.AioRpcError as error:
        is_open = method.server_streaming and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return "OK" if is_open else error.code().name, str(error.details()).encode()


def wrong_in(answers: Mapping[tuple[str, Who], tuple[str, bytes]], table: Mapping[str, Any]) -> Iterator[str]:
    for (name, who), (found, text) in answers.items():
        may = table[name]
        if who in may and found in REFUSED | FAULTS:
            yield f"{who}: {name} is allowed, and was answered {found} {text[:200]!r}"
        elif who not in may and found not in REFUSED:
            yield f"{who}: {name} is to be refused, and was answered {found} {text[:200]!r}"


@asynccontextmanager
async def at_central(folder: Path) -> AsyncIterator[tuple[dict[Who, tuple[grpc.aio.Channel, Metadata]], Any]]:
    async with (
        two_sites(folder) as fleet,
        certified_channel(fleet) as plain,
        certified_channel(fleet, certificate_of="north") as machine,
    ):
        callers: dict[Who, tuple[grpc.aio.Channel, Metadata]] = {
            Who.NOBODY: (plain, None),
            Who.MACHINE: (machine, None),
        }
        for who in (Who.VIEWER, Who.OPERATOR, Who.ADMIN):
            callers[who] = plain, await token(fleet, who.name.lower(), who.name.lower())
        yield callers, fleet


async def test_each_caller_of_central_may_call_what_the_table_says(tmp_path: Path) -> None:
    async with at_central(tmp_path) as (callers, fleet):
        answers = {
            (name_of(method), who): await status(channel, method, metadata)
            for method in every_method()
            for who, (channel, metadata) in callers.items()
        }
        entries = await trail(fleet)
        limited = await token(fleet, "limited", "admin", sites=["south"])
        seen = [(await status(callers[Who.NOBODY][0], method, limited))[1] for method in every_method()]
    assert {name for name, _ in answers} == set(CENTRAL), "every call of the .proto files has its row"
    assert not (wrong := list(wrong_in(answers, CENTRAL))), "\n".join(wrong)
    assert not [text for text in seen if b"n1" in text or b"of north" in text], "nothing of another site"
    assert b"n1" in answers["homeport.v1.Nodes/ListNodes", Who.ADMIN][1]
    refused = [entry for entry in entries if entry[3] == "refused"]
    nobody = {entry[0] for entry in refused if entry[2] == "anonymous"}
    assert nobody == RECORDED, "the same refusal again is counted, and not repeated"
    assert {entry[2] for entry in refused} >= {"anonymous", "viewer"}, "each refusal is recorded with who it was"


async def test_each_caller_of_a_site_may_call_what_the_table_says(tmp_path: Path) -> None:
    create_bare(tmp_path / "deployments.git", "main")
    settings = SiteSettings(
        name=SiteName("home"),
        data=tmp_path / "site",
        git_url=str(tmp_path / "deployments.git"),
        http_address=("127.0.0.1", 0),
        grpc_address="127.0.0.1:0",
    )
    async with (
        open_site(settings, capabilities=CAPABILITIES) as site,
        grpc.aio.insecure_channel(f"127.0.0.1:{site.grpc_port}") as channel,
    ):
        tokens = Tokens(site.parts.store, site.parts.clock)
        keys: dict[Who, Metadata] = {
            Who.NOBODY: None,
            Who.MACHINE: machine_key(site),
            Who.OWNER: person_key(site),
        }
        for who, role in ((Who.VIEWER, Role.VIEWER), (Who.OPERATOR, Role.OPERATOR), (Who.ADMIN, Role.ADMIN)):
            made = await tokens.create(INTERNAL, name=who.name, role=role)
            keys[who] = (("authorization", f"Bearer {made.text}"),)
        answers = {
            (name_of(method), who): await status(channel, method, metadata)
            for method in every_method()
            for who, metadata in keys.items()
        }
    assert {name for name, _ in answers} == set(SITE), "every call of the .proto files has its row"
    assert not (wrong := list(wrong_in(answers, SITE))), "\n".join(wrong)
