"""The parts of a running site, put together by `app.py` and used by its loops and routes."""

from dataclasses import dataclass

from homeport.fleet.audit import Auditor
from homeport.fleet.conductor import Conductor
from homeport.fleet.enrolment import Registrar
from homeport.fleet.identity import Policy
from homeport.fleet.sessions import Sessions
from homeport.fleet.site_secrets import SiteSecrets
from homeport.ports import CentralLink, Clock, GitSource, Store
from homeport.serving.authentication import Gate
from homeport.site.contact import Contact
from homeport.site.identity import SiteIdentity
from homeport.site.reception import Reception
from homeport.site.settings import SiteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteParts:
    settings: SiteSettings
    clock: Clock
    store: Store
    git: GitSource
    conductor: Conductor
    sessions: Sessions
    reception: Reception
    """Where nodes arrive, those of the same process included."""
    contact: Contact
    auditor: Auditor
    gate: Gate
    central: CentralLink | None
    epoch: str
    secrets: SiteSecrets
    identity: SiteIdentity | None
    """None while everything stays on this machine."""
    registrar: Registrar | None
    """Who may join as a node; there where there is an identity."""
    policy: Policy
