"""Runs the probes of pods, as a kubelet would: in the container, or over the network from this machine.

kube play would turn them into health checks that need a shell, curl and nc in the image, and systemd on the machine.
"""

from collections.abc import Mapping
from functools import partial

from homeport.adapters.runtime.engine_api import EngineApi, Json
from homeport.adapters.runtime.probe_command import run_inside
from homeport.adapters.runtime.probes import Histories, run_probe
from homeport.adapters.runtime.socket_http import TcpAddress
from homeport.core.model.custom import CheckRules, HttpProbe, TcpProbe
from homeport.ports import Health

DEFAULTS = CheckRules(interval_seconds=10.0, timeout_seconds=1.0, retries=3)
"""Kubernetes' own."""


class KubeChecks:
    def __init__(self, api: EngineApi) -> None:
        self._api = api
        self._histories = Histories()

    async def check(self, container: str, inspected: Json, probe: Json) -> Health:
        """The verdict on a running container; the probe is run when it is due."""
        rules = rules_of(probe)
        run = partial(self._run, container, inspected, probe, rules.timeout_seconds)
        return await self._histories.check(container, rules, run)

    async def _run(self, container: str, inspected: Json, probe: Json, seconds: float) -> tuple[bool, str]:
        if "exec" in probe:
            return await run_inside(self._api, container, [str(word) for word in probe["exec"]["command"]], seconds)
        way = "httpGet" if "httpGet" in probe else "tcpSocket"
        if way not in probe:
            return True, ""
        place = address_of(inspected, int(probe[way]["port"]))
        if place is None:
            return False, f"port {probe[way]['port']} cannot be reached from this machine"
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
    """Where this machine reaches a port of the pod: published, or by the pod's own address (not without root)."""
    network = inspected.get("NetworkSettings") or {}
    for published in (network.get("Ports") or {}).get(f"{port}/tcp") or []:
        host = str(published.get("HostIp") or "")
        return TcpAddress("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, int(published["HostPort"]))
    addresses = [each.get("IPAddress") for each in (network.get("Networks") or {}).values()]
    found = next(filter(None, [network.get("IPAddress"), *addresses]), None)
    return TcpAddress(str(found), port) if found else None
