"""A pipeline's file: read, judged and made into the core's model. Every problem names its field, file and line."""

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, Final

from homeport.catalog.containment import contained
from homeport.catalog.documents import Document, Location, load
from homeport.catalog.structure import check_structure
from homeport.core.parameters import suggest
from homeport.core.pipelines.cron import CronError, parse_cron, parse_zone
from homeport.core.pipelines.expressions import Expression, TemplateError, in_template, parse
from homeport.core.pipelines.functions import ExpressionError
from homeport.core.pipelines.graph import cycle, order
from homeport.core.pipelines.limits import (
    EXPRESSIONS_MAX,
    INPUT_PATTERN,
    NAME_PATTERN,
    SOURCE_BYTES_MAX,
    STEP_PATTERN,
    TIMEOUT_SECONDS_MAX,
)
from homeport.core.pipelines.model import (
    After,
    Input,
    InputType,
    Missed,
    Overlap,
    Pipeline,
    PipelineStep,
    Schedule,
    StepKind,
    Webhook,
)
from homeport.core.pipelines.values import wrong_type
from homeport.core.secrets import is_name
from homeport.core.values.durations import seconds_of
from homeport.core.values.patterns import matches
from homeport.errors import InvalidInput, Problem, TooLarge
from homeport.vocabulary import SITE_NAME_PATTERN, SiteName

SCHEMA: Final = "pipeline"
_KINDS: Final = tuple(StepKind)
_KINDS_SAID: Final = f"{', '.join(_KINDS[:-1])} and {_KINDS[-1]}"
_PLAIN: Final = ("secrets", "method")
"""Fields of a step's action that must not contain expressions: what a step may do is readable in its file."""

Found = tuple[Location, str]


@contained
def parse_pipeline(content: bytes, path: str) -> Pipeline:
    """Raises TooLarge, or InvalidInput with all problems, each with field, file and line."""
    if len(content) > SOURCE_BYTES_MAX:
        raise TooLarge(f"{path} is larger than {SOURCE_BYTES_MAX // 1024} KiB.")
    if content.count(b"${{") > EXPRESSIONS_MAX:
        raise InvalidInput(problems=[Problem("", f"has more than {EXPRESSIONS_MAX} expressions.", path)])
    document = load(content, path)
    problems = check_structure(document, SCHEMA)
    if not problems:
        problems = [document.problem(*found) for found in _check(document.data)]
    if not problems:
        problems = [document.problem(*found) for found in _check_graph(document.data)]
    if problems:
        raise InvalidInput(problems=problems)
    return _pipeline(document)


def pipeline_schema() -> dict[str, Any]:
    """For editors."""
    text = resources.files("homeport.catalog").joinpath(f"schemas/{SCHEMA}.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _check(data: Mapping[str, Any]) -> Iterator[Found]:
    if not matches(NAME_PATTERN, data["name"]):
        yield ("name",), "must have lower case letters, digits and dashes, at most 63."
    yield from _check_site(data, ())
    yield from _check_duration(data, "timeout", ())
    for name, each in (data.get("inputs") or {}).items():
        where = ("inputs", name)
        if not matches(INPUT_PATTERN, name):
            yield where, "is not a name for an input: use letters, digits and underscores."
        elif "default" in each and (why := wrong_type(each["default"], InputType(each["type"]))):
            yield (*where, "default"), why
    for name, step in data["steps"].items():
        yield from _check_step(name, step, data)
    yield from _check_templates(data.get("outputs"), ("outputs",), forbidden=frozenset({"item", "index"}))
    yield from _check_triggers(data)


def _check_step(name: str, step: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Found]:
    where = ("steps", name)
    if not matches(STEP_PATTERN, name):
        yield where, "is not a name for a step: use lower case letters, digits and underscores, at most 40."
    kinds = [kind for kind in _KINDS if kind in step]
    if len(kinds) != 1:
        what = "has none of" if not kinds else "must have only one of"
        yield where, f"{what} {_KINDS_SAID}."
        return
    yield from _check_site(step, where)
    if step.get("site") and data.get("site"):
        yield (*where, "site"), "must be left out: the pipeline names its site already."
    yield from _check_duration(step, "timeout", where)
    yield from _check_duration(step, "backoff", where)
    for field in ("if", "for_each"):
        if field in step:
            yield from _check_expression(step[field], (*where, field), frozenset({"item", "index"}))
    forbidden = frozenset() if "for_each" in step else frozenset({"item", "index"})
    action = step[kinds[0]]
    yield from _check_templates(action, (*where, kinds[0].value), forbidden=forbidden)
    yield from _check_action(kinds[0], action, (*where, kinds[0].value), site=step.get("site") or data.get("site"))


def _check_action(kind: StepKind, action: Mapping[str, Any], where: Location, *, site: str | None) -> Iterator[Found]:
    for variable, secret in (action.get("secrets") or {}).items():
        if not is_name(secret):
            yield (*where, "secrets", variable), f'"{secret[:100]}" is not the name of a secret.'
    if action.get("secrets") and site is None:
        yield (*where, "secrets"), "are a site's: name the site of the step or of the pipeline."
    match kind:
        case StepKind.JOB if not action.get("image") and not action.get("command"):
            yield where, "needs an image or a command."
        case StepKind.HTTP if "body" in action and "json" in action:
            yield (*where, "json"), "must be left out, as there is a body already."
        case StepKind.HTTP if "${{" in action["url"].partition("://")[2].partition("/")[0]:
            yield (*where, "url"), "must name its host: only the path may contain expressions."
        case StepKind.HTTP if not matches(r"^https?://[^/\s]+(/.*)?$", action["url"]):
            yield (*where, "url"), "must begin with http:// or https:// and a host."
        case StepKind.PIPELINE if not matches(NAME_PATTERN, action["name"]):
            yield (*where, "name"), "is not the name of a pipeline."
        case StepKind.PLUGIN if not matches(NAME_PATTERN, action["name"]):
            yield (*where, "name"), "is not the name of a plugin."
    for field in _PLAIN:
        if "${{" in json.dumps(action.get(field)):
            yield (*where, field), "must not contain expressions."


def _check_triggers(data: Mapping[str, Any]) -> Iterator[Found]:
    triggers = data.get("triggers") or {}
    schedule, webhook = triggers.get("schedule"), triggers.get("webhook")
    if schedule is not None:
        where = ("triggers", "schedule")
        try:
            parse_cron(schedule["cron"])
        except CronError as error:
            yield (*where, "cron"), str(error)
        try:
            parse_zone(schedule.get("timezone", "UTC"))
        except CronError as error:
            yield (*where, "timezone"), str(error)
        yield from _check_given(schedule.get("inputs") or {}, data, (*where, "inputs"))
    if webhook is not None:
        if not is_name(webhook["secret"]):
            yield ("triggers", "webhook", "secret"), f'"{webhook["secret"][:100]}" is not the name of a secret.'
        if not data.get("site"):
            yield ("triggers", "webhook", "secret"), "is a site's: name the pipeline's site."


def _check_given(given: Mapping[str, Any], data: Mapping[str, Any], where: Location) -> Iterator[Found]:
    inputs = data.get("inputs") or {}
    for name, value in given.items():
        if name not in inputs:
            yield (*where, name), f"is not an input of this pipeline.{suggest(name, list(inputs))}"
        elif why := wrong_type(value, InputType(inputs[name]["type"])):
            yield (*where, name), why
    for name, each in inputs.items():
        if "default" not in each and name not in given:
            yield where, f'lacks the input "{name}", which has no default.'


def _check_graph(data: Mapping[str, Any]) -> Iterator[Found]:
    """Once everything else is right."""
    steps, inputs = data["steps"], data.get("inputs") or {}
    for where, expression in _expressions(data):
        for each in sorted(expression.steps - steps.keys()):
            yield where, f'refers to the step "{each}", and there is none.{suggest(each, list(steps))}'
        if where[:1] == ("steps",) and where[1] in expression.steps:
            yield where, "refers to its own step."
    for name, step in steps.items():
        for number, each in enumerate(step.get("needs") or ()):
            if each not in steps:
                place = ("steps", name, "needs", number)
                yield place, f'there is no step "{each}".{suggest(each, list(steps))}'
    around = cycle(_needs(data))
    if around:
        first = around[0]
        path = " needs ".join((*around, first))
        yield ("steps", first, "needs"), f"is a cycle: {path}."
    for where, expression in _expressions(data):
        for each in sorted(expression.inputs - inputs.keys()):
            yield where, f'refers to the input "{each}", and there is none.{suggest(each, list(inputs))}'


def _expressions(data: Mapping[str, Any]) -> Iterator[tuple[Location, Expression]]:
    for name, step in data["steps"].items():
        for field in ("if", "for_each"):
            if field in step:
                yield ("steps", name, field), parse(step[field])
        kind = next(kind for kind in _KINDS if kind in step)
        for location, expression in in_template(step[kind]):
            yield ("steps", name, kind.value, *location), expression
    for location, expression in in_template(data.get("outputs")):
        yield ("outputs", *location), expression


def _needs(data: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    needs = {name: set(step.get("needs") or ()) for name, step in data["steps"].items()}
    for where, expression in _expressions(data):
        if where[0] == "steps":
            needs[str(where[1])] |= expression.steps
    return {name: tuple(sorted(each)) for name, each in needs.items()}


def _check_templates(value: Any, where: Location, *, forbidden: frozenset[str]) -> Iterator[Found]:
    try:
        for location, expression in in_template(value):
            yield from _check_names(expression, (*where, *location), forbidden)
    except TemplateError as error:
        yield (*where, *error.location), str(error)


def _check_expression(text: str, where: Location, forbidden: frozenset[str]) -> Iterator[Found]:
    try:
        yield from _check_names(parse(text), where, forbidden)
    except ExpressionError as error:
        yield where, str(error)


def _check_names(expression: Expression, where: Location, forbidden: frozenset[str]) -> Iterator[Found]:
    for name in sorted(expression.names & forbidden):
        yield where, f'"{name}" is known only inside a step with for_each.'


def _check_site(data: Mapping[str, Any], where: Location) -> Iterator[Found]:
    if "site" in data and not matches(SITE_NAME_PATTERN, data["site"]):
        yield (*where, "site"), f'"{data["site"][:100]}" is not the name of a site.'


def _check_duration(data: Mapping[str, Any], field: str, where: Location) -> Iterator[Found]:
    if field in data:
        seconds = seconds_of(data[field])
        if not seconds or seconds > TIMEOUT_SECONDS_MAX:
            yield (*where, field), f'"{data[field][:100]}" is not a duration: write it as 30s, 10m or 2h, at most 7d.'


def _pipeline(document: Document) -> Pipeline:
    data = document.data
    needs = _needs(data)
    triggers = data.get("triggers") or {}
    schedule, webhook = triggers.get("schedule"), triggers.get("webhook")
    return Pipeline(
        name=data["name"],
        description=data.get("description", ""),
        site=SiteName(data["site"]) if "site" in data else None,
        steps=tuple(_step(name, data["steps"][name], needs[name]) for name in order(needs)),
        inputs={
            name: Input(InputType(each["type"]), "default" not in each, each.get("default"))
            for name, each in (data.get("inputs") or {}).items()
        },
        outputs=data.get("outputs") or {},
        timeout_seconds=seconds_of(data.get("timeout", "1d")) or 0.0,
        schedule=None if schedule is None else _schedule(schedule),
        webhook=None if webhook is None else Webhook(webhook["secret"]),
    )


def _step(name: str, data: Mapping[str, Any], needs: tuple[str, ...]) -> PipelineStep:
    kind = next(kind for kind in _KINDS if kind in data)
    return PipelineStep(
        name=name,
        kind=kind,
        action=data[kind],
        needs=needs,
        after=After(data.get("after", After.SUCCESS)),
        condition=data.get("if"),
        for_each=data.get("for_each"),
        parallel=data.get("parallel", 8),
        retries=data.get("retries", 0),
        backoff_seconds=seconds_of(data.get("backoff", "5s")) or 0.0,
        timeout_seconds=seconds_of(data.get("timeout", "1h")) or 0.0,
        allow_failure=data.get("allow_failure", False),
        site=SiteName(data["site"]) if "site" in data else None,
    )


def _schedule(data: Mapping[str, Any]) -> Schedule:
    return Schedule(
        cron=data["cron"],
        timezone=data.get("timezone", "UTC"),
        missed=Missed(data.get("missed", Missed.SKIP)),
        overlap=Overlap(data.get("overlap", Overlap.SKIP)),
        inputs=data.get("inputs") or {},
    )
