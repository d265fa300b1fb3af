"""A health check that is a command, run inside a container through the engine's API."""

from collections.abc import Sequence

from homeport.adapters.runtime.engine_api import EngineApi, Refusal
from homeport.adapters.runtime.socket_http import ExchangeFailed
from homeport.errors import EngineUnavailable


async def run_inside(api: EngineApi, container: str, command: Sequence[str], seconds: float) -> tuple[bool, str]:
    """Whether it passed, and its last line. One that does not end in time has failed; without an engine it raises."""
    try:
        code, output = await api.execute(container, command, seconds=seconds)
    except Refusal as refusal:
        return False, refusal.message
    except EngineUnavailable as error:
        if isinstance(error.__cause__, ExchangeFailed):
            return False, f"{command[0]} did not end within {seconds:g} s"
        raise
    lines = output.strip().splitlines()
    return code == 0, lines[-1].strip() if lines else f"{command[0]} ended with {code}"
