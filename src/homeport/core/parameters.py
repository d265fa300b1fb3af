"""Validates parameter values by an app's own rules (Margo's `configuration.schema`), before anything is written.

Pure: takes the app and the values, returns what would be deployed and every problem found. Which may be set: a
parameter with a setting may be set and is validated by the setting's rule. One without keeps the app's default;
only where the app has no settings at all may any parameter be set, to a value of its default's type.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from homeport.core.model.app import App, Parameter, Profile, Rule, Setting, Value
from homeport.core.secrets import is_name, referenced
from homeport.core.values.numbers import fits_64_bits
from homeport.core.values.patterns import TEXT_LENGTH_MAX as MATCHED_LENGTH_MAX
from homeport.core.values.patterns import matches
from homeport.errors import InvalidInput, Problem

TEXT_LENGTH_MAX: Final = 65_536
ARRAY_LENGTH_MAX: Final = 1_000
MATCHED_TOTAL_MAX: Final = 20_000
"""Total characters of all entries of a list that an app's pattern is matched against."""

Scalar = str | int | float | bool

_WORDS: Final = {"string": "text", "integer": "a whole number", "double": "a number", "boolean": "true or false"}


def check_values(
    app: App, profile: Profile, given: Mapping[str, Value]
) -> tuple[dict[str, Value], tuple[Problem, ...]]:
    """The values to deploy (given ones over defaults, in the app's order), and the problems of the given ones.

    A parameter that reaches no component of the profile is left out of the values.
    """
    problems = [problem for name in given if (problem := placement_problem(app, profile, name))]
    values: dict[str, Value] = {}
    settings = settings_by_parameter(app)
    rules = {rule.name: rule for rule in app.rules}
    for parameter in app.parameters:
        if not reaches(parameter, profile):
            continue
        setting = settings.get(parameter.name)
        rule = rules[setting.rule] if setting else None
        value = given.get(parameter.name, parameter.value)
        if value is None:
            if rule is None or not rule.allow_empty:
                problems.append(Problem(f"parameters.{parameter.name}", _missing(parameter, rule)))
            continue
        values[parameter.name] = value
        if refers(value):
            # The value of a secret at a site is unknown here: the rule's own checks do not apply to it.
            message = judge_reference(rule, parameter, value)
        elif parameter.name in given:
            message = judge(rule, value) if rule else judge_type(parameter, value)
        else:
            message = None
        if message:
            problems.append(Problem(f"parameters.{parameter.name}", message))
    return values, tuple(problems)


def refers(value: Value) -> bool:
    """Whether a value is, or contains, a secret reference (`secret://NAME`)."""
    return any(referenced(item) is not None for item in (value if isinstance(value, tuple) else (value,)))


def judge_reference(rule: Rule | None, parameter: Parameter, value: Value) -> str | None:
    """Why a secret reference is not allowed here. The value cannot be validated: each site has its own."""
    name = referenced(value)
    data_type = rule.data_type if rule else data_type_of(parameter.value) or "string"
    if name is None or data_type != "string" or (rule is not None and rule.multiselect):
        return "cannot be a secret: only a parameter that is one text can."
    if not is_name(name):
        return f"{show(value)} names no secret: letters, digits, dots, dashes and underscores make a name."
    return None


def check_immutable(app: App, before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[Problem, ...]:
    """The changes of an update to parameters that the app declares immutable."""
    return tuple(
        Problem(
            f"parameters.{setting.parameter}",
            f"cannot change after installation (it is {show(before[setting.parameter])}); "
            "delete the deployment and deploy it again to use another value.",
        )
        for setting in app.settings
        if setting.immutable
        and setting.parameter in before
        and not same(before[setting.parameter], after.get(setting.parameter))
    )


def judge(rule: Rule, value: Value) -> str | None:
    """Why the rule rejects a value, as the end of a sentence; None when it does not."""
    kind = rule.data_type.removeprefix("array[").removesuffix("]")
    if message := _unusable(value):
        return message
    if not is_array(rule):
        return _judge_scalar(rule, kind, value)
    if not isinstance(value, tuple):
        return f"must be a list, not {show(value)}."
    if message := _judge_list(rule, value):
        return message
    for position, item in enumerate(value):
        message = _judge_scalar(rule, kind, item)
        if message:
            return f"entry {position + 1} {message}"
    return None


def _judge_list(rule: Rule, value: tuple[Scalar, ...]) -> str | None:
    if not value and not rule.allow_empty:
        return "must not be an empty list."
    if rule.regex_match is not None and (total := sum(len(str(item)) for item in value)) > MATCHED_TOTAL_MAX:
        return f"has {total} characters in all; with regexMatch at most {MATCHED_TOTAL_MAX} are tried."
    return None


def judge_type(parameter: Parameter, value: Value) -> str | None:
    """For a parameter without a rule: the value must be of the default's type."""
    data_type = data_type_of(parameter.value)
    if data_type is None:
        return _unusable(value)
    return judge(Rule(parameter.name, data_type, allow_empty=True), value)


def coerce(text: str, rule: Rule, *, field: str = "") -> Value:
    """Converts what a user wrote after `--set name=`; lists are comma-separated. Raises InvalidInput.

    Only the type is converted here; `judge` validates the rest.
    """
    kind = rule.data_type.removeprefix("array[").removesuffix("]")
    if not is_array(rule):
        return _coerce_scalar(text, kind, field)
    return tuple(_coerce_scalar(part.strip(), kind, field) for part in text.split(",")) if text else ()


def coerce_value(app: App, name: str, text: str) -> Value:
    """`coerce` by the rule of the named parameter, or by the type of its default. Unknown names stay text."""
    parameter = next((each for each in app.parameters if each.name == name), None)
    setting = settings_by_parameter(app).get(name)
    rule = next((each for each in app.rules if setting and each.name == setting.rule), None)
    if rule is None:
        rule = Rule(name, (data_type_of(parameter.value) if parameter else None) or "string")
    return coerce(text, rule, field=f"parameters.{name}")


def as_value(raw: Any) -> Value:
    """A parameter's value from JSON or YAML, where an array is a list."""
    return tuple(raw) if isinstance(raw, list) else raw


def settings_by_parameter(app: App) -> dict[str, Setting]:
    return {setting.parameter: setting for setting in app.settings}


def reaches(parameter: Parameter, profile: Profile) -> bool:
    """Whether the parameter targets any component of the profile."""
    names = {component.name for component in profile.components}
    return any(names & set(target.components) for target in parameter.targets)


def is_array(rule: Rule) -> bool:
    return rule.multiselect or rule.data_type.startswith("array[")


def data_type_of(value: Value | None) -> str | None:
    """Margo's name for a value's type; None for None."""
    if isinstance(value, tuple):
        inner = data_type_of(value[0]) if value else "string"
        return f"array[{inner}]"
    if isinstance(value, bool):
        return "boolean"
    return {str: "string", int: "integer", float: "double"}.get(type(value))


def show(value: Value | None) -> str:
    """A value for use in a sentence, truncated where it is long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(show(item) for item in value[:5]) + (", …]" if len(value) > 5 else "]")
    if isinstance(value, int) and not fits_64_bits(value):
        return "a number of more than 64 bits"  # which Python may even refuse to convert to text
    text = str(value)
    text = text if len(text) <= 60 else text[:57] + "…"
    return f'"{text}"' if isinstance(value, str) else text


def suggest(name: str, known: list[str]) -> str:
    """` Did you mean "greeting"?`, or nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes alone, and a node stays small

    close = get_close_matches(name, known, n=1)
    return f' Did you mean "{close[0]}"?' if close else ""


def listing(names: list[str]) -> str:
    """`"a", "b" and "c"`."""
    quoted = [f'"{name}"' for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def placement_problem(app: App, profile: Profile, name: str) -> Problem | None:
    field = f"parameters.{name}"
    parameter = next((each for each in app.parameters if each.name == name), None)
    if parameter is None:
        known = [each.name for each in app.parameters]
        hint = suggest(name, known) or (f" It has {listing(known)}." if known else " It has none.")
        return Problem(field, f"{app.name} {app.version} has no such parameter.{hint}")
    if not reaches(parameter, profile):
        components = sorted({component for target in parameter.targets for component in target.components})
        return Problem(field, f'has no effect in profile "{profile.id}": it goes to {listing(components)} only.')
    if app.settings and name not in settings_by_parameter(app):
        return Problem(field, f"is fixed by {app.name}: its description offers no setting for it.")
    return None


def _missing(parameter: Parameter, rule: Rule | None) -> str:
    kind = rule.data_type.removeprefix("array[").removesuffix("]") if rule else "string"
    what = f"a list, each {_WORDS[kind]}" if rule and is_array(rule) else _WORDS[kind]
    return f"needs a value ({what}); the app gives no default."


def _judge_scalar(rule: Rule, kind: str, value: Value) -> str | None:
    if not _is_kind(kind, value):
        return f"must be {_WORDS[kind]}, not {show(value)}."
    if isinstance(value, str):
        if value == "" and rule.allow_empty:
            return None
        message = _judge_text(rule, value)
    elif isinstance(value, bool):
        message = None
    else:
        assert not isinstance(value, tuple)
        message = _judge_number(rule, value)
    if message is None and rule.options is not None and not any(same(value, option) for option in rule.options):
        return f"must be one of {', '.join(show(option) for option in rule.options)}, not {show(value)}."
    return message


def _judge_text(rule: Rule, value: str) -> str | None:
    if value == "":
        return "must not be empty."
    if rule.min_length is not None and len(value) < rule.min_length:
        return f"must have at least {rule.min_length} characters; {show(value)} has {len(value)}."
    if rule.max_length is not None and len(value) > rule.max_length:
        return f"must have at most {rule.max_length} characters; {show(value)} has {len(value)}."
    if rule.regex_match is not None:
        if len(value) > MATCHED_LENGTH_MAX:
            return f"has {len(value)} characters; with regexMatch at most {MATCHED_LENGTH_MAX} are tried."
        if not matches(rule.regex_match, value):
            return f"{show(value)} does not match {rule.regex_match}"
    return None


def _unusable(value: Value) -> str | None:
    """Values end up in files, environments and command lines; some characters work in none of them."""
    if isinstance(value, tuple):
        if len(value) > ARRAY_LENGTH_MAX:
            return f"has {len(value)} entries; at most {ARRAY_LENGTH_MAX} are passed on."
        return next((f"entry {at + 1} {why}" for at, item in enumerate(value) if (why := _unusable(item))), None)
    if isinstance(value, int):
        return None if fits_64_bits(value) else "is too large: a whole number has at most 64 bits."
    if isinstance(value, float):
        return None if math.isfinite(value) else f"must be a number, not {value}."
    return _unusable_text(value)


def _unusable_text(value: str) -> str | None:
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        return "has a character that cannot be passed on."
    if len(value) > TEXT_LENGTH_MAX:
        return f"has {len(value)} characters; at most {TEXT_LENGTH_MAX} are passed on."
    return None


def _judge_number(rule: Rule, value: int | float) -> str | None:
    if rule.min_value is not None and value < rule.min_value:
        return f"must be at least {rule.min_value:g}, not {value}."
    if rule.max_value is not None and value > rule.max_value:
        return f"must be at most {rule.max_value:g}, not {value}."
    decimals = _decimals(value)
    if rule.max_precision is not None and decimals > rule.max_precision:
        return f"must have at most {rule.max_precision} decimals; {value} has {decimals}."
    if rule.min_precision is not None and decimals < rule.min_precision:
        return f"must have at least {rule.min_precision} decimals; {value} has {decimals}."
    return None


def _decimals(value: int | float) -> int:
    from decimal import Decimal  # noqa: PLC0415 - for one rule alone, and a node stays small

    exponent = Decimal(str(value)).normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _is_kind(kind: str, value: Value) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "double":
        return isinstance(value, int | float)
    return isinstance(value, {"string": str, "integer": int, "boolean": bool}[kind])


def same(one: Value, other: Value | None) -> bool:
    """Equal and of one type: true is not 1. Numbers are equal across integer and double."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def _coerce_scalar(text: str, kind: str, field: str) -> Scalar:
    if kind == "string":
        return text
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "integer" and re.fullmatch(r"[+-]?[0-9]{1,100}", text):
        return int(text)
    if kind == "double" and re.fullmatch(
        r"[+-]?([0-9]{1,100}\.?[0-9]{0,100}|\.[0-9]{1,100})([eE][+-]?[0-9]{1,10})?", text
    ):
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,100}", text) else float(text)
    raise InvalidInput(problems=[Problem(field, f"must be {_WORDS[kind]}, not {show(text)}.")])
