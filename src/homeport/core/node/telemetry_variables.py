"""The variables by which a workload finds the OpenTelemetry collector of its machine, with the names that Margo gives
them. Nothing is injected where no collector is configured, and no workload is instrumented by it."""

import re
from collections.abc import Mapping
from typing import Final

from homeport.errors import InvalidInput, Problem

LENGTH_MAX: Final = 500
_ADDRESS: Final = re.compile(r"(https?|grpc)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(\d{1,5}))?(/[!-~]*)?")


def otlp_variables(http: str | None, grpc: str | None = None, certificate: str | None = None) -> Mapping[str, str]:
    """`http` and `grpc` are endpoints as containers reach them, `certificate` is a path inside of them. Raises
    InvalidInput."""
    if http is None:
        if grpc is not None or certificate is not None:
            message = "is needed beside the other options: every workload must find OTLP over HTTP"
            raise InvalidInput(problems=[Problem("workload_otlp", message)])
        return {}
    _check("workload_otlp", http, ("http", "https"))
    found = {"HTTP_OTEL_EXPORTER_OTLP_ENDPOINT": http, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    if grpc is not None:
        _check("workload_otlp_grpc", grpc, ("http", "https", "grpc"))
        found["GRPC_OTEL_EXPORTER_OTLP_ENDPOINT"] = grpc
    if certificate is not None:
        found["OTEL_EXPORTER_OTLP_CERTIFICATE"] = certificate
    return found


def _check(field: str, url: str, schemes: tuple[str, ...]) -> None:
    found = _ADDRESS.fullmatch(url) if len(url) <= LENGTH_MAX else None
    if found is None or found[1] not in schemes or not 0 < int(found[4] or 1) < 2**16:
        raise InvalidInput(problems=[Problem(field, f'"{url[:200]}" is not an address such as http://10.0.0.1:4318')])
