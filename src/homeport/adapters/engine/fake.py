"""An engine in this process, for development and for faults that real engines show too rarely."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import anyio

from homeport.core.inference.task import TaskCode
from homeport.lazy_dataclass import dataclass
from homeport.ports.engine import EngineFailed, Finished, Generation, Health, OpenExchange, Props, TokenTexts

VERSION: Final = "mock-stub-v0"


@dataclass(slots=True)
class Faults:
    """What goes wrong, from now on."""

    is_down: bool = False
    hangs_before_first: bool = False
    dies_after: int | None = None
    """Tokens."""
    token_seconds: float = 0.0
    has_bug: bool = False
    """It raises what no adapter should."""


class FakeEngine:
    speaks_openai = False

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.running = 0
        self.closed = 0
        """Streams that were closed before their end."""

    async def health(self) -> Health:
        return Health(live=not self.faults.is_down, ready=not self.faults.is_down, error="down" * self.faults.is_down)

    async def props(self) -> Props:
        if self.faults.is_down:
            raise EngineFailed("The engine is down.")
        return Props(slots_total=1, slots_free=max(0, 1 - self.running), ctx_max=4096, engine_version=VERSION)

    async def generate(self, request: Generation) -> AsyncIterator[TokenTexts | Finished]:
        if self.faults.is_down:
            raise EngineFailed("The engine is down.", is_lost=True)
        self.running += 1
        is_done = False
        try:
            if self.faults.has_bug:
                raise RuntimeError("a fault of ours")
            if self.faults.hangs_before_first:
                await anyio.sleep_forever()
            words = request.prompt.split() or ["nothing"]
            for index in range(request.max_tokens):
                if self.faults.dies_after is not None and index >= self.faults.dies_after:
                    is_done = True
                    raise EngineFailed("The engine died.")
                await anyio.sleep(self.faults.token_seconds)
                yield TokenTexts([f"{words[index % len(words)]} "])
            is_done = True
            yield Finished(len(words), request.max_tokens, "length")
        finally:
            self.running -= 1
            self.closed += not is_done

    async def embed(self, model: str, inputs: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[float(len(text)), 1.0] for text in inputs]

    async def rerank(self, model: str, query: str, documents: Sequence[str]) -> Sequence[float]:
        wanted = set(query.split())
        return [float(len(wanted & set(document.split()))) for document in documents]

    async def open(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> OpenExchange:
        raise EngineFailed("The fake engine has no such path.", TaskCode.INVALID_PARAMS, status=404)

    async def close(self) -> None:
        pass
