"""What nodes say is made durable before it is acknowledged, however long that takes."""

from collections.abc import Sequence
from datetime import UTC, datetime

import anyio
import pytest

from homeport.core.model.order import Result
from homeport.errors import TransientError
from homeport.fleet import sessions as module
from homeport.fleet.sessions import Sessions
from homeport.ports import News, NodeNews
from homeport.vocabulary import Generation, NodeId, OrderKind, SiteName
from tests.support.builders import deployment_id

pytestmark = pytest.mark.anyio

RESULT = Result(
    deployment_id=deployment_id(), generation=Generation(1), kind=OrderKind.APPLY, succeeded=True,
    at=datetime(2026, 1, 2, tzinfo=UTC),
)  # fmt: skip


async def test_news_that_cannot_be_written_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAKE_AGAIN_SECONDS", 0.0)
    sessions = Sessions(SiteName("home"), heartbeat_seconds=5.0)
    tries: list[Sequence[tuple[NodeId, NodeNews]]] = []
    is_written = anyio.Event()

    async def take(news: Sequence[tuple[NodeId, NodeNews]]) -> None:
        tries.append(news)
        if len(tries) < 3:
            raise TransientError("The disk that holds the database is full; nothing was written.")
        is_written.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sessions.digest_news, take)
        await sessions._news_in.send((NodeId("n1"), News(1, RESULT)))
        with anyio.fail_after(5):
            await is_written.wait()
        tasks.cancel_scope.cancel()
    assert tries[0] == tries[1] == tries[2]
