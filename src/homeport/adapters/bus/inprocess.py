"""`ports.Bus` within one process: a message is a call."""

from collections.abc import Callable
from dataclasses import field

from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Handler, Message

log = get_log("homeport.bus")


@dataclass(slots=True, eq=False)
class _Subscriber:
    handler: Handler
    on_gap: Callable[[], None] | None


@dataclass(slots=True)
class InProcessBus:
    _topics: dict[str, list[_Subscriber]] = field(default_factory=dict)

    def publish(self, topic: str, message: Message) -> None:
        self.deliver(topic, message)

    async def request(self, topic: str, message: Message, *, seconds: float) -> Message | None:
        return self.deliver(topic, message)

    def subscribe(
        self, topic: str, handler: Handler, *, on_gap: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        subscriber = _Subscriber(handler, on_gap)
        self._topics.setdefault(topic, []).append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._topics.get(topic, ()):
                self._topics[topic].remove(subscriber)

        return unsubscribe

    def deliver(self, topic: str, message: Message) -> Message | None:
        """To the subscribers of this process; returns the first reply."""
        answers = [self._handled(subscriber, topic, message) for subscriber in list(self._topics.get(topic, ()))]
        return next((answer for answer in answers if answer is not None), None)

    def tell_gap(self) -> None:
        for subscriber in [each for subscribers in self._topics.values() for each in subscribers]:
            if subscriber.on_gap is not None:
                subscriber.on_gap()

    def _handled(self, subscriber: _Subscriber, topic: str, message: Message) -> Message | None:
        try:
            return subscriber.handler(message)
        except Exception:
            log.exception("bus message failed", topic=topic)
            return None
