"""A full disk under central: each write is refused with a sentence, and it goes on when there is space again."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.central.test_bad_calls import as_bytes, good_calls
from tests.support.disks import filled, small_disk
from tests.support.ports import free_port
from tests.support.processes import machine
from tests.support.running_central import Answer, Client, FakeSite, running_central, write_app
from tests.support.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")]

MEGABYTES = 16


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[tuple[Path, Client]]:
    write_app(tmp_path / "registry", version="1.0.0")
    write_app(tmp_path / "registry", version="1.1.0")
    with small_disk(tmp_path / "central", MEGABYTES) as disk:
        async with running_central(disk) as (_, client):
            assert (await client.post("/api/v1/apps", {"repository": str(tmp_path / "registry")})).status == 201
            await FakeSite(client).join()
            yield disk, client


async def test_every_write_is_refused_with_a_sentence_and_works_again_later(small: tuple[Path, Client]) -> None:
    disk, client = small
    (id_,) = (await client.deploy(version="1.0.0")).body["deployment_ids"]

    async def readiness() -> str:
        return str((await client.get("/readyz")).body["checks"]["disk"])

    assert await readiness() == "ok"
    with filled(disk):
        for answer in (await client.deploy(version="1.1.0"), await client.delete(f"/api/v1/deployments/{id_}")):
            assert (answer.status, answer.body["code"]) == (507, "storage-full"), answer.body
            assert answer.body["detail"].endswith("is full; nothing was written.")
            assert int(answer.headers["retry-after"]) > 0

        async def says_so() -> bool:
            return "is full" in await readiness()

        await eventually(says_so, what="readyz to say that the disk is full")
        assert (await client.get("/readyz")).status == 503
        assert (await client.get("/healthz")).status == 200

    async def is_ready() -> bool:
        return (await client.get("/readyz")).status == 200

    await eventually(is_ready, what="central to be ready again")
    assert (await client.deploy(version="1.1.0")).status == 202


PIPELINE = "name: p\nsite: home\nsteps:\n  one:\n    job: {command: ['true']}\n"


async def test_what_the_capabilities_store_is_refused_too_and_nothing_acknowledged_is_lost(
    small: tuple[Path, Client],
) -> None:
    """Logs, measurements, jobs, pipelines, artifacts and the catalog of models, each in its own words."""
    disk, client = small
    calls = good_calls()

    async def said(topic: str) -> Answer:
        return await client.call("POST", f"/api/v1/sites/home/calls?topic={topic}", data=as_bytes(calls[topic]))

    async def artifact(number: int) -> Answer:
        content = {"number": number, "text": "x" * 50_000}
        return await client.post("/v2/artifacts", {"kind": "other", "content": content})

    async def model(number: int) -> Answer:
        digest = f"sha256:{number:064x}"
        return await client.post("/v2/catalog/models", {"id": f"m{number}", "digest": digest})

    kept = [await artifact(1), await model(1)]
    assert {each.status for each in kept} == {201}
    with filled(disk):
        refused = {topic: await said(topic) for topic in ("logs", "telemetry", "jobs.sync")}
        refused |= {"artifact": await artifact(2), "model": await model(2)}
        refused["pipeline"] = await client.post("/api/v1/pipelines", {"source": PIPELINE})
        refused["run"] = await client.post("/api/v1/pipeline-runs", {"source": PIPELINE})
        for what, answer in refused.items():
            assert answer.status in {503, 507}, (what, answer.status, answer.body)
            assert ("cannot be stored now" if what == "logs" else "is full") in str(answer.body), (what, answer.body)
        assert (await client.get("/v2/catalog/models")).status == 200, "what is there is still shown"
    assert (await client.get(f"/v2/artifacts/{kept[0].body['id']}")).status == 200
    assert [each["id"] for each in (await client.get("/v2/catalog/models")).body["models"]] == ["m1"]

    async def all_taken() -> bool:
        answers = [await said(topic) for topic in ("logs", "telemetry", "jobs.sync")]
        answers += [await artifact(2), await model(2), await client.post("/api/v1/pipelines", {"source": PIPELINE})]
        return all(answer.status < 300 for answer in answers)

    await eventually(all_taken, what="everything to be taken when there is space")


async def test_a_role_that_cannot_start_says_so_in_one_sentence(tmp_path: Path) -> None:
    with small_disk(tmp_path / "host" / "disk", 1) as disk, machine(tmp_path / "host") as host, filled(disk):
        for name, extra in (
            ("node", ("--site", f"127.0.0.1:{free_port()}", "--runtime", "null")),
            ("central", ("--grpc", f"127.0.0.1:{free_port()}")),
        ):
            done = host.command(name, "--data", str(disk / name), "--http", f"127.0.0.1:{free_port()}", *extra)
            said = done.stderr + done.stdout
            assert done.returncode != 0, said
            assert "is full; nothing was written." in said
            assert "itself failed" not in said
