"""What people get wrong is met with a sentence that names the field, and changes nothing."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.central.app import CentralApp
from homeport.core.model.instance import Failure
from homeport.vocabulary import Trigger
from tests.support.git import Person, bare_repository
from tests.support.running_central import Client, FakeSite, running_central, transition, write_app

pytestmark = pytest.mark.anyio


def check(answer: Any, status: int, *words: str) -> None:
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"]
    assert answer.body["status"] == status
    text = str(answer.body)
    for word in words:
        assert word in text, f"{word!r} is not in {text}"


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"app_name": "helo"}, 404, ['There is no app "helo".', 'Did you mean "hello"?']),
        ({"app_name": None, "app_id": "nobody"}, 404, ['"nobody"']),
        ({"app_name": None}, 422, ["app_name"]),
        ({"version": "9.9.9"}, 404, ['"9.9.9"', "1.1.0, 1.0.0"]),
        ({"category": "other"}, 404, ['"other"']),
        ({"profile": "helm"}, 404, ['no profile "helm"', "demo-hello-compose"]),
        ({"parameters": {"port": "high"}}, 422, ["parameters.port", "whole number"]),
        ({"parameters": {"port": 1}}, 422, ["parameters.port", "at least 1024"]),
        ({"parameters": {"greting": "x"}}, 422, ["parameters.greting", 'Did you mean "greeting"?']),
        ({"parameters": {"greeting": {"a": 1}}}, 422, ["parameters.greeting"]),
        ({"sites": [{"site_id": "hme"}]}, 404, ['There is no site "hme".', 'Did you mean "home"?']),
        ({"sites": [{"site_id": "../home"}]}, 422, ["sites[0].site_id"]),
        ({"sites": [{"site_id": "home"}, {"site_id": "home"}]}, 422, ["sites[1].site_id", "twice"]),
        ({"sites": []}, 422, ["sites"]),
        ({"sites": [{"site_id": "home", "host_ids": ["../x"]}]}, 422, ["sites[0].host_ids[0]"]),
        ({"name": "Not A Name"}, 422, ["name"]),
        ({"colour": "blue"}, 422, ["colour"]),
    ],
)
async def test_a_deploy_that_cannot_be_is_refused_by_field(
    unchanged: Client, change: dict[str, Any], status: int, words: list[str]
) -> None:
    body = {"app_name": "hello", "sites": [{"site_id": "home"}], **change}
    for plan in ("", "?plan=true"):
        check(await unchanged.post(f"/api/v1/deployments{plan}", body), status, *words)


async def test_a_body_that_is_not_json_is_400_and_one_of_another_type_415(unchanged: Client) -> None:
    json_type = {"Content-Type": "application/json"}
    check(await unchanged.call("POST", "/api/v1/deployments", data=b"{", headers=json_type), 400, "not JSON")
    check(await unchanged.call("POST", "/api/v1/apps", data=b"\xff\xfe", headers=json_type), 400)
    check(await unchanged.call("POST", "/api/v1/apps", data=b"{}", headers={"Content-Type": "text/plain"}), 415)
    check(await unchanged.call("POST", "/api/v1/apps", json=[]), 422)
    check(await unchanged.post("/api/v1/apps", {"repository": 7}), 422, "repository")


@pytest.mark.usefixtures("home")
async def test_an_immutable_parameter_cannot_change(client: Client) -> None:
    assert (await client.deploy(parameters={"port": 20000})).status == 202
    check(await client.deploy(parameters={"port": 20001}), 422, "parameters.port", "20000")


async def test_one_name_cannot_be_two_apps(client: Client, home: FakeSite, registry: Path) -> None:
    write_app(registry, "other")
    await client.post("/api/v1/apps", {"repository": str(registry)})
    assert (await client.deploy()).status == 202
    check(await client.deploy(app="other", name="hello"), 409, "another app")


async def test_a_name_in_two_categories_is_ambiguous(client: Client, home: FakeSite, registry: Path) -> None:
    write_app(registry, "hello", category="tools")
    await client.post("/api/v1/apps", {"repository": str(registry)})
    check(await client.deploy(), 409, "demo, tools")
    assert (await client.deploy(category="tools")).status == 202


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("apiVersion: v1", "apiVersion: v1\nkind: Pod", ["kind", "margo.yaml", "'line': 2"]),
        ("id: demo-hello\n", "", ["id", "margo.yaml"]),
        ("Says hello.", "{", ["margo.yaml", "line"]),
        ("apiVersion: v1", "apiVersion: v1\nsurprise: 1", ["surprise", "'line': 2"]),
        ("components: [web]", "components: [wbe]", ['"wbe"', "targets[0].components[0]"]),
        ('version: "3.0.0"', 'version: "3.0.1"', ["metadata.version", "3.0.1"]),
    ],
)
async def test_a_description_that_is_wrong_is_refused_with_file_and_line(
    unchanged: Client, tmp_path: Path, old: str, new: str, words: list[str]
) -> None:
    root = tmp_path / "bad"
    write_app(root, version="2.0.0")
    file = write_app(root, version="3.0.0")
    file.write_text(file.read_text().replace(old, new, 1))
    check(await unchanged.post("/api/v1/apps", {"repository": str(root)}), 422, *words)


async def test_a_registry_that_is_not_there_is_named(unchanged: Client, registry: Path, tmp_path: Path) -> None:
    check(await unchanged.post("/api/v1/apps", {"repository": str(tmp_path / "nowhere")}), 404, "nowhere")
    check(
        await unchanged.post("/api/v1/apps", {"repository": str(registry), "version": "7.0.0"}),
        404,
        "*/*/7.0.0/margo.yaml",
    )
    for field in ("category", "app_name", "version"):
        answer = await unchanged.post("/api/v1/apps", {"repository": str(registry), field: "../../etc"})
        check(answer, 422, field)
    check(await unchanged.post("/api/v1/apps", {"repository": "ext::sh -c true"}), 422)
    unreachable = await unchanged.post("/api/v1/apps", {"repository": "http://127.0.0.1:9/registry.git"})
    check(unreachable, 503, "127.0.0.1:9")
    assert int(unreachable.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("repository", "status", "words"),
    [
        ("a" * 300, 422, "cannot be a path here: File name too long"),
        (f"file:///{'a' * 300}", 422, "cannot be a path here: File name too long"),
        ("~nobody-of-that-name/apps", 404, "There is no folder ~nobody-of-that-name/apps."),
    ],
)
async def test_what_cannot_be_a_path_is_refused_and_is_no_fault_of_ours(
    unchanged: Client, repository: str, status: int, words: str
) -> None:
    answer = await unchanged.post("/api/v1/apps", {"repository": repository})
    assert answer.status == status
    assert words in str(answer.body)


async def test_a_link_that_leaves_the_registry_and_a_pipe_are_not_read(unchanged: Client, tmp_path: Path) -> None:
    outside = write_app(tmp_path / "outside")
    folder = tmp_path / "links" / "demo" / "hello" / "5.0.0"
    folder.mkdir(parents=True)
    (folder / "margo.yaml").symlink_to(outside)
    check(await unchanged.post("/api/v1/apps", {"repository": str(tmp_path / "links")}), 404, "margo.yaml")
    (folder / "margo.yaml").unlink()
    os.mkfifo(folder / "margo.yaml")
    with anyio.fail_after(20):  # it would be waited for until somebody writes into it
        check(await unchanged.post("/api/v1/apps", {"repository": str(tmp_path / "links")}), 404, "margo.yaml")


async def test_a_description_of_100_megabytes_is_too_large(unchanged: Client, tmp_path: Path) -> None:
    file = write_app(tmp_path / "huge", version="4.0.0")
    with file.open("ab") as stream:
        stream.truncate(100 * 1024 * 1024)
    check(await unchanged.post("/api/v1/apps", {"repository": str(tmp_path / "huge")}), 413, "margo.yaml")


async def test_another_content_for_the_same_version_is_a_conflict_and_adds_nothing(
    client: Client, home: FakeSite, registry: Path
) -> None:
    again = await client.post("/api/v1/apps", {"repository": str(registry)})
    assert (again.status, again.body["added"], len(again.body["unchanged"])) == (201, [], 2)
    write_app(registry, "brand-new")
    file = write_app(registry)
    file.write_text(file.read_text().replace("Says hello.", "Says more."))
    check(await client.post("/api/v1/apps", {"repository": str(registry)}), 409, "demo/hello/1.0.0")
    assert len((await client.get("/api/v1/apps")).body["apps"]) == 2


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/apps/none", ["none"]),
        ("/api/v1/deployments/ffffffff", ["ffffffff"]),
        ("/api/v1/deployments/x@home", ['"x"']),
        ("/api/v1/deployments/ffffffff/history", ["ffffffff"]),
        ("/api/v1/deployments/ffffffff/events", ["ffffffff"]),
        ("/api/v1/nodes/nobody", ["nobody"]),
        ("/api/v1/sites/nowhere", ["nowhere"]),
        ("/api/v1/nothing", ["/api/v1/nothing"]),
    ],
)
async def test_what_is_not_there_is_404(unchanged: Client, path: str, words: list[str]) -> None:
    check(await unchanged.get(path), 404, *words)


async def test_a_remote_that_is_gone_is_503_and_leaves_nothing_half_done(tmp_path: Path, registry: Path) -> None:
    remote = bare_repository(tmp_path / "remote.git")
    async with running_central(tmp_path / "central", git_url=str(remote)) as (_, client):
        await client.post("/api/v1/apps", {"repository": str(registry)})
        await FakeSite(client).join()
        remote.rename(tmp_path / "moved.git")
        check(await client.deploy(), 503)
        assert (await client.get("/api/v1/deployments")).body["deployments"] == []
        (tmp_path / "moved.git").rename(remote)
        assert (await client.deploy()).status == 202


async def test_a_remote_that_refuses_the_push_is_503_with_its_reason(tmp_path: Path, registry: Path) -> None:
    remote = bare_repository(tmp_path / "remote.git")
    async with running_central(tmp_path / "central", git_url=str(remote)) as (_, client):
        await client.post("/api/v1/apps", {"repository": str(registry)})
        await FakeSite(client).join()
        hook = remote / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho 'the branch is frozen for the holidays' >&2\nexit 1\n")
        hook.chmod(0o755)
        check(await client.deploy(), 503, "frozen for the holidays")
        assert (await client.get("/api/v1/deployments")).body["deployments"] == []
        hook.unlink()
        assert (await client.deploy()).status == 202


async def test_an_app_in_use_is_not_removed(central: CentralApp, client: Client, home: FakeSite) -> None:
    apps = (await client.get("/api/v1/apps")).body["apps"]
    newest, oldest = apps
    assert (newest["version"], oldest["version"]) == ("1.1.0", "1.0.0")
    assert (await client.deploy()).status == 202
    check(await client.delete(f"/api/v1/apps/{newest['id']}"), 409, "hello@home")
    assert (await client.delete(f"/api/v1/apps/{oldest['id']}")).status == 204
    assert [app["version"] for app in (await client.get("/api/v1/apps")).body["apps"]] == ["1.1.0"]


async def test_an_app_that_runs_or_that_a_rollback_needs_is_not_removed(
    central: CentralApp, client: Client, home: FakeSite
) -> None:
    """Git asks for 1.1.0; what runs is 1.0.0, for the update has failed."""
    oldest = (await client.get("/api/v1/apps")).body["apps"][-1]
    (id_,) = (await client.deploy(version="1.0.0")).body["deployment_ids"]
    old = (await client.get(f"/api/v1/deployments/{id_}")).body["revision"]
    await home.say(transition(id_, Trigger.SCHEDULED, revision=old), transition(id_, Trigger.HEALTHY, revision=old))
    await client.deploy(version="1.1.0")
    new = (await client.get(f"/api/v1/deployments/{id_}")).body["revision"]
    await home.say(
        transition(id_, Trigger.CHANGED, generation=2, revision=new),
        transition(id_, Trigger.GAVE_UP, generation=2, revision=new, failure=Failure("EXITED", "It ended.")),
    )
    check(await client.delete(f"/api/v1/apps/{oldest['id']}"), 409, "hello@home, which still runs it.")
    await home.say(
        transition(id_, Trigger.RETRIED_UPDATE, generation=3, revision=new),
        transition(id_, Trigger.HEALTHY, generation=3, revision=new),
    )
    check(await client.delete(f"/api/v1/apps/{oldest['id']}"), 409, "hello@home, which would go back to it.")
    assert (await client.delete(f"/api/v1/deployments/{id_}")).status == 202
    assert (await client.delete(f"/api/v1/apps/{oldest['id']}")).status == 204


async def test_apps_come_from_a_git_repository_too_and_are_there_after_a_restart(tmp_path: Path) -> None:
    remote = bare_repository(tmp_path / "registry.git")
    person = Person(str(remote), tmp_path / "work")
    write_app(person.folder)
    commit = person.push()
    async with running_central(tmp_path / "central") as (_, client):
        answer = await client.post("/api/v1/apps", {"repository": f"file://{remote}"})
        assert answer.status == 201, answer.body
        assert answer.body["added"][0]["commit"] == commit
        assert not list((tmp_path / "central" / "scratch").iterdir())
    async with running_central(tmp_path / "central") as (_, client):
        (app,) = (await client.get("/api/v1/apps?category=demo&app_name=hello&version=1.0.0")).body["apps"]
        assert (app["vendor"], app["description"], app["tags"]) == ("Acme", "Says hello.", ["demo"])
        detail = (await client.get(f"/api/v1/apps/{app['id']}")).body
        (profile,) = detail["profiles"]
        assert [part["name"] for part in profile["components"]] == ["web", "cache"]
        assert detail["parameters"]["greeting"]["value"] == "Hello"
        assert (await client.get("/api/v1/apps?category=other")).body["apps"] == []
