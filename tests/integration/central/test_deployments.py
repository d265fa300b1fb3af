"""Deploying through central's API, against real Git and a real store."""

from pathlib import Path

import anyio
import pytest

from homeport.adapters.git import trees
from homeport.catalog.deployment import parse_deployment
from homeport.central.app import CentralApp
from homeport.core.data import removes_data
from homeport.core.model.instance import Failure
from homeport.core.model.report import Synced
from homeport.fleet.central.indexing import folders
from homeport.vocabulary import Code, Commit, DeploymentId, SiteName, Trigger
from tests.support.git import Person, git
from tests.support.running_central import Client, FakeSite, indexed, node_changed, transition
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


def ask_git(central: CentralApp, *arguments: str) -> str:
    return git(*arguments, cwd=central.parts.settings.own_repository)


async def test_a_deploy_is_one_commit_that_names_ids_and_sites(
    central: CentralApp, client: Client, home: FakeSite
) -> None:
    await FakeSite(client, "line-7").join()
    answer = await client.deploy("home", "line-7", parameters={"greeting": "Ahoy"})
    assert answer.status == 202, answer.body
    ids = answer.body["deployment_ids"]
    assert len(set(ids)) == 2
    assert ask_git(central, "rev-parse", "main") == answer.body["commit"]
    message = ask_git(central, "log", "-1", "--format=%B")
    assert message.startswith("deploy hello 1.1.0 to home, line-7")
    assert f"home/{ids[0]}" in message
    content = ask_git(central, "show", f"main:deployments/home/{ids[0]}.yaml")
    desired = parse_deployment(content.encode(), f"deployments/home/{ids[0]}.yaml", SiteName("home"))
    assert desired.parameters["greeting"] == "Ahoy"
    assert desired.release.components[0].environment["GREETING"] == "Ahoy"
    assert ask_git(central, "show", "main:deployments/line-7/site.yaml") == "site: line-7"
    shown = (await client.get(f"/api/v1/deployments/{ids[0][:8]}")).body
    assert (shown["state"], shown["app_version"], shown["created_by"]) == ("PENDING", "1.1.0", "local")
    assert shown["note"] == "waiting for site home"


async def test_what_lost_its_only_node_waits_for_another(client: Client, home: FakeSite) -> None:
    id_ = (await client.deploy()).body["deployment_ids"][0]
    await home.say(transition(id_, Trigger.SCHEDULED), transition(id_, Trigger.HEALTHY))
    await home.say(transition(id_, Trigger.UNWANTED), transition(id_, Trigger.REMOVED))
    shown = (await client.get(f"/api/v1/deployments/{id_}")).body
    assert (shown["state"], shown["note"]) == ("PENDING", "waiting for a node of site home")


async def test_deploying_the_same_again_changes_nothing(central: CentralApp, client: Client, home: FakeSite) -> None:
    first = (await client.deploy()).body
    again = (await client.deploy()).body
    assert again["deployment_ids"] == first["deployment_ids"] == again["unchanged"]
    assert again["commit"] == first["commit"] == ask_git(central, "rev-parse", "main")
    assert again["rollout_id"] == first["rollout_id"]


async def test_another_version_under_the_same_name_is_an_update(client: Client, home: FakeSite) -> None:
    first = (await client.deploy(version="1.0.0")).body
    before = (await client.get(f"/api/v1/deployments/{first['deployment_ids'][0]}")).body
    second = (await client.deploy(version="1.1.0")).body
    assert second["deployment_ids"] == first["deployment_ids"]
    after = (await client.get("/api/v1/deployments/hello@home")).body
    assert (before["app_version"], after["app_version"]) == ("1.0.0", "1.1.0")
    assert before["revision"] != after["revision"]


async def test_what_runs_another_release_than_git_asks_for_is_behind_until_somebody_goes_back(
    client: Client, home: FakeSite
) -> None:
    (id_,) = (await client.deploy(version="1.0.0")).body["deployment_ids"]
    path = f"/api/v1/deployments/{id_}"
    old = (await client.get(path)).body["revision"]
    await home.say(
        node_changed(),
        transition(id_, Trigger.SCHEDULED, revision=old),
        transition(id_, Trigger.HEALTHY, revision=old),
    )
    assert (await client.get(path)).body["behind"] is False
    await client.deploy(version="1.1.0")
    waiting = (await client.get(path)).body
    assert (waiting["behind"], waiting["running_versions"]) == (True, ["1.0.0"])
    failure = Failure(Code.EXITED, "web ended with exit code 1.", "web")
    await home.say(
        transition(id_, Trigger.CHANGED, generation=2, revision=waiting["revision"]),
        transition(id_, Trigger.GAVE_UP, generation=2, revision=waiting["revision"], failure=failure),
        transition(id_, Trigger.ROLLED_BACK, generation=3, revision=old),
        transition(id_, Trigger.HEALTHY, generation=3, revision=old),
    )
    rolled_back = (await client.get(path)).body
    assert rolled_back["behind"] is True
    assert rolled_back["note"].endswith("rolled back to 1.0.0: web ended with exit code 1 (EXITED)")
    await client.post(f"{path}/rollback", {"to": "1.0.0"})
    gone_back = (await client.get(path)).body
    assert (gone_back["app_version"], gone_back["behind"], gone_back["note"]) == ("1.0.0", False, "")


async def test_reports_move_a_deployment_from_pending_to_deleted_and_archive_it(
    central: CentralApp, client: Client, home: FakeSite
) -> None:
    deployed = (await client.deploy()).body
    (id_,) = deployed["deployment_ids"]
    revision = (await client.get(f"/api/v1/deployments/{id_}")).body["revision"]
    await home.say(
        node_changed(),
        transition(id_, Trigger.SCHEDULED, revision=revision),
        transition(id_, Trigger.HEALTHY, revision=revision),
        Synced(Commit(deployed["commit"]), (id_,)),
    )
    shown = (await client.get(f"/api/v1/deployments/{id_}")).body
    assert shown["state"] == "INSTALLED"
    assert shown["instances"][0]["running_revision"] == revision
    assert shown["instances"][0]["reachable"] is True
    assert (await client.get("/api/v1/sites/home")).body["applied_commit"] == deployed["commit"]

    plan = (await client.delete(f"/api/v1/deployments/{id_}?plan=true&remove_data=true")).body
    assert "is lost: its volumes hp-hello-" in plan["deployments"][0]["warnings"][0]
    assert (await client.delete(f"/api/v1/deployments/{id_}?plan=true")).body["deployments"][0]["warnings"] == []
    deleted = await client.delete(f"/api/v1/deployments/{id_}?remove_data=true")
    assert deleted.status == 202, deleted.body
    assert removes_data(ask_git(central, "log", "-1", "--format=%B"), DeploymentId(id_))
    assert (await client.delete(f"/api/v1/deployments/{id_}")).status == 409
    await home.say(
        transition(id_, Trigger.UNWANTED, generation=2),
        transition(id_, Trigger.REMOVED, generation=2),
        Synced(Commit(deleted.body["commit"]), ()),
    )
    assert (await client.get("/api/v1/deployments")).body["deployments"] == []
    (archived,) = (await client.get("/api/v1/deployments?archived=true")).body["deployments"]
    assert (archived["state"], archived["wanted"]) == ("DELETED", False)
    by_name = (await client.get(f"/api/v1/deployments/{archived['name']}@{archived['site']}")).body
    assert by_name["id"] == archived["id"]
    assert (await client.delete(f"/api/v1/deployments/{id_}")).status == 404
    history = (await client.get(f"/api/v1/deployments/{id_}/history")).body["history"]
    assert [entry["after"] for entry in history] == ["INSTALLING", "INSTALLED", "DELETING", "DELETED"]
    assert [entry["actor"] for entry in history] == ["site", "node", "site", "node"]


async def test_a_deployment_that_was_never_placed_is_gone_when_its_site_has_seen_it_go(
    client: Client, home: FakeSite
) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    deleted = (await client.delete(f"/api/v1/deployments/{id_}")).body
    assert (await client.get(f"/api/v1/deployments/{id_}")).body["state"] == "PENDING"
    await home.say(Synced(Commit(deleted["commit"]), ()))
    assert (await client.get(f"/api/v1/deployments/{id_}")).body["state"] == "DELETED"


async def test_a_failure_is_the_note_of_its_deployment(client: Client, home: FakeSite) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    failure = Failure("HEALTH_CHECK_FAILED", "GET /healthz answered 500", "web")
    await home.say(
        transition(id_, Trigger.SCHEDULED), transition(id_, Trigger.GAVE_UP, failure=failure), node_changed()
    )
    shown = (await client.get(f"/api/v1/deployments/{id_}")).body
    assert shown["state"] == "FAILED"
    assert shown["note"] == "node-a: GET /healthz answered 500 (HEALTH_CHECK_FAILED)"


async def test_twenty_clients_deploy_at_once_and_no_commit_is_lost(
    central: CentralApp, client: Client, home: FakeSite
) -> None:
    ids: list[str] = []

    async def one(number: int) -> None:
        answer = await client.deploy(name=f"hello-{number}")
        assert answer.status == 202, answer.body
        ids.extend(answer.body["deployment_ids"])

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
    assert len(set(ids)) == 20
    listed = ask_git(central, "ls-tree", "-r", "--name-only", "main").splitlines()
    assert {f"deployments/home/{id_}.yaml" for id_ in ids} < set(listed)
    assert len((await client.get("/api/v1/deployments?site=home")).body["deployments"]) == 20


async def test_racing_deploys_of_one_name_make_one_deployment(client: Client, home: FakeSite) -> None:
    ids: set[str] = set()

    async def one(greeting: str) -> None:
        answer = await client.deploy(parameters={"greeting": greeting})
        assert answer.status == 202, answer.body
        ids.update(answer.body["deployment_ids"])

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, f"Hello {number}")
    assert len(ids) == 1


@pytest.fixture
def person(central: CentralApp, home: FakeSite, tmp_path: Path) -> Person:
    return Person(str(central.parts.settings.own_repository), tmp_path / "clone")


async def test_a_persons_push_has_the_same_effect_and_a_removal_too(client: Client, person: Person) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    person.pull()
    other = "11111111-2222-4333-8444-555555555555"
    text = person.read(f"deployments/home/{id_}.yaml").replace(id_, other)
    person.write(
        f"deployments/home/{other}.yaml", text.replace("name: hello\n  namespace", "name: mine\n  namespace")
    )
    person.remove(f"deployments/home/{id_}.yaml")
    await indexed(client, person.push())
    rows = (await client.get("/api/v1/deployments")).body["deployments"]
    assert {(row["id"], row["name"], row["wanted"]) for row in rows} == {(id_, "hello", False), (other, "mine", True)}
    assert (await client.get(f"/api/v1/deployments/{other}")).body["created_by"] == "Pat Person"


async def test_a_broken_file_keeps_its_deployment_and_says_file_and_line(client: Client, person: Person) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    before = (await client.get(f"/api/v1/deployments/{id_}")).body
    person.pull()
    person.write(f"deployments/home/{id_}.yaml", "id: [\n")
    await indexed(client, person.push())
    after = (await client.get(f"/api/v1/deployments/{id_}")).body
    assert f"deployments/home/{id_}.yaml:" in after["problem"]
    assert after["note"] == after["problem"]
    assert (after["wanted"], after["revision"]) == (True, before["revision"])
    repaired = await client.deploy()
    assert repaired.body["deployment_ids"] == [id_]
    assert (await client.get(f"/api/v1/deployments/{id_}")).body["problem"] is None


async def test_a_commit_that_is_invalid_for_one_site_is_followed_by_the_other(client: Client, person: Person) -> None:
    """In a Git server of one's own nothing checks a push."""
    await FakeSite(client, "north").join()
    await client.deploy("home", "north")
    person.pull()
    rows = (await client.get("/api/v1/deployments")).body["deployments"]
    paths = {row["site"]: f"deployments/{row['site']}/{row['id']}.yaml" for row in rows}
    person.write(paths["home"], person.read(paths["home"]) + "# changed\n")
    person.write(paths["north"], "id: [\n")
    await indexed(client, person.push())
    before = {row["site"]: row for row in rows}
    after = {row["site"]: row for row in (await client.get("/api/v1/deployments")).body["deployments"]}
    assert after["home"]["revision"] != before["home"]["revision"]
    assert after["home"]["problem"] is None
    assert (after["north"]["wanted"], after["north"]["revision"]) == (True, before["north"]["revision"])
    assert f"{paths['north']}:" in after["north"]["problem"]


@pytest.mark.parametrize("folders_max", [folders.FOLDERS_MAX, 1])
async def test_a_folder_that_is_too_large_is_the_problem_of_its_site_alone(
    client: Client, person: Person, monkeypatch: pytest.MonkeyPatch, folders_max: int
) -> None:
    await FakeSite(client, "north").join()
    await client.deploy("home", "north")
    person.pull()
    rows = {row["site"]: row for row in (await client.get("/api/v1/deployments")).body["deployments"]}
    paths = {site: f"deployments/{site}/{row['id']}.yaml" for site, row in rows.items()}
    monkeypatch.setattr(trees, "FILES_MAX", 20)
    monkeypatch.setattr(folders, "FOLDERS_MAX", folders_max)
    for number in range(30):
        person.write(f"deployments/north/x/{number}", "x")
    person.write(f"deployments/north/{'/'.join('d' * 80)}", "x")
    person.write(paths["home"], person.read(paths["home"]) + "# changed\n")
    await indexed(client, person.push())
    after = {row["site"]: row for row in (await client.get("/api/v1/deployments")).body["deployments"]}
    assert after["home"]["revision"] != rows["home"]["revision"]
    assert (after["north"]["wanted"], after["north"]["revision"]) == (True, rows["north"]["revision"])
    events = await client.get("/api/v1/events/export")
    assert "more than 20 files below" in str(events.body)


async def test_a_folder_without_its_marker_deletes_nothing_until_the_marker_is_back(
    client: Client, person: Person
) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    person.pull()
    person.remove("deployments/home")
    await indexed(client, person.push())
    assert (await client.get(f"/api/v1/deployments/{id_}")).body["wanted"] is True
    person.write("deployments/home/site.yaml", "site: home\n")
    await indexed(client, person.push("a marker alone is a real empty state"))
    assert (await client.get(f"/api/v1/deployments/{id_}")).body["wanted"] is False


async def test_a_deployment_returns_when_its_file_does(client: Client, home: FakeSite, person: Person) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    person.pull()
    text = person.read(f"deployments/home/{id_}.yaml")
    person.remove(f"deployments/home/{id_}.yaml")
    gone = person.push()
    await indexed(client, gone)
    await home.say(Synced(Commit(gone), ()))
    assert (await client.get(f"/api/v1/deployments/{id_}")).body["state"] == "DELETED"
    person.write(f"deployments/home/{id_}.yaml", text)
    await indexed(client, person.push())
    shown = (await client.get(f"/api/v1/deployments/{id_}")).body
    assert (shown["state"], shown["wanted"], shown["archived_at"]) == ("PENDING", True, None)


async def test_rewritten_history_is_not_followed_and_readyz_says_so(client: Client, person: Person) -> None:
    (id_,) = (await client.deploy()).body["deployment_ids"]
    git("checkout", "--quiet", "--orphan", "other", cwd=person.folder)
    person.write("deployments/home/site.yaml", "site: home\n")
    person.push("anew", force=True)
    ready = await eventually(lambda: said_in_readyz(client), what="readyz to say it")
    assert "rewritten" in ready
    assert (await client.get(f"/api/v1/deployments/{id_}")).body["wanted"] is True
    refused = await client.deploy(name="more")
    assert (refused.status, refused.body["code"]) == (409, "history-rewritten")


async def test_a_change_on_a_branch_that_was_moved_back_is_refused_and_nothing_is_written(
    client: Client, person: Person
) -> None:
    (first,) = (await client.deploy(name="one")).body["deployment_ids"]
    person.pull()
    before = git("rev-parse", "HEAD", cwd=person.folder)
    last = (await client.deploy(name="two")).body["commit"]
    git("push", "--quiet", "--force", "origin", f"{before}:refs/heads/main", cwd=person.folder)
    changes = (
        await client.deploy(name="three"),
        await client.delete(f"/api/v1/deployments/{first}"),
        await client.post("/api/v1/deployments?plan=true", {"app_name": "hello", "sites": [{"site_id": "home"}]}),
    )
    assert [(answer.status, answer.body["code"]) for answer in changes] == [(409, "history-rewritten")] * 3
    assert git("ls-remote", "origin", "refs/heads/main", cwd=person.folder).split()[0] == before
    person.pull()
    git("fetch", "--quiet", "origin", last, cwd=person.folder)
    git("push", "--quiet", "origin", f"{last}:refs/heads/main", cwd=person.folder)
    assert (await client.deploy(name="three")).status == 202, "the way back was not buried"


async def said_in_readyz(client: Client) -> str | None:
    answer = await client.get("/readyz")
    return str(answer.body["checks"]["git"]) if answer.status == 503 else None
