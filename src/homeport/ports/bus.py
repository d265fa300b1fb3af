"""Messages between the processes of one role: central's replicas, or a single process.

A message is a hint or a hand-over, never a record: each subscriber gets it at most once, and it may be lost during a
reconnect. What must not be lost is in the store; subscribers are notified of gaps.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Message = Mapping[str, Any]
"""JSON data."""
Handler = Callable[[Message], Message | None]
"""Called on the event loop and must not block. It returns the reply to a request, or None."""


class Bus(Protocol):
    def publish(self, topic: str, message: Message) -> None:
        """To every subscriber in every process, those of this one before it returns."""
        ...

    async def request(self, topic: str, message: Message, *, seconds: float) -> Message | None:
        """Publishes, and returns the first reply; None after the timeout."""
        ...

    def subscribe(
        self, topic: str, handler: Handler, *, on_gap: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Returns a function that unsubscribes. An exception in a handler does not affect others. `on_gap` is called
        whenever messages of other processes may have been missed."""
        ...
