"""Status reports of Margo clients. Each is kept with its components, and moves the deployment's state at central.

A Homeport site that also has a link to central reports through that, in more detail; what it says here is kept, and
does not move the state a second time.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from homeport.core.margo.records import StatusRecord
from homeport.core.margo.status import OURS_OF, MargoState, overall
from homeport.core.model.event import Deployment, Site
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.report import InstanceSnapshot
from homeport.errors import InvalidInput, Problem
from homeport.fleet.central.reports.batch import ReportBatch
from homeport.lazy_dataclass import dataclass
from homeport.margo.validation import STATUS, violations
from homeport.ports import Clock, Reader, Store, Transaction
from homeport.vocabulary import DeploymentId, Digest, Generation, Incarnation, NodeId, SiteName, State

TEXT_MAX = 1_000
COMPONENTS_MAX = 200
DEVICES_MAX = 1_000
"""That report about one deployment."""


@dataclass(frozen=True, slots=True)
class TakenStatus:
    is_first: bool
    is_stale: bool = False
    """It names an older manifest than the last report about the same: repeated, or late. Nothing was changed."""


async def take_status(
    store: Store, clock: Clock, site: SiteName, deployment_id: str, body: Mapping[str, Any], *, published: int
) -> TakenStatus:
    """`published` is the version of the client's newest manifest. Raises InvalidInput."""
    status = read_status(site, deployment_id, body, clock.now())
    if status.adopted_version > published:
        message = f"is {status.adopted_version}, and {published} is the newest manifest of this client"
        raise InvalidInput(problems=[Problem("adoptedManifestVersion", message)])

    async def work(tx: Transaction) -> TakenStatus:
        deployment = await tx.deployment(status.deployment_id)
        if deployment is None or deployment.site != site:
            message = "is not a deployment of this client"
            raise InvalidInput(problems=[Problem("deploymentId", message)])
        known = {each.device_id: each for each in await tx.margo_statuses(site, status.deployment_id)}
        before = known.get(status.device_id)
        if before is None and len(known) >= DEVICES_MAX:
            raise InvalidInput(problems=[Problem("deviceId", f"is one of more than {DEVICES_MAX} devices")])
        if before is None and not await _may_report_on(tx, status):
            message = f'"{status.device_id}" is not a device that this client has reported'
            raise InvalidInput(problems=[Problem("deviceId", message)])
        if before is not None and status.adopted_version < before.adopted_version:
            return TakenStatus(is_first=False, is_stale=True)
        await tx.put_margo_status(status)
        if not (await tx.value(f"reports:{site}") or "").strip():
            await _move(tx, deployment, status, is_newest=status.adopted_version == published)
        return TakenStatus(is_first=before is None)

    return await store.write(work)


async def _may_report_on(reader: Reader, status: StatusRecord) -> bool:
    """On the client itself, on its devices, and on any where it has reported none at all. A device that was removed
    has been reported about before."""
    if status.device_id in ("", status.site) or await reader.margo_device_ids(status.site, [status.device_id]):
        return True
    return not await reader.margo_device_ids(status.site)


def read_status(site: SiteName, deployment_id: str, body: Mapping[str, Any], now: datetime) -> StatusRecord:
    problems = violations(body, STATUS)
    if not problems:
        problems = _inconsistencies(deployment_id, body)
    if problems:
        raise InvalidInput(problems=problems)
    return StatusRecord(
        site,
        DeploymentId(deployment_id),
        body.get("deviceId") or "",
        int(body["adoptedManifestVersion"]),  # 7.0 is the same number
        body["status"]["state"],
        _shortened(body["status"].get("error")),
        [{**each, **_shortened_error(each)} for each in body["components"]],
        now,
    )


def _inconsistencies(deployment_id: str, body: Mapping[str, Any]) -> list[Problem]:
    problems = []
    if body["deploymentId"] != deployment_id:
        problems.append(Problem("deploymentId", f'must be "{deployment_id}", as in the path'))
    if len(body["components"]) > COMPONENTS_MAX:
        problems.append(Problem("components", f"may have {COMPONENTS_MAX} entries"))
    names = Counter(each["name"] for each in body["components"])
    problems += [Problem("components", f'has "{name}" {count} times') for name, count in names.items() if count > 1]
    states = [MargoState(each["state"]) for each in body["components"]]
    if states and overall(states) != body["status"]["state"]:
        message = f'must be "{overall(states)}", the most severe state of the components'
        problems.append(Problem("status.state", message))
    return problems


def _shortened(error: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """With all members that readers look at; the contract requires none of them."""
    if error is None:
        return None
    return {"code": "", "source": "", "message": "", **{key: str(value)[:TEXT_MAX] for key, value in error.items()}}


def _shortened_error(component: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"error": _shortened(component["error"])} if "error" in component else {}


async def _move(tx: Transaction, deployment: Deployment, status: StatusRecord, *, is_newest: bool) -> None:
    row = await tx.site(status.site) or Site(status.site, joined_at=status.at, last_seen=None, applied_commit=None)
    stored = {item.node_id: item for item in await tx.instances([deployment.id])}
    node = NodeId(status.device_id or status.site)
    instance = _instance(deployment, status, stored.get(node), node, is_newest=is_newest)
    batch = ReportBatch(site=row, now=status.at)
    reports = [(0, InstanceSnapshot(instance, reason=_reason(status)))]
    await batch.load(tx, reports, {})
    batch.take(reports)
    await batch.write(tx, {})


def _instance(
    deployment: Deployment, status: StatusRecord, stored: Instance | None, node: NodeId, *, is_newest: bool
) -> Instance:
    state = OURS_OF[MargoState(status.state)]
    ended = stored is not None and stored.state is State.DELETED and state is not State.DELETED
    before = None if ended else stored
    if state is State.INSTALLING and before is not None and before.running_revision is not None:
        state = State.UPDATING
    revision = deployment.revision if is_newest or before is None else before.revision
    incarnation = Incarnation(1) if stored is None else Incarnation(stored.incarnation + int(ended))
    return Instance(
        deployment_id=deployment.id,
        node_id=node,
        incarnation=incarnation,
        state=state,
        version=1,
        generation=Generation(status.adopted_version),
        revision=revision,
        running_revision=_running(state, revision, before),
        attempt=1,
        step=_reason(status),
        failure=_failure(status),
        updated_at=status.at,
    )


def _running(state: State, revision: Digest | None, before: Instance | None) -> Digest | None:
    if state is State.INSTALLED:
        return revision
    return None if state is State.DELETED or before is None else before.running_revision


def _failure(status: StatusRecord) -> Failure | None:
    if status.state != MargoState.FAILED:
        return None
    errors = [status.error, *(each.get("error") for each in status.components)]
    code, message, source = next(
        ((each["code"], each["message"], each["source"]) for each in errors if each), ("", "", "")
    )
    return Failure(code or "FAILED", message or "the device gave no reason", source)


def _reason(status: StatusRecord) -> str:
    device = f" on {status.device_id}" if status.device_id else ""
    return f"its client reports {status.state}{device} with manifest {status.adopted_version}"
