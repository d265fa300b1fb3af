"""Secrets in the journal: found again after a restart, and never in plain on the disk."""

from dataclasses import replace
from pathlib import Path

import pytest

from homeport.adapters.vault import open_vault
from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.order import Order
from homeport.core.secrets import SecretValue, filled
from homeport.errors import WorkFailed
from homeport.node.journal.journal import Journal
from tests.integration.node.test_journal import ended
from tests.support.builders import deployment_id
from tests.support.orders import a_component, to_apply, to_remove

pytestmark = pytest.mark.anyio

VALUE = "never-in-plain-0123456789"


def guarded(generation: int, value: str = VALUE) -> Order:
    part: ComponentSpec = replace(a_component("web"), environment={"PASSWORD": "secret://DB"})
    order = to_apply(generation, part, a_component("cache"))
    assert order.release is not None
    return replace(order, release=filled(order.release, {"DB": SecretValue(generation, value)}))


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("journal*"))


async def test_values_are_found_again_and_are_sealed_on_the_disk(tmp_path: Path) -> None:
    vault = open_vault(tmp_path / "vault.key")
    journal = Journal(tmp_path / "journal", vault)
    await journal.accept([guarded(1, VALUE + "-first")])
    await journal.finish(ended(guarded(1)))
    await journal.accept([guarded(2)])
    entries = dict(journal.deployments)
    assert VALUE.encode() not in on_disk(tmp_path), "while it is open, in the log of the database too"
    journal.close()
    assert VALUE.encode() not in on_disk(tmp_path)
    again = Journal(tmp_path / "journal", open_vault(tmp_path / "vault.key"))
    assert again.deployments == entries
    entry = again.deployments[deployment_id()]
    assert entry.order == guarded(2)
    assert entry.good == guarded(1, VALUE + "-first").release
    again.close()


async def test_a_removal_forgets_the_values(tmp_path: Path) -> None:
    vault = open_vault(tmp_path / "vault.key")
    journal = Journal(tmp_path / "journal", vault)
    await journal.accept([guarded(1)])
    await journal.accept([to_remove(2)])
    await journal.finish(ended(to_remove(2)))
    journal.close()
    again = Journal(tmp_path / "journal", None)
    assert again.deployments[deployment_id()].order == to_remove(2), "no vault is needed any more"
    again.close()


async def test_an_order_whose_secrets_cannot_be_opened_is_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path / "journal", open_vault(tmp_path / "vault.key"))
    await journal.accept([guarded(1), to_apply(1, key=deployment_id(2))])
    journal.close()
    again = Journal(tmp_path / "journal", open_vault(tmp_path / "another.key"))
    assert list(again.deployments) == [deployment_id(2)], "the site will send the other one anew"
    assert "order secrets lost" in caplog.text
    again.close()


async def test_without_a_vault_an_order_with_secrets_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with pytest.raises(WorkFailed, match="no vault"):
        await journal.accept([guarded(1)])
    assert not journal.deployments
    journal.close()
