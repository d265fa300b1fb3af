"""A site keeps its secrets sealed, gives them to its nodes with orders, and works with central gone."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.vault import KEY_FILE
from homeport.core.model.order import Held, Order
from homeport.core.secrets import SecretsThere, SecretValue
from homeport.errors import PeerUnavailable
from homeport.ports import FromCentral, JoinAnswer, Lineage, Outgoing, SecretsChanged
from homeport.site.app import SiteApp
from homeport.vocabulary import Code, NodeId, SiteName, State
from tests.integration.site.conftest import OpenSite
from tests.integration.site.test_restored import copy_of, put_back
from tests.integration.site.test_site import link, only, reaches
from tests.support.deployment_files import deployment_file
from tests.support.forks import COMMAND
from tests.support.git import Person
from tests.support.scripted_node import ScriptedNode, scripted_node
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

VALUE = "open-sesame-0123456789"


class Safe:
    """Central as far as secrets go: it has some, can change them, and can be away."""

    def __init__(self, **values: str) -> None:
        self.is_away = False
        self.held = {name: SecretValue(1, value) for name, value in values.items()}
        self._changed = anyio.Event()

    def change(self, name: str, version: int, value: str) -> None:
        self.held[name] = SecretValue(version, value)
        self.ring()

    def ring(self) -> None:
        rung, self._changed = self._changed, anyio.Event()
        rung.set()

    async def join(
        self, site: SiteName, *, epoch: str, software_version: str, lineage: Lineage | None = None
    ) -> JoinAnswer:
        self._answer()
        return JoinAnswer(0)

    async def report(
        self,
        site: SiteName,
        reports: Sequence[Outgoing],
        *,
        epoch: str,
        seen: Mapping[NodeId, datetime],
        start: str = "",
    ) -> int:
        self._answer()
        return reports[-1].sequence if reports else 0

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        self._answer()
        changed = {name: value for name, value in self.held.items() if known.get(name) != value.version}
        return SecretsThere({name: value.version for name, value in self.held.items()}, changed)

    async def call(self, site: SiteName, topic: str, body: bytes) -> bytes:
        raise AssertionError("nothing calls here")

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        self._answer()

    async def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        while True:
            self._answer()
            await self._changed.wait()
            yield SecretsChanged()

    def _answer(self) -> None:
        if self.is_away:
            raise PeerUnavailable("central is away")


def guarded(name: str = "DB") -> tuple[str, str]:
    path, text = deployment_file()
    return path, text.replace("value: Ahoy", f"value: secret://{name}")


def values(order: Order) -> Mapping[str, str]:
    assert order.release is not None
    return order.release.components[0].secret_values


async def write(person: Person, name: str = "DB") -> None:
    person.write(*guarded(name))
    person.push()


async def failure_code(site: SiteApp) -> str | None:
    async with site.parts.store.read() as reader:
        return next((item.failure.code for item in await reader.instances() if item.failure), None)


async def test_an_order_carries_the_value_and_the_disk_does_not(
    person: Person, start: OpenSite, tmp_path: Path
) -> None:
    async with start(Safe(DB=VALUE, OTHER="not asked for")) as site, scripted_node(link(site)) as node:
        await write(person)
        await reaches(site, State.INSTALLED)
        (order,) = node.orders
        assert values(order) == {"DB": VALUE}, "what it needs and nothing else"
        assert order.release is not None
        assert order.release.components[0].environment == {"GREETING": "secret://DB"}
        assert order.release.components[0].secrets == {"DB": 1}
        deployment = await only(site.parts.store)
        assert deployment is not None
        assert "secret://DB" in deployment.parameters.values()
    for path in (tmp_path / "site").rglob("*"):
        assert not path.is_file() or VALUE.encode() not in path.read_bytes(), path


async def test_a_changed_secret_updates_what_uses_it_and_nothing_else(person: Person, start: OpenSite) -> None:
    central = Safe(DB=VALUE, OTHER="x")
    async with start(central) as site, scripted_node(link(site)) as node:
        await write(person)
        await reaches(site, State.INSTALLED)
        central.change("OTHER", 2, "y")
        central.change("DB", 2, "changed-value")
        await eventually(lambda: len(node.orders) == 2)
        first, second = node.orders
        assert first.release is not None
        assert second.release is not None
        assert values(second) == {"DB": "changed-value"}
        assert first.release.revision == second.release.revision, "the file is the same"
        assert first.release.components[0].digest != second.release.components[0].digest
        assert second.generation > first.generation
        await reaches(site, State.INSTALLED)
        central.change("OTHER", 3, "z")
        central.ring()
        await eventually(lambda: site.parts.conductor.memory.secrets == {"DB": 2, "OTHER": 3})
        assert len(node.orders) == 2


async def test_a_missing_secret_fails_in_words_and_is_mended_when_it_comes(person: Person, start: OpenSite) -> None:
    central = Safe()
    async with start(central) as site, scripted_node(link(site)) as node:
        await write(person)
        await reaches(site, State.FAILED)
        assert await failure_code(site) == Code.SECRET_MISSING
        assert node.orders == []
        central.change("DB", 1, VALUE)
        await reaches(site, State.INSTALLED)
        assert [values(order) for order in node.orders] == [{"DB": VALUE}]


async def test_a_secret_set_just_before_the_deploy_is_not_missed(person: Person, start: OpenSite) -> None:
    central = Safe()
    async with start(central) as site, scripted_node(link(site)) as node:
        await eventually(lambda: site.parts.conductor.memory.applied is not None)
        central.held["DB"] = SecretValue(1, VALUE)  # and nobody says so
        await write(person)
        await eventually(lambda: bool(node.orders))
        await reaches(site, State.INSTALLED)
        async with site.parts.store.read() as reader:
            deployment = await only(site.parts.store)
            assert deployment is not None
            states = [line.after for line in await reader.history(deployment.id)]
        assert states == [State.INSTALLING, State.INSTALLED]


async def test_it_works_with_central_gone_and_after_a_restart(person: Person, start: OpenSite) -> None:
    central = Safe(DB=VALUE)
    async with start(central) as site:
        await eventually(lambda: site.parts.conductor.memory.secrets == {"DB": 1})
    central.is_away = True
    async with start(central) as site, scripted_node(link(site)) as node:
        await write(person)
        await reaches(site, State.INSTALLED)
        assert [values(order) for order in node.orders] == [{"DB": VALUE}]
    async with start(central) as site, scripted_node(link(site)) as node:
        await eventually(lambda: bool(node.orders))
        assert values(node.orders[0]) == {"DB": VALUE}, "a node that lost everything hears its order, value included"
        assert len({order.generation for order in node.orders}) == 1, "and nothing was renewed by the restart"


async def test_a_secret_that_central_no_longer_has_is_forgotten_and_what_runs_stays(
    person: Person, start: OpenSite
) -> None:
    central = Safe(DB=VALUE)
    async with start(central) as site, scripted_node(link(site)) as node:
        await write(person)
        await reaches(site, State.INSTALLED)
        del central.held["DB"]
        central.ring()
        await eventually(lambda: site.parts.conductor.memory.secrets == {})
        async with site.parts.store.read() as reader:
            assert await reader.secrets() == []
        await reaches(site, State.INSTALLED)
        assert len(node.orders) == 1


async def test_a_lost_key_means_fetching_anew(person: Person, start: OpenSite, tmp_path: Path) -> None:
    central = Safe(DB=VALUE)
    async with start(central) as site:
        await eventually(lambda: site.parts.conductor.memory.secrets == {"DB": 1})
    (tmp_path / "site" / "identity" / "vault.key").unlink()
    async with start(central) as site, scripted_node(link(site)) as node:
        await write(person)
        await reaches(site, State.INSTALLED)
        assert [values(order) for order in node.orders] == [{"DB": VALUE}]


async def test_a_key_that_is_lost_while_central_is_gone_is_told_as_a_missing_secret(
    person: Person, start: OpenSite, tmp_path: Path
) -> None:
    central = Safe(DB=VALUE)
    async with start(central) as site:
        await eventually(lambda: site.parts.conductor.memory.secrets == {"DB": 1})
    (tmp_path / "site" / "identity" / "vault.key").unlink()
    central.is_away = True
    async with start(central) as site, scripted_node(link(site)) as node:
        await write(person)
        await reaches(site, State.FAILED)
        assert await failure_code(site) == Code.SECRET_MISSING
        central.is_away = False
        await reaches(site, State.INSTALLED)
        assert [values(order) for order in node.orders] == [{"DB": VALUE}]


async def test_the_command_changes_the_key_of_a_site_and_nothing_is_restarted(
    person: Person, start: OpenSite, tmp_path: Path
) -> None:
    central = Safe(DB=VALUE, OTHER="x")
    async with start(central) as site, scripted_node(link(site)) as node:
        await write(person)
        await reaches(site, State.INSTALLED)
        await eventually(lambda: site.parts.conductor.memory.secrets == {"DB": 1, "OTHER": 1})
        central.is_away = True
        url = f"http://127.0.0.1:{site.http_port}"
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        command = [str(COMMAND), "secrets", "rotate-key", "--url", url]
        told = await anyio.run_process(command, env=environment)
        assert b"2 secrets sealed with key 2" in told.stdout + told.stderr
        again = await anyio.run_process([*command, "-o", "json"], env=environment)
        assert json.loads(again.stdout) == {"key_number": 3, "secrets": 2, "unreadable": 0}
        assert (await site.parts.secrets.reveal(["DB"]))["DB"] == SecretValue(1, VALUE)
        assert len(node.orders) == 1
    kept = json.loads((tmp_path / "site" / KEY_FILE).read_text())
    assert set(kept["keys"]) == {"3"}
    async with start(central) as site:
        assert (await site.parts.secrets.reveal(["DB"]))["DB"] == SecretValue(1, VALUE)


async def test_an_order_whose_secret_was_removed_before_it_went_out_has_failed(
    person: Person, start: OpenSite
) -> None:
    """Its node was away when it was decided, and would never be asked."""
    central = Safe(DB=VALUE)
    async with start(central) as site:
        conductor = site.parts.conductor
        async with scripted_node(link(site)):
            await eventually(lambda: bool(conductor.memory.nodes) and bool(conductor.memory.secrets))
        await write(person)
        await reaches(site, State.INSTALLING)
        del central.held["DB"]
        central.ring()
        await eventually(lambda: not conductor.memory.secrets)
        async with scripted_node(link(site)) as node:
            await reaches(site, State.FAILED)
            assert await failure_code(site) == Code.SECRET_MISSING
            central.change("DB", 2, VALUE)
            await reaches(site, State.INSTALLED)
            assert len(node.orders) == 1


async def test_a_changed_secret_reaches_what_runs_while_no_node_can_take_its_update(
    person: Person, start: OpenSite
) -> None:
    central = Safe(DB=VALUE)
    path, text = guarded()
    nowhere = '  x-homeport-extensions:\n    placement: {mode: one, selector: "zone=b"}\n'
    async with start(central) as site, scripted_node(link(site)) as node:
        person.write(path, text)
        person.push()
        await reaches(site, State.INSTALLED)
        person.write(path, text + nowhere)
        person.push()
        await reaches(site, State.FAILED)
        assert await failure_code(site) == Code.NO_ELIGIBLE_NODE
        central.change("DB", 2, "changed-value")
        await eventually(lambda: len(node.orders) == 2)
        first, second = node.orders
        assert first.release is not None
        assert second.release is not None
        assert values(second) == {"DB": "changed-value"}
        assert second.release.revision == first.release.revision, "what runs, not what has no node"
        await reaches(site, State.FAILED)
        assert await failure_code(site) == Code.NO_ELIGIBLE_NODE
        assert len(node.orders) == 2


async def test_a_secret_that_changed_while_a_restored_site_was_behind_its_node_reaches_what_runs(
    person: Person, start: OpenSite, tmp_path: Path
) -> None:
    """The site orders the newest value before its node connects, and the node holds a newer order than that one."""
    data, copy, central = tmp_path / "site", tmp_path / "copy", Safe(DB=VALUE)
    async with start(central) as site, scripted_node(link(site)) as node:
        await write(person)
        await reaches(site, State.INSTALLED)
        held = _healthy(node)
    copy_of(data, copy)
    async with start(central) as site, scripted_node(link(site), held=held) as node:
        for version in (2, 3):
            central.change("DB", version, f"value-{version}")
            await eventually(lambda: len(node.orders) == version - 1)  # noqa: B023 - awaited here
            await reaches(site, State.INSTALLED)
        held = _healthy(node)
    put_back(copy, data)
    central.change("DB", 4, "value-4")
    async with start(central) as site:
        await reaches(site, State.UPDATING)
        async with scripted_node(link(site), held=held) as node:
            await eventually(lambda: bool(node.orders))
            assert values(node.orders[-1]) == {"DB": "value-4"}
            assert node.orders[-1].generation > held[0].generation
            await reaches(site, State.INSTALLED)


def _healthy(node: ScriptedNode) -> tuple[Held, ...]:
    """What the node tells of its journal when it connects again."""
    return tuple(replace(item, good_revision=item.revision) for item in node.held.values())
