"""A rollout's file, `rollouts/<id>.yaml`: the release, its sites and waves, and the operator's command.

Central writes it; a user may change `state`, or anything else, by a plain push. The sites of a wave are recorded when
it begins, so that the file alone shows which site got it when.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final

from homeport.catalog.containment import contained
from homeport.catalog.documents import Document, Location, Quoted, dump, load
from homeport.catalog.extension import (
    check_placement,
    check_policy,
    placement_overrides,
    policy_overrides,
    render_placement_overrides,
    render_policy_overrides,
)
from homeport.catalog.structure import check_structure
from homeport.core.model.rollout import Intent, Size, Wave
from homeport.core.parameters import as_value
from homeport.core.rollout.waves import check_sizes
from homeport.core.values.durations import duration_text, seconds_of
from homeport.core.values.patterns import matches
from homeport.core.values.selectors import parse_selector
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import DEPLOYMENT_NAME_PATTERN, SITE_NAME_PATTERN, RolloutCommand, RolloutId, SiteName

FOLDER: Final = "rollouts"
SCHEMA: Final = "rollout"
BAKE_SECONDS_MAX: Final = 30 * 86_400.0
_PERCENT: Final = re.compile(r"([0-9]{1,4})%")
_COUNT: Final = re.compile(r"[0-9]{1,7}")

Found = tuple[Location, str]


def rollout_path(rollout_id: RolloutId) -> str:
    return f"{FOLDER}/{rollout_id}.yaml"


@contained
def parse_rollout(content: bytes, path: str) -> Intent:
    """Raises TooLarge, or InvalidInput with all problems, each with field, file and line."""
    document = load(content, path)
    problems = check_structure(document, SCHEMA) or [document.problem(*found) for found in _check(document)]
    if problems:
        raise InvalidInput(problems=problems)
    return intent_of(document.data)


def render_rollout(intent: Intent) -> bytes:
    return dump(intent_data(intent))


def parse_size(text: str | int, *, field: str) -> Size:
    """`3` or `25%`."""
    size = _size(text)
    if size is None:
        message = f'"{text}" is not a valid wave size: give a count such as 5, or a share such as 25%.'
        raise InvalidInput(problems=[Problem(field, message)])
    return size


def parse_threshold(text: str, *, field: str = "threshold") -> int:
    number = _percent(text)
    if number is None or not 1 <= number <= 100:
        message = f'"{text}" is not a valid share of installed sites: give one from 1% to 100%.'
        raise InvalidInput(problems=[Problem(field, message)])
    return number


def parse_bake(text: str, *, field: str = "bake") -> float:
    seconds = seconds_of(text)
    if seconds is None or seconds > BAKE_SECONDS_MAX:
        message = f'"{text}" is not a valid time to watch a wave: give one such as 30s, 5m or 1h, at most 30d.'
        raise InvalidInput(problems=[Problem(field, message)])
    return seconds


def intent_data(intent: Intent) -> dict[str, Any]:
    """As plain data, in reading order; defaults are left out."""
    targets: dict[str, Any] = {}
    if intent.sites:
        targets["sites"] = [str(site) for site in intent.sites]
    if intent.selector:
        targets["selector"] = str(intent.selector)
    data: dict[str, Any] = {
        "rollout": str(intent.id),
        "name": intent.name,
        "app": {"category": intent.category, "name": intent.app_name, "version": Quoted(intent.version)},
        "profile": intent.profile,
        "parameters": {name: list(v) if isinstance(v, tuple) else v for name, v in intent.parameters.items()},
        "placement": render_placement_overrides(intent.placement),
        "policy": render_policy_overrides(intent.policy),
        "removal": {} if intent.remove_images is None else {"images": intent.remove_images},
        "keepValues": intent.keep_values,
        "targets": targets,
        "waves": [_wave_data(wave) for wave in intent.waves],
        "bake": duration_text(intent.bake_seconds),
        "threshold": f"{intent.threshold_percent}%",
        "state": intent.word.value,
        "author": intent.author,
        "created": Quoted(intent.created_at.astimezone(UTC).isoformat()),
        "joined": [str(site) for site in intent.joined],
    }
    usual = {"parameters", "placement", "policy", "removal", "keepValues", "joined"}
    return {key: value for key, value in data.items() if value or key not in usual}


def intent_of(data: Mapping[str, Any]) -> Intent:
    """The data must have been validated."""
    targets = data["targets"]
    return Intent(
        id=RolloutId(data["rollout"]),
        name=data["name"],
        category=data["app"]["category"],
        app_name=data["app"]["name"],
        version=data["app"]["version"],
        profile=data["profile"],
        created_at=datetime.fromisoformat(data["created"]),
        author=data["author"],
        parameters={name: as_value(value) for name, value in (data.get("parameters") or {}).items()},
        placement=placement_overrides(data),
        policy=policy_overrides(data),
        remove_images=(data.get("removal") or {}).get("images"),
        keep_values=data.get("keepValues") is True,
        sites=_sites(targets.get("sites")),
        selector=parse_selector(targets.get("selector") or ""),
        waves=tuple(_wave(each) for each in data["waves"]),
        bake_seconds=parse_bake(data.get("bake") or "0s"),
        threshold_percent=parse_threshold(data.get("threshold") or "100%"),
        word=RolloutCommand(data["state"]),
        joined=_sites(data.get("joined")),
    )


def with_sites(intent: Intent, number: int, sites: tuple[SiteName, ...]) -> Intent:
    """The intent with these sites added to that wave."""
    wave = intent.waves[number]
    after = replace(wave, sites=(*(wave.sites or ()), *sites))
    return replace(intent, waves=(*intent.waves[:number], after, *intent.waves[number + 1 :]))


def _wave_data(wave: Wave) -> dict[str, Any]:
    size = str(wave.size) if wave.size.is_percent else wave.size.number
    return {"size": size} if wave.sites is None else {"size": size, "sites": [str(site) for site in wave.sites]}


def _wave(data: Mapping[str, Any]) -> Wave:
    return Wave(parse_size(data["size"], field="size"), _sites(data["sites"]) if "sites" in data else None)


def _sites(names: Any) -> tuple[SiteName, ...]:
    return tuple(SiteName(name) for name in names or ())


def _size(text: str | int) -> Size | None:
    if isinstance(text, str):
        percent = _percent(text)
        if percent is not None:
            return Size(percent, is_percent=True)
    return Size(int(text)) if _COUNT.fullmatch(str(text)) else None


def _percent(text: str) -> int | None:
    match = _PERCENT.fullmatch(text.strip())
    return int(match[1]) if match else None


def _check(document: Document) -> Iterator[Found]:
    data, name = document.data, PurePosixPath(document.path).stem
    if data["rollout"] != name:
        yield ("rollout",), f'is "{data["rollout"]}", but the file is called {name}.yaml; the two must be the same.'
    if not matches(DEPLOYMENT_NAME_PATTERN, data["name"]):
        yield ("name",), f'"{data["name"]}" is not a valid deployment name: use small letters, digits and dashes.'
    yield from _check_sites(data)
    yield from _check_waves(data)
    for key, read in (("bake", parse_bake), ("threshold", parse_threshold)):
        yield from _attempt((key,), read, data[key]) if key in data else ()
    yield from _attempt(("targets", "selector"), parse_selector, data["targets"].get("selector", ""))
    yield from check_placement(data.get("placement") or {})
    yield from check_policy(data.get("policy") or {})
    if _moment(data["created"]) is None:
        yield ("created",), f'"{data["created"]}" is not a time with a zone, such as 2026-03-01T12:00:00+00:00.'


def _check_sites(data: Mapping[str, Any]) -> Iterator[Found]:
    targets = data["targets"]
    if not targets.get("sites") and not targets.get("selector"):
        yield ("targets",), "names no site: give sites, a selector, or both."
    places: list[tuple[Location, list[str]]] = [(("targets", "sites"), targets.get("sites") or [])]
    places += [(("waves", number, "sites"), wave.get("sites") or []) for number, wave in enumerate(data["waves"])]
    places.append((("joined",), data.get("joined") or []))
    given: set[str] = set()
    for place, names in places:
        for position, name in enumerate(names):
            if not matches(SITE_NAME_PATTERN, name):
                yield (*place, position), f'"{name}" is not a valid site name.'
            if place != ("targets", "sites"):
                if name in given:
                    yield (*place, position), f'"{name}" is in another wave already.'
                given.add(name)


def _check_waves(data: Mapping[str, Any]) -> Iterator[Found]:
    sizes = [_size(wave["size"]) for wave in data["waves"]]
    for number, size in enumerate(sizes):
        if size is None:
            yield from _attempt(("waves", number, "size"), parse_size, data["waves"][number]["size"])
    for problem in check_sizes([size for size in sizes if size is not None]) if None not in sizes else ():
        position = re.search(r"\d+", problem.field)
        yield ("waves", int(position[0]), "size") if position else ("waves",), problem.message
    begun = ["sites" in wave for wave in data["waves"]]
    if begun != sorted(begun, reverse=True):
        yield ("waves",), "have begun out of their order: a wave with sites follows one without."


def _attempt(place: Location, read: Any, value: Any) -> Iterator[Found]:
    try:
        read(value, field="")
    except InvalidInput as error:
        yield place, error.problems[0].message


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
