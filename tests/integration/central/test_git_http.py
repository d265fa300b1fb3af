"""Central's own repository over HTTP with the real git: people by token, sites by certificate."""

import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from homeport.adapters.git.http_backend import RUNNING_OF_ONE_MAX
from homeport.central.api.git import git_routes
from tests.support.deployment_files import deployment_file
from tests.support.git import Person, git
from tests.support.joining import running_fleet
from tests.support.running_central import Client, FakeSite, write_app
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def address(client: Client, role: str, **options: object) -> str:
    """The repository with a new token of this role in it, as `git clone` would be given it."""
    made = await client.post("/api/v1/tokens", {"name": f"git-{role}", "role": role, **options})
    assert made.status == 201, made.body
    return client.url.replace("http://", f"http://git:{made.body['token']}@") + "/git/deployments.git"


async def in_thread(work: Callable[[], object]) -> None:
    await anyio.to_thread.run_sync(work)


async def failing(person: Person) -> str:
    with pytest.raises(AssertionError) as failed:
        await in_thread(partial(person.push))
    return str(failed.value)


async def test_an_operator_clones_and_pushes_and_central_shows_it(
    client: Client, home: FakeSite, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="homeport.git")
    await client.deploy()
    url = await address(client, "operator")
    person = await anyio.to_thread.run_sync(Person, url, tmp_path / "copy")
    path, text = deployment_file(name="pushed")
    person.write(path, text)
    person.write("deployments/Not A Site/anything.yaml", "is not read by anyone: [")
    await in_thread(partial(person.push))

    async def shown() -> bool:
        return (await client.get("/api/v1/deployments/pushed@home")).status == 200

    await eventually(shown, what="the pushed deployment")
    entries = (await client.get("/api/v1/audit")).body["entries"]
    assert any(each["action"] == "git.push" and "git-operator" in str(each) for each in entries)
    assert "disconnected" not in caplog.text, "every answer was read to its end"


async def test_a_push_that_breaks_a_file_is_refused_with_file_and_line(
    client: Client, home: FakeSite, tmp_path: Path
) -> None:
    await client.deploy()
    person = await anyio.to_thread.run_sync(Person, await address(client, "operator"), tmp_path / "copy")
    path, text = deployment_file(name="broken")
    person.write(path, text.replace("type: compose", "type: [compose"))
    person.write("notes.md", "harmless")
    said = await failing(person)
    assert f"{path}:" in said and "Nothing was taken." in said
    assert "notes.md" not in git("ls-tree", "--name-only", "-r", "origin/main", cwd=person.folder)


async def test_a_push_that_breaks_a_rollout_is_refused_with_file_and_line(
    client: Client, home: FakeSite, tmp_path: Path
) -> None:
    await client.deploy()
    person = await anyio.to_thread.run_sync(Person, await address(client, "operator"), tmp_path / "copy")
    person.write("rollouts/0e2f7c1a-6d0b-4f83-9a2e-2f6f0b8f5d11.yaml", "waves: [")
    said = await failing(person)
    assert "rollouts/0e2f7c1a-6d0b-4f83-9a2e-2f6f0b8f5d11.yaml:2  is not valid YAML" in said
    assert "Nothing was taken." in said


async def test_a_push_that_is_invalid_for_one_site_is_taken_for_none(
    client: Client, home: FakeSite, tmp_path: Path
) -> None:
    await FakeSite(client, "north").join()
    await client.deploy("home", "north")
    person = await anyio.to_thread.run_sync(Person, await address(client, "operator"), tmp_path / "copy")
    valid, good = deployment_file(name="good")
    invalid, bad = deployment_file(name="bad", site="north")
    person.write(valid, good)
    person.write(invalid, bad.replace("type: compose", "type: [compose"))
    said = await failing(person)
    assert f"{invalid}:" in said and "Nothing was taken." in said and valid not in said
    assert valid not in git("ls-tree", "--name-only", "-r", "origin/main", cwd=person.folder)
    # Corrected, the same push is taken for both.
    person.write(invalid, bad)
    await in_thread(partial(person.push))

    async def shown() -> bool:
        answers = [await client.get(f"/api/v1/deployments/{each}") for each in ("good@home", "bad@north")]
        return [each.status for each in answers] == [200, 200]

    await eventually(shown, what="both deployments")


@pytest.mark.parametrize(
    ("role", "options"),
    [("viewer", {}), ("operator", {"sites": ["home"]})],
    ids=["a viewer", "an operator of some sites"],
)
async def test_who_may_not_change_the_fleet_may_not_push(
    client: Client, home: FakeSite, tmp_path: Path, role: str, options: dict[str, object]
) -> None:
    await client.deploy()
    person = await anyio.to_thread.run_sync(Person, await address(client, "admin"), tmp_path / "copy")
    person.write("notes.md", "mine")
    person.remote(await address(client, role, **options))
    said = await failing(person)
    assert "403" in said and "Everything up-to-date" not in said
    if role == "viewer":
        assert "This needs the role operator, and git-viewer has the role viewer." in said
    refused = [each for each in (await client.get("/api/v1/audit")).body["entries"] if each["result"] == "refused"]
    # An operator of some sites may not even read it.
    action = "git.push" if role == "viewer" else "git.fetch"
    assert (f"git-{role}", action) in [(each["actor"], each["action"]) for each in refused]


async def test_nobody_without_a_token_reads_it_and_history_is_not_rewritten(
    client: Client, home: FakeSite, tmp_path: Path
) -> None:
    await client.deploy()
    refused = await anyio.to_thread.run_sync(
        partial(
            subprocess.run,
            ["git", "ls-remote", f"{client.url}/git/deployments.git"],
            env={"PATH": "/usr/bin:/bin", "GIT_TERMINAL_PROMPT": "0", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    )
    assert refused.returncode != 0 and "could not read Username" in refused.stderr
    person = await anyio.to_thread.run_sync(Person, await address(client, "admin"), tmp_path / "copy")
    await in_thread(partial(person.amend, "another history"))
    with pytest.raises(AssertionError, match=r"rewrites history|non-fast-forward"):
        await in_thread(partial(git, "push", "--force", "origin", "HEAD:main", cwd=person.folder))
    missing = await client.get("/git/other.git/info/refs")
    assert missing.status == 404


async def test_a_branch_cannot_smuggle_a_command_into_the_check(tmp_path: Path) -> None:
    git_routes(tmp_path / "deployments.git", f"it's; touch {tmp_path / 'smuggled'} #", tmp_path / "hooks")
    await anyio.run_process([tmp_path / "hooks" / "pre-receive"], check=False, input=b"")
    assert not (tmp_path / "smuggled").exists()


async def test_a_joined_site_needs_no_other_git_server(tmp_path: Path) -> None:
    write_app(tmp_path / "registry", version="1.0.0")
    async with (
        running_fleet(tmp_path / "fleet") as fleet,
        fleet.site(git_url=None) as site,
        fleet.node(site, "n1"),
    ):
        assert (await fleet.client.post("/api/v1/apps", {"repository": str(tmp_path / "registry")})).status == 201
        deployed = await fleet.client.deploy("north")
        assert deployed.status == 202, deployed.body
        (id_,) = deployed.body["deployment_ids"]

        async def installed() -> bool:
            return str((await fleet.client.get(f"/api/v1/deployments/{id_}")).body["state"]) == "INSTALLED"

        await eventually(installed, what="the deployment to be installed")


async def test_one_caller_cannot_take_every_slot(client: Client, home: FakeSite) -> None:
    """A viewer whose fetches never end would keep all sites from what they should run."""
    tokens = []
    for name in ("slow", "other"):
        made = await client.post("/api/v1/tokens", {"name": name, "role": "viewer"})
        tokens.append(made.body["token"])
    host, _, port = client.url.removeprefix("http://").rpartition(":")
    async with AsyncExitStack() as stack:
        for _ in range(2 * RUNNING_OF_ONE_MAX):
            stream = await stack.enter_async_context(await anyio.connect_tcp(host, int(port)))
            await stream.send(
                f"POST /git/deployments.git/git-upload-pack HTTP/1.1\r\nHost: {host}:{port}\r\n"
                f"Authorization: Bearer {tokens[0]}\r\nContent-Length: 1000\r\n"
                "Content-Type: application/x-git-upload-pack-request\r\n\r\n0".encode()
            )

        async def status(token: str) -> int:
            path = "/git/deployments.git/info/refs?service=git-upload-pack"
            return (await client.get(path, headers={"Authorization": f"Bearer {token}"})).status

        async def refused() -> bool:
            return await status(tokens[0]) == 429

        await eventually(refused, what="the slow caller to be refused")
        assert await status(tokens[1]) == 200
