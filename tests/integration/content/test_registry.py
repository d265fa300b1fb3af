"""The built-in registry at a running central: who may do what, what is recorded, what deployments keep alive."""

import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from homeport.adapters.local_access import BELOW_DATA
from homeport.adapters.registry.oci import OciRegistry
from homeport.central.app import open_central
from homeport.central.settings import CentralSettings
from homeport.content.registry.collection import Collected, collect
from homeport.core.model.caller import INTERNAL, Role
from homeport.errors import Refused
from homeport.ports import Artifact, Layer
from homeport.vocabulary import DeploymentId, SiteName
from tests.support.archives import archive_of
from tests.support.deployment_files import deployment_file
from tests.support.git import Person
from tests.support.own_registry import IMAGE, OwnRegistry, Raw, digest_of, own_registry
from tests.support.waiting import wait_for

DAY = 86_400


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRegistry]:
    with own_registry(tmp_path_factory.mktemp("central")) as running:
        yield running


def token(own: OwnRegistry, name: str, role: Role, *sites: str) -> str:
    tokens = own.central.parts.authenticator.tokens
    given = tuple(SiteName(site) for site in sites)
    return own.portal.call(lambda: tokens.create(INTERNAL, name=name, role=role, sites=given)).text


def central_of(own: OwnRegistry) -> Raw:
    return Raw(f"127.0.0.1:{own.central.http_port}", {"Authorization": f"Bearer {own.local_key}"})


def api(own: OwnRegistry, path: str) -> Any:
    answer = central_of(own).call("GET", path)
    assert answer.status == 200, answer
    return answer.json


def trail(own: OwnRegistry) -> list[tuple[str, str, str]]:
    entries = api(own, "/api/v1/audit?limit=500")["entries"]
    return [(entry["action"], entry["target"], entry["result"]) for entry in entries]


# --- who ------------------------------------------------------------------------------------------------------


def test_nobody_pulls_or_pushes_without_a_login_and_the_answer_says_how(own: OwnRegistry) -> None:
    own.client().push_image("team/app", "latest")
    stranger = own.client("")
    for method, path in (("GET", "/v2/"), ("GET", "/v2/team/app/manifests/latest"), ("POST", "/v2/x/blobs/uploads/")):
        refused = stranger.call(method, path)
        assert (refused.status, refused.code) == (401, "UNAUTHORIZED"), path
        assert refused.headers["www-authenticate"] == 'Basic realm="homeport"'


def test_a_wrong_password_is_refused_at_login(own: OwnRegistry) -> None:
    for wrong in ("hp_0123456789abcdef_0123456789abcdef0123", "secret", "a b", "\n", "ü"):
        refused = own.client(wrong).call("GET", "/v2/")
        assert (refused.status, refused.code) in {(401, "UNAUTHORIZED"), (429, "TOOMANYREQUESTS")}


def test_viewers_and_machines_pull_and_operators_of_the_fleet_push_and_delete(own: OwnRegistry) -> None:
    digest = own.client().push_image("team/roles", "latest")
    keys = {
        "viewer": token(own, "viewer", Role.VIEWER),
        "limited": token(own, "limited", Role.OPERATOR, "home"),
        "machine": own.central.parts.local.machine,
    }
    for who, key in keys.items():
        client = own.client(key)
        assert client.call("GET", "/v2/").status == 200, who
        assert client.call("GET", "/v2/team/roles/manifests/latest").status == 200, who
        assert client.call("GET", "/v2/_catalog").status == (200 if who == "viewer" else 403), who
        for method, path in (
            ("POST", "/v2/team/roles/blobs/uploads/"),
            ("PUT", "/v2/team/roles/manifests/latest"),
            ("DELETE", f"/v2/team/roles/manifests/{digest}"),
        ):
            refused = client.call(method, path, b"")
            assert (refused.status, refused.code) == (403, "DENIED"), (who, method)
    operator = own.client(token(own, "operator", Role.OPERATOR))
    assert operator.push_image("team/roles", "other")
    assert operator.call("DELETE", "/v2/team/roles/manifests/other").status == 202


def test_pushes_deletes_and_refusals_are_in_the_audit_trail_and_greetings_are_not(own: OwnRegistry) -> None:
    name = "team/audited"
    before = len(trail(own))
    own.client().push_image(name, "1.0.0")
    own.client("").call("GET", "/v2/")
    own.client().call("DELETE", f"/v2/{name}/manifests/1.0.0")
    entries = trail(own)
    assert len(entries) == before + 2
    assert sorted(entry for entry in entries if name in entry[1]) == [
        ("registry.delete", f"{name}/1.0.0", "done"),
        ("registry.push", f"{name}/1.0.0", "done"),
    ]


@pytest.mark.anyio
async def test_our_own_client_pushes_with_a_login_and_a_machine_pulls_with_its_key(
    own: OwnRegistry, tmp_path: Path
) -> None:
    artifact = Artifact("application/vnd.example+json", (Layer("text/plain", b"hello"),))
    repository = f"oci://{own.host}/apps/hello"
    machine = OciRegistry(access_folder=own.folder.parent / BELOW_DATA)
    with pytest.raises(Refused):
        await machine.push(repository, "1.0.0", artifact)
    login = {"auth": own.client().headers["Authorization"].removeprefix("Basic ")}
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {own.host: login}}))
    await OciRegistry(auth_files=[tmp_path / "auth.json"]).push(repository, "1.0.0", artifact)
    assert await machine.pull(repository, "1.0.0") == artifact


# --- where ----------------------------------------------------------------------------------------------------


def test_the_api_says_where_it_is_and_metrics_what_it_holds(own: OwnRegistry) -> None:
    shown = api(own, "/api/v1/registry")
    assert (shown["enabled"], shown["host"], shown["tls"], shown["why"]) == (True, own.host, False, None)
    assert shown["quota_bytes"] == 20 * 2**30
    text = central_of(own).call("GET", "/metrics").body.decode()
    for name in ("blob_bytes", "quota_bytes", "pulled_bytes_total", "pushed_bytes_total", "collected_bytes_total"):
        assert f"\nhomeport_registry_{name} " in text


def test_a_port_in_use_is_passed_over_and_the_next_is_kept(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = {"registry_address": ("127.0.0.1", port), "registry_may_move": True}
        with own_registry(tmp_path / "central", **settings) as first:
            moved = first.host
            assert moved != f"127.0.0.1:{port}"
    with own_registry(tmp_path / "central", **settings) as again:
        assert again.host == moved


def test_without_a_free_port_central_runs_and_says_why_there_is_no_registry(tmp_path: Path) -> None:
    (tmp_path / "central").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken, start_blocking_portal() as portal:
        port = taken.getsockname()[1]
        (tmp_path / "central" / "registry-port").write_text(f"{port}\n")
        settings = CentralSettings(
            data=tmp_path / "central",
            http_address=("127.0.0.1", 0),
            grpc_address=None,
            access_folder=None,
            registry_address=("127.0.0.1", 5000),
            registry_may_move=True,
        )
        with portal.wrap_async_context_manager(open_central(settings)) as central:
            client = Raw(f"127.0.0.1:{central.http_port}", {"Authorization": f"Bearer {central.parts.local.person}"})
            shown = client.call("GET", "/api/v1/registry").json
            assert (shown["enabled"], shown["host"]) == (False, None)
            assert f"Port {port} is taken" in shown["why"]


# --- garbage --------------------------------------------------------------------------------------------------


def age(own: OwnRegistry, name: str) -> None:
    """As if all of it had come a day ago."""
    then = time.time() - DAY
    for file in [*(own.folder / "repositories" / name).rglob("*"), *(own.folder / "blobs").rglob("*")]:
        if file.is_file():
            os.utime(file, (then, then))


def run_collection(own: OwnRegistry, *, later: timedelta = timedelta()) -> Collected:
    parts = own.central.parts
    service, now = parts.registry.service, datetime.now(UTC) + later
    return own.portal.call(lambda: collect(service, parts.registry.uses.find, now))


def test_garbage_is_collected_and_what_deployments_use_is_not(tmp_path: Path) -> None:
    """A component names an image by digest. The image has no tag, the component's first version was replaced: both
    are used, the one by what is wanted, the other by what it can be rolled back to."""
    with own_registry(tmp_path / "central") as own:
        client = own.client()
        image = client.push_image("shop/web", "latest", b"first")
        older = client.push_image("shop/db", "latest", b"older")
        for version, used, name in (("1.0.0", older, "db"), ("1.1.0", image, "web")):
            compose = f"services: {{web: {{image: '127.0.0.1:5000/shop/{name}@{used}'}}}}\n".encode()
            archive = archive_of([{"name": "c/compose.yaml", "type": "file", "content": compose}])
            client.push_image("demo/hello", version, archive)
        for name in ("web", "db"):
            client.push_image(f"shop/{name}", "latest", f"newer {name}".encode())
        client.push_blob("shop/web", b"nobody needs this")
        joining = json.dumps({"epoch": "e-1", "software_version": "1"}).encode()
        joined = central_of(own).call("PUT", "/api/v1/sites/home", joining, content_type="application/json")
        assert joined.status == 200, joined
        person = Person(str(own.central.parts.settings.own_repository), tmp_path / "copy")
        key = ""
        for version in ("1.0.0", "1.1.0"):
            path, text = deployment_file(version=version, deployment_id=key or None)
            key = Path(path).stem
            person.write(path, text)
            person.push()
        wait_for_revisions(own, key, 1 if version == "1.0.0" else 2)
        age(own, "")
        collected = run_collection(own)
        assert (collected.manifests, collected.uploads) == (0, 0)
        assert collected.blobs >= 1
        for name, digest in (("shop/web", image), ("shop/db", older)):
            assert client.call("GET", f"/v2/{name}/manifests/{digest}").status == 200
            refused = client.call("DELETE", f"/v2/{name}/manifests/{digest}")
            assert (refused.status, refused.code) == (409, "DENIED")
        refused = client.call("DELETE", "/v2/demo/hello/manifests/1.0.0")
        assert "used by the deployment home/hello" in refused.json["errors"][0]["message"]
        assert client.call("GET", f"/v2/shop/web/blobs/{digest_of(b'nobody needs this')}").status == 404


def wait_for_revisions(own: OwnRegistry, key: str, count: int) -> None:
    async def kept() -> int:
        async with own.central.parts.store.read() as reader:
            return len(await reader.revisions(DeploymentId(key)))

    wait_for(lambda: own.portal.call(kept) == count, what="central to keep the revision")


def test_what_nobody_uses_goes_with_its_blobs_and_its_repository(own: OwnRegistry) -> None:
    client = own.client()
    client.push_image("old/app", "latest", b"only here, once")
    assert client.call("DELETE", "/v2/old/app/manifests/latest").status == 202
    assert run_collection(own).manifests == 0
    age(own, "old")
    before = own.portal.call(own.central.parts.registry.usage).blob_bytes
    collected = run_collection(own)
    assert collected.manifests == 1
    assert collected.freed_bytes > 0
    assert own.portal.call(own.central.parts.registry.usage).blob_bytes == before - collected.freed_bytes
    assert not (own.folder / "repositories" / "old").exists()


def test_an_unfinished_upload_is_left_alone_for_a_day(own: OwnRegistry) -> None:
    client = own.client()
    path = client.call("POST", "/v2/slow/app/blobs/uploads/", b"").headers["location"]
    client.call("PATCH", path, b"a beginning")
    assert run_collection(own, later=timedelta(hours=23)).uploads == 0
    assert client.call("GET", path).status == 204
    assert run_collection(own, later=timedelta(hours=25)).uploads == 1
    assert client.call("GET", path).status == 404


def test_an_index_keeps_its_images_though_only_it_has_a_tag(own: OwnRegistry) -> None:
    client = own.client()
    child = client.push_image("multi/app", "amd64", b"multi")
    entry = {"mediaType": IMAGE, "digest": child, "size": 1}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    assert client.push("multi/app", "latest", index).status == 201
    assert client.call("DELETE", "/v2/multi/app/manifests/amd64").status == 202
    age(own, "multi")
    run_collection(own)
    assert json.loads(client.call("GET", f"/v2/multi/app/manifests/{child}").body)["config"]
