"""Runs the health check of a native program once: an HTTP request, a connection, or a command."""

from collections.abc import Mapping

import anyio

from homeport.adapters.runtime import child
from homeport.adapters.runtime.process_spec import CommandProbe, HttpProbe, Probe
from homeport.adapters.runtime.socket_http import ExchangeFailed, TcpAddress, ask


async def run_probe(probe: Probe, *, seconds: float, environment: Mapping[str, str]) -> tuple[bool, str]:
    """Whether it passed, and what a person would want to know if it did not."""
    if isinstance(probe, CommandProbe):
        return await _run_command(probe, seconds, environment)
    if isinstance(probe, HttpProbe):
        return await _ask(probe, seconds)
    place = f"{probe.host}:{probe.port}"
    try:
        with anyio.fail_after(seconds):
            async with await anyio.connect_tcp(probe.host, probe.port):
                return True, f"{place} accepts connections"
    except (OSError, TimeoutError):
        return False, f"{place} accepts no connection"


async def _ask(probe: HttpProbe, seconds: float) -> tuple[bool, str]:
    try:
        answer = await ask(TcpAddress(probe.host, probe.port), "GET", probe.target, seconds=seconds)
    except (OSError, ExchangeFailed) as error:
        return False, f"GET {probe.target} got no answer: {error}"
    return answer.status < 400, f"GET {probe.target} answered {answer.status}"


async def _run_command(probe: CommandProbe, seconds: float, environment: Mapping[str, str]) -> tuple[bool, str]:
    try:
        done = await child.run(probe.command, environment=environment, seconds=seconds)
    except TimeoutError:
        return False, f"{probe.command[0]} did not end within {seconds:.0f} s"
    except OSError as error:
        return False, f"{probe.command[0]} cannot be run: {error.strerror}"
    lines = (done.output + done.errors).strip().splitlines()
    return done.exit_code == 0, lines[-1] if lines else f"{probe.command[0]} ended with {done.exit_code}"
