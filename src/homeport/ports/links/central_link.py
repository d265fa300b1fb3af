"""The link between a site and central."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from homeport.core.model.deployment import Hold
from homeport.core.model.identity import JoinToken
from homeport.core.model.instance import RecordedRollback
from homeport.core.model.node import Tunable
from homeport.core.model.protocol import UNSAID, PeerProtocol
from homeport.core.secrets import SecretsThere
from homeport.lazy_dataclass import dataclass
from homeport.ports.storage.store import Outgoing
from homeport.vocabulary import Commit, DeploymentId, Digest, Generation, Incarnation, NodeId, SiteName


@dataclass(frozen=True, slots=True)
class Moved:
    """Notifies a site that the deployments repository has changed."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """An operator at central asks a site to remove one of its nodes."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class SecretsChanged:
    """Central has a changed secret for the site, which fetches it at once."""


@dataclass(frozen=True, slots=True)
class ExpectNode:
    """Central created a join token for a node of the site; only its hash is sent."""

    token: JoinToken


@dataclass(frozen=True, slots=True)
class DrainNode:
    """An operator at central drains a node or, without a reason, ends the drain."""

    node_id: NodeId
    reason: str | None


@dataclass(frozen=True, slots=True)
class TuneNode:
    """An operator at central changes a node's settings; these are all of them."""

    node_id: NodeId
    tunable: Tunable


@dataclass(frozen=True, slots=True)
class SetHold:
    """An operator at central puts the site or a deployment on hold."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class LiftHold:
    deployment_id: DeploymentId | None
    by: str


@dataclass(frozen=True, slots=True)
class RollBack:
    """An operator at central rolls back to an older revision while Git cannot be written."""

    deployment_id: DeploymentId
    revision: Digest
    reason: str
    author: str
    over: Digest | None = None
    """The revision in Git that it goes back from; None from a central of an earlier release."""
    commit: Commit | None = None
    """Where central has read that revision. A site that has not read so far may never have seen it."""


@dataclass(frozen=True, slots=True)
class Restate:
    """Central asks a site to report again how these deployments stand: it has ignored what the site reported of them,
    or has dropped what it knew."""

    deployment_ids: tuple[DeploymentId, ...]


@dataclass(frozen=True, slots=True)
class NodeIdentities:
    """An operator at central asks a site to list, approve or remove identities of its nodes; the site replies."""

    question: str
    step: str
    """list, approve or remove."""
    name: str
    by: str
    key: str = ""
    """The key that the machine to approve must have; empty for any."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A capability at central asks its counterpart at the site, and waits for the reply."""

    topic: str
    content: Mapping[str, Any]


Request = (
    RemoveNode
    | SecretsChanged
    | ExpectNode
    | RollBack
    | DrainNode
    | TuneNode
    | SetHold
    | LiftHold
    | NodeIdentities
    | Restate
    | Ask
)
"""Central's requests to one site."""


@dataclass(frozen=True, slots=True)
class Addressed:
    """A request whose sender waits for a reply, to learn whether the site refuses it."""

    request: Request
    reply_to: str


@dataclass(frozen=True, slots=True)
class UnknownRequest:
    """A request of a newer central that this site does not know or cannot read. It is refused, not ignored."""

    kind: str
    why: str
    reply_to: str = ""


FromCentral = Moved | Request | Addressed | UnknownRequest


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a site's database contains about its past, so that central detects a lost or restored one."""

    starts: tuple[str, ...]
    """The ids of the site's latest starts, the current one last."""
    given: int
    """The last report sequence that was assigned when it started."""


ROLLED_BACK_MAX: Final = 1000
"""How many rollbacks central sends to a site that has lost them, the latest first."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Central has records that this site has lost: its database is new, or an older copy, or the site runs
    twice. These are the highest numbers that it assigned in that time."""

    generation: Generation
    incarnation: Incarnation
    rolled_back: tuple[RecordedRollback, ...] = ()
    """What must not be applied again; at most ROLLED_BACK_MAX."""


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    sequence: int
    """The last report of this epoch that central has made durable."""
    ahead: Ahead | None = None
    """If set, the site must do a full resync."""
    is_let_in: bool = True
    """False for an epoch that a later start of the site has used too: the site must begin a new one first."""
    protocol: PeerProtocol = UNSAID
    """Central's protocol."""


class CentralLink(Protocol):
    """How a site reaches central. All calls raise PeerUnavailable while central is unreachable."""

    async def join(
        self, site: SiteName, *, epoch: str, software_version: str, lineage: Lineage | None = None
    ) -> JoinAnswer:
        """Registers the site. Raises PeerIncompatible where the two are too many releases apart.

        An epoch is one life of the site's database: sequences start again with each. `lineage` describes the site's
        earlier starts.
        """
        ...

    async def report(
        self,
        site: SiteName,
        reports: Sequence[Outgoing],
        *,
        epoch: str,
        seen: Mapping[NodeId, datetime],
        start: str = "",
    ) -> int:
        """Returns the last sequence that is durable at central. Repeats are recognised and harmless.

        `seen` has the last heartbeat of each node; it is not queued, because the next call sends it again. An empty
        call is the site's own heartbeat. `start` names the start of the site that sends: what an earlier one sent may
        arrive late, after the site was restarted with an older copy of its database, and is refused.
        """
        ...

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        """The site's own secrets: all names, and the values whose version is not in `known`."""
        ...

    async def call(self, site: SiteName, topic: str, body: bytes) -> bytes:
        """A capability's message to its counterpart at central, and the answer. Raises PeerIncompatible where central
        does not know the topic, and Refused with central's reason."""
        ...

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        """The site's reply to a question that arrived through `watch`."""
        ...

    def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        """Ends, or raises PeerUnavailable, when the connection does; the caller reconnects."""
        ...
