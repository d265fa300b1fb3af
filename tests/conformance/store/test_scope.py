"""Every query that a limited caller may ask answers with what is at their sites, and nothing else can be asked."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from homeport.core.jobs.job import Job, JobFile, JobSpec, JobType
from homeport.core.margo.records import MargoDevice
from homeport.core.model.access import SecretRecord
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.pipelines.model import Definition, ItemResult, Owner, Run
from homeport.fleet.shared.scope import ScopedReader, seen_by
from homeport.ports import (
    AUDIT,
    DEPLOYMENTS,
    HOLDS,
    JOBS,
    NODES,
    PIPELINE_RUNS,
    PIPELINES,
    SECRETS,
    SITES,
    AuditFilter,
    Cut,
    DeploymentFilter,
    HoldFilter,
    JobFilter,
    NodeFilter,
    PipelineFilter,
    Reader,
    RunFilter,
    SecretFilter,
    SeenReader,
    SiteFilter,
    Store,
    Transaction,
)
from homeport.vocabulary import DeploymentId, Digest, JobId, JobState, NodeId, RolloutId, RunId, RunState, SiteName
from tests.conformance.store import records

pytestmark = pytest.mark.anyio

OURS, OTHERS = "home", "elsewhere"
LIMITED = Caller("anna", Role.VIEWER, sites=(SiteName(OURS),), kind=CallerKind.TOKEN)
OWNER = Owner("ann", Role.OPERATOR, (), "token-1", CallerKind.TOKEN)
Query = Callable[[SeenReader, str], Awaitable[Any]]
"""With the site whose things are asked for: those of `elsewhere` must not be there."""

# fmt: off
QUERIES: Final[dict[str, Query]] = {
    "page sites":            lambda reader, site: reader.page(SITES, SiteFilter(), Cut(1)),
    "page nodes":            lambda reader, site: reader.page(NODES, NodeFilter(site=SiteName(site)), Cut(1)),
    "page holds":            lambda reader, site: reader.page(HOLDS, HoldFilter(), Cut(1)),
    "page secrets":          lambda reader, site: reader.page(SECRETS, SecretFilter(), Cut(1)),
    "page deployments":      lambda reader, site: reader.page(DEPLOYMENTS, DeploymentFilter(), Cut(1)),
    "counts deployments":    lambda reader, site: reader.counts(DEPLOYMENTS, DeploymentFilter(), ("site",)),
    "counts nodes":          lambda reader, site: reader.counts(NODES, NodeFilter(), ("site",)),
    "versions_kept":         lambda reader, site: reader.versions_kept([DeploymentId(f"d-{site}")]),
    "sites":                 lambda reader, site: reader.sites(),
    "site":                  lambda reader, site: reader.site(SiteName(site)),
    "nodes":                 lambda reader, site: reader.nodes(SiteName(site)),
    "nodes_called":          lambda reader, site: reader.nodes_called(NodeId(f"node-{site}")),
    "holds":                 lambda reader, site: reader.holds(),
    "secrets":               lambda reader, site: reader.secrets(),
    "margo_device_counts":   lambda reader, site: reader.margo_device_counts(),
    "pins":                  lambda reader, site: reader.pins(),
    "deployments":           lambda reader, site: reader.deployments(DeploymentFilter()),
    "deployment":            lambda reader, site: reader.deployment(DeploymentId(f"d-{site}")),
    "deployments_by_ids":    lambda reader, site: reader.deployments_by_ids([DeploymentId(f"d-{site}")]),
    "deployments_by_prefix": lambda reader, site: reader.deployments_by_prefix("d-"),
    "instances":             lambda reader, site: reader.instances(),
    "revisions":             lambda reader, site: reader.revisions(DeploymentId(f"d-{site}")),
    "history":               lambda reader, site: reader.history(DeploymentId(f"d-{site}")),
    "history_after":         lambda reader, site: reader.history_after(0, limit=1),
    "events":                lambda reader, site: reader.events(after=0, limit=1),
    "page jobs":             lambda reader, site: reader.page(JOBS, JobFilter(), Cut(2)),
    "jobs_called":           lambda reader, site: reader.jobs_called("j-"),
    "job_file":              lambda reader, site: reader.job_file(a_job(site), "out"),
    "page pipeline runs":    lambda reader, site: reader.page(PIPELINE_RUNS, RunFilter(), Cut(2)),
    "page pipelines":        lambda reader, site: reader.page(PIPELINES, PipelineFilter(), Cut(2)),
    "pipeline_runs_called":  lambda reader, site: reader.pipeline_runs_called("r-"),
    "pipeline_results":      lambda reader, site: reader.pipeline_results(a_run(site)),
    "pipeline":              lambda reader, site: reader.pipeline(f"p-{site}"),
}
# fmt: on
OF_NO_SITE: Final = {"last_event_id", "value", "rollouts", "rollout"}
"""The number of an event, the commit that the tables are equal to; rollouts are shown by their members."""


def names_of(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


async def two_sites(store: Store) -> None:
    async def work(tx: Transaction) -> None:
        # The other site's come first, so that a page of one is theirs.
        for site in (OTHERS, OURS):
            await _one_site(tx, site)

    await store.write(work)


async def _one_site(tx: Transaction, site: str) -> None:
    deployment_id, at = DeploymentId(f"d-{site}"), records.NOW
    await tx.put_site(records.site(site))
    await tx.put_node(records.node(f"node-{site}", site))
    await tx.put_holds(SiteName(site), [Hold(SiteName(site), None, "", site, at, at)])
    await tx.put_secret(SecretRecord(SiteName(site), f"secret-{site}", b"", 1, at, site))
    await tx.put_deployments([records.deployment(id=deployment_id, site=SiteName(site))])
    await tx.put_instances([records.instance(deployment_id, f"node-{site}")])
    await tx.append_history([records.entry(deployment_id)])
    await tx.append_events([records.event(f"at {site}", site=SiteName(site), deployment_id=deployment_id)])
    digest = Digest("sha256:" + "0" * 64)
    await tx.put_revisions(
        [Revision(deployment_id, digest, f"1-{site}", site.encode(), records.COMMIT, site, at)], keep=5
    )
    await tx.put_pin(Pin(deployment_id, digest, site.encode(), digest, "", site, at))
    await tx.put_margo_device(MargoDevice(SiteName(site), "press", {}, {}, at))
    await tx.put_jobs([a_job(site)])
    await tx.put_job_files(a_job(site), [JobFile("out", site.encode())])
    await tx.put_pipeline_runs([a_run(site)])
    await tx.put_pipeline_results(a_run(site).id, {("one", 0): ItemResult(site, "")})
    await tx.put_pipelines([Definition(f"p-{site}", SiteName(site), 1, "x", OWNER, at, at)])


def a_run(site: str) -> Run:
    return Run(
        id=RunId(f"r-{site}"),
        pipeline="p",
        site=SiteName(site),
        state=RunState.RUNNING,
        version=1,
        source="name: p",
        inputs={},
        owner=OWNER,
        trigger="hand",
        created_at=records.NOW,
        updated_at=records.NOW,
        steps=(),
    )


def a_job(site: str) -> Job:
    spec = JobSpec(JobType.CONTAINER, ("true",), "app:1")
    return Job(JobId(f"j-{site}"), SiteName(site), spec, JobState.PENDING, 1, records.NOW, "ann", records.NOW)


def test_every_query_that_may_be_asked_under_a_scope_is_looked_at_here() -> None:
    assert names_of(SeenReader) == {name.partition(" ")[0] for name in QUERIES} | OF_NO_SITE


async def test_a_list_that_cannot_be_scoped_is_not_answered_to_a_limited_caller(store: Store) -> None:
    """It does not type-check either: `AuditFilter` says nothing of sites."""
    async with seen_by(LIMITED, store).read() as reader:
        with pytest.raises(AttributeError, match="within"):
            await reader.page(AUDIT, AuditFilter(), Cut(1))  # type: ignore[type-var]


def test_what_nobody_has_scoped_cannot_be_asked() -> None:
    assert names_of(ScopedReader) == names_of(SeenReader)
    assert not hasattr(ScopedReader, "__getattr__")
    unscoped = names_of(Reader) - names_of(SeenReader)
    assert {"tokens", "identities", "audit", "secret", "desired_files", "outbox"} <= unscoped
    assert [name for name in unscoped if hasattr(ScopedReader, name)] == []


@pytest.mark.parametrize("name", sorted(QUERIES))
async def test_a_limited_caller_gets_their_own_and_nothing_of_another_site(store: Store, name: str) -> None:
    await two_sites(store)
    async with seen_by(LIMITED, store).read() as reader:
        own, others = await QUERIES[name](reader, OURS), await QUERIES[name](reader, OTHERS)
    async with store.read() as everything:
        assert OTHERS in repr(await QUERIES[name](everything, OTHERS)), "there is something that could be seen"
    assert OURS in repr(own)
    assert OTHERS not in repr(own) + repr(others)


async def test_values_of_the_role_itself_are_not_answered(store: Store) -> None:
    async def work(tx: Transaction) -> None:
        await tx.set_value("indexed_commit", "c0ffee")
        await tx.set_value("traces", "elsewhere")

    await store.write(work)
    async with seen_by(LIMITED, store).read() as reader:
        assert (await reader.value("indexed_commit"), await reader.value("traces")) == ("c0ffee", None)


async def test_a_rollout_without_a_member_that_may_be_seen_names_no_site(store: Store) -> None:
    async with seen_by(LIMITED, store).read() as reader:
        assert (await reader.rollouts(), await reader.rollout(RolloutId("r-1"))) == ([], None)
