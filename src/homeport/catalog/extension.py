"""`spec.x-homeport-extensions` of a deployment file: the app of the catalog, the placement within the site, and the
policy for failures.

    placement: {mode: each|one|count, count: 2, nodes: [pi-1, pi-2], selector: "gpu,zone=a"}
    policy: {retries: 3, backoff: 5s, rollback: true, deadline: 1h, onUnhealthy: restart|report}
    removal: {images: true}
    retry, restart: who requested it last

The extension is ours, so mistakes in it are reported; extensions of other vendors are ignored.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from homeport.catalog.documents import Document
from homeport.core.model.deployment import (
    DEFAULT_POLICY,
    ON_EACH_NODE,
    Placement,
    PlacementOverrides,
    Policy,
    PolicyOverrides,
)
from homeport.core.parameters import listing, suggest
from homeport.core.update_values import different
from homeport.core.values.durations import duration_text, seconds_of
from homeport.core.values.patterns import matches
from homeport.core.values.selectors import parse_selector
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import NODE_ID_PATTERN, NodeId, OnUnhealthy, PlacementMode

OURS: Final = "x-homeport-extensions"
RETRIES_MAX: Final = 100
COUNT_MAX: Final = 100_000
SECONDS_MAX: Final = 30 * 86_400.0
TEXT_LENGTH_MAX: Final = 253
"""Maximum length of names: databases index them, and labels hold them."""
_MAPPINGS: Final = ("app", "placement", "policy", "removal")
_POLICY: Final = ("retries", "backoff", "rollback", "deadline", "onUnhealthy")
_PLACEMENT: Final = ("mode", "count", "nodes", "selector")

Found = tuple[tuple[str, ...], str]


def check_extension(document: Document) -> list[Problem]:
    ours = document.data["spec"].get(OURS) or {}
    found = [*_check_texts(ours), *check_placement(_part(ours, "placement")), *check_policy(_part(ours, "policy"))]
    for key in _MAPPINGS:
        if not isinstance(ours.get(key) or {}, dict):
            found.append(((key,), "must be a mapping (name: value)."))
    return [document.problem(("spec", OURS, *keys), message) for keys, message in found]


def read_placement(ours: Mapping[str, Any]) -> Placement:
    """The extension must have been validated."""
    return placement_overrides(ours).over(ON_EACH_NODE)


def read_policy(ours: Mapping[str, Any]) -> Policy:
    """The extension must have been validated."""
    return policy_overrides(ours).over(DEFAULT_POLICY)


def placement_overrides(ours: Mapping[str, Any]) -> PlacementOverrides:
    """The specified part of `placement`; the data must have been validated."""
    given = ours.get("placement") or {}
    return PlacementOverrides(
        nodes=tuple(NodeId(each) for each in given["nodes"] or ()) if "nodes" in given else None,
        mode=PlacementMode(given["mode"]) if given.get("mode") else None,
        count=int(given["count"]) if given.get("count") else None,
        selector=parse_selector(given["selector"] or "") if "selector" in given else None,
    )


def policy_overrides(ours: Mapping[str, Any]) -> PolicyOverrides:
    """The specified part of `policy`; the data must have been validated."""
    given = ours.get("policy") or {}
    return PolicyOverrides(
        retries_max=given.get("retries"),
        backoff_seconds=seconds_of(given.get("backoff")) or None,
        rollback=given.get("rollback"),
        deadline_seconds=seconds_of(given.get("deadline")) or None,
        on_unhealthy=OnUnhealthy(given["onUnhealthy"]) if "onUnhealthy" in given else None,
    )


def render_placement(placement: Placement) -> dict[str, Any]:
    """Only what differs from the defaults, so that a file shows what was requested."""
    usual = ON_EACH_NODE
    return render_placement_overrides(
        PlacementOverrides(
            nodes=placement.nodes or None,
            mode=placement.mode if placement.mode is not usual.mode else None,
            count=placement.count if placement.mode is PlacementMode.COUNT else None,
            selector=placement.selector if placement.selector else None,
        )
    )


def render_policy(policy: Policy) -> dict[str, Any]:
    """Only what differs from the defaults."""
    return render_policy_overrides(PolicyOverrides(**different(policy, DEFAULT_POLICY)))


def render_placement_overrides(overrides: PlacementOverrides) -> dict[str, Any]:
    """The specified part, in the form `placement_overrides` reads."""
    rendered: dict[str, Any] = {}
    if overrides.mode is not None:
        rendered["mode"] = overrides.mode.value
    if overrides.count is not None:
        rendered["count"] = overrides.count
    if overrides.nodes is not None:
        rendered["nodes"] = [str(node) for node in overrides.nodes]
    if overrides.selector is not None:
        rendered["selector"] = str(overrides.selector)
    return rendered


def render_policy_overrides(overrides: PolicyOverrides) -> dict[str, Any]:
    """The specified part, in the form `policy_overrides` reads."""
    rendered: dict[str, Any] = {}
    if overrides.retries_max is not None:
        rendered["retries"] = overrides.retries_max
    if overrides.backoff_seconds is not None:
        rendered["backoff"] = duration_text(overrides.backoff_seconds)
    if overrides.rollback is not None:
        rendered["rollback"] = overrides.rollback
    if overrides.deadline_seconds is not None:
        rendered["deadline"] = duration_text(overrides.deadline_seconds)
    if overrides.on_unhealthy is not None:
        rendered["onUnhealthy"] = overrides.on_unhealthy.value
    return rendered


def _part(ours: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = ours.get(key)
    return value if isinstance(value, dict) else {}


def _check_texts(ours: Mapping[str, Any]) -> Iterator[Found]:
    texts: dict[tuple[str, ...], Any] = {(key,): ours.get(key) for key in ("profile", "rollout", "retry", "restart")}
    texts |= {("app", key): _part(ours, "app").get(key) for key in ("category", "name", "version")}
    for keys, value in texts.items():
        if value is not None and not isinstance(value, str):
            yield keys, f"must be text, not {value}: put it in quotes."
        elif isinstance(value, str) and len(value) > TEXT_LENGTH_MAX:
            yield keys, f"has {len(value)} characters; at most {TEXT_LENGTH_MAX} are read."


def check_placement(given: Mapping[str, Any]) -> Iterator[Found]:
    yield from _unknown("placement", given, _PLACEMENT)
    nodes = given.get("nodes", [])
    if not isinstance(nodes, list) or not all(isinstance(n, str) and matches(NODE_ID_PATTERN, n) for n in nodes):
        yield ("placement", "nodes"), "must be a list of node names."
    modes = [mode.value for mode in PlacementMode]
    if given.get("mode", PlacementMode.EACH) not in modes:
        yield ("placement", "mode"), f"must be one of {listing(modes)}, not {given['mode']}."
    count = given.get("count")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= COUNT_MAX):
        yield ("placement", "count"), f"must be a whole number from 1 to {COUNT_MAX}, not {count}."
    if given.get("mode") == PlacementMode.COUNT and count is None:
        yield ("placement", "mode"), "is count, so `count` must say how many nodes."
    selector = given.get("selector", "")
    if not isinstance(selector, str):
        yield ("placement", "selector"), "must be text, such as gpu,zone=a."
        return
    try:
        parse_selector(selector)
    except InvalidInput as error:
        yield ("placement", "selector"), error.problems[0].message


def check_policy(given: Mapping[str, Any]) -> Iterator[Found]:
    yield from _unknown("policy", given, _POLICY)
    retries = given.get("retries", 0)
    if not isinstance(retries, int) or isinstance(retries, bool) or not 0 <= retries <= RETRIES_MAX:
        yield ("policy", "retries"), f"must be a whole number from 0 to {RETRIES_MAX}, not {retries}."
    if not isinstance(given.get("rollback", True), bool):
        yield ("policy", "rollback"), f"must be true or false, not {given['rollback']}."
    choices = [each.value for each in OnUnhealthy]
    if given.get("onUnhealthy", OnUnhealthy.RESTART) not in choices:
        yield ("policy", "onUnhealthy"), f"must be one of {listing(choices)}, not {given['onUnhealthy']}."
    for key in ("backoff", "deadline"):
        if key in given and not 0 < (seconds_of(given[key]) or 0) <= SECONDS_MAX:
            yield ("policy", key), f"must be a length of time such as 30s, 5m or 1h, at most 30d, not {given[key]}."


def _unknown(part: str, given: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[Found]:
    for key in given:
        if key not in known:
            yield (part, str(key)), f"is not known here; there are {listing([*known])}.{suggest(str(key), [*known])}"
