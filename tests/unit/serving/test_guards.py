"""Which addresses are local, and the sentence for those that are not."""

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from homeport.core.values.addresses import is_loopback
from homeport.errors import Refused
from homeport.serving.middleware.guards import Guard, refuse_open_bind


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_is_local(host: str) -> None:
    assert is_loopback(host)
    refuse_open_bind(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "example.org", "localhost.example.org"])
def test_anything_else_is_refused_with_what_to_do(host: str) -> None:
    with pytest.raises(Refused) as refused:
        refuse_open_bind(host, option="--http", port=9000)
    assert "without access control" in str(refused.value)
    assert "--http 127.0.0.1:9000" in str(refused.value.hint)


@pytest.mark.anyio
async def test_a_client_that_leaves_while_its_body_is_read_is_not_a_fault_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def route(scope: Scope, receive: Receive, _: Send) -> None:
        await Request(scope, receive).body()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        pytest.fail("there is nobody to answer")

    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [(b"host", b"localhost")], "scheme": "http"}
    with caplog.at_level("INFO", logger="homeport.serving"):
        await Guard(route)(scope, receive, send)
    (record,) = caplog.records
    assert (record.levelname, record.message) == ("INFO", "client left before its request was read")
