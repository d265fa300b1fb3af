"""Converts records to response bodies."""

from dataclasses import asdict
from typing import Literal

from homeport.core.model.deployment import Hold
from homeport.core.model.event import Event, HistoryEntry
from homeport.core.model.instance import Failure
from homeport.fleet.shared.answers.why import Why
from homeport.fleet.shared.overview import DeploymentView, InstanceView, NodeView, SiteView
from homeport.serving.bodies.deployments import DeploymentBody, InstanceBody, InstanceFailureBody
from homeport.serving.bodies.events import EventBody
from homeport.serving.bodies.fleet import (
    CapabilitiesBody,
    GpuBody,
    HoldBody,
    NodeBody,
    NodeSettingsBody,
    OrchionCapabilitiesBody,
    OrchionNodeBody,
    SiteBody,
)
from homeport.serving.bodies.plans import DecisionBody, WhyBody
from homeport.serving.bodies.revisions import HistoryEntryBody
from homeport.vocabulary import Digest, State
from homeport.wire.orchion.texts import texts_of


def deployment_body(view: DeploymentView) -> DeploymentBody:
    deployment = view.deployment
    return DeploymentBody(
        id=deployment.id,
        name=deployment.name,
        site=deployment.site,
        app_name=deployment.app_name,
        app_category=deployment.app_category,
        app_version=deployment.app_version,
        running_versions=view.running_versions,
        behind=view.is_behind,
        margo_app_id=deployment.margo_app_id,
        profile=deployment.profile_id,
        profile_type=deployment.profile_type,
        state=deployment.state.value,
        wanted=deployment.wanted,
        revision=deployment.revision,
        commit=deployment.commit,
        rollout_id=deployment.rollout_id,
        parameters=deployment.parameters,
        instances=[_instance_body(instance, deployment.revision) for instance in view.instances],
        note=view.note,
        problem=deployment.problem or deployment.set_aside,
        hold=None if view.hold is None else hold_body(view.hold),
        created_at=deployment.created_at,
        created_by=deployment.created_by,
        updated_at=deployment.updated_at,
        archived_at=deployment.archived_at,
    )


def history_body(entry: HistoryEntry) -> HistoryEntryBody:
    return HistoryEntryBody(
        at=entry.at,
        node_id=entry.node_id,
        incarnation=entry.incarnation,
        before=entry.before.value,
        after=entry.after.value,
        trigger=entry.trigger.value,
        actor=entry.actor.value,
        reason=entry.reason,
        revision=entry.revision,
        failure=_failure_body(entry.failure),
        verdict=entry.verdict,
    )


def event_body(event: Event) -> EventBody:
    new = event.event
    return EventBody(
        id=event.id,
        kind=new.kind.value,
        at=new.at,
        message=new.message,
        site=new.site,
        deployment_id=new.deployment_id,
        node_id=new.node_id,
        subject=str(new.subject),
        data=new.data,
    )


def hold_body(hold: Hold) -> HoldBody:
    return HoldBody(
        site=hold.site,
        deployment_id=hold.deployment_id,
        reason=hold.reason,
        author=hold.author,
        at=hold.at,
        expires_at=hold.expires_at,
    )


def why_body(found: Why) -> WhyBody:
    return WhyBody(
        kind=found.kind,
        name=found.name,
        state=found.state,
        chain=[DecisionBody(step=each.step, what=each.what, why=each.why, at=each.at) for each in found.chain],
    )


def site_body(view: SiteView) -> SiteBody:
    site = view.site
    return SiteBody(
        name=site.name,
        joined_at=site.joined_at,
        last_seen=site.last_seen,
        reachable=view.reachable,
        applied_commit=site.applied_commit,
        problem=site.problem,
        software_version=site.software_version,
        protocol=site.protocol.version,
        features=site.protocol.features,
        nodes=view.nodes_count,
        nodes_live=view.nodes_live_count,
        deployments=view.deployments,
        holds=[hold_body(hold) for hold in view.holds],
        labels=site.labels,
    )


def node_body(view: NodeView) -> NodeBody:
    node = view.node
    able = node.info.capabilities
    return NodeBody(
        id=node.id,
        hostname=node.info.hostname,
        site=node.site,
        liveness=view.liveness.value,
        liveness_since=view.since,
        last_seen=node.last_seen,
        registered_at=node.registered_at,
        drain=node.drain,
        problem=node.problem,
        labels=node.labels,
        settings=NodeSettingsBody(
            heartbeat_seconds=node.tunable.heartbeat_seconds,
            log_level=node.tunable.log_level,
            telemetry_seconds=node.tunable.telemetry_seconds,
            labels=node.tunable.labels,
        ),
        software_version=node.info.software_version,
        protocol=node.info.protocol.version,
        features=node.info.protocol.features,
        agent_address=node.info.agent_address,
        capabilities=CapabilitiesBody(
            cpu_cores=able.cpu_cores,
            memory_bytes=able.memory_bytes,
            disk_bytes=able.disk_bytes,
            disk_free_bytes=able.disk_free_bytes,
            os=able.os,
            architecture=able.architecture,
            engine=able.engine,
            engine_version=able.engine_version,
            profile_types=[kind.value for kind in able.profile_types],
            gpus=[
                GpuBody(model=gpu.model, manufacturer=gpu.manufacturer, memory_bytes=gpu.memory_bytes)
                for gpu in able.gpus
            ],
        ),
    )


def orchion_node_body(view: NodeView) -> OrchionNodeBody:
    fields = node_body(view).model_dump()
    able = {**fields.pop("capabilities"), **asdict(texts_of(view.node.info.capabilities))}
    seen = int(view.node.last_seen.timestamp())
    return OrchionNodeBody(**fields, last_seen_unix=seen, capabilities=OrchionCapabilitiesBody(**able))


def _instance_body(view: InstanceView, wanted: Digest) -> InstanceBody:
    instance = view.instance
    return InstanceBody(
        node_id=instance.node_id,
        state=instance.state.value,
        step=instance.step,
        revision=instance.revision,
        running_revision=instance.running_revision,
        generation=instance.generation,
        attempt=instance.attempt,
        failure=_failure_body(instance.failure) if instance.is_failing(wanted) else None,
        reachable=view.reachable,
        updated_at=instance.updated_at,
        running_version=view.running_version,
        rejected_revision=instance.rejected_revision,
        next_at=instance.next_at,
        health=_health(view),
        health_since=None if instance.unhealthy is None else instance.unhealthy.since,
        health_reason="" if instance.unhealthy is None else instance.unhealthy.why,
    )


def _health(view: InstanceView) -> Literal["healthy", "unhealthy", "unknown"]:
    if view.instance.unhealthy is not None:
        return "unhealthy"
    return "healthy" if view.instance.state is State.INSTALLED and view.reachable else "unknown"


def _failure_body(failure: Failure | None) -> InstanceFailureBody | None:
    if failure is None:
        return None
    return InstanceFailureBody(code=failure.code, message=failure.message, source=failure.source)
