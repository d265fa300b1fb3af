"""A Helm chart as an app: its scalar values become parameters, named as after helm's `--set`. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from homeport.adapters.files.bounded_yaml import load_located
from homeport.content.importing.description import Imported, app_name
from homeport.content.importing.parameters import Offered
from homeport.content.importing.variables import looks_secret
from homeport.core.values.numbers import fits_64_bits
from homeport.errors import InvalidInput, Problem
from homeport.vocabulary import ProfileType

CHART_FILE: Final = "Chart.yaml"
VALUES_FILE: Final = "values.yaml"
_LOOKUP: Final = re.compile(rb"\{\{[^}]*\blookup\s+[\"(.$]")
_HOOK: Final = re.compile(rb"helm\.sh/hook[\"']?\s*:")
_CRD: Final = re.compile(rb"^kind:\s*CustomResourceDefinition\b", re.MULTILINE)
PARAMETERS_MAX: Final = 100
"""They stand in every deployment's file. Values near the top come first."""


def import_chart(
    files: Mapping[str, bytes],
    *,
    name: str | None = None,
    executable: frozenset[str] = frozenset(),
    place: tuple[str, str] | None = None,
) -> Imported:
    """From a chart's own files; `place` where it stays in the registry it came from. Raises InvalidInput."""
    chart = _mapping(files, CHART_FILE)
    problems = list(_mistakes(chart, files, is_packed=place is not None))
    if problems:
        raise InvalidInput(problems=problems)
    values = _mapping(files, VALUES_FILE) if VALUES_FILE in files else {}
    every = sorted(_offered(values), key=lambda each: each.name.count("."))
    offered = tuple(every[:PARAMETERS_MAX])
    return Imported(
        name=app_name(name or str(chart["name"])),
        type=ProfileType.HELM,
        summary=str(chart.get("description") or f"The chart {chart['name']}."),
        offered=offered,
        files=files if place is None else {},
        executable=executable,
        notes=_left_out(every)
        + _relied_on(files)
        + tuple(
            f"{each.name} looks like a secret and its default would stand in Git: deploy with  "
            f"--set {each.name}=secret://NAME ."
            for each in offered
            if each.default not in (None, "") and looks_secret(each.name)
        ),
        own_version=str(chart["version"]),
        place=place,
    )


def _mistakes(chart: Mapping[str, Any], files: Mapping[str, bytes], *, is_packed: bool) -> Iterator[Problem]:
    for key in ("apiVersion", "name", "version"):
        if not isinstance(chart.get(key), str):
            yield Problem(key, "is missing, or is not text: put it in quotes.", CHART_FILE)
    if chart.get("type") == "library":
        yield Problem("type", "is library: such a chart installs nothing by itself.", CHART_FILE)
    packed = {path.split("/")[1].partition("-")[0] for path in files if path.startswith("charts/")}
    dependencies = [each for each in chart.get("dependencies") or () if isinstance(each, Mapping)]
    if dependencies and not packed and not is_packed:
        names = ", ".join(str(each.get("name")) for each in dependencies)
        yield Problem("dependencies", f"{names}: not in charts/ yet. Run  helm dependency build .", CHART_FILE)


def _relied_on(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """What only works where a cluster is asked or changed while the chart is installed, and so on no device that only
    renders its templates."""
    templates = {path: content for path, content in files.items() if path.startswith("templates/")}
    found = []
    for what, pattern in (("looks things up in the cluster", _LOOKUP), ("has hooks", _HOOK), ("brings CRDs", _CRD)):
        where = sorted(path for path, content in templates.items() if pattern.search(content))
        if pattern is _CRD:
            where += sorted(path for path in files if path.startswith("crds/"))
        if where:
            more = f" and {len(where) - 1} more" if len(where) > 1 else ""
            found.append(f"The chart {what} ({where[0]}{more}): devices that only render its templates do without.")
    return tuple(found)


def _mapping(files: Mapping[str, bytes], name: str) -> Mapping[str, Any]:
    content, _ = load_located(files[name], name)
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise InvalidInput(problems=[Problem("", "must be a mapping (name: value).", name, 1)])
    return content


def _left_out(every: Sequence[Offered]) -> tuple[str, ...]:
    if len(every) <= PARAMETERS_MAX:
        return ()
    return (f"The chart has {len(every)} values; the first {PARAMETERS_MAX}, from the top, are parameters.",)


def _offered(values: Mapping[Any, Any], above: str = "") -> Iterator[Offered]:
    for key, value in values.items():
        if not isinstance(key, str) or not key or set(key) & set(".,=[]\\"):
            continue  # A path of values cannot name it.
        name = above + key
        if isinstance(value, Mapping):
            yield from _offered(value, f"{name}.")
        elif isinstance(value, bool):
            yield Offered(name, name, "boolean", value)
        elif isinstance(value, int):
            if fits_64_bits(value):
                yield Offered(name, name, "integer", value)
        elif isinstance(value, float):
            yield Offered(name, name, "double", value)
        elif isinstance(value, str):
            yield Offered(name, name, "string", value)
