"""The effect of adopting a snapshot on a site's deployments: rows to write and events."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from homeport.core.events import deleted_event, site_problem_event, synced_event, unwanted_event, wanted_event
from homeport.core.lifecycle.deployment import fold
from homeport.core.model.deployment import Desired
from homeport.core.model.event import Deployment, NewEvent
from homeport.core.model.report import FileProblem
from homeport.fleet.shared.snapshot import Snapshot
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Commit, DeploymentId, NodeId, SiteName, State

States = Mapping[DeploymentId, Sequence[tuple[NodeId, State]]]


@dataclass(frozen=True, slots=True)
class Adoption:
    deployments: tuple[Deployment, ...]
    events: tuple[NewEvent, ...]


def adoption(
    snapshot: Snapshot,
    known: Mapping[DeploymentId, Deployment],
    gone: frozenset[DeploymentId],
    valid_again: frozenset[DeploymentId],
    states: States,
    *,
    site: SiteName,
    author: str,
    now: datetime,
) -> Adoption:
    """`known` holds the rows of every deployment that the snapshot changes, breaks, repairs or drops.

    `gone` were wanted and are no longer in Git; `valid_again` were invalid before.
    """
    changed = [
        wanted_row(
            known.get(key), snapshot.desired[key], snapshot.commit, author=author, now=now, states=states.get(key, ())
        )
        for key in sorted(snapshot.contents)
    ]
    unwanted = [unwanted_row(known[key], states.get(key, ()), now) for key in sorted(gone & known.keys())]
    problems = problem_texts(snapshot.problems)
    broken = [invalid_row(known[key], problems.get(key), now) for key in sorted(snapshot.unreadable & known.keys())]
    again = [
        _with_problem(known[key], None, now)
        for key in sorted((valid_again - snapshot.contents.keys()) & known.keys())
    ]
    rows = (*changed, *unwanted, *broken, *again)
    return Adoption(rows, tuple(_events(snapshot, changed, unwanted, known, site=site, now=now)))


def wanted_row(
    before: Deployment | None,
    desired: Desired,
    commit: Commit,
    *,
    author: str,
    now: datetime,
    states: Sequence[tuple[NodeId, State]] = (),
) -> Deployment:
    """The row of a deployment whose file is in Git. One that returns after DELETED starts again; one whose row could
    not be read is as its instances are."""
    returns = before is not None and before.state is State.DELETED
    return Deployment(
        id=desired.id,
        site=desired.site,
        name=desired.name,
        margo_app_id=desired.margo_app_id,
        app_name=desired.app_name,
        app_category=desired.app_category,
        app_version=desired.app_version,
        profile_id=desired.profile_id,
        profile_type=desired.profile_type.value,
        parameters=desired.parameters,
        revision=desired.revision,
        commit=commit,
        rollout_id=desired.rollout_id,
        wanted=True,
        state=fold(states) if before is None else State.PENDING if returns else before.state,
        version=1 if before is None else before.version + 1,
        created_at=now if before is None else before.created_at,
        updated_at=now,
        created_by=author if before is None else before.created_by,
        set_aside=None if before is None or before.revision != desired.revision else before.set_aside,
    )


def unwanted_row(before: Deployment, states: Sequence[tuple[NodeId, State]], now: datetime) -> Deployment:
    """The row of a deployment whose file was removed. Where nothing was placed it is DELETED at once."""
    state = before.state if states else fold((), wanted=False)
    archived_at = now if state is State.DELETED else None
    return replace(
        before,
        wanted=False,
        problem=None,
        set_aside=None,
        state=state,
        version=before.version + 1,
        updated_at=now,
        archived_at=archived_at,
    )


def problem_texts(problems: Sequence[FileProblem]) -> dict[DeploymentId, str]:
    """One sentence for each deployment with an invalid file."""
    texts: dict[DeploymentId, str] = {}
    for problem in problems:
        if problem.deployment_id is not None and problem.deployment_id not in texts:
            texts[problem.deployment_id] = problem_text(problem)
    return texts


def problem_text(problem: FileProblem) -> str:
    place = problem.path if problem.line is None else f"{problem.path}:{problem.line}"
    return f"{place}  {problem.message}"


def invalid_row(before: Deployment, problem: str | None, now: datetime) -> Deployment:
    """The row of a deployment whose file is in Git and cannot be read: it stays as it is. One that is not gone yet
    after its file was removed is wanted again."""
    return replace(_with_problem(before, problem, now), wanted=before.wanted or before.archived_at is None)


def _with_problem(before: Deployment, problem: str | None, now: datetime) -> Deployment:
    return replace(before, problem=problem, version=before.version + 1, updated_at=now)


def _events(
    snapshot: Snapshot,
    changed: Sequence[Deployment],
    unwanted: Sequence[Deployment],
    known: Mapping[DeploymentId, Deployment],
    *,
    site: SiteName,
    now: datetime,
) -> Iterator[NewEvent]:
    for row in changed:
        yield wanted_event(row, is_new=row.id not in known, commit=row.commit, now=now, author=None)
    for row in unwanted:
        yield unwanted_event(row, commit=row.commit, now=now, author=None)
        if row.state is State.DELETED:
            yield deleted_event(row, known[row.id].state, now=now)
    for problem in snapshot.problems:
        yield site_problem_event(site, problem_text(problem), now, problem.deployment_id)
    count = len(snapshot.desired), len(snapshot.problems)
    yield synced_event(site, snapshot.commit, deployments=count[0], problems=count[1], now=now)
