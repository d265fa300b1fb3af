"""Throws generated requests at every route of a running central: whatever comes in, no answer is a 500, and all
answers are as the OpenAPI document says.

The server runs in its own thread, for the generator is synchronous. Streams are left out: they do not end.
"""

import os
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.from_thread
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from homeport.adapters.local_access import KeyKind, default_folder, find
from homeport.central.app import open_central
from homeport.central.settings import CentralSettings
from tests.support.examples import REQUESTS
from tests.support.running_central import write_app

STREAMS = r"/(events|watch|logs)$"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A central in a thread of its own. Its working folder holds nothing, so generated paths name nothing."""
    data = tmp_path_factory.mktemp("central")
    write_app(data / "registry")
    ready = threading.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        stop = anyio.Event()
        found["stop"] = stop
        config = CentralSettings(data=data / "data", http_address=("127.0.0.1", 0), grpc_address=None)
        async with open_central(config) as central, anyio.create_task_group() as tasks:
            found["port"] = central.http_port
            async with anyio.from_thread.BlockingPortal() as portal:
                found["portal"] = portal
                ready.set()
                await stop.wait()
            tasks.cancel_scope.cancel()

    thread = threading.Thread(target=lambda: anyio.run(serve))
    thread.start()
    assert ready.wait(20)
    try:
        yield f"http://127.0.0.1:{found['port']}"
    finally:
        found["portal"].call(found["stop"].set)
        thread.join(10)
        assert not thread.is_alive()


def no_fault_of_ours(ctx: Any, response: Any, case: Any) -> bool | None:
    """A site that is not connected, or a peer that asks for what only a newer release knows, is no fault;
    `status_code_conformance` looks whether a route may say so."""
    return None if response.status_code in {501, 503} else not_a_server_error(ctx, response, case)


def whole_items_follow_the_schema(ctx: Any, response: Any, case: Any) -> bool | None:
    """With `fields` the items of a list have only those, which no schema says; `test_lists.py` looks at them."""
    return None if "fields" in (case.query or {}) else response_schema_conformance(ctx, response, case)


CHECKS = [no_fault_of_ours, status_code_conformance, content_type_conformance, whole_items_follow_the_schema]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_generated_request_gets_a_500(url: str, mode: GenerationMode) -> None:
    api = schemathesis.openapi.from_url(f"{url}/openapi.json").exclude(path_regex=STREAMS)
    key = find(default_folder(os.environ), int(url.rpartition(":")[2]), KeyKind.PERSON)
    assert key is not None
    headers = {"Authorization": f"Bearer {key.key}"}
    names = []
    for found in api.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        names.append(operation.label)

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=REQUESTS,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def answers_as_documented(case: Any) -> None:
            case.call_and_validate(checks=CHECKS, headers=headers, timeout=60)

        try:
            answers_as_documented()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE, f"no request could be made for {operation.label}"
    assert "POST /api/v1/deployments" in names
    assert len(names) >= 18
