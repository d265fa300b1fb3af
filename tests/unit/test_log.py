"""The one front of logging: fields beside a constant message, and fields that a whole request shares."""

import json
import logging
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from homeport.cli.roles.logs import JsonFormatter
from homeport.log import bound, fields_of, get_log
from homeport.serving.middleware.guards import Guard

log = get_log("homeport.test")


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger, handler = logging.getLogger("homeport.test"), Lines()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def test_details_are_fields_even_when_they_are_called_like_a_records_own(lines: Lines) -> None:
    log.info("node connected", name="attic", message="hello", seconds=1)
    (record,) = lines.records
    assert record.getMessage() == "node connected"
    assert fields_of(record) == {"name": "attic", "message": "hello", "seconds": 1}


def test_a_level_that_is_off_writes_nothing(lines: Lines) -> None:
    log.debug("too much")
    assert lines.records == []


def test_an_exception_brings_its_stack_trace(lines: Lines) -> None:
    log.exception("order failed", error=ValueError("broken"))
    entry = json.loads(JsonFormatter().format(lines.records[0]))
    assert entry["level"] == "error"
    assert "ValueError: broken" in entry["exception"]


def test_bound_fields_are_in_every_line_inside_and_in_none_after(lines: Lines) -> None:
    with bound(request_id="r1", path="/a"):
        with bound(path="/b"):
            log.info("inner")
        log.warning("outer", path="/c")
    log.error("after")
    assert [fields_of(record) for record in lines.records] == [
        {"request_id": "r1", "path": "/b"},
        {"request_id": "r1", "path": "/c"},
        {},
    ]


@pytest.mark.anyio
async def test_every_line_of_a_request_carries_the_id_that_its_answer_carries(lines: Lines) -> None:
    async def route(_scope: Scope, _receive: Receive, send: Send) -> None:
        log.info("inside a route")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    sent: list[dict[str, object]] = []

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http", "method": "GET", "path": "/healthz", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"x-request-id", b"0123456789abcdef")], "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await Guard(route)(scope, receive, send)
    headers = dict(sent[0]["headers"])  # type: ignore[call-overload]  # an ASGI message has no type of its own
    assert fields_of(lines.records[0])["request_id"] == headers[b"x-request-id"].decode()
