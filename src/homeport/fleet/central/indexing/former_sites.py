"""The sites that have had the file of a deployment before it was moved: one of them that was offline may still report
on it."""

from typing import Final

from homeport.ports import Reader, Transaction
from homeport.vocabulary import DeploymentId, SiteName

FORMER_SITES_MAX: Final = 10


def moved_from(deployment_id: DeploymentId) -> str:
    """The key that stores the sites that have had the file of a deployment which was moved, the last one first."""
    return f"moved_from:{deployment_id}"


async def former_sites(reader: Reader, deployment_id: DeploymentId) -> list[SiteName]:
    """A site that was offline may still report on a deployment after its file was moved twice."""
    return [SiteName(name) for name in (await reader.value(moved_from(deployment_id)) or "").split()]


async def note_former_site(tx: Transaction, deployment_id: DeploymentId, former: SiteName) -> None:
    sites = [former, *(site for site in await former_sites(tx, deployment_id) if site != former)]
    await tx.set_value(moved_from(deployment_id), " ".join(sites[:FORMER_SITES_MAX]))
