"""Orders and results as JSON for the journal. The core never serializes itself, and later versions must be able to
read the journal, so the keys are written out here.
"""

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from homeport.core.model.deployment import ComponentSpec, Release
from homeport.core.model.instance import Failure, Unhealthy
from homeport.core.model.order import DEPLOYMENT, Order, Progress, Rejection, Result
from homeport.vocabulary import DeploymentId, Digest, Generation, OnUnhealthy, OrderKind, ProfileType, Step


def dump_release(release: Release) -> dict[str, Any]:
    """Without the values of secrets, which `sealing` stores separately."""
    return {
        "deployment_id": release.deployment_id,
        "name": release.name,
        "revision": release.revision,
        "app_version": release.app_version,
        "components": [
            {
                "name": part.name,
                "type": part.type.value,
                "repository": part.repository,
                "revision": part.revision,
                "environment": dict(part.environment),
                "wait": part.wait,
                "timeout_seconds": part.timeout_seconds,
                "extensions": part.extensions,
                "secrets": dict(part.secrets),
            }
            for part in release.components
        ],
    }


def load_release(body: dict[str, Any]) -> Release:
    return Release(
        deployment_id=DeploymentId(body["deployment_id"]),
        name=body["name"],
        revision=Digest(body["revision"]),
        app_version=body["app_version"],
        components=tuple(
            ComponentSpec(
                name=part["name"],
                type=ProfileType(part["type"]),
                repository=part["repository"],
                revision=part["revision"],
                environment=part["environment"],
                wait=part["wait"],
                timeout_seconds=part["timeout_seconds"],
                extensions=part["extensions"],
                secrets=part.get("secrets", {}),
            )
            for part in body["components"]
        ),
    )


def dump_order(order: Order) -> str:
    return json.dumps(
        {
            "generation": order.generation,
            "deployment_id": order.deployment_id,
            "kind": order.kind.value,
            "release": None if order.release is None else dump_release(order.release),
            "remove_images": order.remove_images,
            "remove_data_of": order.remove_data_of,
            "reason": order.reason,
            "limit_seconds": order.limit_seconds,
            "traceparent": order.traceparent,
            "on_unhealthy": order.on_unhealthy.value,
            "rejection": None if order.rejection is None else _dump_rejection(order.rejection),
            **_dump_work(order),
        }
    )


def load_order(text: str) -> Order:
    body = json.loads(text)
    return Order(
        generation=Generation(body["generation"]),
        deployment_id=DeploymentId(body["deployment_id"]),
        kind=OrderKind(body["kind"]),
        release=None if body["release"] is None else load_release(body["release"]),
        remove_images=body["remove_images"],
        remove_data_of=body.get("remove_data_of", ""),
        reason=body["reason"],
        limit_seconds=float(body.get("limit_seconds", 0.0)),
        traceparent=body.get("traceparent", ""),
        on_unhealthy=OnUnhealthy(body.get("on_unhealthy", OnUnhealthy.RESTART)),
        rejection=None if body.get("rejection") is None else _load_rejection(body["rejection"]),
        work=body.get("work", DEPLOYMENT),
        content=base64.b64decode(body.get("content", "")),
    )


def _dump_work(item: Order | Result) -> dict[str, str]:
    """Empty for a deployment, so that earlier versions can read its records."""
    if item.work == DEPLOYMENT:
        return {}
    return {"work": item.work, "content": base64.b64encode(item.content).decode()}


def _dump_rejection(rejection: Rejection) -> dict[str, Any]:
    failure = rejection.failure
    return {
        "revision": rejection.revision,
        "failure": None if failure is None else [failure.code, failure.message, failure.source],
    }


def _load_rejection(body: Mapping[str, Any]) -> Rejection:
    failure = body["failure"]
    return Rejection(Digest(body["revision"]), None if failure is None else Failure(*failure))


def dump_result(result: Result) -> str:
    failure = result.failure
    return json.dumps(
        {
            "deployment_id": result.deployment_id,
            "generation": result.generation,
            "kind": result.kind.value,
            "succeeded": result.succeeded,
            "at": result.at.isoformat(),
            "failure": None if failure is None else [failure.code, failure.message, failure.source],
            "deleted": result.deleted,
            "exit_code": result.exit_code,
            "release_runs": result.release_runs,
            **_dump_work(result),
        }
    )


def load_result(text: str) -> Result:
    body = json.loads(text)
    return Result(
        deployment_id=DeploymentId(body["deployment_id"]),
        generation=Generation(body["generation"]),
        kind=OrderKind(body["kind"]),
        succeeded=body["succeeded"],
        at=datetime.fromisoformat(body["at"]),
        failure=None if body["failure"] is None else Failure(*body["failure"]),
        deleted=body["deleted"],
        exit_code=body["exit_code"],
        release_runs=body["release_runs"],
        work=body.get("work", DEPLOYMENT),
        content=base64.b64decode(body.get("content", "")),
    )


def dump_news(news: Result | Progress) -> str:
    """An outbox entry. Only a note of progress has a step."""
    if isinstance(news, Result):
        return dump_result(news)
    return json.dumps(
        {
            "deployment_id": news.deployment_id,
            "generation": news.generation,
            "step": news.step.value,
            "component": news.component,
            "message": news.message,
            "at": news.at.isoformat(),
            "healthy": news.healthy,
            "work": news.work,
        }
    )


def load_news(text: str) -> Result | Progress:
    body = json.loads(text)
    if "step" not in body:
        return load_result(text)
    return Progress(
        deployment_id=DeploymentId(body["deployment_id"]),
        generation=Generation(body["generation"]),
        step=Step(body["step"]),
        component=body["component"],
        message=body["message"],
        at=datetime.fromisoformat(body["at"]),
        healthy=body.get("healthy"),
        work=body.get("work", DEPLOYMENT),
    )


def dump_unhealthy(unhealthy: Unhealthy | None) -> str:
    return "" if unhealthy is None else json.dumps([unhealthy.since.isoformat(), unhealthy.why])


def load_unhealthy(text: str) -> Unhealthy | None:
    if not text:
        return None
    since, why = json.loads(text)
    return Unhealthy(datetime.fromisoformat(since), why)
