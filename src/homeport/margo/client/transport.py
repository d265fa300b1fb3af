"""HTTP to a fleet manager: mutual TLS, bounded answers, and its problem documents as errors of ours."""

import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from homeport import __version__
from homeport.adapters.link.central_http import VerifyingConnector
from homeport.adapters.network.lost_connection import LOST
from homeport.core.margo.manifest import MANIFEST_BYTES_MAX
from homeport.errors import InvalidInput, PeerUnavailable, PermanentError, Problem, TransientError
from homeport.lazy_dataclass import dataclass

CALL_SECONDS_MAX: Final = 60.0
LARGE_SECONDS_MAX: Final = 20 * 60.0
"""Of a bundle: the largest one over a line of half a megabit a second."""
RETRY_AFTER_SECONDS_MAX: Final = 7 * 86_400.0
"""A server that asks for more has made a mistake, and would never see this client again."""
PROBLEM_BYTES_MAX: Final = 64 * 1024
SUCCESSES: Final = range(200, 300)
"""Of a report: the contract names 200, 201 and 204, and a manager may have taken it with another one."""


class WfmUnavailable(PeerUnavailable):
    """The fleet manager cannot answer now."""

    def __init__(self, message: str, *, retry_after_seconds: float = 0.0, is_fixed: bool = False) -> None:
        """`is_fixed`: each wait is as long as the one before."""
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.is_fixed = is_fixed


class WfmRefused(PermanentError):
    """The fleet manager has refused a request, and repeating it will not help."""

    code = "margo-refused"

    def __init__(self, message: str, *, status: int, problem_type: str = "") -> None:
        super().__init__(message)
        self.status, self.problem_type = status, problem_type


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    etag: str
    body: bytes
    media_type: str = ""
    """Without parameters, in small letters."""


@asynccontextmanager
async def open_transport(
    url: str, *, tls: Callable[[], ssl.SSLContext], verify: Callable[[ssl.SSLObject], object]
) -> AsyncIterator["WfmTransport"]:
    """Nothing is sent before the fleet manager has proven to be the one that our own identity belongs to."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(problems=[Problem("wfm", f'"{url[:200]}" is not an https:// address')])
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS_MAX)
    async with aiohttp.ClientSession(
        timeout=timeout,
        connector=VerifyingConnector(tls, verify),
        # The contract knows no cookies, so none are kept.
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"homeport/{__version__}"},
    ) as session:
        yield WfmTransport(url.rstrip("/"), session)


class WfmTransport:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def get(
        self, path: str, headers: Mapping[str, str] | None = None, *, size_max: int = MANIFEST_BYTES_MAX
    ) -> Reply:
        """Paths of a manifest are appended to the configured address; its base path stays. Raises WfmUnavailable and
        WfmRefused."""
        return await self._call("GET", path, headers or {}, None, size_max)

    async def get_large(self, path: str, *, size_max: int) -> Reply:
        """Like `get`, for what may take long: it goes on while something arrives."""
        return await self._call("GET", path, {}, None, size_max, seconds_max=LARGE_SECONDS_MAX)

    async def send(self, method: str, path: str, body: Mapping[str, Any]) -> Reply:
        return await self._call(method, path, {}, body, PROBLEM_BYTES_MAX)

    async def _call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
        size_max: int,
        *,
        seconds_max: float | None = None,
    ) -> Reply:
        timeout = aiohttp.ClientTimeout(total=seconds_max or CALL_SECONDS_MAX, sock_read=CALL_SECONDS_MAX)
        try:
            async with self._session.request(
                method, self._url + path, headers=headers, json=body, allow_redirects=False, timeout=timeout
            ) as answer:
                content = await _bounded(answer, size_max)
                if answer.status in ({200, 304} if body is None else SUCCESSES):
                    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
                    return Reply(answer.status, answer.headers.get("etag", ""), content, kind)
                wait, location, date = (answer.headers.get(key, "") for key in ("retry-after", "location", "date"))
                raise failure_of(answer.status, wait, content, location=location, date=date)
        except LOST as error:
            raise WfmUnavailable(f"The fleet manager at {self._url} {_why(error)}.") from error


def _why(error: Exception) -> str:
    """One line: what is not HTTP may be anything."""
    if isinstance(error, aiohttp.ClientResponseError):
        first = (error.message.strip().splitlines() or [""])[0].partition(": b'")[0]
        return f"gave an answer that cannot be read: {first[:200].rstrip(':. ')}"
    first = (str(error).strip().splitlines() or [""])[0]
    return f"cannot be reached: {first[:500].rstrip('. ') or 'no answer in time'}"


async def _bounded(answer: aiohttp.ClientResponse, size_max: int) -> bytes:
    content = b""
    async for chunk in answer.content.iter_chunked(64 * 1024):
        content += chunk
        if len(content) > size_max:
            raise WfmUnavailable(f"The fleet manager's answer is longer than {size_max} bytes.")
    return content


def failure_of(
    status: int, retry_after: str, content: bytes, *, location: str = "", date: str = ""
) -> WfmUnavailable | WfmRefused:
    """The type of a problem decides; it is never fetched. An unknown one is shown as it is. `date` is when the fleet
    manager answered, by its own clock, by which it also says until when to wait."""
    try:
        given = json.loads(content[:PROBLEM_BYTES_MAX])
    except (ValueError, RecursionError):
        given = {}
    problem = given if isinstance(given, dict) else {}
    said = str(problem.get("detail") or problem.get("title") or "")[:500].rstrip(".")
    if location and status in range(300, 400):
        said = f"it redirects to {location[:200]}, which is not followed. Where that is right, give it with --wfm"
    message = f"The fleet manager answered {status}{f': {said}' if said else ''}."
    retryable = problem.get("retryable")
    # A client that asks too often or too early may always come again, and so may who gets no hint.
    if status in {429, 503} or retryable is True or (status >= 500 and retryable is not False):
        now = _time(date) or datetime.now(UTC)
        seconds = _seconds(retry_after, now) or _seconds(problem.get("retryAfterSeconds"), now)
        is_fixed = problem.get("backoffStrategy") == "fixed"
        return WfmUnavailable(message, retry_after_seconds=min(seconds, RETRY_AFTER_SECONDS_MAX), is_fixed=is_fixed)
    return WfmRefused(message, status=status, problem_type=str(problem.get("type") or "")[:200])


def wait_seconds(error: TransientError, usual: float, *, chance: float) -> float:
    """How long to wait before the next attempt: never less than was asked for, and up to half as long again, because
    others were given the same time. `usual` grows with each failure; `chance` is from 0 to 1."""
    asked = error.retry_after_seconds * (1.0 + chance / 2.0)
    if isinstance(error, WfmUnavailable) and error.is_fixed and asked:
        return asked
    return max(usual, asked)


def _seconds(value: Any, now: datetime) -> float:
    """A number of seconds, or a date as HTTP writes it. What is neither asks for nothing."""
    text = str(value or "").strip()
    if text.isascii() and text.isdecimal() and len(text) < 9:
        return float(text)
    until = _time(text)
    return 0.0 if until is None else max(0.0, (until - now).total_seconds())


def _time(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else None
