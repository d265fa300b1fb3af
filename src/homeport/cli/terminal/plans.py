"""Shows a plan: what would change, where, and why."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from homeport.cli.exits import Exit
from homeport.cli.options import Settings
from homeport.cli.terminal.ages import size
from homeport.cli.terminal.output import print_data

Json = Mapping[str, Any]


def show_plan(settings: Settings, plan: Json) -> Exit:
    if settings.is_data:
        print_data(settings, plan)
    else:
        for line in plan_lines(plan):
            click.echo(line)
    return Exit.CHANGES if plan["changes"] else Exit.DONE


def plan_lines(plan: Json) -> Iterator[str]:
    if not plan["changes"]:
        yield "Nothing would change: everything is already as asked for."
        return
    moving = [item for item in plan["deployments"] if item["action"] != "unchanged"]
    sites = len({item["site"] for item in moving})
    yield f"Would change {_count(len(moving), 'deployment')} at {_count(sites, 'site')}:"
    yield ""
    for item in plan["deployments"]:
        yield from _deployment_lines(item)
    for wave in plan.get("waves") or ():
        more = f" and {len(wave['sites']) - 10} more" if len(wave["sites"]) > 10 else ""
        yield f"  wave {wave['number']}   {wave['size']:>5}   {', '.join(wave['sites'][:10]) or 'no others'}{more}"
    restarts = f"restarts {_count(plan['restarts'], 'component')}" if plan["restarts"] else "restarts nothing"
    deletes = f"deletes {_count(plan['deletions'], 'component')}" if plan["deletions"] else "deletes nothing"
    yield f"  {restarts}, {deletes}."
    yield ""
    yield "Run it without --plan to apply."


def _deployment_lines(item: Json) -> Iterator[str]:
    title = f"  {item['site']}   {item['name']}  {_versions(item)}"
    yield f"{title:<48} {_revision(item)}".rstrip()
    if item.get("device"):
        yield f"    device        {item['device']}"
    if item["waits"]:
        yield f"    waits         {item['waits']}"
    for warning in item.get("warnings") or ():
        yield f"    warning       {warning}"
    yield from _kept(item, "    ")
    width = max((len(node["node_id"]) for node in (*item["nodes"], *item["refused"])), default=0)
    for node in item["nodes"]:
        yield from _component_lines(node["node_id"], node["components"], max(width, 10))
    for node in item["refused"]:
        yield f"    {node['node_id']:<{max(width, 10)}}   refused: {node['why']}"
    for position, parameter in enumerate(item["parameters"]):
        heading = "parameters" if position == 0 else ""
        change = _change(parameter["before"], parameter["after"])
        yield f"    {heading:<{max(width, 10)}}   {parameter['name']} {change}"


def kept_lines(sites: Sequence[Json]) -> Iterator[str]:
    """What an update keeps of the previous values; shown once where it is the same at every site."""
    counts: dict[str, int] = {}
    for item in sites:
        for line in _kept(item, "  "):
            counts[line] = counts.get(line, 0) + 1
    for line, count in counts.items():
        yield line if count == len(sites) or len(sites) == 1 else f"{line}   (at {_count(count, 'site')})"


def _kept(item: Json, indent: str) -> Iterator[str]:
    kept = ", ".join(f"{name}={value}" for name, value in (item.get("kept") or {}).items())
    if kept:
        yield f"{indent}kept          {kept}   (--reset-values starts from the defaults)"
    for name, why in (item.get("dropped") or {}).items():
        yield f"{indent}dropped       {name}: {why}"


def _component_lines(node: str, components: Sequence[Json], width: int) -> Iterator[str]:
    names = max((len(component["component"]) for component in components), default=0)
    for position, component in enumerate(components):
        heading = node if position == 0 else ""
        name = component["component"]
        yield f"    {heading:<{width}}   {name:<{names}}   {component['action']:<7}   {component['why']}".rstrip()
        for line in _image_lines(component):
            yield f"    {'':<{width}}   {'':<{names}}   {line}"


def _image_lines(component: Json) -> Iterator[str]:
    images = component.get("images") or ()
    pull = component.get("pull_bytes")
    said = "unknown size" if pull is None else f"up to {size(pull)}" if pull else "nothing"
    moving = [image for image in images if image["before"] != image["after"]]
    for position, image in enumerate(moving):
        is_last = position == len(moving) - 1
        yield f"image     {_image_change(image['before'], image['after'])}{f', pull {said}' if is_last else ''}"


def _image_change(before: str | None, after: str | None) -> str:
    """Without the registry and its folders, where the image has the same name as before."""
    if before is None or after is None:
        return f"{_short(after)} (new)" if before is None and after else f"{_short(before or '')} (no longer)"
    if _path(before) != _path(after):
        return f"{before} → {after}"
    return f"{_short(before)} → {_short(after)}"


def _path(image: str) -> str:
    """Without tag and digest."""
    path = image.partition("@")[0]
    head, colon, tag = path.rpartition(":")
    return head if colon and "/" not in tag else path


def _short(image: str) -> str:
    name, at, digest = image.rpartition("/")[2].partition("@")
    return f"{name}{at}{digest[:19]}"


def _versions(item: Json) -> str:
    before, after = item["version_before"], item["version_after"]
    if item["action"] == "unchanged":
        return f"{after or before}  (unchanged)"
    if before is None:
        return f"{after}  (new)"
    if after is None:
        return f"{before}  (deleted)"
    return str(after) if before == after else f"{before} → {after}"


def _revision(item: Json) -> str:
    """The revision that is replaced."""
    before = item["revision_before"]
    if before is None or item["action"] == "unchanged":
        return ""
    return f"now revision {str(before).removeprefix('sha256:')[:8]}"


def _change(before: Any, after: Any) -> str:
    if before is None:
        return f"= {_value(after)}"
    return f"{_value(before)} → {_value(after)}"


def _value(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
