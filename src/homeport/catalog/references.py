"""Checks references between the parts of an application description, which a schema cannot validate."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from homeport.catalog.documents import Document, Location
from homeport.core.custom import ENVIRONMENT_NAME, OURS, judge_custom, kind_of
from homeport.core.model.app import App, Component, Profile, Rule
from homeport.core.model.custom import CustomKind
from homeport.core.parameters import is_array, judge, listing, show, suggest
from homeport.core.values.patterns import pattern_problem
from homeport.errors import Problem
from homeport.vocabulary import ProfileType

TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
OUR_LABELS: Final = "homeport."

Found = tuple[Location, str]


def check_references(document: Document, app: App) -> list[Problem]:
    """Expects a document that passed the schema, and the App made from it."""
    found: list[Found] = []
    if not TAG.fullmatch(app.version.replace("+", "_")):
        found.append((("metadata", "version"), f"{show(app.version)} cannot be the tag of a package in a registry."))
    found += _profiles(app)
    found += _targets(app)
    found += _rules(app)
    found += _settings(document, app)
    return [document.problem(location, message) for location, message in found]


def _profiles(app: App) -> Iterator[Found]:
    ids = [profile.id for profile in app.profiles]
    for position in _repeated(ids):
        yield ("deploymentProfiles", position, "id"), f'another profile is called "{ids[position]}" too.'
    for number, profile in enumerate(app.profiles):
        names = [component.name for component in profile.components]
        for position in _repeated(names):
            place = ("deploymentProfiles", number, "components", position, "name")
            yield place, f'another component of this profile is called "{names[position]}" too.'
        for position, component in enumerate(profile.components):
            for where, message in (
                *check_custom(profile.type, component),
                *_has_no_extension(profile, component),
            ):
                yield ("deploymentProfiles", number, "components", position, *where), message


def _has_no_extension(profile: Profile, component: Component) -> Iterator[Found]:
    """A custom component of ours is defined by its extension; what another vendor's devices read is theirs."""
    if profile.type is not ProfileType.CUSTOM or component.extensions.keys() - {OURS} or not _is_for_us(profile):
        return
    ours = component.extensions.get(OURS)
    if not isinstance(ours, Mapping) or not {kind.value for kind in CustomKind} & ours.keys():
        yield (), f"says in no {OURS} what it runs: an image, a process or an engine. No node could start it."


def _is_for_us(profile: Profile) -> bool:
    """Whether a custom profile says anything of ours: an extension, or a label that our nodes have."""
    if OURS in profile.extensions or any(OURS in component.extensions for component in profile.components):
        return True
    rules = (profile.device_constraints or {}).get("eligibilityRules") or ()
    expressions = [each for rule in rules for each in (rule.get("labelSelector") or {}).get("matchExpressions") or ()]
    return any(str(each.get("key")).startswith(OUR_LABELS) for each in expressions)


def check_custom(profile_type: ProfileType, component: Component) -> list[Found]:
    """The problems of our description of an image or a program, below the component."""
    kind, properties = kind_of(component.extensions), component.properties
    if kind is not None and profile_type is not ProfileType.CUSTOM:
        message = f"belongs to components of type custom; this profile is of type {profile_type.value}."
        return [(("x-homeport-extensions", kind.value), message)]
    return judge_custom(
        component.extensions, repository=str(properties["repository"]), revision=str(properties["revision"])
    )


def _targets(app: App) -> Iterator[Found]:
    known = sorted({component.name for profile in app.profiles for component in profile.components})
    for parameter in app.parameters:
        for number, target in enumerate(parameter.targets):
            place: Location = ("parameters", parameter.name, "targets", number)
            for position, name in enumerate(target.components):
                if name not in known:
                    yield (*place, "components", position), _no_component(app, name, known)
            if _is_for_environments(app, target.components) and not ENVIRONMENT_NAME.fullmatch(target.pointer):
                yield (*place, "pointer"), f"{show(target.pointer)} is not the name of an environment variable."


def _no_component(app: App, name: str, known: list[str]) -> str:
    where = "this profile has" if len(app.profiles) == 1 else "the profiles have"
    return f'names "{name}", but {where} only {listing(known)}.{suggest(name, known)}'


def _is_for_environments(app: App, components: Sequence[str]) -> bool:
    """Whether every component it targets takes parameters as variables: charts and foreign kinds do not."""
    takes = [
        takes_variables(profile.type, component)
        for profile in app.profiles
        for component in profile.components
        if component.name in components
    ]
    return bool(takes) and all(takes)


def takes_variables(profile_type: ProfileType, component: Component) -> bool:
    return profile_type is ProfileType.COMPOSE or kind_of(component.extensions) is not None


def _rules(app: App) -> Iterator[Found]:
    names = [rule.name for rule in app.rules]
    for position in _repeated(names):
        yield ("configuration", "schema", position, "name"), f'another schema is called "{names[position]}" too.'
    for position, rule in enumerate(app.rules):
        for key, message in _rule(rule):
            yield ("configuration", "schema", position, *key), message


def _rule(rule: Rule) -> Iterator[Found]:
    if rule.regex_match is not None and (message := pattern_problem(rule.regex_match)):
        yield ("regexMatch",), message
    for low, high in (("min_length", "max_length"), ("min_value", "max_value"), ("min_precision", "max_precision")):
        least, most = getattr(rule, low), getattr(rule, high)
        if least is not None and most is not None and least > most:
            yield (_camel(low),), f"{least:g} is more than {_camel(high)} {most:g}; no value could be right."
    if rule.multiselect and rule.options is None:
        yield ("multiselect",), "needs options to select from."
    # An option is one entry of the value, so it is validated as one, by all rules but the options themselves.
    single = replace(
        rule,
        data_type=rule.data_type.removeprefix("array[").removesuffix("]"),
        multiselect=False,
        options=None,
        regex_match=None,
    )
    for number, option in enumerate(rule.options or ()):
        message = judge(single, option)
        if message:
            yield ("options", number), message


def _settings(document: Document, app: App) -> Iterator[Found]:
    parameters = {parameter.name: parameter for parameter in app.parameters}
    rules = {rule.name: rule for rule in app.rules}
    seen: set[str] = set()
    for number, section in enumerate((document.data.get("configuration") or {}).get("sections", ())):
        for position, setting in enumerate(section["settings"]):
            place: Location = ("configuration", "sections", number, "settings", position)
            name, schema = setting["parameter"], setting["schema"]
            if name not in parameters:
                yield (*place, "parameter"), f'there is no parameter "{name}".{suggest(name, list(parameters))}'
            elif name in seen:
                yield (*place, "parameter"), f'another setting is for "{name}" too.'
            seen.add(name)
            if schema not in rules:
                yield (*place, "schema"), f'there is no schema "{schema}".{suggest(schema, list(rules))}'
            elif name in parameters:
                yield from _default(parameters[name].name, parameters[name].value, rules[schema])


def _default(name: str, value: object, rule: Rule) -> Iterator[Found]:
    if value is None:
        return
    if rule.regex_match is not None and pattern_problem(rule.regex_match):
        return
    message = judge(rule, value)  # type: ignore[arg-type]
    if message:
        expected = "a list" if is_array(rule) else rule.data_type
        yield ("parameters", name, "value"), f"{message} (its schema {rule.name} says {expected})"


def _repeated(names: Sequence[str]) -> list[int]:
    return [position for position, name in enumerate(names) if name in names[:position]]


def _camel(name: str) -> str:
    first, _, rest = name.partition("_")
    return first + rest.title()
