"""A central that is rebuilt from Git continues above every manifest version that its predecessor served.

The first commit that a new database indexes tells: where something is deployed, there was a central before this one,
and each client with a folder was served by it, also one that has nothing deployed any more. Clients that join later
begin with version 1.
"""

from homeport.core.margo.records import ManifestRecord
from homeport.fleet.central.index import Indexed, WriteRead
from homeport.fleet.central.indexing.folders import ROOT
from homeport.fleet.shared.snapshot import deployment_of
from homeport.ports import GitSource, InThread, Transaction
from homeport.vocabulary import Commit, SiteName


async def read_first_commit(
    git: GitSource, before: Commit | None, commit: Commit, in_thread: InThread, /
) -> WriteRead:
    paths = await git.changed_paths(None, commit, ROOT) if before is None else ()
    is_rebuilt = any(deployment_of(path) is not None for path in paths)
    sites = sorted({SiteName(path.split("/")[1]) for path in paths if path.count("/") > 1}) if is_rebuilt else []

    async def write(tx: Transaction, indexed: Indexed) -> None:
        version = int(indexed.now.timestamp() * 1000)
        served = {record.site for record in await tx.margo_manifests_of(sites)}  # by this one, before it read Git
        new = [ManifestRecord(site, version, b"", (), indexed.now) for site in sites if site not in served]
        await tx.put_margo_manifests(new)

    return write
