"""The starts of a site that central has seen: they distinguish a restored copy, or a second site of the same name,
from the previous process.

A site gives each of its starts an id, and stores the latest and how many reports it had assigned by then. One that
does not know the start central saw last, or has fewer reports than central, was restored from an older copy of its
database. One that comes back after another start has replaced it is a twin: a restarted process has a new id.
"""

import json
from dataclasses import replace
from typing import Final

from homeport.lazy_dataclass import dataclass
from homeport.ports import Lineage
from homeport.vocabulary import SiteName

PAST_MAX: Final = 8
RETURNS_MAX: Final = 3
"""How often a start may come back: a late packet of a site that has ended since may arrive, but not this often."""
DUPLICATE_SECONDS: Final = 600.0
"""How long two sites count as twins after one displaced the other."""


@dataclass(frozen=True, slots=True)
class Starts:
    current: str | None = None
    past: tuple[str, ...] = ()
    """Those that were displaced by another one, newest first."""
    returns: int = 0
    """How often one of those came back."""

    def are_ahead_of(self, lineage: Lineage | None, reported: int) -> bool:
        """Whether a site has lost the start that central saw last, or some of the reports that it sent before the
        current one, of which `reported` are known here."""
        if lineage is None or not lineage.starts or self.current is None or self.current == lineage.starts[-1]:
            return False
        return self.current not in lineage.starts or lineage.given < reported

    def joined_by(self, start: str) -> "Starts":
        if start == self.current:
            return self
        displaced = () if self.current is None else (self.current,)
        past = (*displaced, *(each for each in self.past if each != start))[:PAST_MAX]
        return Starts(start, past, self.returns + 1 if start in self.past else 0)

    @property
    def are_duplicates(self) -> bool:
        return self.returns >= RETURNS_MAX


def duplicate_text(site: SiteName) -> str:
    return (
        f"Two sites report as {site}, each from a copy of the same data, and displace each other here. "
        "Stop one of them, or give it a name and an identity of its own."
    )


def dump_starts(starts: Starts) -> str:
    return json.dumps({"current": starts.current, "past": starts.past, "returns": starts.returns})


def load_starts(text: str) -> Starts:
    body = json.loads(text)
    return replace(Starts(body["current"], tuple(body["past"])), returns=int(body["returns"]))
