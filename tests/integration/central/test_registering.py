"""An app whose description is sent along: equal content keeps its version, other content gets the next one."""

from typing import Any

import anyio
import pytest

from tests.support.running_central import Client, FakeSite

pytestmark = pytest.mark.anyio


def description(*, revision: str = "0.0.0_1", name: str = "shop") -> str:
    return f"""
apiVersion: v1
id: local-{name}
metadata: {{name: {name}, version: "0.0.0", catalog: {{organization: [{{name: local}}]}}}}
deploymentProfiles:
  - type: compose
    id: {name}-compose
    components:
      - name: {name}
        properties: {{repository: "oci://127.0.0.1:5000/local/{name}", revision: "{revision}"}}
"""


async def register(client: Client, text: str, **more: Any) -> Any:
    return await client.post("/api/v1/apps", {"category": "local", "app_name": "shop", "description": text, **more})


async def test_equal_content_keeps_its_version_and_other_content_gets_the_next(client: Client) -> None:
    first = (await register(client, description())).body
    assert [app["version"] for app in first["added"]] == ["1.0.0"]
    again = (await register(client, description())).body
    assert (again["added"], [app["id"] for app in again["unchanged"]]) == ([], [first["added"][0]["id"]])
    changed = (await register(client, description(revision="0.0.0_2"))).body
    assert [app["version"] for app in changed["added"]] == ["1.0.1"]
    back = (await register(client, description())).body
    assert [app["version"] for app in back["unchanged"]] == ["1.0.0"], "what it was before is still there"


async def test_a_version_that_is_asked_for_is_taken_once(client: Client) -> None:
    assert (await register(client, description(), version="2.1.0")).body["added"][0]["version"] == "2.1.0"
    assert (await register(client, description(revision="0.0.0_2"))).body["added"][0]["version"] == "2.1.1"
    taken = await register(client, description(revision="0.0.0_3"), version="2.1.0")
    assert taken.status == 409
    assert "other content" in taken.body["detail"]


async def test_people_who_register_at_once_get_a_version_each(client: Client) -> None:
    versions: list[str] = []

    async def one(number: int) -> None:
        answer = await register(client, description(revision=f"0.0.0_{number}"))
        versions.append(answer.body["added"][0]["version"])

    async with anyio.create_task_group() as people:
        for number in range(5):
            people.start_soon(one, number)
    assert sorted(versions) == ["1.0.0", "1.0.1", "1.0.2", "1.0.3", "1.0.4"]


async def test_the_name_of_another_catalogs_app_is_refused(client: Client, home: FakeSite) -> None:
    body = {"category": "local", "app_name": "hello", "description": description(name="hello")}
    answer = await client.post("/api/v1/apps", body)
    assert (answer.status, answer.body["hint"]) == (409, "Give yours another name with  --app-name NAME .")


async def test_a_plan_is_made_of_an_app_that_is_not_in_the_catalog(client: Client, home: FakeSite) -> None:
    wanted = {"sites": [{"site_id": "home"}], "category": "local", "app_name": "shop", "description": description()}
    answer = await client.post("/api/v1/deployments?plan=true", wanted)
    assert answer.status == 200, answer.body
    assert answer.body["deployments"][0]["version_after"] == "1.0.0"
    assert "shop" not in {app["app_name"] for app in (await client.get("/api/v1/apps")).body["apps"]}
    refused = await client.post("/api/v1/deployments", wanted)
    assert (refused.status, refused.body["errors"][0]["field"]) == (422, "description")


async def test_a_bad_description_is_refused_by_line(client: Client) -> None:
    answer = await register(client, description(revision="v1"))
    assert (answer.status, answer.body["errors"][0]["path"]) == (422, "margo.yaml")
