"""The parts of a running central, put together by `app.py` and used by its loops, routes and links."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from homeport.adapters.files.disk import WriteProbe
from homeport.adapters.identity.https_certificates import ServerTls
from homeport.adapters.local_access import LocalKeys
from homeport.capability.central import CentralPart
from homeport.central.identity import CentralIdentity
from homeport.central.replicas import AccessChanges
from homeport.central.settings import CentralSettings
from homeport.content.registry.built_in import CentralRegistry
from homeport.fleet.central.apps import OpenAppTree
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.reports.intake import ReportIntake
from homeport.fleet.central.secrets import Secrets
from homeport.identity.audit import Auditor
from homeport.identity.enrolment import Registrar
from homeport.identity.unknown_peers import UnknownPeers
from homeport.lazy_dataclass import dataclass
from homeport.ports import Charts, Images
from homeport.serving.middleware.authentication import Authenticator
from homeport.vocabulary import SiteName

OK: Final = "ok"


@dataclass(slots=True)
class CentralContact:
    """The state of central's repository, for /readyz: a sentence that says what is wrong, or nothing."""

    git: str | None = "not read yet"
    disk: WriteProbe | None = None
    others: dict[str, str] = field(default_factory=dict)
    """Problems of other roles in the same process, by role (`homeport up`)."""

    def of_git(self, problem: str | None) -> None:
        self.git = problem

    async def checks(self) -> Mapping[str, str]:
        disk = {} if self.disk is None else {"disk": await self.disk.check()}
        return {"git": self.git or OK, **disk, **self.others}


@dataclass(slots=True)
class MargoPort:
    """Where the Margo management interface is served."""

    address: tuple[str, int] | None = None
    why_off: str | None = "It is not configured."


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralCore(CentralPlatform):
    """What central needs to do its work, without its network interfaces."""

    settings: CentralSettings
    intake: ReportIntake
    contact: CentralContact
    secrets: Secrets
    unmarked: set[SiteName] = field(default_factory=set)
    """Sites that joined while their marker could not be written; the sweep retries."""
    brought: list[CentralPart] = field(default_factory=list)
    """The parts of capabilities; they are created with this object, and added right after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralParts(CentralCore):
    """All parts, including the catalog's sources and access control of its ports."""

    open_tree: OpenAppTree
    charts: Charts
    images: Images
    auditor: Auditor
    access_changes: AccessChanges
    identity: CentralIdentity
    registrar: Registrar
    unknown_peers: UnknownPeers
    authenticator: Authenticator
    local: LocalKeys
    registry: CentralRegistry
    margo: MargoPort = field(default_factory=MargoPort)
    tls_servers: list[ServerTls] = field(default_factory=list)
    """The certificates of the https port; their files are watched."""
