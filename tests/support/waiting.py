"""Waits for what a test expects, with a limit, and says what it waited for."""

import inspect
import time
from collections.abc import Callable
from typing import Any

import anyio

PAUSE_SECONDS_MAX = 0.5


class Pauses:
    """How long to wait before the next look: what is waited for longer is noticed a tenth later, and looks that cost
    much do not take the machine away from what is waited for."""

    def __init__(self) -> None:
        self.began = self.looked_at = time.monotonic()

    def next_seconds(self) -> float:
        """After a look."""
        now = time.monotonic()
        pause = max(0.01, (now - self.began) / 10, 4 * (now - self.looked_at))
        pause = min(pause, PAUSE_SECONDS_MAX)
        self.looked_at = now + pause
        return pause


async def eventually(look: Callable[[], object], *, seconds: float = 90.0, what: str = "") -> Any:
    """Looks again until the answer is truthy, and returns it. `look` may be async."""
    seen: object = None
    pauses = Pauses()
    with anyio.move_on_after(seconds):
        while True:
            found = look()
            seen = await found if inspect.isawaitable(found) else found
            if seen:
                return seen
            await anyio.sleep(pauses.next_seconds())
    raise AssertionError(f"waited {seconds} s for {what or inspect.getsource(look).strip()}; last seen: {seen!r}")


def wait_for(look: Callable[[], Any], *, seconds: float = 90.0, what: str = "") -> Any:
    """The same, for tests without an event loop."""
    pauses = Pauses()
    while time.monotonic() < pauses.began + seconds:
        found = look()
        if found:
            return found
        time.sleep(pauses.next_seconds())
    raise AssertionError(f"waited {seconds} s in vain for {what or inspect.getsource(look).strip()}")
