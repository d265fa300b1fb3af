"""`--set name=value`: text from a shell, turned into the type that the app's configuration asks for.

Only the type is settled here. Whether a value is allowed is the server's to say, so that there is one answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from homeport.core.model.app import Rule, Value
from homeport.core.parameters import as_value, coerce, data_type_of


def typed_parameters(given: Sequence[str], app: Mapping[str, Any]) -> dict[str, Value]:
    """`app` is the app's detail as the server shows it. Raises InvalidInput for text that is no such value."""
    values: dict[str, Value] = {}
    for entry in given:
        name, equals, text = entry.partition("=")
        if not equals or not name:
            raise click.UsageError(f'--set {entry}: write it as name=value, for example --set greeting="Good day".')
        values[name] = coerce(text, _rule(name, app), field=f"parameters.{name}")
    return values


def _rule(name: str, app: Mapping[str, Any]) -> Rule:
    """From the app's schema, else from the type of the default. An unknown name stays text, to be refused there."""
    configuration = app["configuration"] or {}
    rules = {rule["name"]: rule for rule in configuration.get("schema") or ()}
    for section in configuration.get("sections") or ():
        for setting in section.get("settings") or ():
            rule = rules.get(setting.get("schema"))
            if setting.get("parameter") == name and rule is not None:
                return Rule(name, rule["dataType"], multiselect=bool(rule.get("multiselect")))
    parameter = app["parameters"].get(name) or {}
    return Rule(name, data_type_of(as_value(parameter.get("value"))) or "string")
