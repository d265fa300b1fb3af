"""The parts of a running central, put together by `app.py` and used by its loops, routes and links."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from anyio.to_thread import run_sync

from homeport.adapters.identity.doors import Door
from homeport.central.identity import CentralIdentity
from homeport.central.settings import CentralSettings
from homeport.fleet.apps import OpenAppTree
from homeport.fleet.audit import Auditor
from homeport.fleet.calls import Calls
from homeport.fleet.deploy import Desk
from homeport.fleet.enrolment import Registrar
from homeport.fleet.index import Index
from homeport.fleet.intake import Intake
from homeport.fleet.overview import Watchfulness
from homeport.fleet.questions import Questions
from homeport.fleet.rollouts import Office
from homeport.fleet.secrets import Secrets
from homeport.fleet.sightings import Sightings
from homeport.fleet.strangers import Strangers
from homeport.ports import Charts, Clock, GitSource, Ids, InThread, Store, Tracer
from homeport.serving.authentication import Gate
from homeport.vocabulary import SiteName

OK: Final = "ok"


@dataclass(slots=True)
class Contact:
    """What central knows of its repository, for /readyz: the sentence that says what is wrong, or nothing."""

    git: str | None = "not read yet"
    others: dict[str, str] = field(default_factory=dict)
    """What other roles of the same process still lack, by role (`homeport up`)."""

    def of_git(self, problem: str | None) -> None:
        self.git = problem

    async def checks(self) -> Mapping[str, str]:
        return {"git": self.git or OK, **self.others}


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralCore:
    """What central needs to do its work, whoever may ask it about that."""

    settings: CentralSettings
    clock: Clock
    ids: Ids
    store: Store
    git: GitSource
    index: Index
    calls: Calls
    questions: Questions
    intake: Intake
    contact: Contact
    secrets: Secrets
    tracer: Tracer | None
    sightings: Sightings = field(default_factory=Sightings)
    in_thread: InThread = run_sync
    unmarked: set[SiteName] = field(default_factory=set)
    """Sites that joined while their marker could not be written; the sweep tries again."""

    @property
    def desk(self) -> Desk:
        return Desk(self.store, self.git, self.index, self.calls, self.ids, self.in_thread)

    @property
    def office(self) -> Office:
        watchfulness = Watchfulness(self.settings.site_silence_seconds)
        return Office(self.desk, self.clock, watchfulness, self.sightings)


@dataclass(frozen=True, slots=True, kw_only=True)
class CentralParts(CentralCore):
    """The whole of it, with the catalog's sources and what guards its doors."""

    open_tree: OpenAppTree
    charts: Charts
    auditor: Auditor
    identity: CentralIdentity
    registrar: Registrar
    strangers: Strangers
    gate: Gate
    doors: list[Door] = field(default_factory=list)
    """What the https port shows; its files are followed."""
