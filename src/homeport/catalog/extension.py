"""`spec.x-homeport-extensions` of a deployment file: which app of the catalog it is, where in its site it goes,
and what the site does when it does not work.

    placement: {mode: each|one|count, count: 2, nodes: [pi-1, pi-2], selector: "gpu,zone=a"}
    policy: {retries: 3, backoff: 5s, rollback: true, deadline: 1h}
    removal: {images: true}

The extension is ours, so a mistake in it is one, whereas foreign ones are none of our business.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from homeport.catalog.documents import Document
from homeport.core.durations import duration_text, seconds_of
from homeport.core.model.deployment import Placement, Policy
from homeport.core.parameters import listing, matches, suggest
from homeport.core.selectors import parse_selector
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import NODE_ID_PATTERN, NodeId, PlacementMode

OURS: Final = "x-homeport-extensions"
RETRIES_MAX: Final = 100
_MAPPINGS: Final = ("app", "placement", "policy", "removal")
_POLICY: Final = ("retries", "backoff", "rollback", "deadline")
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
    """Of an extension without problems."""
    given = ours.get("placement") or {}
    mode = PlacementMode(given.get("mode") or PlacementMode.EACH)
    return Placement(
        nodes=tuple(NodeId(each) for each in given.get("nodes") or ()),
        mode=mode,
        count=int(given.get("count") or 1),
        selector=parse_selector(given.get("selector") or ""),
    )


def read_policy(ours: Mapping[str, Any]) -> Policy:
    """Of an extension without problems."""
    given, usual = ours.get("policy") or {}, Policy()
    return Policy(
        retries_max=given.get("retries", usual.retries_max),
        backoff_seconds=seconds_of(given.get("backoff")) or usual.backoff_seconds,
        rollback=given.get("rollback", usual.rollback),
        deadline_seconds=seconds_of(given.get("deadline")) or usual.deadline_seconds,
    )


def render_placement(placement: Placement) -> dict[str, Any]:
    """Only what differs from the usual: a file says what somebody asked for."""
    usual = Placement()
    rendered: dict[str, Any] = {}
    if placement.mode is not usual.mode:
        rendered["mode"] = placement.mode.value
    if placement.mode is PlacementMode.COUNT:
        rendered["count"] = placement.count
    if placement.nodes:
        rendered["nodes"] = [str(node) for node in placement.nodes]
    if placement.selector:
        rendered["selector"] = str(placement.selector)
    return rendered


def render_policy(policy: Policy) -> dict[str, Any]:
    """Only what differs from the usual."""
    usual = Policy()
    rendered: dict[str, Any] = {}
    if policy.retries_max != usual.retries_max:
        rendered["retries"] = policy.retries_max
    if policy.backoff_seconds != usual.backoff_seconds:
        rendered["backoff"] = duration_text(policy.backoff_seconds)
    if policy.rollback != usual.rollback:
        rendered["rollback"] = policy.rollback
    if policy.deadline_seconds != usual.deadline_seconds:
        rendered["deadline"] = duration_text(policy.deadline_seconds)
    return rendered


def _part(ours: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = ours.get(key)
    return value if isinstance(value, dict) else {}


def _check_texts(ours: Mapping[str, Any]) -> Iterator[Found]:
    texts: dict[tuple[str, ...], Any] = {("profile",): ours.get("profile"), ("rollout",): ours.get("rollout")}
    texts |= {("app", key): _part(ours, "app").get(key) for key in ("category", "name", "version")}
    for keys, value in texts.items():
        if value is not None and not isinstance(value, str):
            yield keys, f"must be text, not {value}: put it in quotes."


def check_placement(given: Mapping[str, Any]) -> Iterator[Found]:
    yield from _unknown("placement", given, _PLACEMENT)
    nodes = given.get("nodes", [])
    if not isinstance(nodes, list) or not all(isinstance(n, str) and matches(NODE_ID_PATTERN, n) for n in nodes):
        yield ("placement", "nodes"), "must be a list of node names."
    modes = [mode.value for mode in PlacementMode]
    if given.get("mode", PlacementMode.EACH) not in modes:
        yield ("placement", "mode"), f"must be one of {listing(modes)}, not {given['mode']}."
    count = given.get("count")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        yield ("placement", "count"), f"must be a whole number of at least 1, not {count}."
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
    for key in ("backoff", "deadline"):
        if key in given and not seconds_of(given[key]):
            yield ("policy", key), f"must be a length of time such as 30s, 5m or 1h, not {given[key]}."


def _unknown(part: str, given: Mapping[str, Any], known: tuple[str, ...]) -> Iterator[Found]:
    for key in given:
        if key not in known:
            yield (part, str(key)), f"is not known here; there are {listing([*known])}.{suggest(str(key), [*known])}"
