"""The node and its link: beats, broken streams, restarts of the site, farewells."""

import time
from contextlib import suppress
from dataclasses import replace

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.core.model.node import NodeInfo
from homeport.core.model.protocol import OWN, VERSION, PeerProtocol
from homeport.errors import PeerUnavailable
from homeport.vocabulary import NodeId
from tests.integration.node.conftest import Bench
from tests.support.builders import deployment_id
from tests.support.listening import outliving
from tests.support.orders import a_component, to_apply
from tests.support.ports import free_port
from tests.support.scripted_site import ScriptedSite
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


def _without_free_space(info: NodeInfo) -> NodeInfo:
    return replace(info, capabilities=replace(info.capabilities, disk_free_bytes=0))


async def test_a_node_beats_as_often_as_its_site_asks(bench: Bench) -> None:
    bench.site.heartbeat_seconds = 0.1
    async with bench.connected():
        began = time.monotonic()
        await bench.site.until(lambda: bench.site.beats >= 8)
        assert time.monotonic() - began >= 0.6, "no more often, however busy the machine is"


async def test_a_node_comes_back_by_itself_after_its_site_restarts(bench: Bench) -> None:
    async with bench.node():
        async with bench.site.serving(bench.port):
            await bench.site.until(lambda: len(bench.site.hellos) == 1)
            await bench.site.order(to_apply(1))
        await anyio.sleep(0.3)
        async with bench.site.serving(bench.port):
            await bench.site.until(lambda: len(bench.site.hellos) == 2)
            first, again = (_without_free_space(hello.info) for hello in bench.site.hellos)
            assert first == again
            assert (await bench.site.order(to_apply(2, a_component(revision="2.0.0")))).succeeded


async def test_a_result_is_sent_again_on_every_stream_until_it_is_acknowledged(bench: Bench) -> None:
    bench.site.acknowledges = False
    async with bench.node():
        async with bench.site.serving(bench.port):
            await bench.site.until(lambda: bench.site.hellos)
            await bench.site.order(to_apply(1))
        async with bench.site.serving(bench.port):
            await bench.site.until(lambda: len(bench.site.results) == 2)
    bench.site.acknowledges = True
    async with bench.connected():
        await bench.site.until(lambda: len(bench.site.results) == 3)
        sequences = {each.sequence for each in bench.site.news if each.sequence}
        assert sequences == {1}
        # A node reads one message after the other: what it does next, it does after the acknowledgement.
        await bench.site.order(to_apply(1, key=deployment_id(2)))
    hellos = len(bench.site.hellos)
    async with bench.connected():
        await bench.site.until(lambda: len(bench.site.hellos) > hellos)
        await bench.site.order(to_apply(1, key=deployment_id(3)))
        assert [each.deployment_id for each in bench.site.results].count(deployment_id()) == 3


async def test_work_that_ends_while_the_link_is_down_is_reported_after(bench: Bench) -> None:
    async with bench.node():
        async with bench.site.serving(bench.port):
            await bench.site.until(lambda: bench.site.hellos)
            await bench.site.send(to_apply(1, a_component(seconds=0.4)))
            await bench.site.until(lambda: "creating" in bench.site.steps(1))
        await anyio.sleep(0.6)
        assert not bench.site.results
        async with bench.site.serving(bench.port):
            await bench.site.until(lambda: bench.site.results)
            assert bench.site.results[0].succeeded


async def test_a_node_that_was_dismissed_stays_away_and_keeps_its_workloads(bench: Bench) -> None:
    async with bench.connected() as runtime:
        order = to_apply(1)
        await bench.site.order(order)
        await bench.site.dismiss("removed by a person")
        await anyio.sleep(0.5)
        assert len(bench.site.hellos) == 1
        await runtime.remove(order.deployment_id, "web", remove_images=False)
        await eventually(lambda: runtime.observe(order.deployment_id), what="it to be started again")


async def test_a_stop_says_good_bye_only_when_it_is_asked_to(bench: Bench) -> None:
    async with bench.connected():
        pass
    assert not bench.site.gone
    leaving = bench.with_settings(leave_on_stop=True)
    async with leaving.site.serving(leaving.port):
        async with leaving.node():
            await leaving.site.until(lambda: len(leaving.site.hellos) == 2)
        assert leaving.site.gone == ["node-under-test"]


class FreezingProxy:
    """Passes bytes on, until it is frozen: then it takes them and keeps them, as a stopped site would."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._frozen: set[int] = set()
        self.connections = 0

    def freeze(self) -> None:
        self._frozen.add(self.connections)

    async def handle(self, client: SocketStream) -> None:
        self.connections += 1
        number = self.connections
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError):
            site = await anyio.connect_tcp("127.0.0.1", self._target)
            async with client, site, anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass, client, site, number, tasks.cancel_scope)
                tasks.start_soon(self._pass, site, client, number, tasks.cancel_scope)

    async def _pass(self, source: SocketStream, sink: SocketStream, number: int, scope: anyio.CancelScope) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            async for part in source:
                if number not in self._frozen:
                    await sink.send(part)
        scope.cancel()


async def test_a_site_that_falls_silent_is_noticed_and_called_again(bench: Bench) -> None:
    proxy = FreezingProxy(bench.port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    link = GrpcSiteLink("127.0.0.1", listener.extra(SocketAttribute.local_port), ping_seconds=0.2)
    async with listener, bench.site.serving(bench.port), anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, outliving(proxy.handle))
        async with bench.node(link=link):
            await bench.site.until(lambda: bench.site.hellos)
            await anyio.sleep(1.0)
            assert len(bench.site.hellos) == 1
            proxy.freeze()
            await bench.site.until(lambda: len(bench.site.hellos) == 2)
        tasks.cancel_scope.cancel()


async def test_a_link_without_a_site_says_where_it_looked() -> None:
    port = free_port()
    link = GrpcSiteLink("127.0.0.1", port)
    with pytest.raises(PeerUnavailable, match=f"cannot reach the site at 127.0.0.1:{port}"):
        async with link.connect():
            pass
    with pytest.raises(PeerUnavailable):
        await link.unregister(NodeId("nobody"))


async def test_a_broken_stream_leaves_no_cancellation_behind(bench: Bench) -> None:
    """The stream's end must not be mistaken for the end of the task that reads it."""
    site = ScriptedSite()
    link = GrpcSiteLink("127.0.0.1", bench.port)
    connected, ended = anyio.Event(), anyio.Event()

    async def read() -> None:
        with pytest.raises(PeerUnavailable):
            async with link.connect() as stream:
                connected.set()
                async for _ in stream:
                    pass
        with anyio.move_on_after(0.05):
            await anyio.sleep_forever()
        ended.set()

    async with anyio.create_task_group() as tasks:
        async with site.serving(bench.port):
            tasks.start_soon(read)
            with anyio.fail_after(60):
                await connected.wait()
        with anyio.fail_after(60):
            await ended.wait()


async def test_a_site_too_many_releases_apart_is_said_once_and_called_at_the_pace_of_a_lost_link(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench.with_settings(reconnect_max_seconds=0.4)
    bench.site.protocol = PeerProtocol(VERSION + 2)
    async with bench.site.serving(bench.port), bench.node():
        await bench.site.until(lambda: len(bench.site.hellos) == 1)
        started = anyio.current_time()
        await bench.site.until(lambda: len(bench.site.hellos) == 6)
        assert anyio.current_time() - started > 0.5
        said = [record for record in caplog.records if "Upgrade this node" in str(record.__dict__)]
        assert len(said) == 1
        assert f"The site speaks protocol {VERSION + 2} and this node speaks {VERSION}" in str(said[0].__dict__)
        bench.site.protocol = OWN
        count = len(bench.site.hellos)
        await bench.site.until(lambda: len(bench.site.hellos) > count)
        assert (await bench.site.order(to_apply(1))).succeeded, "and it works again after the upgrade"
