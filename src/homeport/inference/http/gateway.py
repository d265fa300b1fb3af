"""`/v1`: what OpenAI's clients send, through the same admission, queue, accounting and cancellation as tasks.

Where the engine speaks OpenAI's language itself, bytes are passed through as they come; only the final usage is read.
Before the first byte has reached the client, one other replica may be tried. No request is made durable here: its
connection is its client, and breaks with the process.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
from starlette.types import Receive, Scope, Send

from homeport.core.inference.engines.answers import code_of_status, is_success, sentence_of
from homeport.core.inference.task import MAX_TOKENS_CAP, Priority, Refusal, Task, TaskCode, TaskRefused, WorkloadKind
from homeport.inference.http.completions import Completion, prompt_of, sampling_of
from homeport.inference.http.errors import openai_error, openai_from_engine, refuse_openai
from homeport.inference.http.exchange import Exchange
from homeport.inference.http.usage import StreamMeter, estimate_of, usage_of
from homeport.inference.plane import Submitter, TaskPlane
from homeport.inference.pools.replica import Replica
from homeport.inference.tasks.bodies import PREFIX_CHARACTERS
from homeport.inference.tasks.scheduler import Ticket
from homeport.lazy_dataclass import dataclass
from homeport.ports.engine import EngineFailed, Finished, Generation, OpenExchange
from homeport.serving.request_ids import new_uuid
from homeport.serving.server.draining import RequestUnderWay

SSE: Final = "text/event-stream"
DEFAULT_MAX_TOKENS: Final = 256
"""For engines that have no `/v1` of their own and need a number."""
SAY_SECONDS: Final = 2.0
"""How long the last word of a request that was ended may take."""
_FORM_MODEL: Final = re.compile(rb'name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,512})\r\n')
_PATH: Final = re.compile(r"/v1(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}){1,8}", re.ASCII)
"""What is passed on to an engine: nothing that leads out of its `/v1`, or that it would read as a query."""
_FORWARDED: Final = ("accept", "content-type")
_SEE_MODELS: Final = "GET /v1/models lists what there is."
_SHOWN: Final = frozenset({400, 404, 413})
"""Statuses of an engine's refusals that its clients see; others, such as 422, become 400."""
_WITH_USAGE: Final = b',"stream_options":{"include_usage":true}}'


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """A request of `/v1`, as far as it matters here."""

    path: str
    body: bytes
    data: dict[str, Any] | None
    """None for what is not JSON, such as uploaded audio."""
    model: str
    is_stream: bool
    shows_usage: bool
    headers: Mapping[str, str]


class Gateway:
    def __init__(self, plane: TaskPlane) -> None:
        self._plane = plane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            asked = _read(exchange, await exchange.body())
            await self._serve(exchange, asked)
        except TaskRefused as refused:
            if not exchange.is_started:
                await refuse_openai(exchange, refused.refusal)

    async def _serve(self, exchange: Exchange, asked: GatewayRequest) -> None:
        plane, submitter = self._plane, exchange.submitter
        task = _task(asked, exchange.headers.get("x-priority", ""), plane.settings.wall_seconds)
        ticket = self._admit(task, submitter)
        ticket.correlation_id, exchange.task_id = exchange.correlation_id, task.task_id
        plane.narrator.admitted(ticket, asked.path)
        outcome = RequestAccount(plane, ticket, lambda: estimate_of(asked.data))
        try:
            with exchange.while_connected(outcome.gone) as request:
                watch = _SlowClient(request, plane.settings.slow_client_seconds, outcome)
                plane.requests[ticket] = partial(outcome.abort, request)
                late = partial(outcome.late, request)
                limit = asyncio.get_running_loop().call_later(plane.settings.wall_seconds, late)
                try:
                    await self._attempts(exchange, asked, ticket, outcome, watch)
                finally:
                    limit.cancel()
                    watch.stop()
        except TaskRefused as refused:
            outcome.error = refused.refusal
            raise
        except asyncio.CancelledError:
            if outcome.is_aborted and outcome.error is not None:
                await _say(exchange, outcome.error)
            raise
        finally:
            plane.requests.pop(ticket, None)
            outcome.settle()

    def _admit(self, task: Task, submitter: Submitter) -> Ticket:
        try:
            return self._plane.scheduler.admit(task, caller=submitter.key, sites=submitter.sites)
        except TaskRefused as refused:
            if refused.refusal.code is TaskCode.POOL_UNAVAILABLE and not self._is_served(task.model_ref, submitter):
                text = f'There is no model "{task.model_ref[:100]}" here. {_SEE_MODELS}'
                raise TaskRefused(replace(refused.refusal, message=text, field="model")) from None
            raise

    def _is_served(self, model: str, submitter: Submitter) -> bool:
        """By a replica that the caller may use, ready or not."""
        replicas = self._plane.registry.serving(model).replicas
        return any(not submitter.sites or each.site in submitter.sites for each in replicas)

    async def _attempts(
        self,
        exchange: Exchange,
        asked: GatewayRequest,
        ticket: Ticket,
        outcome: "RequestAccount",
        watch: "_SlowClient",
    ) -> None:
        failed: tuple[Replica, EngineFailed] | None = None
        for attempt in (1, 2):
            replica = await ticket.wait()
            outcome.begin(replica)
            try:
                if replica.engine.speaks_openai:
                    await self._pass_through(exchange, asked, replica, outcome, watch)
                else:
                    await self._translate(exchange, asked, replica, outcome, watch)
            except EngineFailed as error:
                self._plane.registry.failed(replica, error)
                if exchange.is_started:
                    outcome.error = _refusal(error)
                    await _break_off(exchange, outcome.error)
                    return
                self._plane.scheduler.release(ticket)
                if attempt == 2 or not error.may_go_elsewhere or not self._plane.scheduler.again(ticket, replica):
                    raise TaskRefused(_refusal(error)) from error
                failed = (replica, error)
            else:
                if failed is not None and failed[1].may_be_the_request and outcome.error is None:
                    self._plane.registry.blame(*failed)
                return

    # --- engines that speak OpenAI's language -------------------------------------------------------------------

    async def _pass_through(
        self,
        exchange: Exchange,
        asked: GatewayRequest,
        replica: Replica,
        outcome: "RequestAccount",
        watch: "_SlowClient",
    ) -> None:
        answer = await replica.engine.open("POST", asked.path, _for_engine(asked, replica), asked.headers)
        try:
            kind = answer.headers.get("content-type", "application/json")
            if kind.startswith(SSE) and is_success(answer.status):
                await self._stream(exchange, asked, answer, outcome, watch)
                return
            content = await _whole(answer)
            if not is_success(answer.status):
                await self._refuse(exchange, answer.status, content, outcome)
                return
            # Only what is to be JSON can be told from garbage: engines answer with sounds and subtitles too.
            must_be_json = asked.path.endswith(("completions", "embeddings"))
            outcome.finished(*usage_of(content, must_be_json=must_be_json))
            outcome.free()
            await exchange.answer(answer.status, content, kind)
        finally:
            answer.close()

    async def _refuse(self, exchange: Exchange, status: int, content: bytes, outcome: "RequestAccount") -> None:
        """The engine refused the request itself, or failed: that is raised."""
        code, text = code_of_status(status), sentence_of(status, content)
        if code is not TaskCode.INVALID_PARAMS:
            raise EngineFailed(text, code, status=status)
        outcome.error = Refusal(code, text)
        outcome.free()
        await exchange.json(status if status in _SHOWN else 400, {"error": openai_from_engine(status, content)})

    async def _stream(
        self,
        exchange: Exchange,
        asked: GatewayRequest,
        answer: OpenExchange,
        outcome: "RequestAccount",
        watch: "_SlowClient",
    ) -> None:
        meter = StreamMeter(shows_usage=asked.shows_usage, is_completion=asked.path.endswith("completions"))
        outcome.so_far = lambda: (meter.tokens_in, meter.tokens_out)
        async with aclosing(answer.chunks()) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                shown = meter.feed(chunk)
                if not shown:
                    continue
                if not exchange.is_started:
                    outcome.first_token()
                    watch.start()
                    await exchange.start(200, {"content-type": SSE, "cache-control": "no-cache"})
                watch.sending = True
                await exchange.write(shown)
                watch.sending = False
        last = meter.rest()
        if not meter.is_done:
            raise EngineFailed("The engine ended the stream before it had finished.")
        outcome.finished(meter.tokens_in, meter.tokens_out)
        if not exchange.is_started:
            await exchange.start(200, {"content-type": SSE, "cache-control": "no-cache"})
        if last:
            await exchange.write(last)
        await exchange.finish()

    # --- those that do not --------------------------------------------------------------------------------------

    async def _translate(
        self,
        exchange: Exchange,
        asked: GatewayRequest,
        replica: Replica,
        outcome: "RequestAccount",
        watch: "_SlowClient",
    ) -> None:
        if asked.data is None or asked.path not in {"/v1/chat/completions", "/v1/completions"}:
            raise EngineFailed(f"This engine has no {asked.path}.", TaskCode.INVALID_PARAMS)
        is_chat = asked.path == "/v1/chat/completions"
        request = Generation(
            model=replica.handoff.model.id,
            prompt=prompt_of(asked.data, is_chat=is_chat),
            max_tokens=min(_max_tokens(asked.data), MAX_TOKENS_CAP) or DEFAULT_MAX_TOKENS,
            seed=asked.data.get("seed") if isinstance(asked.data.get("seed"), int) else None,
            sampling=sampling_of(asked.data),
        )
        said: list[str] = []
        outcome.so_far = lambda: (None, len(said))
        done: Finished | None = None
        message = Completion(asked.model, int(self._plane.clock.now().timestamp()), is_chat=is_chat)
        async with aclosing(replica.engine.generate(request)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, Finished):
                    done = event
                    break
                if not said:
                    outcome.first_token()
                said += event.texts
                if asked.is_stream:
                    if not exchange.is_started:
                        watch.start()
                        await exchange.start(200, {"content-type": SSE, "cache-control": "no-cache"})
                    watch.sending = True
                    await exchange.write(b"".join(message.chunk(text) for text in event.texts))
                    watch.sending = False
        tokens_out = len(said) if done is None or done.tokens_out is None else done.tokens_out
        tokens_in = outcome.finished(None if done is None else done.tokens_in, tokens_out)
        reason = "stop" if done is None else done.finish_reason
        if not asked.is_stream:
            outcome.free()
            await exchange.json(200, message.whole("".join(said), reason, tokens_in, tokens_out))
            return
        if not exchange.is_started:
            await exchange.start(200, {"content-type": SSE, "cache-control": "no-cache"})
        usage = (tokens_in, tokens_out) if asked.shows_usage else None
        await exchange.write(message.last(reason, usage))
        await exchange.finish()


class RequestAccount:
    """Counts what one request has used, and gives its slot back exactly once."""

    def __init__(self, plane: TaskPlane, ticket: Ticket, estimate: Callable[[], int]) -> None:
        """`estimate` says how many tokens the engine was given, where it has not said so itself."""
        self._estimate = estimate
        self._plane = plane
        self._ticket = ticket
        self._replica: Replica | None = None
        self._began = 0.0
        self._first: float | None = None
        self._is_gone = self._is_slow = False
        self._has_ended = False
        self._tokens = (0, 0)
        self._decode_ms = 0
        self.so_far: Callable[[], tuple[int | None, int]] = lambda: (None, 0)
        """Tokens in and out of an answer under way; None where the engine has not said it."""
        self.error: Refusal | None = None
        self.is_aborted = False

    def begin(self, replica: Replica) -> None:
        self._replica = replica
        self._plane.narrator.placed(self._ticket)
        self._began = self._plane.clock.monotonic()

    def first_token(self) -> None:
        if self._first is None and self._replica is not None:
            self._first = now = self._plane.clock.monotonic()
            self._plane.metrics.first_token(
                self._replica, self._ticket.task.priority, 1000 * (now - self._ticket.since)
            )
            self._plane.narrator.started(self._ticket)

    def finished(self, tokens_in: int | None, tokens_out: int) -> int:
        """Returns how many tokens went in."""
        plane, replica, now = self._plane, self._replica, self._plane.clock.monotonic()
        assert replica is not None
        self._has_ended = True
        first = self._first or now
        decode_ms = 1000 * (now - first)
        self._decode_ms = int(decode_ms)
        replica.breaker = replica.breaker.succeeded()
        replica.measured(first_token_ms=1000 * (first - self._began), seconds=now - self._began, tokens=tokens_out)
        plane.metrics.finished(replica, self._ticket.task.priority, decode_ms=decode_ms)
        self._use(self._estimate() if tokens_in is None else tokens_in, tokens_out)
        return self._tokens[0]

    def _use(self, tokens_in: int, tokens_out: int) -> None:
        plane, ticket = self._plane, self._ticket
        self._tokens = (tokens_in, tokens_out)
        plane.metrics.used(ticket, tokens_in=tokens_in, tokens_out=tokens_out)
        plane.used(ticket, tokens_in=tokens_in, tokens_out=tokens_out)

    def free(self) -> None:
        """The engine has answered: a client that reads slowly does not keep its slot."""
        self._plane.scheduler.release(self._ticket)

    def gone(self) -> None:
        self._is_gone = True

    def slow(self) -> None:
        self._is_slow = True

    def abort(self, request: RequestUnderWay, refusal: Refusal) -> None:
        """Ends the request as failed; its client gets an error."""
        if not self._is_gone:
            self.error, self.is_aborted = refusal, True
            request.end("aborted")

    def late(self, request: RequestUnderWay) -> None:
        """As long as one task may take has passed."""
        seconds = self._plane.settings.wall_seconds
        if self._ticket.is_waiting:
            text = f"No slot became free in {seconds:g} seconds. Try again later."
            self.abort(request, Refusal(TaskCode.REPLICA_EXHAUSTED, text, retry_after_ms=1000))
        else:
            text = f"The answer was not complete after {seconds:g} seconds, the longest that a request may take."
            self.abort(request, Refusal(TaskCode.DECODE_TIMEOUT, text))

    def settle(self) -> None:
        canceled = ""
        if not self._has_ended:
            if self.error is None:
                canceled = "disconnect" if self._is_gone else "slow_client" if self._is_slow else "interrupted"
            if self._replica is not None:
                self._replica.breaker = self._replica.breaker.abandoned()
                self._use_so_far(is_canceled=bool(canceled))
        self._plane.narrator.ended(
            self._ticket,
            tokens_in=self._tokens[0],
            tokens_out=self._tokens[1],
            decode_ms=self._decode_ms,
            canceled=canceled,
            error=self.error,
        )
        if canceled:
            self._plane.metrics.canceled(self._ticket, canceled)
        self._plane.scheduler.release(self._ticket)

    def _use_so_far(self, *, is_canceled: bool) -> None:
        """Who hangs up has used what the engine was given, and what it generated until then; so has an answer that
        broke off. What failed or was refused before its first token has used nothing."""
        tokens_in, tokens_out = self.so_far()
        if tokens_in is None:
            tokens_in = self._estimate() if is_canceled or tokens_out else 0
        self._use(tokens_in, tokens_out)


class _SlowClient:
    """Ends a request whose client has not read for too long, with one timer for the whole request."""

    def __init__(self, request: RequestUnderWay, seconds: float, outcome: RequestAccount) -> None:
        self.sending = False
        self._outcome = outcome
        self._request = request
        self._seconds = seconds
        self._was_sending = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """When the answer begins to be streamed."""
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def _look(self) -> None:
        if self.sending and self._was_sending:
            self._outcome.slow()
            self._request.end("slow client")
            return
        self._was_sending = self.sending
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


async def list_models(plane: TaskPlane, exchange: Exchange) -> None:
    await exchange.json(200, {"object": "list", "data": list(_models(plane, exchange.submitter).values())})


async def get_model(plane: TaskPlane, exchange: Exchange) -> None:
    name = exchange.params["model"]
    found = _models(plane, exchange.submitter).get(name)
    if found is None:
        text = f'There is no model "{name[:100]}" here.'
        await refuse_openai(exchange, Refusal(TaskCode.NOT_FOUND, text, field="model"))
        return
    await exchange.json(200, found)


async def refuse_path(plane: TaskPlane, exchange: Exchange) -> None:
    """Nothing is kept here that could be looked up: files, batches and finished responses are others' matter."""
    text = f"There is nothing at {str(exchange.scope['path'])[:100]}. {_SEE_MODELS}"
    await refuse_openai(exchange, Refusal(TaskCode.NOT_FOUND, text))


def _models(plane: TaskPlane, submitter: Submitter) -> dict[str, dict[str, Any]]:
    """Those that answer now, and those that a request for them loads or starts."""
    now, sites = plane.clock.monotonic(), submitter.sites
    found = {
        name: replicas[0].handoff.engine.value
        for name, replicas in plane.registry.models().items()
        if any(_is_usable(each, now) and (not sites or each.site in sites) for each in replicas)
    }
    offered = {} if plane.ports.on_request is None else plane.ports.on_request.models()
    found |= {
        name: engine
        for name, (site, engine) in offered.items()
        if (not sites or site in sites) and name not in plane.registry.models()
    }
    return {name: {"id": name, "object": "model", "created": 0, "owned_by": found[name]} for name in sorted(found)}


def _is_usable(replica: Replica, now: float) -> bool:
    """It takes requests now, or they wait until it is loaded."""
    return replica.takes_tasks(now) or replica.is_coming(now)


def _read(exchange: Exchange, body: bytes) -> GatewayRequest:
    given = exchange.headers
    headers = {name: given[name] for name in _FORWARDED if name in given}
    path = str(exchange.scope["path"])
    if _PATH.fullmatch(path) is None:
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, f"{path[:100]} is not an endpoint of a model."))
    if headers.get("content-type", "").startswith("multipart/"):
        found = _FORM_MODEL.search(body)
        if found is None:
            raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, f"The form must have a field model. {_SEE_MODELS}"))
        model = found.group(1).decode("utf-8", "replace")
        return GatewayRequest(path, body, None, model, is_stream=False, shows_usage=True, headers=headers)
    # Whatever it is called: curl calls every body a form unless a header says otherwise.
    headers["content-type"] = "application/json"
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, "The body is not JSON.")) from None
    if not isinstance(data, dict) or not isinstance(data.get("model"), str) or not 0 < len(data["model"]) <= 512:
        text = f"The body must be an object with a model. {_SEE_MODELS}"
        raise TaskRefused(Refusal(TaskCode.INVALID_PARAMS, text))
    options = data.get("stream_options")
    shows_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    return GatewayRequest(path, body, data, data["model"], data.get("stream") is True, shows_usage, headers)


def _task(asked: GatewayRequest, priority: str, wall_seconds: float) -> Task:
    data = asked.data or {}
    workload = WorkloadKind.EMBEDDING if asked.path.endswith("/embeddings") else WorkloadKind.COMPLETION
    if asked.path.endswith("/rerank"):
        workload = WorkloadKind.RERANK
    return Task(
        task_id=new_uuid(),
        session_id="",
        workload=workload,
        model_ref=asked.model,
        priority=Priority.BATCH if priority == "batch" else Priority.INTERACTIVE,
        max_tokens=min(_max_tokens(data), MAX_TOKENS_CAP),
        deadline_ms=int(wall_seconds * 1000),
        prefix=_prefix(asked.body),
    )


def _max_tokens(data: Mapping[str, Any]) -> int:
    """0 where it is not said: the engine decides."""
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        value = data.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _prefix(body: bytes) -> int | None:
    start = max(body.find(b'"messages"'), body.find(b'"prompt"'), 0)
    part = body[start : start + PREFIX_CHARACTERS]
    return hash(part) if len(part) == PREFIX_CHARACTERS else None


def _for_engine(asked: GatewayRequest, replica: Replica) -> bytes:
    """The body as the engine should have it: with its own name of the model, and asked for usage."""
    if asked.data is None:
        return asked.body
    changes: dict[str, Any] = {}
    own_name = replica.own_name_of(asked.model)
    if own_name != asked.model:
        changes["model"] = own_name
    if asked.is_stream and not asked.shows_usage and asked.path.endswith("completions"):
        given = asked.data.get("stream_options")
        if not changes and "stream_options" not in asked.data:
            spliced = _spliced(asked.body)
            if spliced is not None:
                return spliced
        changes["stream_options"] = {**(given if isinstance(given, dict) else {}), "include_usage": True}
    return json.dumps({**asked.data, **changes}).encode() if changes else asked.body


def _spliced(body: bytes) -> bytes | None:
    """The body, which is a JSON object with fields, with one more: encoding a long conversation again would cost
    milliseconds. None where it is not UTF-8."""
    text = body.rstrip()
    return text[:-1] + _WITH_USAGE if text.endswith(b"}") and b"\0" not in text[:4] else None


async def _whole(answer: OpenExchange) -> bytes:
    return b"".join([chunk async for chunk in answer.chunks()])


def _refusal(error: EngineFailed) -> Refusal:
    return Refusal(error.task_code, str(error), retry_after_ms=1000)


async def _say(exchange: Exchange, refusal: Refusal) -> None:
    """Of a request that was cancelled: within a limit, since its client may read slowly."""
    with anyio.move_on_after(SAY_SECONDS, shield=True):
        await (_break_off if exchange.is_started else refuse_openai)(exchange, refusal)


async def _break_off(exchange: Exchange, refusal: Refusal) -> None:
    """The answer has begun: the client learns of the failure inside it, and never waits in silence."""
    await exchange.write(b"data: " + json.dumps({"error": openai_error(refusal)}).encode() + b"\n\n")
    await exchange.finish()
