"""Prints what a Margo client has reported about its devices."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from homeport.cli.options import Settings
from homeport.cli.terminal.ages import age
from homeport.cli.terminal.output import print_data, print_facts
from homeport.errors import NotFound

Json = Mapping[str, Any]


def print_devices(settings: Settings, answer: Json) -> None:
    if settings.is_data:
        print_data(settings, answer)
        return
    if not answer["items"]:
        click.echo(f"{answer['site']} has reported no devices.")
        return
    now = datetime.now(UTC)
    rows = [
        (
            each["id"],
            _types(each),
            _cores(each),
            str(each["properties"].get("memory", "-")),
            age(each["reported_at"], now),
        )
        for each in answer["items"]
    ]
    _table(("DEVICE", "TYPES", "CORES", "MEMORY", "REPORTED"), rows)


def print_device(settings: Settings, answer: Json, device: str) -> None:
    """Raises NotFound."""
    found = next((each for each in answer["items"] if each["id"] == device), None)
    if found is None:
        known = ", ".join(each["id"] for each in answer["items"][:10]) or "none"
        raise NotFound(f'{answer["site"]} has no device "{device}".', hint=f"Known devices: {known}.")
    statuses = [each for each in answer["statuses"] if each["device_id"] == device]
    if settings.is_data:
        print_data(settings, {**found, "statuses": statuses})
        return
    properties = found["properties"]
    print_facts(
        [
            ("device", found["id"]),
            ("gateway", found["gateway"] or "-"),
            ("vendor", f"{properties['vendor']} {properties['modelNumber']} {properties['serialNumber']}"),
            ("types", _types(found)),
            ("cores", _cores(found)),
            ("memory", str(properties.get("memory", "-"))),
            ("storage", str(properties.get("storage", "-"))),
            ("labels", ", ".join(f"{key}={value}" for key, value in found["labels"].items()) or "-"),
        ]
    )
    for each in statuses:
        said = each["error"] or {}
        error = ": ".join(text for key in ("code", "message") if (text := said.get(key)))
        about = f"{each['state']}, manifest {each['adopted_manifest_version']}"
        click.echo("   ".join(filter(None, (each["deployment_id"], about, error))))


def print_matches(settings: Settings, answer: Json) -> None:
    if settings.is_data:
        print_data(settings, answer)
        return
    rows = [
        (each["device_id"], profile["profile"], "yes" if each["fits"] else "no", each["why"] or "")
        for profile in answer["profiles"]
        for each in profile["devices"]
    ]
    if not rows:
        click.echo(f"{answer['site']} has reported no devices.")
        return
    _table(("DEVICE", "PROFILE", "FITS", "WHY"), rows)


def _types(device: Json) -> str:
    return ", ".join(device["properties"].get("supportedDeploymentTypes") or ()) or "hosts nothing"


def _cores(device: Json) -> str:
    return " + ".join(f"{each['cores']:g}" for each in device["properties"].get("cpus") or ()) or "-"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    for row in (head, *rows):
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
