"""Runs the probes of pods, as a kubelet would: in the container, or over the network from this machine.

kube play would turn them into health checks that need a shell, curl and nc in the image, and systemd on the machine.
"""

from collections.abc import Mapping
from functools import partial

from homeport.adapters.network.http_client import TcpAddress
from homeport.adapters.runtime.docker_api.client import EngineApi, Json
from homeport.adapters.runtime.docker_api.exec_check import run_inside
from homeport.adapters.runtime.health.probes import checked, run_probe
from homeport.core.model.custom import HttpProbe, TcpProbe
from homeport.core.model.health import CheckResult, CheckRules, HealthSample
from homeport.ports import IsDue

DEFAULTS = CheckRules(interval_seconds=10.0, timeout_seconds=1.0, retries=3)
"""Kubernetes' defaults."""


async def check_pod_container(
    api: EngineApi, seen: HealthSample, inspected: Json, probe: Json, is_due: IsDue
) -> HealthSample:
    rules = rules_of(probe)
    return await checked(
        seen, rules, is_due, partial(_run, api, seen.run.id, inspected, probe, rules.timeout_seconds)
    )


async def _run(api: EngineApi, container: str, inspected: Json, probe: Json, seconds: float) -> CheckResult:
    if "exec" in probe:
        return await run_inside(api, container, [str(word) for word in probe["exec"]["command"]], seconds)
    way = "httpGet" if "httpGet" in probe else "tcpSocket"
    if way not in probe:
        return CheckResult(True)
    place = address_of(inspected, int(probe[way]["port"]))
    if place is None:
        return CheckResult(False, f"port {probe[way]['port']} cannot be reached from this machine")
    if way == "httpGet" and str(probe[way].get("scheme", "HTTP")).upper() == "HTTP":
        request = HttpProbe(place.host, place.port, str(probe[way].get("path") or "/"))
        return await run_probe(request, seconds=seconds, environment={})
    return await run_probe(TcpProbe(place.host, place.port), seconds=seconds, environment={})


def rules_of(probe: Mapping[str, object]) -> CheckRules:
    def seconds(name: str, default: float) -> float:
        value = probe.get(name)
        return float(value) if isinstance(value, int | float) and value > 0 else default

    return CheckRules(
        interval_seconds=seconds("periodSeconds", DEFAULTS.interval_seconds),
        timeout_seconds=seconds("timeoutSeconds", DEFAULTS.timeout_seconds),
        retries=int(seconds("failureThreshold", DEFAULTS.retries)),
        start_period_seconds=seconds("initialDelaySeconds", 0.0),
    )


def address_of(inspected: Json, port: int) -> TcpAddress | None:
    """The address of a port of the pod on this machine: published, or the pod's own address (not without root)."""
    network = inspected.get("NetworkSettings") or {}
    for published in (network.get("Ports") or {}).get(f"{port}/tcp") or []:
        host = str(published.get("HostIp") or "")
        return TcpAddress("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, int(published["HostPort"]))
    addresses = [each.get("IPAddress") for each in (network.get("Networks") or {}).values()]
    found = next(filter(None, [network.get("IPAddress"), *addresses]), None)
    return TcpAddress(str(found), port) if found else None
