"""OTLP collectors and Loki over HTTP."""

import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from homeport.adapters.network.lost_connection import LOST
from homeport.core.logs.line import StoredLine
from homeport.core.logs.settings import LogSettings
from homeport.core.redaction import redact
from homeport.errors import PermanentError, TransientError
from homeport.logs.outputs.formats import loki_body, otlp_body

SEND_SECONDS: Final = 10.0
ANSWER_LENGTH_MAX: Final = 300
TRY_AGAIN: Final = frozenset({401, 403, 404, 405, 407, 408, 425, 429})
"""Its address or its token is wrong, or it is busy: no fault of these lines, which wait until that is put right."""


@asynccontextmanager
async def open_outputs(settings: LogSettings) -> AsyncIterator[Sequence["HttpOutput"]]:
    timeout = aiohttp.ClientTimeout(total=SEND_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, headers=dict(settings.headers)) as session:
        found = (("otlp", settings.otlp_url, otlp_body), ("loki", settings.loki_url, loki_body))
        yield [HttpOutput(session, name, url, form) for name, url, form in found if url is not None]


class HttpOutput:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        kind: str,
        url: str,
        form: Callable[[Sequence[StoredLine]], dict[str, Any]],
    ) -> None:
        self.name = f"{kind}/{hashlib.sha256(url.encode()).hexdigest()[:12]}"
        self._session = session
        self._url = url
        self._form = form

    async def send(self, lines: Sequence[StoredLine]) -> None:
        body = gzip.compress(json.dumps(self._form(lines), ensure_ascii=False).encode(), 1)
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        try:
            async with self._session.post(self._url, data=body, headers=headers) as answer:
                said = (await answer.content.read(ANSWER_LENGTH_MAX)).decode(errors="replace")
        except LOST as error:
            raise TransientError(
                f"{redact(self._url)} does not answer: {str(error) or type(error).__name__}."
            ) from error
        if answer.status < 300:
            return
        message = f"{redact(self._url)} answered {answer.status}: {said.strip()}"
        if answer.status >= 500 or answer.status in TRY_AGAIN:
            raise TransientError(message)
        raise PermanentError(message)
