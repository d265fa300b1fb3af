"""Runs and saved pipelines as JSON, in the database. Fields that a reader does not know are passed over."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from homeport.core.model.caller import CallerKind, Role
from homeport.core.model.instance import Failure
from homeport.core.pipelines.model import Definition, ItemRun, Owner, Run, StepRun
from homeport.vocabulary import RunId, SiteName, StepState

Json = dict[str, Any]


def run_to_json(run: Run) -> Json:
    """Without what has a column of its own."""
    return {
        "source": run.source,
        "inputs": dict(run.inputs),
        "owner": _owner_to_json(run.owner),
        "trigger": run.trigger,
        "steps": [_step_to_json(step) for step in run.steps],
        "parent": run.parent,
        "depth": run.depth,
        "started_at": _text(run.started_at),
        "reason": run.reason,
        "outputs": dict(run.outputs),
    }


def run_from_json(body: Mapping[str, Any], **columns: Any) -> Run:
    return Run(
        **columns,
        source=body["source"],
        inputs=body["inputs"],
        owner=_owner_from_json(body["owner"]),
        trigger=body["trigger"],
        steps=tuple(_step_from_json(step) for step in body["steps"]),
        parent=None if body["parent"] is None else RunId(body["parent"]),
        depth=body["depth"],
        started_at=_moment(body["started_at"]),
        reason=body["reason"],
        outputs=body["outputs"],
    )


def definition_to_json(definition: Definition) -> Json:
    return {
        "source": definition.source,
        "owner": _owner_to_json(definition.owner),
        "created_at": _text(definition.created_at),
        "is_paused": definition.is_paused,
    }


def definition_from_json(body: Mapping[str, Any], **columns: Any) -> Definition:
    return Definition(
        **columns,
        source=body["source"],
        owner=_owner_from_json(body["owner"]),
        created_at=datetime.fromisoformat(body["created_at"]),
        is_paused=body["is_paused"],
    )


def _owner_to_json(owner: Owner) -> Json:
    return {
        "name": owner.name,
        "role": owner.role.value,
        "sites": list(owner.sites),
        "key": owner.key,
        "kind": owner.kind.value,
    }


def _owner_from_json(body: Mapping[str, Any]) -> Owner:
    sites = tuple(SiteName(site) for site in body["sites"])
    return Owner(body["name"], Role(body["role"]), sites, body["key"], CallerKind(body["kind"]))


def _step_to_json(step: StepRun) -> Json:
    return {
        "name": step.name,
        "state": step.state.value,
        "items": [_item_to_json(item) for item in step.items],
        "is_list": step.is_list,
        "reason": step.reason,
        "started_at": _text(step.started_at),
        "finished_at": _text(step.finished_at),
    }


def _step_from_json(body: Mapping[str, Any]) -> StepRun:
    return StepRun(
        name=body["name"],
        state=StepState(body["state"]),
        items=tuple(_item_from_json(item) for item in body["items"]),
        is_list=body["is_list"],
        reason=body["reason"],
        started_at=_moment(body["started_at"]),
        finished_at=_moment(body["finished_at"]),
    )


def _item_to_json(item: ItemRun) -> Json:
    failure = item.failure
    return {
        "state": item.state.value,
        "attempt": item.attempt,
        "not_before": _text(item.not_before),
        "started_at": _text(item.started_at),
        "finished_at": _text(item.finished_at),
        "reason": item.reason,
        "failure": None if failure is None else [failure.code, failure.message],
        "reference": item.reference,
    }


def _item_from_json(body: Mapping[str, Any]) -> ItemRun:
    return ItemRun(
        state=StepState(body["state"]),
        attempt=body["attempt"],
        not_before=_moment(body["not_before"]),
        started_at=_moment(body["started_at"]),
        finished_at=_moment(body["finished_at"]),
        reason=body["reason"],
        failure=None if body["failure"] is None else Failure(*body["failure"]),
        reference=body["reference"],
    )


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
