"""A site may follow a commit before central has looked: then central looks first, or the removal would never end."""

from pathlib import Path

import pytest

from homeport.adapters.store.open import open_store
from homeport.core.model.event import Site
from homeport.core.model.report import FileProblem, Synced
from homeport.fleet.central.reports.batch import ReportBatch
from homeport.ports import Transaction
from homeport.vocabulary import Commit
from tests.support.builders import HOME, NOW, a_deployment, deployment_id

pytestmark = pytest.mark.anyio

COMMIT = Commit("d" * 40)


@pytest.mark.parametrize(
    ("synced", "knows_all"),
    [
        (Synced(COMMIT, (deployment_id(),)), True),
        (Synced(COMMIT, ()), False),
        (Synced(COMMIT, (), (FileProblem("x.yaml", "cannot be read", deployment_id()),)), True),
    ],
)
async def test_a_sync_without_what_is_wanted_here_makes_central_look_first(
    tmp_path: Path, synced: Synced, knows_all: bool
) -> None:
    async with open_store(str(tmp_path / "central.db")) as store:

        async def work(tx: Transaction) -> bool:
            await tx.put_deployments([a_deployment()])
            batch = ReportBatch(site=Site(HOME, NOW, NOW, None), now=NOW)
            await batch.load(tx, [(1, synced)], {})
            return batch.is_complete

        assert await store.write(work) is knows_all
