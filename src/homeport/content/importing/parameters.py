"""The parameters of an imported app: one parameter, one setting and one rule each, so that `--set` works and a form
can be generated."""

from collections.abc import Sequence
from typing import Any

from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Offered:
    name: str
    pointer: str
    """The target of the value: an environment variable, or a path of a chart's values."""
    data_type: str
    """`string`, `integer`, `double` or `boolean`."""
    default: str | int | float | bool | None
    is_required: bool = False
    description: str = ""
    is_port: bool = False


def render_parameters(offered: Sequence[Offered], component: str) -> dict[str, Any]:
    """Their parts of a description: `parameters` and `configuration`; empty where there are none."""
    if not offered:
        return {}
    return {
        "parameters": {each.name: _parameter(each, component) for each in offered},
        "configuration": {
            "sections": [{"name": "Settings", "settings": [_setting(each) for each in offered]}],
            "schema": [_rule(each) for each in offered],
        },
    }


def _parameter(offered: Offered, component: str) -> dict[str, Any]:
    targets = [{"pointer": offered.pointer, "components": [component]}]
    return {"targets": targets} if offered.default is None else {"value": offered.default, "targets": targets}


def _setting(offered: Offered) -> dict[str, Any]:
    described = {"description": offered.description} if offered.description else {}
    return {"parameter": offered.name, "name": offered.name, **described, "schema": offered.name}


def _rule(offered: Offered) -> dict[str, Any]:
    rule: dict[str, Any] = {"name": offered.name, "dataType": offered.data_type}
    if not offered.is_required:
        rule["allowEmpty"] = True
    if offered.is_port:
        rule |= {"minValue": 1, "maxValue": 65535}
    return rule
