"""The parts of a running site, put together by `app.py` and used by its loops and routes."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Final

import anyio
from anyio.to_thread import run_sync

from homeport.adapters.identity.https_certificates import ServerTls
from homeport.adapters.local_access import LocalKeys
from homeport.capability.site import SitePart
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.git_sync import older_contents
from homeport.fleet.site.nodes.streams import NodeSessions
from homeport.fleet.site.secrets import SiteSecrets
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.audit import Auditor
from homeport.identity.enrolment import Registrar
from homeport.identity.unknown_peers import UnknownPeers
from homeport.lazy_dataclass import dataclass
from homeport.ports import CentralLink, Clock, ContentCache, GitSource, Ids, InThread, Lineage, Store
from homeport.serving.middleware.authentication import Authenticator
from homeport.site.contact import SiteContact
from homeport.site.identity import SiteIdentity
from homeport.site.node_reception import Reception
from homeport.site.node_tunnels import NodeTunnels
from homeport.site.settings import SiteSettings

QUESTIONS_MAX: Final = 32
"""How many questions of central to capabilities are answered at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCore:
    """What a site needs to do its work, without its network interfaces."""

    settings: SiteSettings
    clock: Clock
    store: Store
    git: GitSource
    conductor: Conductor
    sessions: NodeSessions
    reception: Reception
    """Where nodes connect, those of the same process included."""
    contact: SiteContact
    central: CentralLink | None
    epoch: str
    lineage: Lineage
    ids: Ids
    secrets: SiteSecrets
    registrar: Registrar | None
    """Enrolment of nodes; set where there is an identity."""
    refused: Counter[str] = field(default_factory=Counter)
    """Unreadable messages of nodes and of central since the start, by code."""
    tunnels: NodeTunnels | None = None
    """Where nodes open their tunnels; None in a simulation."""
    content: ContentCache | None = None
    """None where it is off."""
    brought: Sequence[SitePart] = ()
    """The parts of capabilities."""
    asked: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(QUESTIONS_MAX))
    chance: random.Random = field(default_factory=random.Random)
    in_thread: InThread = run_sync

    def __post_init__(self) -> None:
        self.sessions.refused = self.refused
        self.conductor.older = partial(older_contents, self.git, self.conductor.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteParts(SiteCore):
    """All parts, including access control of its ports."""

    auditor: Auditor
    authenticator: Authenticator
    local: LocalKeys
    identity: SiteIdentity | None
    """None while everything stays on this machine."""
    policy: AcceptedClients
    unknown_peers: UnknownPeers | None
    tls_servers: list[ServerTls] = field(default_factory=list)
    """The certificates of the https port; their files are watched."""
