"""A line that breaks in the middle of a layer costs what it has torn, not the whole layer again."""

import os
from collections.abc import Iterator

import pytest

from homeport.adapters.registry.oci import RESUMES_MAX, OciRegistry
from homeport.errors import PeerUnavailable
from homeport.ports import Artifact, Layer
from tests.support.ports import free_port
from tests.support.registry import RunningRegistry
from tests.support.relay import Relay

pytestmark = pytest.mark.anyio

SIZE = 8 * 2**20
LARGE = Artifact("application/x-large", (Layer("application/octet-stream", os.urandom(SIZE)),))


@pytest.fixture
def relay(real_registry: RunningRegistry) -> Iterator[Relay]:
    host, _, port = real_registry.host.partition(":")
    relay = Relay(None, free_port(), (host, int(port)))
    relay.start()
    yield relay
    relay.stop()


async def test_a_layer_is_taken_up_where_it_broke(real_registry: RunningRegistry, relay: Relay) -> None:
    registry = OciRegistry()
    await registry.push(real_registry.repository("large"), "1", LARGE)
    relay.reserved, relay.cut_after_bytes, relay.cut_every_bytes = 0, SIZE // 10, SIZE // 5
    pulled = await registry.pull(f"oci://127.0.0.1:{relay.port}/large", "1")
    assert pulled.layers[0].content == LARGE.layers[0].content
    assert relay.cuts >= 4
    assert relay.reserved <= 1.01 * SIZE, "nothing that was read is asked for again"


async def test_a_line_that_always_breaks_is_given_up(real_registry: RunningRegistry, relay: Relay) -> None:
    registry = OciRegistry()
    await registry.push(real_registry.repository("large"), "1", LARGE)
    relay.cut_after_bytes = relay.cut_every_bytes = SIZE // 100
    with pytest.raises(PeerUnavailable):
        await registry.pull(f"oci://127.0.0.1:{relay.port}/large", "1")
    assert relay.cuts <= RESUMES_MAX + 2, "bounded"
