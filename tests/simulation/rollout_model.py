"""What rollouts promise, checked against the repository and what the sites themselves wrote down.

While they run: a wave begins only on the strength of the one before it, nobody is given what was paused, stopped or
aborted, and nothing that was given is taken back. In the end: each has come to its end or waits for a person, and
whoever belongs to the group of one that is done has what the group has.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime

import anyio

from homeport.catalog.rollout import intent_of, parse_rollout
from homeport.core.model.deployment import Desired
from homeport.core.model.event import Event
from homeport.core.model.rollout import Intent, RolloutRow
from homeport.fleet.shared.overview import Reachability
from homeport.rollouts.survey import look
from homeport.vocabulary import (
    Commit,
    EventKind,
    RolloutCommand,
    RolloutId,
    RolloutSiteStatus,
    RolloutState,
    SiteName,
    State,
    Trigger,
)
from tests.simulation.git import MemoryGit, Tree
from tests.simulation.store import MemoryReader, Tables
from tests.simulation.world import World

FOLDER = "rollouts/"
BAD = frozenset({Trigger.GAVE_UP, Trigger.UNPLACEABLE, Trigger.ROLLED_BACK})
STATES = {
    RolloutCommand.RUNNING: {RolloutState.RUNNING, RolloutState.STOPPED, RolloutState.DONE, RolloutState.SUPERSEDED},
    RolloutCommand.PAUSED: {RolloutState.PAUSED, RolloutState.STOPPED, RolloutState.SUPERSEDED},
    RolloutCommand.ABORTED: {RolloutState.ABORTED, RolloutState.SUPERSEDED},
}
REQUEST_SECONDS = 30.0
GIVING = frozenset({RolloutState.RUNNING, RolloutState.DONE})


@dataclass(slots=True, eq=False)
class RolloutModel:
    world: World
    began: dict[RolloutId, int] = field(default_factory=dict)
    """The number of the commit in which each was first seen."""
    began_at: dict[RolloutId, float] = field(default_factory=dict)
    """When that was."""
    created_at: dict[RolloutId, datetime] = field(default_factory=dict)
    """When that was by the clock of central, which may have been set since."""
    _read: dict[bytes, Intent] = field(default_factory=dict)

    # --- with every commit ----------------------------------------------------------------------------------

    def committed(self, _commit: Commit, before: Tree, after: Tree) -> None:
        for path, content in after.items():
            if path.startswith(FOLDER) and before.get(path) != content:
                intent = self._parsed(content, path)
                if path in before:
                    self._moved(self._parsed(before[path], path), intent, before)
                self.began.setdefault(intent.id, len(self.world.remote.order))
                self.began_at.setdefault(intent.id, anyio.current_time())
                self.created_at[intent.id] = intent.created_at

    def _moved(self, before: Intent, after: Intent, tree: Tree) -> None:
        name, complain = f"rollout {after.id[:4]}", self.world.violations.append
        row = self.world.central.disk.tables.rollouts.get(after.id)
        given = after.given - before.given
        if before.given - after.given:
            complain(f"{name} took {sorted(before.given - after.given)} back")
        if given and before.word is not RolloutCommand.RUNNING:
            complain(f"{name} was given to {sorted(given)} although its word is {before.word}")
        if given and row is not None and row.state not in GIVING:
            complain(f"{name} was given to {sorted(given)} although it is {row.state}")
        if after.waves_begun > before.waves_begun:
            self._overtook(before, tree)

    def _overtook(self, intent: Intent, tree: Tree) -> None:
        """At least half of a wave has answered before the next one begins, and of those the share that is needed."""
        newest = intent.waves[intent.waves_begun - 1].sites or ()
        ours = [desired for site in newest if (desired := self._ours(intent, site, tree)) is not None]
        good = [desired for desired in ours if desired.revision in self.world.proven]
        if 200 * len(good) < intent.threshold_percent * len(ours):
            self.world.violations.append(
                f"rollout {intent.id[:4]} went on after wave {intent.waves_begun}, which was healthy at"
                f" {len(good)} of {len(ours)} sites, and {intent.threshold_percent}% are needed"
            )

    # --- in the end -----------------------------------------------------------------------------------------

    def unsettled(self) -> Iterator[str]:
        tables, intents = self.world.central.disk.tables, self._intents()
        for intent in intents.values():
            row = tables.rollouts.get(intent.id)
            if row is None or intent_of(row.intent) != intent:
                yield f"rollout {intent.id[:4]} is another one at central than in Git"
            else:
                yield from self._unsettled(row, intent)
        for row in tables.rollouts.values():
            if row.id not in intents and row.state is not RolloutState.ABORTED:  # A file that is removed aborts it.
                yield f"rollout {row.id[:4]} is {row.state} at central, and not in Git"
        for site in self.world.sites:
            yield from self._lacking(site, intents, tables)

    def _unsettled(self, row: RolloutRow, intent: Intent) -> Iterator[str]:
        name = f"rollout {intent.id[:4]} of {intent.version}"
        if row.state not in STATES[intent.word]:
            yield f"{name} is {row.state} although its word is {intent.word}"
        later = [each for each in self.began if each != intent.id and not self._is_clearly_before(each, intent.id)]
        if row.state is RolloutState.RUNNING and not any(map(self._is_empty, intent.given)):
            yield f"{name} is still running: {row.progress['reason']}"
        elif row.state is RolloutState.SUPERSEDED and not later:
            yield f"{name} is superseded, and none came after it"
        elif row.state is RolloutState.STOPPED and not row.progress["refused"] and not self._failed(intent):
            yield f"{name} has stopped, and failed nowhere: {row.progress['reason']}"

    def _lacking(self, site: SiteName, intents: Mapping[RolloutId, Intent], tables: Tables) -> Iterator[str]:
        """Who belongs to the group of a rollout and has not got what the group has; or got what nobody gave."""
        here = [desired for desired in self.world.wanted(site).values() if desired is not None]
        for desired in here:
            intent = None if desired.rollout_id is None else intents.get(desired.rollout_id)
            if intent is not None and site not in intent.given:
                yield f"{site} has the file of rollout {intent.id[:4]}, which was not given to it"
        labels = self.world.labels_in_git(site)
        meant = [each for each in intents.values() if site in each.given or each.targets(site, labels)]
        giving = [each for each in meant if each.id in tables.rollouts and tables.rollouts[each.id].state in GIVING]
        newest = max(giving, key=lambda each: self.began[each.id], default=None)
        if newest is None or any(
            not self._is_clearly_before(each.id, newest.id) for each in giving if each != newest
        ):
            return
        if tables.rollouts[newest.id].state is not RolloutState.DONE or site in newest.given:
            return
        files = [desired for desired in here if desired.name == newest.name]
        if not any(self._written(desired) > self.began[newest.id] for desired in files):
            yield f"{site} is in the group of rollout {newest.id[:4]}, which is done, and has not got it"

    async def miscounted(self) -> list[str]:
        """What central shows of each site of a rollout, against what the site has written down."""
        central, found = self.world.central, []
        assert central.core is not None
        reader, git = MemoryReader(central.disk.tables), MemoryGit(self.world.remote, [])
        intents = self._intents()
        for name in sorted({intent.name for intent in intents.values()}):
            sightings = deepcopy(central.core.sightings)
            survey = await look(
                reader, git, name, reachability=Reachability(), sightings=sightings, clock=central.clock
            )
            for rollout_id, members in survey.members.items():
                for member in members if rollout_id in intents else ():
                    true = self._standing(intents[rollout_id], member.site)
                    if true not in (None, member.standing):
                        found.append(
                            f"{member.site} counts as {member.standing} for rollout {rollout_id[:4]}, and is {true}"
                        )
        return found

    def _standing(self, intent: Intent, site: SiteName) -> RolloutSiteStatus | None:
        """None where the model has no opinion."""
        desired = self._ours(intent, site, self.world.remote.tree)
        if desired is None or desired.rollout_id != intent.id or site not in intent.given:
            return None
        items = [item for key, item in self.world.sites[site].disk.tables.instances.items() if key[0] == desired.id]
        if any(item.state is State.FAILED or item.rejected_revision == desired.revision for item in items):
            return RolloutSiteStatus.FAILED
        is_well = all(item.running_revision == desired.revision and item.unhealthy is None for item in items)
        if items and is_well:
            return RolloutSiteStatus.INSTALLED
        return None

    # --- reading --------------------------------------------------------------------------------------------

    def _intents(self) -> dict[RolloutId, Intent]:
        found = [self._parsed(each, path) for path, each in self.world.remote.tree.items() if path.startswith(FOLDER)]
        return {intent.id: intent for intent in found}

    def _parsed(self, content: bytes, path: str) -> Intent:
        if content not in self._read:
            self._read[content] = parse_rollout(content, path)
        return self._read[content]

    def _ours(self, intent: Intent, site: SiteName, tree: Tree) -> Desired | None:
        """What a rollout has brought to a site, unless it is gone or was overtaken."""
        for desired in self.world.wanted(site, tree).values():
            if desired is not None and desired.name == intent.name:
                return desired if intent.id == desired.rollout_id or intent.version == desired.app_version else None
        return None

    def _written(self, desired: Desired) -> int:
        """The number of the commit that last changed the file."""
        remote, last = self.world.remote, 0
        before: bytes | None = None
        for number, commit in enumerate(remote.order, 1):
            content = remote.commits[commit].tree.get(desired.path)
            if content != before:
                last, before = number, content
        return last

    def _is_clearly_before(self, one: RolloutId, other: RolloutId) -> bool:
        """Of two that were asked for at the same time, whichever reaches Git last, either may count as the newer."""
        if self.began_at[one] + REQUEST_SECONDS < self.began_at[other]:
            return True
        return self.began[one] < self.began[other] and self.created_at[one] < self.created_at[other]

    def _is_empty(self, site: SiteName) -> bool:
        return not any(key[0] == site for key in self.world.sites[site].disk.tables.nodes)

    def _turned_ill(self, event: Event, intent: Intent) -> bool:
        """What is healthy no more has failed in its rollout as well."""
        if event.event.kind is not EventKind.INSTANCE_UNHEALTHY:
            return False
        versions = {each.app_version for each in self.world.known.values() if each.id == event.event.deployment_id}
        return intent.version in versions

    def _failed(self, intent: Intent) -> bool:
        """Whether any of its sites has ever written down that it failed there, also in a database that is lost."""
        return any(
            self._failed_in(tables, intent)
            for site in intent.given
            for tables in (*self.world.forgotten.get(site, ()), self.world.sites[site].disk.tables)
        )

    def _failed_in(self, tables: Tables, intent: Intent) -> bool:
        for entry in tables.history:
            known = None if entry.revision is None else self.world.known.get(entry.revision)
            if entry.trigger in BAD and known is not None and known.app_version == intent.version:
                return True
        return any(self._turned_ill(event, intent) for event in tables.events)
