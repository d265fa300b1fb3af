"""A health check that is a command, run inside a container through the engine's API."""

from collections.abc import Sequence

from homeport.adapters.network.http_client import ExchangeFailed
from homeport.adapters.runtime.docker_api.client import EngineApi, EngineRefusal
from homeport.core.model.health import CheckResult
from homeport.errors import EngineUnavailable


async def run_inside(api: EngineApi, container: str, command: Sequence[str], seconds: float) -> CheckResult:
    """Returns its last line too. A timeout is a failure; without an engine it raises."""
    try:
        code, output = await api.execute(container, command, seconds=seconds)
    except EngineRefusal as refusal:
        return CheckResult(False, refusal.message)
    except EngineUnavailable as error:
        if isinstance(error.__cause__, ExchangeFailed):
            return CheckResult(False, f"{command[0]} did not end within {seconds:g} s")
        raise
    lines = output.strip().splitlines()
    return CheckResult(code == 0, lines[-1].strip() if lines else f"{command[0]} ended with {code}")
