"""What central says to a site and waits for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.adapters.system import RandomIds
from homeport.core.model.identity import IdentityKind, JoinToken
from homeport.errors import Refused
from homeport.fleet.central.sites import queries
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.ports import Addressed, ExpectNode
from homeport.vocabulary import SiteName
from homeport.wire.answers import Answer, encode_error

pytestmark = pytest.mark.anyio

HOME = SiteName("home")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXPECTED = ExpectNode(JoinToken("t", IdentityKind.NODE, HOME, "h" * 64, NOW, "ann", NOW + timedelta(hours=1)))


@asynccontextmanager
async def a_site(answer: Answer | None) -> AsyncIterator[tuple[SiteQueries, list[object]]]:
    """A site that is connected, keeps what it is told and answers each request so; None: never."""
    bus = InProcessBus()
    messages = SiteMessages(bus)
    asked = SiteQueries(messages, RandomIds(), bus)
    kept: list[object] = []

    async def listen() -> None:
        async for call in messages.listen(HOME):
            assert isinstance(call, Addressed)
            await anyio.sleep(0.05)  # A store that takes a while.
            kept.append(call.request)
            if answer is not None:
                await asked.answered(HOME, call.reply_to, answer)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        yield asked, kept
        tasks.cancel_scope.cancel()


async def test_a_site_has_done_what_it_was_told_when_that_returns() -> None:
    async with a_site({}) as (asked, kept):
        assert await asked.tell(HOME, EXPECTED)
        assert kept == [EXPECTED]


async def test_a_refusal_of_the_site_is_raised() -> None:
    async with a_site(encode_error(Refused("This token is for another site."))) as (asked, _):
        with pytest.raises(Refused, match="another site"):
            await asked.tell(HOME, EXPECTED)


async def test_an_older_site_that_never_answers_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "DONE_SECONDS_MAX", 0.2)
    async with a_site(None) as (asked, kept):
        assert await asked.tell(HOME, EXPECTED)
        assert kept == [EXPECTED]


async def test_a_site_that_is_not_connected_is_told_nothing() -> None:
    async with a_site({}) as (asked, kept):
        assert not await asked.tell(SiteName("away"), EXPECTED)
        assert kept == []
