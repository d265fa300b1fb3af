"""Removes a site from the fleet: one that was closed, or mistyped.

Its identity is removed first, or it would join again in between; then its folder is removed from Git and its records
from central. Nothing is removed from its machines: a site whose folder has lost its marker changes nothing. So it has
to be empty and unreachable first, unless forced. Each step can be repeated where a later one has failed.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from homeport.core.model.caller import Caller
from homeport.core.model.event import Deployment, NewEvent
from homeport.errors import Conflict
from homeport.fleet.central.deploy import GitWriter
from homeport.fleet.central.reports.intake import forget_cursor
from homeport.fleet.shared.overview import Reachability, find_site
from homeport.fleet.shared.snapshot import FILE_SIZE_MAX, site_folder
from homeport.log import get_log
from homeport.ports import Change, Clock, DeploymentFilter, Proposal, Transaction
from homeport.vocabulary import Commit, EventKind, SiteName, State

log = get_log("homeport.fleet.central")


Revoke = Callable[[SiteName], Awaitable[bool]]
"""Removes the identity of a site; returns whether it had one."""
ForgetSite = Callable[[Transaction, SiteName, datetime], Awaitable[None]]
"""Ends what a capability still expects of a site, in the transaction that removes it from the fleet."""


async def remove_site(
    text: str,
    *,
    force: bool,
    caller: Caller,
    git_writer: GitWriter,
    clock: Clock,
    reachability: Reachability,
    revoke: Revoke,
    forgetting: Sequence[ForgetSite] = (),
) -> bool:
    """Returns whether an identity was removed with it. Raises NotFound, or Conflict where something is deployed there
    or the site is reachable."""
    async with git_writer.store.read() as reader:
        site = await find_site(reader, text)
        rows = await reader.deployments(DeploymentFilter(site=site.name))
    if not force:
        _check(site.name, rows, is_reachable=reachability.is_reachable(site, clock.now()))

    async def decide(head: Commit | None) -> Proposal:
        folder = site_folder(site.name)
        files = [] if head is None else await git_writer.git.files(head, folder, size_max=FILE_SIZE_MAX)
        return Proposal([Change(file.path, None) for file in files], f"remove site {site.name}")

    had_identity = await revoke(site.name)
    await git_writer.write(decide, author=caller.name)
    await git_writer.store.write(lambda tx: _forget(tx, site.name, caller, clock.now(), forgetting))
    log.info("site removed", site=site.name, by=caller.name, deployments=len(rows), identity_removed=had_identity)
    return had_identity


def _check(site: SiteName, rows: Sequence[Deployment], *, is_reachable: bool) -> None:
    if rows:
        named = ", ".join(row.name for row in rows[:3]) + (" and more" if len(rows) > 3 else "")
        raise Conflict(
            f'{len(rows)} deployments are at site "{site}": {named}.',
            hint=f"Delete them first, or leave running what runs there:  homeport sites remove {site} --force",
        )
    if is_reachable:
        raise Conflict(
            f'Site "{site}" is in reach and would join again at once.',
            hint="Stop it first. With --force it is removed anyway, together with its identity.",
        )


async def _forget(
    tx: Transaction, site: SiteName, caller: Caller, now: datetime, forgetting: Sequence[ForgetSite]
) -> None:
    for forget in forgetting:
        await forget(tx, site, now)
    rows = await tx.deployments(DeploymentFilter(site=site))
    await tx.put_deployments(
        [
            replace(
                row,
                wanted=False,
                state=State.DELETED,
                archived_at=now,
                updated_at=now,
                version=row.version + 1,
                problem="its site was removed from the fleet",
            )
            for row in rows
        ]
    )
    await tx.drop_instances([item.key for item in await tx.instances([row.id for row in rows])])
    await tx.drop_pins([row.id for row in rows])
    await tx.put_holds(site, [])
    await tx.drop_margo_client(site)
    for node in await tx.nodes(site):
        await tx.remove_node(site, node.id)
    await forget_cursor(tx, site)
    await tx.remove_site(site)
    message = f"site {site} was removed by {caller.name}; its workloads keep running"
    await tx.append_events([NewEvent(EventKind.SITE_REMOVED, now, message, site=site, data={"author": caller.name})])
