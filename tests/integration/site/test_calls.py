"""The two halves of a capability talk to each other, over HTTP and in one process: a site calls central, central asks
a site."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.adapters.link.central_http import open_central_link
from homeport.capability.central import CentralCapability, CentralPart
from homeport.capability.site import SiteCapability, SitePart
from homeport.central.app import CentralApp
from homeport.errors import Conflict, InvalidInput, PeerIncompatible, PeerUnavailable, Refused, UnknownKind
from homeport.ports import CentralLink
from homeport.vocabulary import SiteName
from tests.integration.site.conftest import OpenSite
from tests.support.git import Person
from tests.support.running_central import running_central

pytestmark = pytest.mark.anyio

HOME = SiteName("home")


async def answer_site(site: SiteName, body: bytes) -> bytes:
    if body == b"bad":
        raise InvalidInput("That is not a greeting.")
    if body == b"down":
        raise PeerUnavailable("The store is away.")
    if body == b"stumble":
        raise KeyError(body)
    return site.encode() + b":" + body


async def answer_central(content: Mapping[str, Any]) -> Mapping[str, Any]:
    if content.get("wait"):
        await anyio.sleep_forever()
    if content.get("refuse"):
        raise Conflict("Not now.")
    return {"echo": content["say"]}


@asynccontextmanager
async def greeting_central(data: Path, *, over_http: bool) -> AsyncIterator[tuple[CentralApp, CentralLink]]:
    greets = CentralCapability("greet", lambda _: CentralPart(from_sites={"greet": answer_site}))
    async with running_central(data, capabilities=[greets]) as (central, client):
        if not over_http:
            yield central, central.link
            return
        async with open_central_link(client.url, local_keys=central.parts.settings.access_folder) as link:
            yield central, link


@pytest.mark.parametrize("over_http", [True, False], ids=["http", "direct"])
async def test_a_site_calls_its_counterpart_at_central(tmp_path: Path, *, over_http: bool) -> None:
    async with greeting_central(tmp_path / "central", over_http=over_http) as (_, link):
        assert await link.call(HOME, "greet", b"hello \x00") == b"home:hello \x00"
        with pytest.raises(Refused, match="not a greeting"):
            await link.call(HOME, "greet", b"bad")
        with pytest.raises(Refused, match="could not take this call: KeyError"):
            await link.call(HOME, "greet", b"stumble")
        with pytest.raises(PeerUnavailable, match="store is away"):
            await link.call(HOME, "greet", b"down")
        with pytest.raises(PeerIncompatible, match="does not know calls"):
            await link.call(HOME, "future", b"")


@pytest.mark.parametrize("over_http", [True, False], ids=["http", "direct"])
async def test_central_asks_its_counterpart_at_a_site(
    person: Person, start: OpenSite, tmp_path: Path, *, over_http: bool
) -> None:
    asked = SiteCapability("greet", lambda _: SitePart(asked={"greet": answer_central}))
    async with greeting_central(tmp_path / "central", over_http=over_http) as (central, link):
        questions = central.parts.questions
        with pytest.raises(PeerUnavailable, match="not connected"):
            await questions.ask(HOME, "greet", {"say": 1})
        async with start(central=link, capabilities=[asked]):
            with anyio.fail_after(60):
                while True:
                    try:
                        await questions.ask(HOME, "greet", {"say": 0})
                        break
                    except PeerUnavailable:
                        await anyio.sleep(0.05)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(questions.ask, HOME, "greet", {"wait": True})
                # An answer that is long in coming delays no other.
                assert await questions.ask(HOME, "greet", {"say": "hi"}) == {"echo": "hi"}
                tasks.cancel_scope.cancel()
            with pytest.raises(Conflict, match="Not now"):
                await questions.ask(HOME, "greet", {"refuse": True})
            with pytest.raises(Refused, match="could not answer: KeyError"):
                await questions.ask(HOME, "greet", {"nothing": "to say"})
            with pytest.raises(UnknownKind, match="future"):
                await questions.ask(HOME, "future", {})
            assert await questions.ask(HOME, "greet", {"say": "still here"}) == {"echo": "still here"}
