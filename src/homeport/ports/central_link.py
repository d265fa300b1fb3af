"""Between a site and central."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from homeport.core.model.deployment import Hold
from homeport.core.model.identity import JoinToken
from homeport.core.secrets import SecretsThere
from homeport.ports.store import Outgoing
from homeport.vocabulary import Commit, DeploymentId, Digest, NodeId, SiteName


@dataclass(frozen=True, slots=True)
class Moved:
    """Central tells a site that the deployments repository has moved."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Somebody at central asks a site to forget one of its nodes."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class SecretsChanged:
    """Central has another secret for the site, which asks for it at once."""


@dataclass(frozen=True, slots=True)
class ExpectNode:
    """Central made a join token for a node of the site; only its hash travels."""

    token: JoinToken


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Somebody at central wants a node emptied, or, without a reason, to take work again."""

    node_id: NodeId
    reason: str | None


@dataclass(frozen=True, slots=True)
class SetHold:
    """Somebody at central wants something at the site left as it is for a while."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class LiftHold:
    deployment_id: DeploymentId | None
    by: str


@dataclass(frozen=True, slots=True)
class RollBack:
    """Somebody at central goes back to an older revision while Git cannot be written."""

    deployment_id: DeploymentId
    revision: Digest
    reason: str
    author: str


@dataclass(frozen=True, slots=True)
class NodeIdentities:
    """Somebody at central asks a site to list, approve or remove identities of its nodes; the site answers."""

    question: str
    step: str
    """list, approve or remove."""
    name: str
    by: str


Request = RemoveNode | SecretsChanged | ExpectNode | RollBack | DrainNode | SetHold | LiftHold | NodeIdentities
"""What central asks of one site."""
FromCentral = Moved | Request


class CentralLink(Protocol):
    """How a site reaches central. All calls raise PeerUnavailable while central is gone."""

    async def join(self, site: SiteName, *, epoch: str, software_version: str) -> int:
        """Makes the site known; returns the last report sequence of this epoch that central has made durable.

        An epoch is one life of the site's database: sequences begin anew with each.
        """
        ...

    async def report(
        self, site: SiteName, reports: Sequence[Outgoing], *, epoch: str, seen: Mapping[NodeId, datetime]
    ) -> int:
        """Returns the last sequence that is durable at central. Repeats are recognised and harmless.

        `seen` says when each node was last heard; it is not queued, for the next call says it anew. An empty
        call is the site's own heartbeat.
        """
        ...

    async def secrets(self, site: SiteName, *, known: Mapping[str, int]) -> SecretsThere:
        """The site's own secrets: all names, and the values of those whose version it does not know."""
        ...

    async def answer(self, site: SiteName, question: str, answer: Mapping[str, Any]) -> None:
        """What the site says to a question that it heard while it watched."""
        ...

    def watch(self, site: SiteName) -> AsyncIterator[FromCentral]:
        """Ends, or raises PeerUnavailable, when the connection does; the caller opens it again."""
        ...
