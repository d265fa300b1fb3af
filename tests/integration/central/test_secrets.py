"""Secrets at central over HTTP: set, listed, removed, read by their site alone."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.link.central_http import open_central_link
from homeport.adapters.vault import KEY_FILE, open_vault
from homeport.central.api.secrets import check_is_the_site
from homeport.central.app import CentralApp
from homeport.core.model.access import SecretRecord
from homeport.core.model.caller import INTERNAL, Caller, CallerKind, Role
from homeport.core.secrets import SecretValue
from homeport.errors import Refused
from homeport.identity.rekeying import rekey, reseal
from homeport.ports import SecretsChanged
from homeport.vocabulary import SiteName
from tests.support.running_central import Client, FakeSite

pytestmark = pytest.mark.anyio

VALUE = "swordfish-0123456789abcdef"
HOME = SiteName("home")


async def put(client: Client, name: str = "DB", value: Any = VALUE, site: str = "home") -> Any:
    return await client.put(f"/api/v1/sites/{site}/secrets/{name}", {"value": value})


async def test_a_secret_is_set_and_only_its_name_is_shown(
    client: Client, home: FakeSite, central: CentralApp, tmp_path: Path
) -> None:
    answer = await put(client)
    assert (answer.status, answer.body["reference"]) == (200, "secret://DB")
    assert answer.body["updated_by"] == "local"
    for path in ("/api/v1/secrets", "/api/v1/secrets?site=home", "/api/v1/sites/home/secrets"):
        listed = await client.get(path)
        (secret,) = listed.body["secrets"]
        assert (secret["name"], secret["site"], secret["version"]) == ("DB", "home", answer.body["version"])
        assert VALUE not in json.dumps(listed.body)
    assert VALUE not in json.dumps(answer.body)
    for file in (tmp_path / "central").rglob("*"):
        assert not file.is_file() or VALUE.encode() not in file.read_bytes(), file


async def test_the_same_value_is_no_new_version_and_another_is(client: Client, home: FakeSite) -> None:
    first, same, other, last = [
        (await put(client, value=value)).body["version"] for value in (VALUE, VALUE, "other", VALUE)
    ]
    assert first == same < other < last


async def test_versions_go_on_after_a_removal(client: Client, home: FakeSite) -> None:
    first = (await put(client)).body["version"]
    assert (await client.delete("/api/v1/sites/home/secrets/DB")).status == 204
    assert (await client.get("/api/v1/secrets")).body["secrets"] == []
    assert (await put(client, value="another value")).body["version"] > first


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("DB", "", 422),
        ("DB", VALUE + "\0", 422),
        ("DB", VALUE * 4000, 422),
        ("DB", 7, 422),
        ("DB", [VALUE], 422),
        ("-db", VALUE, 422),
        ("a%20b", VALUE, 422),
        ("x" * 129, VALUE, 422),
    ],
)
async def test_bad_input_is_refused_and_never_repeated(
    client: Client, home: FakeSite, name: str, value: Any, status: int
) -> None:
    answer = await put(client, name, value)
    assert answer.status == status
    assert answer.body["errors"] or answer.body["detail"]
    assert VALUE not in json.dumps(answer.body)
    assert (await client.get("/api/v1/secrets")).body["secrets"] == []


async def test_a_body_that_is_not_understood_is_not_repeated_either(client: Client, home: FakeSite) -> None:
    for body in ({"valeu": VALUE}, {"value": "x", VALUE: "y"}, [VALUE], VALUE):
        answer = await client.put("/api/v1/sites/home/secrets/DB", body)
        assert answer.status == 422
        assert answer.body["errors"][0]["message"]
    answer = await client.call(
        "PUT",
        "/api/v1/sites/home/secrets/DB",
        data=f'{{"value": "{VALUE}',
        headers={"content-type": "application/json"},
    )
    assert answer.status == 400
    assert VALUE not in json.dumps(answer.body)


async def test_an_unknown_site_or_secret_is_said_to_be_one(client: Client, home: FakeSite) -> None:
    answer = await put(client, site="hoem")
    assert (answer.status, answer.body["detail"]) == (404, 'There is no site "hoem".')
    assert "home" in answer.body["hint"]
    assert (await client.get("/api/v1/sites/hoem/secrets")).status == 404
    await put(client)
    gone = await client.delete("/api/v1/sites/home/secrets/DBB")
    assert (gone.status, gone.body["detail"]) == (404, 'Site home has no secret "DBB".')
    assert "DB" in gone.body["hint"]


async def test_a_deploy_that_names_a_missing_secret_is_refused_by_parameter(client: Client, home: FakeSite) -> None:
    await FakeSite(client, "north").join()
    await put(client)
    answer = await client.deploy("home", "north", parameters={"greeting": "secret://DB"})
    assert answer.status == 422
    assert answer.fields == ["parameters.greeting"]
    assert "no secret DB at north" in answer.body["errors"][0]["message"]
    planned = await client.post("/api/v1/deployments?plan=true", {
        "app_name": "hello", "sites": [{"site_id": "north"}], "parameters": {"greeting": "secret://DB"}
    })  # fmt: skip
    assert planned.status == 422
    wrong = await client.deploy("home", parameters={"port": "secret://DB"})
    assert wrong.fields == ["parameters.port"]
    assert "cannot be a secret" in wrong.body["errors"][0]["message"]
    assert (await client.get("/api/v1/deployments")).body["deployments"] == []


async def test_a_secret_that_is_used_cannot_be_removed(client: Client, home: FakeSite) -> None:
    await put(client)
    # The rule of this parameter allows twenty characters; the reference and the value are no business of it.
    deployed = await client.deploy(name="shop", parameters={"greeting": "secret://DB"})
    assert deployed.status == 202, deployed.body
    refused = await client.delete("/api/v1/sites/home/secrets/DB")
    assert refused.status == 409
    assert refused.body["detail"] == "The secret DB of site home is used by shop."
    assert (await client.deploy(name="shop", parameters={"greeting": "Hello"})).status == 202
    assert (await client.delete("/api/v1/sites/home/secrets/DB")).status == 204


async def test_the_site_hears_of_it_and_gets_what_it_lacks(
    client: Client, home: FakeSite, central: CentralApp
) -> None:
    async with (
        open_central_link(client.url, local_keys=central.parts.settings.access_folder) as link,
        anyio.create_task_group() as tasks,
    ):
        heard = anyio.Event()

        async def listen() -> None:
            async for call in link.watch(HOME):
                if isinstance(call, SecretsChanged):
                    heard.set()

        tasks.start_soon(listen)
        await anyio.sleep(0.2)
        await put(client)
        with anyio.fail_after(60):
            await heard.wait()
        await put(client, "KEY", "k")
        there = await link.secrets(HOME, known={})
        db, key = (there.versions[name] for name in ("DB", "KEY"))
        assert there.versions == {"DB": db, "KEY": key}
        assert there.changed == {"DB": SecretValue(db, VALUE), "KEY": SecretValue(key, "k")}
        assert (await link.secrets(HOME, known={"DB": db})).changed.keys() == {"KEY"}
        assert (await link.secrets(HOME, known={"DB": 7, "KEY": key})).changed.keys() == {"DB"}, "any other version"
        assert (await link.secrets(SiteName("north"), known={})).versions == {}
        tasks.cancel_scope.cancel()
    assert await central.link.secrets(HOME, known={}) == there


async def test_no_token_of_whatever_role_opens_the_values(
    client: Client, home: FakeSite, central: CentralApp
) -> None:
    await put(client)
    assert (await client.get("/api/v1/sites/home/secrets/values")).status == 403, "the user who started it"
    expires = datetime.now(UTC) + timedelta(hours=1)
    for role in Role:
        tokens = central.parts.authenticator.tokens
        made = await tokens.create(INTERNAL, name=f"reader-{role}", role=role, expires_at=expires)
        answer = await client.get(
            "/api/v1/sites/home/secrets/values", headers={"Authorization": f"Bearer {made.text}"}
        )
        assert answer.status == 403
        assert VALUE not in json.dumps(answer.body)


@pytest.mark.parametrize(
    ("caller", "allowed"),
    [
        (Caller("home", Role.VIEWER, "10.0.0.1", (HOME,), CallerKind.MACHINE, "spiffe://x/client/home"), True),
        (Caller("north", Role.VIEWER, "10.0.0.1", (SiteName("north"),), CallerKind.MACHINE), False),
        (Caller("node-1", Role.VIEWER, "10.0.0.1", (HOME,), CallerKind.MACHINE), False),
        (Caller("admin", Role.ADMIN, "127.0.0.1", (), CallerKind.TOKEN), False),
        (Caller("home", Role.ADMIN, "127.0.0.1", (HOME,), CallerKind.TOKEN), False),
        (Caller("anonymous", Role.VIEWER, "10.0.0.1", (), CallerKind.ANONYMOUS), False),
        (Caller("local", Role.ADMIN, "127.0.0.1"), False),
        (Caller("local", Role.VIEWER, "127.0.0.1", kind=CallerKind.MACHINE), True),
    ],
)
async def test_a_machine_gets_its_own_sites_values_only(caller: Caller, allowed: bool) -> None:
    if allowed:
        check_is_the_site(caller, "home")
    else:
        with pytest.raises(Refused, match="site home alone"):
            check_is_the_site(caller, "home")


async def stored(central: CentralApp) -> Sequence[SecretRecord]:
    async with central.parts.store.read() as reader:
        return await reader.secrets()


def keys(folder: Path) -> set[str]:
    (file,) = folder.rglob("vault.key")
    return set(json.loads(file.read_text())["keys"])


async def test_a_new_key_seals_everything_anew_and_the_old_one_is_deleted(
    client: Client, home: FakeSite, central: CentralApp
) -> None:
    await put(client)
    secrets, data = central.parts.secrets, central.parts.settings.data
    (before,) = await stored(central)
    answer = await client.post("/api/v1/secrets/rotate-key", {})
    assert (answer.status, answer.body) == (200, {"key_number": 2, "secrets": 1, "unreadable": 0})
    (after,) = await stored(central)
    assert after.ciphertext != before.ciphertext
    assert (after.version, after.updated_by) == (before.version, before.updated_by)
    assert keys(data) == {"2"}
    opened = open_vault(data / KEY_FILE).open(after.ciphertext, context="secret/home/DB")
    assert opened.decode() == VALUE
    assert (await secrets.for_site(HOME, known={})).changed["DB"].value == VALUE
    (entry,) = (await client.get("/api/v1/audit?action=secrets.rotate-key")).body["entries"]
    assert (entry["actor"], entry["result"]) == ("local", "done")


async def test_only_an_administrator_of_everything_changes_the_key(
    client: Client, home: FakeSite, central: CentralApp
) -> None:
    for role, sites in (("operator", []), ("admin", ["home"])):
        made = await client.post("/api/v1/tokens", {"name": role, "role": role, "sites": sites})
        headers = {"Authorization": f"Bearer {made.body['token']}"}
        assert (await client.post("/api/v1/secrets/rotate-key", {}, headers=headers)).status == 403
    assert keys(central.parts.settings.data) == {"1"}


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
async def test_a_crash_at_any_step_of_a_new_key_leaves_every_secret_readable(
    client: Client, home: FakeSite, central: CentralApp, steps: int
) -> None:
    await put(client)
    store, path = central.parts.store, central.parts.settings.data / KEY_FILE
    dying = open_vault(path)
    if steps >= 1:
        dying.rotate()
    if steps >= 2:
        await reseal(store, dying)
    if steps >= 3:
        dying.forget_older()
    restarted = open_vault(path)
    (record,) = await stored(central)
    assert restarted.open(record.ciphertext, context="secret/home/DB").decode() == VALUE
    assert (await rekey(store, restarted)).secrets == 1
    (record,) = await stored(central)
    assert len(keys(path.parent)) == 1, "what the crash left is gone"
    assert open_vault(path).open(record.ciphertext, context="secret/home/DB").decode() == VALUE


async def test_the_audit_trail_and_the_events_name_it_without_its_value(client: Client, home: FakeSite) -> None:
    await put(client)
    trail = json.dumps((await client.get("/api/v1/audit")).body)
    assert "secrets.set" in trail
    assert VALUE not in trail
