"""`orchion.v1.OrchionLLM` and `NodeAgent` over a real socket, with the plain client that its .proto file gives."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import anyio
import grpc
import grpc.aio
import pytest

from homeport.capability.site import SiteCapability, SitePart
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from homeport.fleet.site.platform import SitePlatform
from homeport.inference.capability import SITE_INFERENCE
from homeport.ports import InferencePorts
from homeport.site.app import SiteApp
from homeport.wire.orchion.v1 import orchestrator_pb2 as pb
from tests.integration.site.conftest import OpenSite
from tests.support.engines_on_wire import Break, openai_compatible, serve_broken, served
from tests.support.git import Person
from tests.support.local import local_channel, local_key, person_key
from tests.support.running_central import Client
from tests.support.stubs import orchestrator_pb2_grpc as pb_grpc
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

LLM = partial(pb_grpc.OrchionLLMStub)
WORDS = Handoff(engine=EngineName.FAKE, url="http://127.0.0.1:1", model=HandoffModel("words"), slots_total=1)


@asynccontextmanager
async def site_with(start: OpenSite, *engines: Handoff, **settings: Any) -> AsyncIterator[SiteApp]:
    found: list[InferencePorts] = []

    def look(platform: SitePlatform) -> SitePart:
        found.append(platform.inference)
        return SitePart()

    async with start(capabilities=[SITE_INFERENCE, SiteCapability("engine", look)], **settings) as site:
        assert found[0].pools is not None
        for each in engines:
            found[0].pools.bind(each)
        yield site


@asynccontextmanager
async def opened(start: OpenSite, *engines: Handoff, stub: Any = LLM) -> AsyncIterator[Any]:
    """A client without credentials, where the operator lets such in."""
    settings = {"orchion_address": "127.0.0.1:0", "orchion_anonymous": True}
    async with (
        site_with(start, *engines, **settings) as site,
        grpc.aio.insecure_channel(f"127.0.0.1:{site.orchion_port}") as channel,
    ):
        yield stub(channel)


def chat(*said: str, model: str = "words", **options: Any) -> pb.ChatCompletionRequest:
    messages = [pb.ChatMessage(role="user", content=each) for each in said]
    return pb.ChatCompletionRequest(model=model, messages=messages, **options)


async def parts_of(llm: Any, request: pb.ChatCompletionRequest, **options: Any) -> list[pb.ChatCompletionResponse]:
    """Asks again while the engine is not known to be well yet, as UNAVAILABLE asks for."""
    parts: list[pb.ChatCompletionResponse] = []

    async def is_answered() -> bool:
        try:
            parts[:] = [part async for part in llm.ChatCompletion(request, **options)]
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        return bool(parts)

    await eventually(is_answered, what="an answer")
    return parts


async def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    return caught.value.code().name, str(caught.value.details())


async def test_a_chat_comes_word_by_word_or_as_a_whole(person: Person, start: OpenSite) -> None:
    async with opened(start, WORDS) as llm:
        parts = await parts_of(llm, chat("red blue", max_tokens=4, stream=True))
        assert [part.choices[0].message.content for part in parts][:-1] == ["user: ", "red ", "blue ", "assistant: "]
        assert {(part.model, part.object, part.choices[0].message.role) for part in parts} == {
            ("words", "chat.completion.chunk", "assistant")
        }
        assert len({part.id for part in parts}) == 1
        assert all(part.created > 1_700_000_000 for part in parts)
        assert [part.choices[0].finish_reason for part in parts][-1] in {"stop", "length"}
        (whole,) = await parts_of(llm, chat("red blue", max_tokens=4))
        assert (whole.object, whole.choices[0].message.content) == ("chat.completion", "user: red blue assistant: ")


async def test_an_orchestrator_of_orchion_finds_an_agent_here(person: Person, start: OpenSite) -> None:
    """It calls `NodeAgent` at the address of a node that it has chosen for a model."""
    async with opened(start, WORDS, stub=pb_grpc.NodeAgentStub) as agent:
        (whole,) = await parts_of(agent, chat("red", max_tokens=3))
        assert (whole.model, whole.choices[0].message.content) == ("words", "user: red assistant: ")
        assert len(await parts_of(agent, chat("red", max_tokens=4, stream=True))) > 1
        for call, code, field in bad_calls(agent):
            found, details = await refusal(call)
            assert (found, field in details) == (code, True), details


async def test_texts_are_embedded(person: Person, start: OpenSite) -> None:
    async with served(openai_compatible()) as url:
        engine = Handoff(engine=EngineName.OPENAI, url=url, model=HandoffModel("m"), slots_total=1)
        async with opened(start, engine) as llm:
            found: list[pb.EmbeddingResponse] = []

            async def is_answered() -> bool:
                try:
                    found[:] = [await llm.Embeddings(pb.EmbeddingRequest(model="m", input=["a text"]))]
                except grpc.aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.UNAVAILABLE
                return bool(found)

            await eventually(is_answered, what="the embeddings")
            assert [(each.index, list(each.embedding)) for each in found[0].data] == [(0, [1.0, 2.0])]
            assert (found[0].model, found[0].object) == ("m", "list")


def bad_calls(llm: Any) -> Iterator[tuple[Any, str, str]]:
    yield llm.ChatCompletion(chat("hi", model="")), "INVALID_ARGUMENT", "model"
    yield llm.ChatCompletion(chat()), "INVALID_ARGUMENT", "messages"
    yield llm.ChatCompletion(chat("hi", max_tokens=-1)), "INVALID_ARGUMENT", "max_tokens"
    yield llm.ChatCompletion(chat("hi", temperature=float("nan"))), "INVALID_ARGUMENT", "temperature"
    yield llm.ChatCompletion(chat("hi", model="nothing")), "NOT_FOUND", "nothing"
    yield llm.ChatCompletion(chat("x" * 5 * 2**20)), "RESOURCE_EXHAUSTED", ""
    yield llm.Embeddings(pb.EmbeddingRequest(input=["a"])), "INVALID_ARGUMENT", "model"
    yield llm.Embeddings(pb.EmbeddingRequest(model="words")), "INVALID_ARGUMENT", "input"
    yield llm.Embeddings(pb.EmbeddingRequest(model="nothing", input=["a"])), "NOT_FOUND", "nothing"


async def test_bad_input_gets_its_status_and_names_the_field(person: Person, start: OpenSite) -> None:
    async with opened(start, WORDS) as llm:
        await parts_of(llm, chat("hi"))
        for call, code, words in bad_calls(llm):
            found, details = await refusal(call)
            assert (found, words in details) == (code, True), details
        found, details = await refusal(llm.Embeddings(pb.EmbeddingRequest(model="words", input=["a"])))
        assert (found, "no /v1/embeddings" in details) == ("INVALID_ARGUMENT", True), details


async def test_an_engine_that_dies_is_said_and_one_whose_client_leaves_is_stopped(
    person: Person, start: OpenSite
) -> None:
    async with serve_broken(Break.DIES_IN_THE_MIDDLE) as dying, serve_broken(Break.STALLS_IN_THE_MIDDLE) as stalling:
        engines = dying.handoff(model="dies"), stalling.handoff(model="stalls", pool_id="stalling")
        async with opened(start, *engines) as llm:
            await eventually(partial(_is_known, llm, "dies"), what="the engine to be bound")
            code, _ = await refusal(llm.ChatCompletion(chat("hi", model="dies", stream=True)))
            assert code == "UNAVAILABLE"
            call = llm.ChatCompletion(chat("hi", model="stalls", stream=True))
            first = await call.read()
            assert first.choices[0].message.content == "a"
            call.cancel()
            with anyio.fail_after(30):
                await stalling.cancelled.wait()
            assert stalling.running == 0, "its slot is free again"


async def _is_known(llm: Any, model: str) -> bool:
    try:
        async for _ in llm.ChatCompletion(chat("hi", model=model, stream=True)):
            return True
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.UNAVAILABLE and "engine" in str(error.details())
    return False


async def test_with_credentials_the_calls_are_those_of_people(person: Person, start: OpenSite) -> None:
    async with site_with(start, WORDS) as site:
        async with local_channel(site) as channel:
            assert await parts_of(LLM(channel), chat("hi"), metadata=person_key(site))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{site.grpc_port}") as keyless:
            assert (await refusal(LLM(keyless).ChatCompletion(chat("hi"))))[0] == "UNAUTHENTICATED"
            request = pb.EmbeddingRequest(model="words", input=["a"])
            assert (await refusal(LLM(keyless).Embeddings(request)))[0] == "UNAUTHENTICATED"


async def test_a_pool_that_is_drained_at_a_site_is_drained_after_its_restart(person: Person, start: OpenSite) -> None:
    for is_drained in (True, False):
        async with site_with(start, WORDS) as site, aiohttp.ClientSession(headers=local_key(site)) as session:
            client = Client(f"http://127.0.0.1:{site.http_port}", session)
            if is_drained:
                assert (await client.post("/v2/pools/default/drain", {"deadline_ms": 0})).status == 202
            else:
                assert (await client.get("/v2/pools/default/health")).body["draining"] is True
                assert (await client.delete("/v2/pools/default/drain")).status == 202
            assert (await client.get("/v2/pools/default/health")).body["draining"] is is_drained
