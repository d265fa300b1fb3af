"""A node's membership with its site: joined at the first start, renewed at half of each certificate's lifetime.

The node's work never waits for it: workloads keep running with an expired certificate too, and the site recognises
the node by its key.
"""

import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from homeport import failpoints
from homeport.adapters.identity.external_svid import follow_files, open_outside, outside_id
from homeport.adapters.identity.membership import JoinCommand, Membership
from homeport.adapters.identity.renewal import Nudge, follow_bundle, join, keep, nothing_more
from homeport.adapters.identity.tls import Credentials
from homeport.core.identity import spiffe
from homeport.errors import Refused
from homeport.lazy_dataclass import dataclass
from homeport.node.settings import NodeSettings, resolve_node_id
from homeport.vocabulary import NodeId, SiteName


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    membership: Membership | None
    """None with an external authority."""
    credentials: Credentials

    def verify_site(self, ssl_object: ssl.SSLObject) -> object:
        return self.credentials.verify_server(ssl_object, datetime.now(UTC))

    async def keep(self, reconnect: Callable[[], None]) -> None:
        """Runs while the node runs. A new certificate is presented on a new connection."""
        nudge, membership = Nudge(), self.membership

        async def renewed() -> None:
            reconnect()

        if membership is None:
            await follow_files(self.credentials, renewed)
            return
        async with anyio.create_task_group() as tasks:
            renew = partial(membership.renew, self.credentials)
            tasks.start_soon(partial(keep, lambda: self.credentials, renew, renewed, name="node", nudge=nudge))
            tasks.start_soon(
                partial(follow_bundle, membership, self.credentials, on_changed=nothing_more, nudges=(nudge,))
            )


async def open_identity(
    settings: NodeSettings, *, on_waiting: Callable[[str], None] = lambda key: None
) -> NodeIdentity | None:
    """None for a node that has not joined and has no join settings: then only a site on this machine is contacted."""
    failpoints.arm(settings.failpoint)
    if settings.svid_folder is not None:
        return await anyio.to_thread.run_sync(_from_outside, settings, settings.svid_folder)
    membership = Membership(settings.data / "identity")
    node_id = resolve_node_id(settings)
    if not membership.is_member:
        ticket = _ticket(settings)
        if ticket is None:
            return None
        await join(membership, ticket, name=node_id, on_waiting=on_waiting)
    assert membership.joined is not None
    if membership.joined.name != node_id:
        raise Refused(
            f"The identity in {settings.data / 'identity'} belongs to {membership.joined.name}, not to {node_id}.",
            hint="Start it with its own --id, or give it a data folder of its own with --data.",
        )
    return NodeIdentity(membership, await anyio.to_thread.run_sync(membership.credentials))


def named_by_certificate(settings: NodeSettings) -> NodeSettings:
    """With the id of the external certificate, unless one was set."""
    if settings.svid_folder is None or settings.node_id is not None:
        return settings
    return replace(settings, node_id=_own_name(settings.svid_folder)[2])


def _from_outside(settings: NodeSettings, folder: Path) -> NodeIdentity:
    domain, site, name = _own_name(folder)
    node_id, found = resolve_node_id(settings), spiffe.node_id(domain, site, name)
    if name != node_id:
        raise Refused(
            f"The certificate in {folder} is for {found}, which is not node {node_id}.",
            hint=f"Leave out --id, or have the authority issue {spiffe.node_id(domain, site, node_id)} .",
        )
    return NodeIdentity(None, open_outside(folder, domain=domain, wfm=settings.wfm_id, expected=found))


def _own_name(folder: Path) -> tuple[str, SiteName, NodeId]:
    """Trust domain, site and id."""
    found = outside_id(folder)
    match spiffe.split(found):
        case (domain, ("homeport", "site", site, "node", name)):
            return domain, SiteName(site), NodeId(name)
    raise Refused(
        f"The certificate in {folder} is for {found}, which is not a node.",
        hint="Have the authority issue spiffe://DOMAIN/homeport/site/SITE/node/NODE .",
    )


def _ticket(settings: NodeSettings) -> JoinCommand | None:
    given = (settings.join_url, settings.pin)
    if settings.join_token is None and not any(given):
        return None
    if settings.join_url is None or settings.pin is None:
        raise Refused(
            "Joining needs the address of the site's API and its pin.",
            hint="Copy the whole line of  homeport nodes join-command , with --join-url and --pin.",
        )
    return JoinCommand(url=settings.join_url, pin=settings.pin, token=settings.join_token)
