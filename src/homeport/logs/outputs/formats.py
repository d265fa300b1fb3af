"""Log lines in the formats of their receivers: OTLP (JSON, as collectors accept it over HTTP) and Loki's push API.

Loki's labels are the few by which people select (site, node, source, level); everything else of a line is structured
metadata, since every combination of labels is a stream of its own there.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from homeport import __version__
from homeport.core.logs.line import Origin, SourceKind, StoredLine

SEVERITY: Final = {"debug": 5, "info": 9, "warning": 13, "error": 17}
"""Numbers of the OpenTelemetry log data model."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def otlp_body(lines: Sequence[StoredLine]) -> dict[str, Any]:
    """An ExportLogsServiceRequest; a resource for each origin."""
    grouped: dict[Origin, list[StoredLine]] = {}
    for stored in lines:
        grouped.setdefault(stored.origin, []).append(stored)
    return {"resourceLogs": [_resource_logs(origin, group) for origin, group in grouped.items()]}


def loki_body(lines: Sequence[StoredLine]) -> dict[str, Any]:
    streams: dict[tuple[Origin, str], list[StoredLine]] = {}
    for stored in lines:
        streams.setdefault((stored.origin, stored.line.level), []).append(stored)
    return {
        "streams": [
            {
                "stream": {"job": "homeport", **labels_of(origin), "level": level},
                "values": [_value(each) for each in group],
            }
            for (origin, level), group in streams.items()
        ]
    }


def _value(stored: StoredLine) -> list[Any]:
    """Without metadata where there is none: a Loki that keeps none refuses it."""
    fields = dict(stored.line.fields)
    return [_nanoseconds(stored), stored.line.text, *([fields] if fields else ())]


def labels_of(origin: Origin) -> dict[str, str]:
    labels = {
        "site": origin.site,
        "node": origin.node,
        "source": origin.kind,
        "deployment": origin.subject if origin.kind == SourceKind.DEPLOYMENT else "",
        "component": origin.component,
    }
    return {name: value for name, value in labels.items() if value}


def _resource_logs(origin: Origin, lines: Sequence[StoredLine]) -> dict[str, Any]:
    attributes = {
        "service.name": origin.component or f"homeport-{origin.kind}",
        "host.name": origin.node,
        "homeport.site": origin.site,
        "homeport.source": origin.source,
        "homeport.deployment.id": origin.subject if origin.kind == SourceKind.DEPLOYMENT else "",
        "homeport.job.id": origin.subject if origin.kind == SourceKind.JOB else "",
    }
    records = [
        {
            "timeUnixNano": _nanoseconds(stored),
            "observedTimeUnixNano": _nanoseconds(stored),
            "severityNumber": SEVERITY.get(stored.line.level, 9),
            "severityText": stored.line.level,
            "body": {"stringValue": stored.line.text},
            "attributes": _attributes(stored.line.fields),
        }
        for stored in lines
    ]
    return {
        "resource": {"attributes": _attributes({name: value for name, value in attributes.items() if value})},
        "scopeLogs": [{"scope": {"name": "homeport", "version": __version__}, "logRecords": records}],
    }


def _attributes(fields: Any) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in fields.items()]


def _nanoseconds(stored: StoredLine) -> str:
    since = stored.line.at - _EPOCH
    return str((since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000)
