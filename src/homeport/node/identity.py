"""A node's membership with its site: joined at the first start, renewed at half of each certificate's life.

Nothing of the node's work waits for it: workloads are kept with a certificate that has ended as well as with a good
one, and the site knows the node again by its key.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import anyio
import anyio.to_thread

from homeport import failpoints
from homeport.adapters.identity.keeping import Nudge, follow_bundle, join, keep
from homeport.adapters.identity.membership import Membership, Ticket
from homeport.adapters.identity.tls import Credentials
from homeport.errors import Refused
from homeport.node.settings import NodeSettings, resolve_node_id


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    membership: Membership
    credentials: Credentials

    def verify_site(self, ssl_object: ssl.SSLObject) -> object:
        return self.credentials.verify_server(ssl_object, datetime.now(UTC))

    async def keep(self, reconnect: Callable[[], None]) -> None:
        """For as long as the node lives. A new certificate is shown on a new connection."""
        nudge = Nudge()

        async def renewed() -> None:
            reconnect()

        async def nothing_more() -> None:
            pass

        async with anyio.create_task_group() as tasks:
            renew = partial(self.membership.renew, self.credentials)
            tasks.start_soon(partial(keep, lambda: self.credentials, renew, renewed, name="node", nudge=nudge))
            tasks.start_soon(
                partial(follow_bundle, self.membership, self.credentials, on_changed=nothing_more, nudges=(nudge,))
            )


async def open_identity(
    settings: NodeSettings, *, on_waiting: Callable[[str], None] = lambda key: None
) -> NodeIdentity | None:
    """None for a node that has not joined and was not told to: then only a site of this machine is spoken to."""
    failpoints.arm(settings.failpoint)
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
            f"The identity in {settings.data / 'identity'} is of node {membership.joined.name}, not of {node_id}.",
            hint="Start it with its own --id, or give it a data folder of its own with --data.",
        )
    return NodeIdentity(membership, await anyio.to_thread.run_sync(membership.credentials))


def _ticket(settings: NodeSettings) -> Ticket | None:
    given = (settings.join_url, settings.pin)
    if settings.join_token is None and not any(given):
        return None
    if settings.join_url is None or settings.pin is None:
        raise Refused(
            "Joining needs the address of the site's API and its pin.",
            hint="Copy the whole line of  homeport nodes join-command , with --join-url and --pin.",
        )
    return Ticket(url=settings.join_url, pin=settings.pin, token=settings.join_token)
