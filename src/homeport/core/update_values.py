"""Which values an update keeps: those that were set for the deployment before and are not set again.

A value counts as set when it differs from the defaults of the deployed version, so that a new version's new defaults
still apply. A kept parameter that the new version does not have is dropped, with a message; one that it does not
accept refuses the update: the app would otherwise run with a value that was not requested (ADR 0049).
"""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Final

from homeport.core.model.app import App, Profile, Value
from homeport.core.model.deployment import (
    DEFAULT_POLICY,
    NO_PLACEMENT_OVERRIDES,
    NO_POLICY_OVERRIDES,
    ON_EACH_NODE,
    Desired,
    Placement,
    PlacementOverrides,
    Policy,
    PolicyOverrides,
    given_fields,
)
from homeport.core.parameters import check_values, placement_problem, same, show
from homeport.core.values.durations import duration_text
from homeport.errors import Conflict, InvalidInput, NotFound, Problem
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import PlacementMode

_SHOWN: Final = {
    "retries_max": "retries",
    "backoff_seconds": "backoff",
    "rollback": "rollback",
    "deadline_seconds": "deadline",
    "on_unhealthy": "on-unhealthy",
    "nodes": "nodes",
    "mode": "placement",
    "count": "count",
    "selector": "node-selector",
}


@dataclass(frozen=True, slots=True)
class RequestedValues:
    """The values in one request. None or absent means not specified."""

    profile: str | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    placement: PlacementOverrides = NO_PLACEMENT_OVERRIDES
    policy: PolicyOverrides = NO_POLICY_OVERRIDES
    remove_images: bool | None = None
    """Whether its images are removed when it is deleted."""
    reset_values: bool = False
    """Start from the defaults instead of the previously set values."""


@dataclass(frozen=True, slots=True)
class PreviousDeployment:
    """The deployment's current file, and the app version it was made from, where the catalog still has it."""

    file: Desired
    app: App | None


@dataclass(frozen=True, slots=True)
class MergedValues:
    """The resulting values of one deployment."""

    profile: Profile
    values: Mapping[str, Value]
    placement: Placement
    policy: Policy
    remove_images: bool
    restart: str = ""
    """The last requested restart: dropping it would restart everything once more."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Values that were set before and stay, as a user would write them."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Parameters that were set before and are dropped, and why."""


def merge_values(app: App, requested: RequestedValues, before: PreviousDeployment | None) -> MergedValues:
    """Raises InvalidInput with every problem, by the request's fields; NotFound or Conflict for the profile."""
    old = None if before is None or requested.reset_values else before.file
    profile = choose_profile(app, requested.profile, old)
    chosen = _chosen(app, before) if before is not None and old is not None else {}
    dropped: dict[str, str] = {}
    kept: dict[str, Value] = {}
    for name, value in chosen.items():
        if name in requested.parameters:
            continue
        problem = placement_problem(app, profile, name)
        if problem is None:
            kept[name] = value
        else:
            dropped[name] = problem.message
    values, problems = check_values(app, profile, {**kept, **requested.parameters})
    if problems:
        version = old.app_version if old else ""
        raise InvalidInput(problems=[_with_hint(each, kept, version) for each in problems])
    placement = requested.placement.over(old.placement if old else ON_EACH_NODE)
    policy = requested.policy.over(old.policy if old else DEFAULT_POLICY)
    images = requested.remove_images if requested.remove_images is not None else old is not None and old.remove_images
    defaults = {each.name: each.value for each in app.parameters}
    texts = {name: show(value) for name, value in kept.items() if not same(value, defaults[name])}
    if old is not None:
        texts |= _texts(placement, ON_EACH_NODE, requested.placement) | _texts(
            policy, DEFAULT_POLICY, requested.policy
        )
    restart = before.file.restart if before is not None else ""
    return MergedValues(profile, values, placement, policy, images, restart, texts, dropped)


def choose_profile(app: App, wanted: str | None, old: Desired | None) -> Profile:
    """The requested one, by id or type; else the deployment's current one; else the only one."""
    listed = ", ".join(f"{profile.id} ({profile.type})" for profile in app.profiles)
    if wanted is None:
        had = [each for each in app.profiles if old is not None and each.id == old.profile_id]
        fitting = had or list(app.profiles)
    else:
        fitting = [each for each in app.profiles if each.id == wanted] or [
            each for each in app.profiles if each.type == wanted
        ]
    if not fitting:
        raise NotFound(f'{app.name} {app.version} has no profile "{wanted}".', hint=f"It has {listed}.")
    if len(fitting) > 1:
        what = f'several profiles of type "{wanted}"' if wanted else "several profiles"
        raise Conflict(f"{app.name} {app.version} has {what}.", hint=f"Say which with  --profile : {listed}.")
    return fitting[0]


def different(policy: Policy, default: Policy) -> dict[str, Any]:
    """The fields that differ from the default."""
    return {
        each.name: getattr(policy, each.name)
        for each in fields(policy)
        if getattr(policy, each.name) != getattr(default, each.name)
    }


def _chosen(app: App, before: PreviousDeployment) -> dict[str, Value]:
    """The values that differ from the old defaults; all values where those are unknown, and for immutable
    parameters."""
    defaults = {} if before.app is None else {each.name: each.value for each in before.app.parameters}
    fixed = {setting.parameter for setting in app.settings if setting.immutable}
    return {
        name: value
        for name, value in before.file.parameters.items()
        if name in fixed or name not in defaults or not same(value, defaults[name])
    }


def _with_hint(problem: Problem, kept: Mapping[str, Value], version: str) -> Problem:
    name = problem.field.removeprefix("parameters.")
    if name not in kept:
        return problem
    hint = f"The value is kept from {version}: give another with --set {name}=…, or use --reset-values."
    return Problem(problem.field, f"{problem.message} {hint}")


def _texts(
    after: Placement | Policy, default: Placement | Policy, requested: PlacementOverrides | PolicyOverrides
) -> dict[str, str]:
    given = given_fields(requested)
    found = {
        each.name: getattr(after, each.name)
        for each in fields(after)
        if each.name not in given and getattr(after, each.name) != getattr(default, each.name)
    }
    if isinstance(after, Placement) and (after.mode is not PlacementMode.COUNT or "mode" in given):
        found.pop("count", None)
    return {_SHOWN[name]: _text(name, value) for name, value in found.items()}


def _text(name: str, value: Any) -> str:
    if name.endswith("_seconds"):
        return duration_text(value)
    if isinstance(value, tuple):
        return ", ".join(value)
    return show(value) if isinstance(value, bool) else str(value)
