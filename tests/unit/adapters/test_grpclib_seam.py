"""The private names of grpclib that we use are still there; where one is not, `grpclib_seam` is the place to fix."""

import pytest
from grpclib.client import Channel
from grpclib.server import Stream

from homeport.adapters.link import grpclib_seam as seam

pytestmark = pytest.mark.anyio


async def test_a_channel_has_the_names_that_we_override_and_read() -> None:
    channel = Channel("127.0.0.1", 1, config=seam.with_pings(10.0, 5.0, 5.0))
    assert [name for name in seam.CHANNEL_NAMES if not callable(getattr(Channel, name, None))] == []
    assert [name for name in seam.CHANNEL_FIELDS if not hasattr(channel, name)] == []
    channel.close()


async def test_a_call_has_its_stream_and_a_handler_can_be_made() -> None:
    assert seam.CALL_FIELD in Stream.__init__.__code__.co_names
    assert seam.handler({}) is not None


async def test_pings_are_configured() -> None:
    configuration = seam.with_pings(10.0, 5.0, 2.0)
    assert (configuration._keepalive_time, configuration._keepalive_timeout) == (10.0, 5.0)
