"""`--set name=value`: text from a shell, converted to the type in the app's configuration.

Only the type is converted here. The server decides whether a value is allowed, so that there is one rule.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from homeport.core.model.app import Rule, Value
from homeport.core.parameters import as_value, coerce, data_type_of


def typed_parameters(given: Sequence[str], app: Mapping[str, Any]) -> dict[str, Value]:
    """`app` is the app's detail from the server. Raises InvalidInput for text that is not such a value."""
    values: dict[str, Value] = {}
    for entry in given:
        name, equals, text = entry.partition("=")
        if not equals or not name:
            raise click.UsageError(f'--set {entry}: write it as name=value, for example --set greeting="Good day".')
        values[name] = coerce(text, _rule(name, app), field=f"parameters.{name}")
    return values


def _rule(name: str, app: Mapping[str, Any]) -> Rule:
    """From the app's schema, else from the type of the default. An unknown name stays text; the server refuses it."""
    configuration = app["configuration"] or {}
    rules = {rule["name"]: rule for rule in configuration.get("schema") or ()}
    for section in configuration.get("sections") or ():
        for setting in section.get("settings") or ():
            rule = rules.get(setting.get("schema"))
            if setting.get("parameter") == name and rule is not None:
                return Rule(name, rule["dataType"], multiselect=bool(rule.get("multiselect")))
    parameter = app["parameters"].get(name) or {}
    return Rule(name, data_type_of(as_value(parameter.get("value"))) or "string")
