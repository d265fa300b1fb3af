"""How the progress of an order is shown: as a step in a column, and as an event. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from homeport.core.lifecycle.replay import observe_health
from homeport.core.model.event import NewEvent
from homeport.core.model.instance import Instance
from homeport.core.model.order import Held, Progress, Result
from homeport.core.model.report import NodeNoticed, Progressed
from homeport.core.reconcile.instances import Key
from homeport.fleet.shared.record import kind_of
from homeport.vocabulary import DeploymentId, EventKind, NodeId, SiteName, Step


def key_of(item: Progressed) -> Key:
    return item.progress.deployment_id, item.node_id


def step_text(progress: Progress) -> str:
    """The current activity, short enough for a column: `web: pulling 61 %`."""
    named = not progress.component or progress.message.startswith(progress.component)
    part = "" if named else f"{progress.component}: "
    if progress.bytes_total:
        return f"{part}{progress.step} {100 * progress.bytes_done // progress.bytes_total} %"
    return f"{part}{progress.message or progress.step}"


def observed_health(instances: Mapping[Key, Instance], progressed: Sequence[Progressed]) -> Mapping[Key, Instance]:
    """The instances whose reported health differs from the known one."""
    observed: dict[Key, Instance] = {}
    for item in progressed:
        before = observed.get(key_of(item)) or instances.get(key_of(item))
        if before is not None and (after := observe_health(before, item.progress)) is not before:
            observed[after.key] = after
    return observed


def restated_health(
    node_id: NodeId, held: Mapping[DeploymentId, Held], instances: Mapping[Key, Instance], now: datetime
) -> list[Progressed]:
    """The health that a node reports on connecting, as far as it is not known: it may have been reported to a site
    that has lost its database since."""
    news: list[Progressed] = []
    for deployment_id, item in held.items():
        instance = instances.get((deployment_id, node_id))
        if instance is None or instance.generation != item.generation or instance.unhealthy == item.unhealthy:
            continue
        sick = item.unhealthy
        progress = Progress(
            deployment_id,
            item.generation,
            Step.RESTORED if sick is None else Step.DRIFTED,
            "",
            "healthy again" if sick is None else sick.why,
            now if sick is None else sick.since,
            healthy=sick is None,
        )
        news.append(Progressed(node_id, progress))
    return news


def with_known_health(
    journals: Mapping[NodeId, tuple[Held, ...]],
    news: Sequence[tuple[NodeId, Progress | Result]],
    instances: Mapping[Key, Instance],
) -> dict[NodeId, tuple[Held, ...]]:
    """Journals that wait to be compared, after this news of their nodes was recorded: where that was about health,
    theirs is older."""
    told = {
        (node_id, item.deployment_id, item.generation)
        for node_id, item in news
        if isinstance(item, Result) or item.healthy is not None
    }

    def updated(node_id: NodeId, item: Held) -> Held:
        instance = instances.get((item.deployment_id, node_id))
        if instance is None or (node_id, item.deployment_id, item.generation) not in told:
            return item
        return replace(item, unhealthy=instance.unhealthy)

    changed = {node_id for node_id, _, _ in told} & journals.keys()
    return {**journals, **{each: tuple(updated(each, item) for item in journals[each]) for each in changed}}


def progress_event(item: Progressed, site: SiteName, message: str) -> NewEvent:
    """The same at a site and at central, except for the message: each mentions what its readers do not see next to
    it."""
    progress = item.progress
    return NewEvent(
        _kind(progress),
        progress.at,
        message,
        site=site,
        deployment_id=progress.deployment_id,
        node_id=item.node_id,
        data={
            "step": progress.step.value,
            "component": progress.component,
            "message": progress.message,
            "bytes_done": progress.bytes_done,
            "bytes_total": progress.bytes_total,
            "generation": progress.generation,
            **({} if progress.healthy is None else {"healthy": progress.healthy}),
        },
    )


def notice_event(noticed: NodeNoticed, site: SiteName) -> NewEvent:
    return NewEvent(
        EventKind.NODE_NOTICE,
        noticed.at,
        f"{noticed.node_id}: {noticed.message}",
        site=site,
        node_id=noticed.node_id,
        data={"code": noticed.code.value, "message": noticed.message},
    )


def _kind(progress: Progress) -> EventKind:
    """A node reports health with steps that older sites know; the event has a name of its own."""
    if progress.healthy is None:
        return kind_of(progress.step)
    return EventKind.INSTANCE_HEALTHY if progress.healthy else EventKind.INSTANCE_UNHEALTHY
