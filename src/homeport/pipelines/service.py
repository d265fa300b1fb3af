"""Pipelines at central, for people, webhooks, schedules and other pipelines: save, pause, run, look, cancel."""

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Final

import anyio

from homeport.core.access.roles import site_refusal
from homeport.core.model.caller import Caller, CallerKind
from homeport.core.model.event import NewEvent, Subject
from homeport.core.pipelines.due import next_due
from homeport.core.pipelines.lifecycle import RUN_ENDED, RUN_OPEN
from homeport.core.pipelines.limits import DEPTH_MAX
from homeport.core.pipelines.model import Definition, Owner, Pipeline, Run, StepKind
from homeport.core.pipelines.values import check_inputs
from homeport.errors import Conflict, InvalidInput, NotAuthorized, NotFound, Problem, QueueFull, Refused
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.answers.suggestion import did_you_mean
from homeport.fleet.shared.scope import seen_by
from homeport.identity.tokens import is_active
from homeport.lazy_dataclass import dataclass
from homeport.pipelines.events import events_between
from homeport.pipelines.reading import read_pipeline
from homeport.pipelines.steps.plugin import missing
from homeport.ports import PIPELINE_RUNS, PIPELINES, WHOLE, PipelineFilter, RunFilter, Transaction
from homeport.vocabulary import EventKind, RunId, RunState, SiteName, SubjectKind

OPEN_MAX: Final = 1_000
"""Runs that people and triggers began and that have not ended; more are refused."""
CALLED_MAX: Final = 200
"""The same of runs that others called, for each depth: in a common room, runs that wait for what they call would fill
it, and then nothing that they wait for could begin."""
SAVED_MAX: Final = 1_000
HAND: Final = "hand"
WAIT_SECONDS_MAX: Final = 20.0
"""How long a request waits for a change of a run."""


@dataclass(frozen=True, slots=True)
class PipelineRunRequest:
    source: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    trigger: str = HAND
    id: RunId | None = None
    """Chosen by the client, so that it may ask again after an answer that was lost."""
    parent: Run | None = None


class Pipelines:
    def __init__(self, central: CentralPlatform) -> None:
        self._central = central

    async def checked(self, source: str) -> Pipeline:
        """As this central can carry it out. Raises InvalidInput with fields and lines."""
        pipeline = await self._central.in_thread(read_pipeline, source)
        known = self._central.pipelines.step_plugins
        problems = [
            Problem(f"steps.{step.name}.plugin.name", f"{missing(step.action['name'], known)}.")
            for step in pipeline.steps
            if step.kind is StepKind.PLUGIN and step.action["name"] not in known
        ]
        if problems:
            raise InvalidInput(problems=problems, hint="See  homeport central --help  for --step-plugin.")
        return pipeline

    # --- runs -------------------------------------------------------------------------------------------------

    async def start(self, request: PipelineRunRequest, owner: Owner) -> Run:
        """The run, durable. The same id with the same content is the same run. Raises InvalidInput with fields and
        lines, Conflict, QueueFull, and NotAuthorized for a site that is not the owner's."""
        pipeline = await self.checked(request.source)
        check_sites_of(pipeline, owner)
        inputs = check_inputs(pipeline, request.inputs)
        depth = 0 if request.parent is None else request.parent.depth + 1
        if depth > DEPTH_MAX:
            raise InvalidInput(f"Pipelines call each other more than {DEPTH_MAX} deep.")
        now = self._central.clock.now()
        run = Run(
            id=request.id or RunId(self._central.ids.new()),
            pipeline=pipeline.name,
            site=pipeline.site,
            state=RunState.PENDING,
            version=1,
            source=request.source,
            inputs=inputs,
            owner=owner,
            trigger=request.trigger,
            created_at=now,
            updated_at=now,
            parent=None if request.parent is None else request.parent.id,
            depth=depth,
        )

        async def work(tx: Transaction) -> Run:
            before = await tx.pipeline_run(run.id)
            if before is not None:
                return _same(before, run)
            counts = await tx.counts(PIPELINE_RUNS, RunFilter(states=RUN_OPEN, depth=depth))
            if counts.get((), 0) >= (CALLED_MAX if depth else OPEN_MAX):
                called = f" that others called, {depth} deep," if depth else ""
                raise QueueFull(f"{counts[()]} runs of pipelines{called} have not ended.")
            await tx.put_pipeline_runs([run])
            await tx.append_events(list(events_between(None, run, now)))
            return run

        return await self._central.store.write(work)

    async def find(self, text: str, caller: Caller) -> Run:
        """By id, or by a prefix that fits only one. Raises NotFound and Conflict."""
        async with seen_by(caller, self._central.store).read() as reader:
            found = await reader.pipeline_runs_called(text)
        if not found:
            raise NotFound(f'There is no run "{text}".', hint="List them:  homeport pipelines list")
        if len(found) > 1 and found[0].id != text:
            ids = ", ".join(run.id[:12] for run in found[:5])
            raise Conflict(f'"{text}" fits several runs: {ids}.', hint="Write more of its id.")
        return found[0]

    async def changed(self, run: Run, after: int, *, seconds: float) -> Run:
        """The run when it is no longer at this version, or as it is after so long."""
        found, store = run, self._central.store
        with anyio.move_on_after(min(seconds, WAIT_SECONDS_MAX)):
            while found.version == after and found.state not in RUN_ENDED:
                async with store.read() as reader:
                    last = await reader.last_event_id()
                    found = await reader.pipeline_run(run.id) or found
                if found.version == after:
                    await store.wait_for_event(last)
        return found

    async def cancel(self, run: Run, by: str) -> Run:
        """Asks for it. The state changes when what is under way has stopped; one that has ended stays as it is."""
        now = self._central.clock.now()

        async def work(tx: Transaction) -> Run:
            found = await tx.pipeline_run(run.id)
            if found is None or found.state in RUN_ENDED or found.cancelled_by is not None:
                return found or run
            asked = replace(found, cancelled_by=by, version=found.version + 1, updated_at=now)
            await tx.put_pipeline_runs([asked])
            await tx.append_events(list(events_between(found, asked, now)))
            return asked

        return await self._central.store.write(work)

    # --- saved pipelines --------------------------------------------------------------------------------------

    async def save(self, source: str, caller: Caller, *, is_paused: bool | None = None) -> Definition:
        """A new version under the pipeline's own name, unless nothing has changed. `is_paused`: None leaves it as it
        is."""
        pipeline = await self.checked(source)
        owner = owner_of(caller)
        check_sites_of(pipeline, owner)
        now = self._central.clock.now()
        definition = Definition(
            name=pipeline.name,
            site=pipeline.site,
            version=1,
            source=source,
            owner=owner,
            created_at=now,
            updated_at=now,
            is_paused=is_paused or False,
        )

        async def work(tx: Transaction) -> Definition:
            before = await tx.pipeline(pipeline.name)
            if before is None:
                if len((await tx.page(PIPELINES, PipelineFilter(), WHOLE)).items) >= SAVED_MAX:
                    raise QueueFull(f"There are {SAVED_MAX} pipelines already.", hint="Remove one that is not used.")
                saved = definition
            else:
                check_site(before.site, caller, before.name)
                saved = replace(
                    definition,
                    version=before.version + 1,
                    created_at=before.created_at,
                    is_paused=before.is_paused if is_paused is None else is_paused,
                )
                if (before.source, before.is_paused) == (source, saved.is_paused):
                    return before
            saved = replace(saved, next_at=None if saved.is_paused else next_due(pipeline, now))
            await tx.put_pipelines([saved])
            await tx.append_events([_saved_event(saved, EventKind.PIPELINE_SAVED, now)])
            return saved

        return await self._central.store.write(work)

    async def saved(self, name: str, caller: Caller) -> Definition:
        """Raises NotFound."""
        async with seen_by(caller, self._central.store).read() as reader:
            found = await reader.pipeline(name)
            if found is None:
                names = [each.name for each in (await reader.page(PIPELINES, PipelineFilter(), WHOLE)).items]
                hint = did_you_mean(name, names, "homeport pipelines list --saved")
                raise NotFound(f'There is no pipeline "{name}".', hint=hint)
        return found

    async def set_paused(self, name: str, caller: Caller, *, is_paused: bool) -> Definition:
        """Its triggers still act with the rights of who saved it. A new version, so that a schedule that is due at
        this moment does not set its next time. Raises NotFound, NotAuthorized and Conflict."""
        found = await self.saved(name, caller)
        check_site(found.site, caller, name)
        pipeline = None if is_paused else await self._central.in_thread(read_pipeline, found.source, f"{name}.yaml")
        now = self._central.clock.now()
        kind = EventKind.PIPELINE_PAUSED if is_paused else EventKind.PIPELINE_RESUMED

        async def work(tx: Transaction) -> Definition:
            if found.is_paused == is_paused:
                return found
            next_at = None if pipeline is None else next_due(pipeline, now)
            changed = replace(found, version=found.version + 1, is_paused=is_paused, next_at=next_at)
            await tx.put_pipelines([changed])
            await tx.append_events([_saved_event(changed, kind, now, by=caller.name)])
            return changed

        return await self._central.store.write(work)

    async def remove(self, name: str, caller: Caller) -> None:
        """Its runs stay."""
        found = await self.saved(name, caller)
        check_site(found.site, caller, name)
        now = self._central.clock.now()

        async def work(tx: Transaction) -> None:
            await tx.remove_pipeline(name)
            await tx.append_events([_saved_event(found, EventKind.PIPELINE_REMOVED, now)])

        await self._central.store.write(work)

    async def check_owner(self, definition: Definition) -> None:
        """Triggers act with the rights of who saved the pipeline. Raises Refused where these are gone."""
        if not await has_rights(self._central, definition.owner):
            raise Refused(
                f"The access token with which {definition.owner.name} saved the pipeline {definition.name} is no "
                "longer valid.",
                hint="Save it again with another one.",
            )


async def has_rights(central: CentralPlatform, owner: Owner) -> bool:
    """Whether the access token of the owner, where it is one, still opens anything."""
    if owner.kind is not CallerKind.TOKEN:
        return True
    async with central.store.read() as reader:
        token = await reader.token(owner.key)
    return token is not None and is_active(token, central.clock.now())


def owner_of(caller: Caller) -> Owner:
    return Owner(caller.name, caller.role, caller.sites, caller.key, caller.kind)


def check_sites_of(pipeline: Pipeline, owner: Owner) -> None:
    """Who may act at some sites only runs pipelines of one of these. Raises InvalidInput and NotAuthorized."""
    named = {site for site in (pipeline.site, *(step.site for step in pipeline.steps)) if site is not None}
    if owner.sites and pipeline.site is None:
        message = f"is missing: your access is limited to {', '.join(owner.sites[:5])}, so name one of them."
        raise InvalidInput(problems=[Problem("site", message)])
    why = site_refusal(owner.caller, sorted(named))
    if why is not None:
        raise NotAuthorized(why, target=", ".join(sorted(named)[:5]))


def check_site(site: SiteName | None, caller: Caller, name: str) -> None:
    """Raises NotAuthorized where a caller with access to some sites changes what belongs to others."""
    if caller.sites and site not in caller.sites:
        raise NotAuthorized(f"The pipeline {name} is not of a site that you may change.", target=name)


def _saved_event(definition: Definition, kind: EventKind, now: datetime, by: str = "") -> NewEvent:
    what = {
        EventKind.PIPELINE_SAVED: f"saved as version {definition.version}",
        EventKind.PIPELINE_REMOVED: "removed",
        EventKind.PIPELINE_PAUSED: f"paused by {by}",
        EventKind.PIPELINE_RESUMED: f"resumed by {by}",
    }[kind]
    return NewEvent(
        kind,
        now,
        f"pipeline {definition.name} was {what}",
        site=definition.site,
        data={"pipeline": definition.name, "version": definition.version},
        subject=Subject(SubjectKind.PIPELINE, definition.name),
    )


def _same(before: Run, run: Run) -> Run:
    if (before.source, dict(before.inputs), before.owner.name) != (run.source, dict(run.inputs), run.owner.name):
        raise Conflict(f"There is already a run {run.id}, and it is another.", hint="Use a new id.")
    return before
