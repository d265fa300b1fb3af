"""`--set name=value`: text from a shell, converted to the type in the app's configuration.

Only the type is converted here. The server decides whether a value is allowed, so that there is one rule.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from homeport.core.model.app import Rule, Value


def typed_parameters(given: Sequence[str], app: Mapping[str, Any]) -> "dict[str, Value]":
    """`app` is the app's detail from the server. Raises InvalidInput for text that is not such a value."""
    from homeport.core.parameters import coerce  # noqa: PLC0415 - start-up time

    values: dict[str, Value] = {}
    for entry in given:
        name, _, text = entry.partition("=")
        values[name] = coerce(text, _rule(name, app), field=f"parameters.{name}")
    return values


def check_given(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Raises UsageError for what is not NAME=VALUE, before anything is read or asked."""
    for entry in given:
        name, equals, _ = entry.partition("=")
        if not equals or not name:
            raise click.UsageError(f'--set {entry}: write it as name=value, for example --set greeting="Good day".')
    return given


def _rule(name: str, app: Mapping[str, Any]) -> "Rule":
    """From the app's schema, else from the type of the default. An unknown name stays text; the server refuses it."""
    from homeport.core.model.app import Rule  # noqa: PLC0415 - start-up time
    from homeport.core.parameters import as_value, data_type_of  # noqa: PLC0415

    configuration = app["configuration"] or {}
    rules = {rule["name"]: rule for rule in configuration.get("schema") or ()}
    for section in configuration.get("sections") or ():
        for setting in section.get("settings") or ():
            rule = rules.get(setting.get("schema"))
            if setting.get("parameter") == name and rule is not None:
                return Rule(name, rule["dataType"], multiselect=bool(rule.get("multiselect")))
    parameter = app["parameters"].get(name) or {}
    return Rule(name, data_type_of(as_value(parameter.get("value"))) or "string")
