"""Generated requests over the contract's own interface, with a client certificate: whatever comes in, every answer is
one that the contract lists for it, with its media type and its schema.

The server runs in a thread of its own, for the generator is synchronous.
"""

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.from_thread
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import booleans, just
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.examples import REQUESTS
from tests.support.margo import device, is_site, running_wfm
from tests.support.vectors import load_json

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


@dataclass
class Stand:
    url: str
    certificate: tuple[str, str]
    manifest: dict[str, Any]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A central with one client that has a device and a deployment."""
    folder = tmp_path_factory.mktemp("contract")
    ready = threading.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        stop = found["stop"] = anyio.Event()
        async with running_wfm(folder) as wfm:
            async with wfm.client("line-7") as client:
                await client.put_device(device("press-1"))
                await is_site(wfm, "line-7")
                await wfm.deploy("line-7")
                manifest = await client.listed(1)
            for name, content in zip(("cert.pem", "key.pem"), wfm.issued["line-7"], strict=True):
                (folder / name).write_bytes(content)
            found["stand"] = Stand(wfm.url, (str(folder / "cert.pem"), str(folder / "key.pem")), manifest)
            async with anyio.from_thread.BlockingPortal() as portal:
                found["portal"] = portal
                ready.set()
                await stop.wait()

    thread = threading.Thread(target=lambda: anyio.run(serve))
    thread.start()
    assert ready.wait(30)
    try:
        yield found["stand"]
    finally:
        found["portal"].call(found["stop"].set)
        thread.join(20)
        assert not thread.is_alive()


def name_what_is_there(case: Any, stand: Stand) -> None:
    """Generated identifiers name nothing, no two of a request are the same, and generated states seldom fit."""
    (listed,) = stand.manifest["deployments"]
    real = {**listed, "deviceId": "press-1"}
    if "bundles" in case.operation.path:
        real = stand.manifest["bundle"]
    case.path_parameters.update({name: real[name] for name in case.path_parameters})
    if case.method == "PUT":
        case.body["properties"]["id"] = real["deviceId"]
    elif case.method == "POST":
        case.body.pop("deviceId", None)
        case.body |= {
            "deploymentId": real["deploymentId"],
            "adoptedManifestVersion": stand.manifest["manifestVersion"],
        }
        for each in case.body["components"]:
            each["state"] = case.body["status"]["state"]


BEYOND_THE_SCHEMA = re.compile(
    # Numbers and texts that can be stored, amounts, names that are not empty and not there twice, states that fit.
    r"body|properties\.(memory|storage|cpus\.[0-9]+\.cores)|components(\.[0-9]+\.name)?|status\.state"
)


def assert_taken(answer: Any) -> None:
    """What the contract's schemas allow, or refused for what its text says beyond them."""
    if answer.status_code == 422:
        fields = [each["field"] for each in answer.json()["errors"]]
        assert fields and all(BEYOND_THE_SCHEMA.fullmatch(each) for each in fields), answer.json()
    else:
        assert answer.status_code in {200, 201, 204, 304, 404, 406}, answer.status_code


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_to_a_generated_request_is_one_of_the_contract(stand: Stand, mode: GenerationMode) -> None:
    api = schemathesis.openapi.from_dict(load_json("workload-management-api"))
    api.config.update(base_url=stand.url)
    names = []
    with requests.Session() as session:
        for found in api.get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()
            names.append(operation.label)
            answered: set[int] = set()
            try:
                generated(operation, mode, stand, session, answered)()
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE, f"no request could be made for {operation.label}"
            if mode is GenerationMode.POSITIVE:
                assert answered & {200, 201, 204}, f"{operation.label} never succeeded: {answered}"
    assert len(names) == 6


def generated(
    operation: Any, mode: GenerationMode, stand: Stand, session: requests.Session, answered: set[int]
) -> Callable[[], None]:
    is_positive = mode is GenerationMode.POSITIVE
    checks = CHECKS if is_positive else [*CHECKS, negative_data_rejection]

    @given(case=operation.as_strategy(generation_mode=mode), is_real=booleans() if is_positive else just(False))
    @settings(
        max_examples=10 * REQUESTS,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def answers_as_the_contract_says(case: Any, is_real: bool) -> None:
        if is_real:
            name_what_is_there(case, stand)
        answer = case.call_and_validate(
            checks=checks, session=session, verify=False, cert=stand.certificate, timeout=60
        )
        answered.add(answer.status_code)
        if is_real:
            assert_taken(answer)

    return answers_as_the_contract_says
