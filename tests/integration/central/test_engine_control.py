"""A pool's model changed from central: a commit, followed until the site has taken it or has gone back."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from homeport.catalog.documents import dump
from homeport.central.app import CentralApp
from homeport.content.importing.description import render_description
from homeport.content.importing.engines import import_engine
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from homeport.core.model.instance import Failure
from homeport.errors import Conflict
from homeport.vocabulary import Trigger
from tests.support.running_central import Client, FakeSite, node_changed, transition

pytestmark = pytest.mark.anyio

CURRENT = Handoff(
    engine=EngineName.LLAMACPP,
    url="http://127.0.0.1:8100",
    model=HandoffModel("a"),
    pool_id="tiny",
    replica_id="home/node-a",
)


async def deployed(client: Client) -> tuple[FakeSite, dict[str, Any]]:
    """A site where the engine serves model a."""
    await added(client)
    return await deployed_at(client, "home")


async def added(client: Client) -> None:
    imported = import_engine(EngineName.LLAMACPP)
    assert imported.place is not None
    repository, revision = imported.place
    description = render_description(imported, repository=repository, revision=revision, version="1.0.0")
    body = {"category": "local", "app_name": "llama-cpp", "description": dump(description).decode()}
    answer = await client.post("/api/v1/apps", body)
    assert answer.status == 201, answer.body


async def deployed_at(client: Client, name: str) -> tuple[FakeSite, dict[str, Any]]:
    site = FakeSite(client, name)
    await site.join()
    await site.say(node_changed(site=name))
    parameters = {"model": "hf:org/repo/a.gguf", "model_id": "a", "device": "cpu"}
    answer = await client.deploy(name, app="llama-cpp", name="tiny", parameters=parameters)
    assert answer.status == 202, answer.body
    row = (await client.get(f"/api/v1/deployments/{answer.body['deployment_ids'][0]}")).body
    await site.say(
        transition(row["id"], Trigger.SCHEDULED, revision=row["revision"]),
        transition(row["id"], Trigger.HEALTHY, revision=row["revision"]),
    )
    return site, row


async def changed(client: Client, row: dict[str, Any], is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    with anyio.fail_after(30):
        while True:
            now: dict[str, Any] = (await client.get(f"/api/v1/deployments/{row['id']}")).body
            if is_so(now):
                return now
            await anyio.sleep(0.02)


async def reloading(
    central: CentralApp,
    model_ref: str,
    beside: Callable[[], Awaitable[None]],
    current: Sequence[Handoff] = (CURRENT,),
) -> tuple[Handoff | None, Conflict | None]:
    """What a reload ends in while the site does its part."""
    engines = central.parts.inference.engines
    assert engines is not None
    found: list[Handoff] = []
    refused: list[Conflict] = []

    async def run() -> None:
        try:
            found.extend(await engines.reload(current, model_ref))
        except Conflict as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await beside()
    return next(iter(found), None), next(iter(refused), None)


async def test_a_reload_returns_when_the_site_runs_the_new_model(central: CentralApp, client: Client) -> None:
    site, row = await deployed(client)

    async def take() -> None:
        now = await changed(client, row, lambda each: each["revision"] != row["revision"])
        assert now["parameters"]["model"] == "hf:org/repo/b.gguf"
        assert now["parameters"]["device"] == "cpu", "everything else stays"
        await site.say(
            transition(row["id"], Trigger.CHANGED, revision=now["revision"], generation=2),
            transition(row["id"], Trigger.HEALTHY, revision=now["revision"], generation=2),
        )

    found, refused = await reloading(central, "hf:org/repo/b.gguf", take)
    assert refused is None
    assert found is not None
    assert (found.model.id, found.pool_id, found.url) == ("b", "tiny", CURRENT.url)


async def test_a_model_that_does_not_start_is_taken_back_out_of_git(central: CentralApp, client: Client) -> None:
    site, row = await deployed(client)

    async def fail() -> None:
        now = await changed(client, row, lambda each: each["revision"] != row["revision"])
        broken = Failure("EXITED", "the engine cannot read the model")
        await site.say(
            transition(row["id"], Trigger.CHANGED, revision=now["revision"], generation=2),
            transition(row["id"], Trigger.GAVE_UP, revision=now["revision"], generation=2, failure=broken),
        )

    found, refused = await reloading(central, "hf:org/repo/bad.gguf", fail)
    assert found is None
    assert "cannot read the model" in str(refused)
    now = (await client.get(f"/api/v1/deployments/{row['id']}")).body
    assert now["parameters"]["model"] == "hf:org/repo/a.gguf"


async def test_a_reload_of_several_sites_is_undone_at_those_that_took_it_where_one_fails(
    central: CentralApp, client: Client
) -> None:
    await added(client)
    home, north = await deployed_at(client, "home"), await deployed_at(client, "north")

    async def one_fails() -> None:
        taken: dict[str, dict[str, Any]] = {}
        for site, row in (home, north):
            now = taken[site.name] = await changed(client, row, lambda each: each["revision"] != row["revision"])  # noqa: B023
            await site.say(transition(row["id"], Trigger.CHANGED, revision=now["revision"], generation=2))
        site, row = home
        await site.say(transition(row["id"], Trigger.HEALTHY, revision=taken["home"]["revision"], generation=2))
        site, row = north
        broken = Failure("EXITED", "the engine cannot read the model")
        gave_up = transition(
            row["id"], Trigger.GAVE_UP, revision=taken["north"]["revision"], generation=2, failure=broken
        )
        await site.say(gave_up)
        # Back again: the answer waits for the site that had taken it.
        site, row = home
        back = await changed(client, row, lambda each: each["parameters"]["model"] == "hf:org/repo/a.gguf")
        await site.say(
            transition(row["id"], Trigger.CHANGED, revision=back["revision"], generation=3),
            transition(row["id"], Trigger.HEALTHY, revision=back["revision"], generation=3),
        )

    both = (CURRENT, replace(CURRENT, replica_id="north/node-a"))
    found, refused = await reloading(central, "hf:org/repo/bad.gguf", one_fails, both)
    assert found is None
    assert "cannot read the model" in str(refused)
    for _, row in (home, north):
        now = (await client.get(f"/api/v1/deployments/{row['id']}")).body
        assert now["parameters"]["model"] == "hf:org/repo/a.gguf"


async def test_an_engine_that_somebody_else_started_is_not_changed(central: CentralApp, client: Client) -> None:
    async def nothing() -> None:
        pass

    found, refused = await reloading(central, "hf:org/repo/b.gguf", nothing)
    assert found is None
    assert "was not deployed from here" in str(refused)


async def test_stopping_an_engine_removes_its_deployment(central: CentralApp, client: Client) -> None:
    _, row = await deployed(client)
    engines = central.parts.inference.engines
    assert engines is not None
    await engines.stop(CURRENT)
    now = await changed(client, row, lambda each: not each["wanted"])
    assert now["id"] == row["id"]
