"""The events of one task, from its runner to its readers: `started, token*, metrics*, end|error`.

What was said is kept, up to a limit, as the task's transcript; a reader is a position in it. The runner waits for a
reader that is behind, so memory stays bounded and no token is dropped; metrics are, when a reader is behind.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from json import dumps
from json.encoder import encode_basestring_ascii
from typing import Any, Final

CHANNEL_MAX: Final = 32
"""Batches of tokens that a reader may be behind."""
UNREAD_MAX: Final = 1_024
"""The same before anybody reads: short answers finish without a reader."""
TRANSCRIPT_CHARACTERS_MAX: Final = 1_000_000
"""Of tokens; the transcript of a longer answer is cut, and says so."""

KEEPALIVE_SECONDS: Final = 10.0
"""How long a reader of a task that waits hears nothing; clients take a long silence for a lost connection."""
KEEPALIVE: Final = b": waiting\n\n"
"""A comment of the event stream, which clients skip."""

Event = tuple[str, Any]
"""Type and data; for `token` the data is (index of the first, texts)."""


class TaskStream:
    def __init__(self) -> None:
        self._events: list[Event] = []
        self._dropped = 0
        """Events at the beginning that are no longer kept."""
        self._read = 0
        """The position up to which it was read."""
        self.readers = 0
        self._characters = 0
        self.tokens = 0
        self.is_over = False
        self.is_silenced = False
        """A cancel was acknowledged: no token comes any more."""
        self.is_cut = False
        self.transcript: list[Event] = []
        self.preparation: Mapping[str, Any] = {}
        """By step: how it went. Sent to verbose readers only."""
        self._moved: asyncio.Event | None = None
        """While a reader waits for more."""
        self._space: asyncio.Event | None = None
        """While the runner waits for a reader."""

    # --- the runner's side --------------------------------------------------------------------------------------

    def started(self, data: dict[str, Any]) -> None:
        self._add(("started", data))

    async def put_tokens(self, texts: list[str]) -> None:
        """Waits while the reader is too far behind."""
        if not self.add_tokens(texts):
            await self.wait_for_space()

    def add_tokens(self, texts: list[str]) -> bool:
        """Whether more may follow at once."""
        if self.is_silenced or self.is_over:
            return True
        self._add(("token", (self.tokens, texts)))
        self.tokens += len(texts)
        return not self._is_full

    async def wait_for_space(self) -> None:
        while self._is_full and not self.is_silenced:
            self._space = self._space or asyncio.Event()
            self._space.clear()
            await self._space.wait()

    def metrics(self, data: dict[str, Any]) -> bool:
        """False when it was dropped."""
        if self._is_full or self.is_silenced:
            return False
        self._add(("metrics", data))
        return True

    def end(self, data: dict[str, Any]) -> None:
        self._finish(("end", data))

    def error(self, data: dict[str, Any]) -> None:
        self._finish(("error", data))

    def silence(self) -> None:
        """From now on no token is added, and none that waits is sent."""
        self.is_silenced = True
        _wake(self._space)
        _wake(self._moved)

    @property
    def _is_full(self) -> bool:
        behind = self._dropped + len(self._events) - self._read
        return behind > (CHANNEL_MAX if self.readers else UNREAD_MAX)

    def _finish(self, event: Event) -> None:
        if not self.is_over:
            self._add(event)
            self.is_over = True

    def _add(self, event: Event) -> None:
        if self.is_over:
            return
        self._events.append(event)
        kind, data = event
        if kind == "token":
            self._characters += sum(map(len, data[1]))
            self.is_cut = self._characters > TRANSCRIPT_CHARACTERS_MAX
        if not self.is_cut or kind != "token":
            self.transcript.append(event)
        elif self._read > self._dropped:
            # Too long to be kept: what was read is forgotten.
            del self._events[: self._read - self._dropped]
            self._dropped = self._read
        _wake(self._moved)

    async def wait_until_over(self) -> None:
        while not self.is_over:
            self._moved = self._moved or asyncio.Event()
            self._moved.clear()
            await self._moved.wait()

    # --- the reader's side --------------------------------------------------------------------------------------

    async def frames(
        self, *, verbose: bool = False, keepalive_seconds: float = KEEPALIVE_SECONDS
    ) -> AsyncIterator[bytes]:
        """Everything from the beginning, as it comes, several events together where they are there already; a comment
        after each silence of that length."""
        shown = self._render_verbose if verbose else render
        position = self._dropped
        self.readers += 1
        try:
            while True:
                end = self._dropped + len(self._events)
                if position < end:
                    new = self._events[max(position - self._dropped, 0) :]
                    position = end
                    self._read = max(self._read, position)
                    _wake(self._space)
                    yield b"".join(shown(event) for event in new if not (self.is_silenced and event[0] == "token"))
                    if new[-1][0] in {"end", "error"}:
                        return
                    continue
                self._moved = self._moved or asyncio.Event()
                self._moved.clear()
                try:
                    async with asyncio.timeout(keepalive_seconds):
                        await self._moved.wait()
                except TimeoutError:
                    yield KEEPALIVE
        finally:
            self.readers -= 1

    def _render_verbose(self, event: Event) -> bytes:
        """With sentences for a person: beside the start and the end, and in the metrics."""
        kind, data = event
        if kind == "started":
            return render(event) + _narration("The task has a slot and begins.")
        if kind == "metrics":
            prep = dict(self.preparation)
            return render((kind, {**data, "phase": "decode", "human": "The answer is generated.", "prep": prep}))
        if kind == "end":
            return _narration("The task is cancelled." if data.get("canceled") else "The task has ended.") + render(
                event
            )
        if kind == "error":
            return _narration("The task has ended with an error.") + render(event)
        return render(event)


def _wake(event: asyncio.Event | None) -> None:
    if event is not None:
        event.set()


def render(event: Event) -> bytes:
    kind, data = event
    if kind == "token":
        first, texts = data
        return "".join(
            [
                f'event: token\ndata: {{"t":{encode_basestring_ascii(text)},"i":{index}}}\n\n'
                for index, text in enumerate(texts, first)
            ]
        ).encode()
    return f"event: {kind}\ndata: {dumps(data, separators=(',', ':'))}\n\n".encode()


def _narration(sentence: str) -> bytes:
    return render(("narration", {"human": sentence}))


def as_content(stream: TaskStream) -> dict[str, Any]:
    """The transcript, for its artifact."""
    events: list[dict[str, Any]] = []
    for kind, data in stream.transcript:
        if kind == "token":
            first, texts = data
            events += [{"type": kind, "data": {"t": text, "i": i}} for i, text in enumerate(texts, first)]
        else:
            events.append({"type": kind, "data": data})
    return {"events": events, **({"truncated": True} if stream.is_cut else {})}
