"""Being on this machine is proven by a key that only the user who started the role can read."""

import os
import stat
import subprocess
from pathlib import Path

import anyio.to_thread
import grpc
import grpc.aio
import pytest

from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.adapters.local_access import BELOW_DATA, KeyKind, LocalKeys, default_folder, find, published
from homeport.central.app import CentralApp
from homeport.errors import PeerUnavailable
from homeport.site.app import SiteApp
from homeport.wire.v1 import nodes_pb2 as pb
from tests.integration.site.conftest import OpenSite, person, remote, start
from tests.support import forks
from tests.support.git import Person
from tests.support.local import local_channel
from tests.support.running_central import Client, running_central
from tests.support.stubs import nodes_pb2_grpc as pb_grpc

pytestmark = pytest.mark.anyio

__all__ = ["person", "remote", "start"]


def homeport(state: Path, *arguments: str, url: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "HOMEPORT_URL": url, "XDG_STATE_HOME": str(state)}
    return forks.run_homeport(arguments, environment=environment)


async def run_homeport(state: Path, *arguments: str, url: str) -> "subprocess.CompletedProcess[str]":
    return await anyio.to_thread.run_sync(lambda: homeport(state, *arguments, url=url))


async def test_commands_find_the_key_by_themselves_and_others_are_told_what_to_do(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with running_central(tmp_path / "central", access_folder=state / "homeport") as (_, client):
        done = await run_homeport(state, "apps", "list", "-o", "json", url=client.url)
        assert (done.returncode, done.stderr) == (0, "")
        by_name = client.url.replace("127.0.0.1", "localhost")
        assert (await run_homeport(state, "apps", "list", "-o", "json", url=by_name)).returncode == 0
        other = await run_homeport(tmp_path / "another-home", "apps", "list", url=client.url)
        assert other.returncode != 0
        assert "This needs an access token." in other.stderr
        assert "Run the command as the user who started Homeport, or log in" in other.stderr


async def test_the_token_command_prints_what_curl_needs(tmp_path: Path) -> None:
    state, data = tmp_path / "state", tmp_path / "central"
    async with running_central(data, is_local=False, access_folder=state / "homeport") as (_, client):
        shown = await run_homeport(state, "token", url=client.url)
        kept = await run_homeport(tmp_path / "nowhere", "token", "--data", str(data), url=client.url)
        assert shown.stdout == kept.stdout
        headers = {"Authorization": f"Bearer {shown.stdout.strip()}"}
        answer = await client.get("/api/v1/tokens/self", headers=headers)
        assert (answer.status, answer.body["kind"], answer.body["role"]) == (200, "local", "admin")
        nobody = await run_homeport(tmp_path / "nowhere", "token", url=client.url)
        assert nobody.returncode != 0
        assert "as the user who started Homeport" in nobody.stderr


async def test_the_files_are_for_their_owner_alone_and_go_with_the_role(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "homeport"
    async with running_central(tmp_path / "central", access_folder=folder) as (central, _):
        for place in (folder, tmp_path / "central" / BELOW_DATA):
            assert stat.S_IMODE(place.stat().st_mode) == 0o700
            files = sorted(place.iterdir())
            assert [path.name for path in files] == [f"{central.http_port}.{kind}" for kind in ("machine", "person")]
            assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert not list(folder.iterdir())


async def test_a_key_of_an_earlier_start_opens_nothing(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central") as (central, _):
        old = central.parts.local.person
    async with running_central(tmp_path / "central", is_local=False) as (_, client):
        assert (await client.get("/api/v1/sites", headers={"Authorization": f"Bearer {old}"})).status == 401


async def test_the_machine_key_is_no_persons(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central", is_local=False) as (central, client):
        headers = {"Authorization": f"Bearer {central.parts.local.machine}"}
        assert (await client.get("/api/v1/sites", headers=headers)).status == 403
        joined = await client.call(
            "PUT", "/api/v1/sites/home", json={"epoch": "1", "software_version": "1"}, headers=headers
        )
        assert joined.status == 200
        assert (await client.get("/api/v1/sites/home/secrets/values", headers=headers)).status == 200


def test_roles_on_one_machine_do_not_mix_up_their_keys(tmp_path: Path) -> None:
    first, second, later = LocalKeys.new(), LocalKeys.new(), LocalKeys.new()
    with published(first, [tmp_path], "127.0.0.1", 8080):
        with published(second, [tmp_path], "127.0.0.1", 8081):
            found = [find(tmp_path, port, KeyKind.PERSON) for port in (8080, 8081, 8082)]
            assert [each and each.key for each in found] == [first.person, second.person, None]
        with published(later, [tmp_path], "127.0.0.1", 8080):
            pass
        assert find(tmp_path, 8081, KeyKind.PERSON) is None
    with published(first, [tmp_path], "127.0.0.1", 8080), published(later, [tmp_path], "127.0.0.1", 8080):
        pass
    assert not list(tmp_path.iterdir())


def test_a_key_is_shown_to_the_address_it_was_made_for_alone(tmp_path: Path) -> None:
    with published(LocalKeys.new(), [tmp_path], "127.0.0.1", 8080):
        found = find(tmp_path, 8080, KeyKind.PERSON)
    assert found is not None
    hosts = ("127.0.0.1", "localhost", "127.0.0.2", "::1", "example.com")
    assert [found.opens(host) for host in hosts] == [True, True, False, False, False]


def test_a_folder_that_cannot_be_written_to_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keys = LocalKeys.new()
    with published(keys, [tmp_path / "file" / "below", None, tmp_path / "good"], "127.0.0.1", 8080):
        assert find(tmp_path / "good", 8080, KeyKind.MACHINE) is not None
        assert find(tmp_path / "file" / "below", 8080, KeyKind.MACHINE) is None


def test_the_folder_is_the_users_own_whatever_home_says() -> None:
    assert default_folder({"HOME": "/home/somebody-else"}) == default_folder({})
    assert default_folder({"XDG_STATE_HOME": "/state"}) == Path("/state/homeport")


def stub(channel: grpc.aio.Channel) -> pb_grpc.NodesStub:
    return pb_grpc.NodesStub(channel)  # type: ignore[no-untyped-call]


async def refused(role: CentralApp | SiteApp, code: grpc.StatusCode) -> str:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{role.grpc_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub(channel).ListNodes(pb.ListNodesRequest(), timeout=60)
    assert error.value.code() is code
    return str(error.value.details())


async def test_nobody_reaches_centrals_registry_on_loopback_without_the_key(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central", grpc_address="127.0.0.1:0") as (central, _):
        assert "as the user who started" in await refused(central, grpc.StatusCode.UNAUTHENTICATED)
        async with local_channel(central) as channel:
            assert not (await stub(channel).ListNodes(pb.ListNodesRequest(), timeout=60)).nodes


async def test_no_stranger_joins_a_site_on_loopback_as_a_node(person: Person, start: OpenSite) -> None:
    async with start() as site:
        assert "as the user who started" in await refused(site, grpc.StatusCode.PERMISSION_DENIED)
        assert site.grpc_port is not None
        link = GrpcSiteLink("127.0.0.1", site.grpc_port)
        with pytest.raises(PeerUnavailable, match="refused this node"):
            async with link.connect() as stream:
                async for _ in stream:
                    pass
        async with site.parts.store.read() as reader:
            entries = [each.entry for each in await reader.audit(after=0, limit=10)]
        assert {(entry.actor, entry.result.value) for entry in entries} == {("anonymous", "refused")}


async def test_a_client_that_shows_nothing_is_nobody_wherever_it_is(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central", is_local=False) as (_, client):
        paths = ("/healthz", "/metrics", "/api/v1/overview", "/v2/usage", "/v1/models")
        statuses = {path: await _status(client, path) for path in paths}
    assert list(statuses.values()) == [200, 200, 401, 401, 401]


async def _status(client: Client, path: str) -> int:
    return (await client.get(path)).status
