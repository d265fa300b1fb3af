"""`GET /api/v1/logs`: pages of log lines as JSON, or a stream of them as server-sent events. The same at central and
at a site."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Header, Query, Request, Response

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.logs.line import LogSeverity, Origin, SourceKind, StoredLine
from homeport.core.logs.query import LogFilter
from homeport.core.values.durations import seconds_of
from homeport.core.values.filters import LENGTH_MAX, LOG_WORDS, parse_filter
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass
from homeport.logs.serving.reading import LogReading
from homeport.logs.serving.tail import TailedLines, follow
from homeport.ports import Listing
from homeport.serving.bodies.body import Body, PageBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.pages import LIMIT_DEFAULT, LIMIT_MAX, BadCursor, decode_cursor, encode_cursor
from homeport.serving.routing import Router
from homeport.serving.server.sse import EVENT_STREAM, EventStream, cursor_from, frame

TAIL_MAX: Final = 1_000
ORCHION_PING_SECONDS: Final = 30.0
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quoted: Final = json.encoder.encode_basestring
LOGS: Final[Listing[StoredLine, None]] = Listing("logs", {"newest": (int,), "oldest": (int,)})

Text = Annotated[str | None, Query(min_length=1, max_length=300)]


class LogLineBody(Body):
    id: int
    """Where to resume; lines of one source are in the order in which they were written."""
    at: datetime
    level: str
    site: str
    node: str
    source: str
    deployment: str
    component: str
    job: str
    text: str
    fields: dict[str, str]


class LogLinesBody(PageBody):
    lines: Sequence[LogLineBody]


READ: Final = Action("logs.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
ACTIONS: Final[Actions] = {("GET", "/api/v1/logs"): READ}
ALIAS_ACTIONS: Final[Actions] = {("GET", "/api/logs"): READ}

RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A page of lines, or with `follow` server-sent events: `log` for each line, `gap` where lines "
        "were removed before a slow reader had them.",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    },
    404: {},
}


def _wanted(  # noqa: PLR0917 - one for each filter
    site: Text = None,
    node: Text = None,
    kind: SourceKind | None = None,
    deployment: Annotated[
        str | None, Query(min_length=1, max_length=200, description="Its id, or `name@site`.")
    ] = None,
    component: Text = None,
    job: Text = None,
    level: Annotated[LogSeverity | None, Query(description="This level and those above it.")] = None,
    since: Annotated[str | None, Query(max_length=64, description="A time, or so long ago, such as 5m.")] = None,
    until: Annotated[str | None, Query(max_length=64, description="Before this time, or so long ago.")] = None,
    text: Annotated[
        str | None,
        Query(min_length=1, max_length=300, description="What the message or a field contains, in any case."),
    ] = None,
    filtering: Annotated[
        str | None,
        Query(
            alias="filter",
            max_length=LENGTH_MAX,
            description="The filter language: words that lines contain, and `site:gdansk-*`, `node:`, `app:`, "
            "`state:` (of the deployment now), `label:region=north`, `code:`, `deployment:`, `component:`, `job:`; "
            "`-` before a part negates it.",
        ),
    ] = None,
) -> LogFilter:
    return LogFilter(
        site=site,
        node=node,
        kind=None if kind is None else kind.value,
        deployment=deployment,
        component=component,
        job=job,
        level=None if level is None else level.value,
        since=_moment("since", since),
        until=_moment("until", until),
        text=text,
        parts=parse_filter(filtering or "", LOG_WORDS, is_strict=False),
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which part of the matching lines, and how."""

    follow: bool
    tail: int
    limit: int
    cursor: str | None
    order: str


def _asked(
    follow: Annotated[bool, Query(description="Stream new lines as they arrive.")] = False,
    tail: Annotated[int, Query(ge=0, le=TAIL_MAX, description="With `follow`: how many older lines come first.")] = 0,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=200, description="The `next` of the page before.")] = None,
    order: Literal["newest", "oldest"] = "newest",
) -> _Asked:
    return _Asked(follow, tail, limit, cursor, order)


def log_routes(reading: LogReading) -> Routes:
    router = Router(tags=["logs"])

    @router.get("/api/v1/logs", summary="Read or follow log lines", response_model=LogLinesBody, responses=RESPONSES)
    async def list_logs(
        request: Request,
        caller: CallerOf,
        query: Annotated[LogFilter, Depends(_wanted)],
        asked: Annotated[_Asked, Depends(_asked)],
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", description="Resume after it.")] = None,
    ) -> Response:
        """A page looks at a bounded number of lines: with a rare text it may have few lines, or none, and still have
        a next one."""
        seen = await reading.as_seen(query, caller)
        if asked.follow or request.headers.get("accept", "").startswith(EVENT_STREAM):
            after = cursor_from(last_event_id, None)
            return EventStream(_frames(reading, seen, after, asked.tail), request.app.state.stopping)
        return await _page(reading, seen, asked)

    return Routes(router, ACTIONS)


def alias_log_routes(reading: LogReading) -> Routes:
    """`GET /api/logs`, as dashboards of Orchion read it."""
    router = Router(tags=["logs"])

    @router.get("/api/logs", summary="Follow log lines, as clients of Orchion do", responses=RESPONSES)
    async def follow_logs_as_orchion(request: Request, caller: CallerOf) -> Response:
        seen = await reading.as_seen(LogFilter(), caller)
        stream = _orchion_frames(reading, seen)
        return EventStream(stream, request.app.state.stopping, ping_seconds=ORCHION_PING_SECONDS, ping=_keepalive)

    return Routes(router, ALIAS_ACTIONS)


def lines_json(lines: Iterable[StoredLine]) -> Iterator[str]:
    """Each as a `LogLineBody`. They are written by hand because followers are sent thousands a second: `json` takes
    three times as long."""
    last, shown = None, ""
    for stored in lines:
        if stored.origin is not last:  # they follow each other, mostly
            last, shown = stored.origin, _encode(_origin_body(stored.origin))[1:-1]
        line = stored.line
        at = line.at.isoformat(timespec="milliseconds")
        fields = ",".join([f"{_quoted(name)}:{_quoted(str(value))}" for name, value in line.fields.items()])
        yield (
            f'{{"id":{stored.id},"at":"{at}","level":{_quoted(line.level)},{shown},"text":{_quoted(line.text)}'
            f',"fields":{{{fields}}}}}'
        )


def _origin_body(origin: Origin) -> Mapping[str, str]:
    return {
        "site": origin.site,
        "node": origin.node,
        "source": origin.source,
        "deployment": origin.subject if origin.kind == SourceKind.DEPLOYMENT else "",
        "component": origin.component,
        "job": origin.subject if origin.kind == SourceKind.JOB else "",
    }


async def _page(reading: LogReading, query: LogFilter, asked: _Asked) -> Response:
    after, order = None, asked.order
    if asked.cursor is not None:
        given, key = decode_cursor(LOGS, asked.cursor)
        if given != order:
            raise BadCursor(f'belongs to the lines in the order "{given}".')
        after = int(key[0])  # type: ignore[arg-type]
    found = await reading.store.find(query, is_newest_first=order == "newest", after=after, limit=asked.limit)
    following = None if found.next is None else encode_cursor("logs", order, (found.next,))
    body = f'{{"lines":[{",".join(lines_json(found.lines))}],"next":{_encode(following)}}}'
    return Response(body, media_type="application/json")


async def _frames(reading: LogReading, query: LogFilter, after: int | None, tail: int) -> AsyncIterator[bytes]:
    newest = await reading.tail.newest()
    cursor = newest if after is None else min(after, newest)
    if after is None and tail:
        lines = await reading.last(query, tail, before=newest + 1)
        yield _log_frames(lines)
    # Its id is where to resume when no line follows.
    yield frame({"last_line_id": cursor}, event="live", event_id=cursor)
    async for news in follow(reading.tail, query, cursor):
        yield _rendered(news)


def _rendered(news: TailedLines) -> bytes:
    if "sse" not in news.rendered:
        gap = frame({"missed": news.missed}, event="gap") if news.missed else b""
        news.rendered["sse"] = gap + _log_frames(news.lines)
    return news.rendered["sse"]


def _log_frames(lines: Sequence[StoredLine]) -> bytes:
    texts = zip(lines, lines_json(lines), strict=True)
    return "".join(f"id: {stored.id}\nevent: log\ndata: {text}\n\n" for stored, text in texts).encode()


async def _orchion_frames(reading: LogReading, query: LogFilter) -> AsyncIterator[bytes]:
    yield _data({"type": "connected"})
    async for news in follow(reading.tail, query, await reading.tail.newest()):
        if "orchion" not in news.rendered:
            news.rendered["orchion"] = b"".join(_data({"type": "log", "entry": _entry(line)}) for line in news.lines)
        yield news.rendered["orchion"]


def _entry(stored: StoredLine) -> dict[str, Any]:
    line, origin = stored.line, stored.origin
    source = f"node-agent:{origin.node}" if origin.kind == SourceKind.NODE else origin.source
    return {
        "id": str(stored.id),
        "timestamp": int(line.at.timestamp() * 1000),
        "level": "warn" if line.level == LogSeverity.WARNING else line.level,
        "source": "orchestrator" if origin.kind == SourceKind.CENTRAL else source,
        "message": line.text,
        "fields": dict(line.fields),
    }


def _keepalive() -> bytes:
    return _data({"type": "keepalive", "timestamp": int(datetime.now(UTC).timestamp() * 1000)})


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body, separators=(',', ':'), ensure_ascii=False)}\n\n".encode()


def _moment(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    seconds = seconds_of(text)
    try:
        if seconds is not None:
            return datetime.now(UTC) - timedelta(seconds=seconds)
        given = datetime.fromisoformat(text)
        return given.astimezone(UTC) if given.tzinfo is not None else given.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        message = f'"{text}" is neither a time such as 2030-01-31T12:00:00Z nor a span such as 5m'
        raise InvalidInput(problems=[Problem(name, message)]) from error
