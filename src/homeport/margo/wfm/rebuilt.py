"""A central that is rebuilt from Git continues above every manifest version that its predecessor served.

The first commit that a new database indexes tells: what is deployed there was served before. Clients that join later
begin with version 1.
"""

from homeport.core.margo.records import ManifestRecord
from homeport.fleet.central.index import ROOT, Indexed, WriteRead
from homeport.fleet.shared.snapshot import deployment_of
from homeport.ports import GitSource, InThread, Transaction
from homeport.vocabulary import Commit, SiteName


async def read_first_commit(
    git: GitSource, before: Commit | None, commit: Commit, in_thread: InThread, /
) -> WriteRead:
    paths = await git.changed_paths(None, commit, ROOT) if before is None else ()
    sites = sorted({SiteName(path.split("/")[1]) for path in paths if deployment_of(path) is not None})

    async def write(tx: Transaction, indexed: Indexed) -> None:
        version = int(indexed.now.timestamp())
        await tx.put_margo_manifests([ManifestRecord(site, version, b"", (), indexed.now) for site in sites])

    return write
