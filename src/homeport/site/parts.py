"""The parts of a running site, put together by `app.py` and used by its loops and routes."""

import random
from dataclasses import dataclass, field

from anyio.to_thread import run_sync

from homeport.adapters.identity.doors import Door
from homeport.fleet.audit import Auditor
from homeport.fleet.conductor import Conductor
from homeport.fleet.enrolment import Registrar
from homeport.fleet.identity import Policy
from homeport.fleet.sessions import Sessions
from homeport.fleet.site_secrets import SiteSecrets
from homeport.fleet.strangers import Strangers
from homeport.ports import CentralLink, Clock, GitSource, InThread, Store
from homeport.serving.authentication import Gate
from homeport.site.contact import Contact
from homeport.site.identity import SiteIdentity
from homeport.site.reception import Reception
from homeport.site.settings import SiteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCore:
    """What a site needs to do its work, whoever may ask it about that."""

    settings: SiteSettings
    clock: Clock
    store: Store
    git: GitSource
    conductor: Conductor
    sessions: Sessions
    reception: Reception
    """Where nodes arrive, those of the same process included."""
    contact: Contact
    central: CentralLink | None
    epoch: str
    secrets: SiteSecrets
    registrar: Registrar | None
    """Who may join as a node; there where there is an identity."""
    chance: random.Random = field(default_factory=random.Random)
    in_thread: InThread = run_sync


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteParts(SiteCore):
    """The whole of it, with what guards its doors."""

    auditor: Auditor
    gate: Gate
    identity: SiteIdentity | None
    """None while everything stays on this machine."""
    policy: Policy
    strangers: Strangers | None
    doors: list[Door] = field(default_factory=list)
    """What the https port shows; its files are followed."""
