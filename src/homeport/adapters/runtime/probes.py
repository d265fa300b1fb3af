"""Runs health checks from this machine: an HTTP request, a connection, or a command; each when it is due."""

import time
from collections.abc import Awaitable, Callable, Mapping

import anyio

from homeport.adapters.runtime import child
from homeport.adapters.runtime.checks import CheckHistory, is_due, record
from homeport.adapters.runtime.socket_http import ExchangeFailed, TcpAddress, ask
from homeport.core.model.custom import CheckRules, CommandProbe, HttpProbe, Probe
from homeport.ports import Health

HISTORIES_MAX = 10_000


class Histories:
    """What the checks of each workload gave so far, by the id of what runs."""

    def __init__(self) -> None:
        self._histories: dict[str, CheckHistory] = {}

    async def check(self, key: str, rules: CheckRules, run: Callable[[], Awaitable[tuple[bool, str]]]) -> Health:
        """The verdict; `run` is called first if it is time."""
        now = time.monotonic()
        history = self._histories.get(key) or CheckHistory(since=now)
        if is_due(history, rules, now):
            passed, message = await run()
            history = record(history, rules, passed=passed, message=message, now=time.monotonic())
            self._histories[key] = history
            while len(self._histories) > HISTORIES_MAX:
                self._histories.pop(next(iter(self._histories)))
        return history.verdict

    def forget(self, key: str) -> None:
        self._histories.pop(key, None)


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
