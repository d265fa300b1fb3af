"""Runs health checks from this machine: an HTTP request, a connection, or a command; each when it is due."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import anyio

from homeport.adapters.network.http_client import ExchangeFailed, TcpAddress, ask
from homeport.adapters.runtime.programs import child_process
from homeport.core.model.custom import CommandProbe, HttpProbe, Probe
from homeport.core.model.health import CheckResult, CheckRules, HealthSample
from homeport.ports import IsDue


async def checked(
    seen: HealthSample, rules: CheckRules, is_due: IsDue, run: Callable[[], Awaitable[CheckResult]]
) -> HealthSample:
    """A sample with its check's rules, and with a result if the check is due."""
    return replace(seen, rules=rules, result=await run() if is_due(seen.run, rules) else None)


async def run_probe(probe: Probe, *, seconds: float, environment: Mapping[str, str]) -> CheckResult:
    """Returns the details of a failed check too."""
    if isinstance(probe, CommandProbe):
        return await _run_command(probe, seconds, environment)
    if isinstance(probe, HttpProbe):
        return await _ask(probe, seconds)
    place = f"{probe.host}:{probe.port}"
    try:
        with anyio.fail_after(seconds):
            async with await anyio.connect_tcp(probe.host, probe.port):
                return CheckResult(True, f"{place} accepts connections")
    except (OSError, TimeoutError):
        return CheckResult(False, f"{place} does not accept connections")


async def _ask(probe: HttpProbe, seconds: float) -> CheckResult:
    try:
        answer = await ask(TcpAddress(probe.host, probe.port), "GET", probe.target, seconds=seconds)
    except OSError:
        return CheckResult(False, f"GET {probe.target}: {probe.host}:{probe.port} does not accept connections")
    except ExchangeFailed as error:
        return CheckResult(False, f"GET {probe.target} got no answer: {error}")
    return CheckResult(answer.status < 400, f"GET {probe.target} answered {answer.status}")


async def _run_command(probe: CommandProbe, seconds: float, environment: Mapping[str, str]) -> CheckResult:
    try:
        done = await child_process.run(probe.command, environment=environment, seconds=seconds)
    except TimeoutError:
        return CheckResult(False, f"{probe.command[0]} did not end within {seconds:.0f} s")
    except OSError as error:
        return CheckResult(False, f"{probe.command[0]} cannot be run: {error.strerror}")
    lines = (done.output + done.errors).strip().splitlines()
    return CheckResult(done.exit_code == 0, lines[-1] if lines else f"{probe.command[0]} ended with {done.exit_code}")
