"""The registry as an application: the same guards, authentication, access table and audit trail as the API, and
outermost a layer that translates their refusals into the format of registry clients."""

import json
from collections.abc import Mapping
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from homeport.adapters.files.disk import disk_problem
from homeport.content.registry.errors import RegistryProblem, SpecCode, envelope
from homeport.content.registry.exchange import JSON, Interrupted, RegistryExchange
from homeport.content.registry.routes import ACTIONS, CHALLENGE, HANDLERS
from homeport.content.registry.service import RegistryService
from homeport.core.access.actions import ActionTable
from homeport.errors import HomeportError, QuotaExceeded
from homeport.identity.audit import Auditor
from homeport.log import get_log
from homeport.serving.middleware.audit import Auditing
from homeport.serving.middleware.authentication import Authentication, Authenticator
from homeport.serving.middleware.authorization import Authorization, look_up
from homeport.serving.middleware.basic import BasicAsBearer
from homeport.serving.middleware.guards import Guard, GuardSettings, OnAnswer
from homeport.serving.problems import PROBLEM_JSON, problem_of, problem_response

API_VERSION: Final = (b"docker-distribution-api-version", b"registry/2.0")
BY_STATUS: Final[Mapping[int, SpecCode]] = {
    400: SpecCode.NAME_INVALID,  # a path that is refused before anything looks for it
    401: SpecCode.UNAUTHORIZED,
    403: SpecCode.DENIED,
    404: SpecCode.NAME_UNKNOWN,
    405: SpecCode.UNSUPPORTED,
    413: SpecCode.SIZE_INVALID,
    429: SpecCode.TOOMANYREQUESTS,
    503: SpecCode.UNAVAILABLE,
    507: SpecCode.UNAVAILABLE,
}

log = get_log("homeport.registry")


def registry_app(
    service: RegistryService,
    *,
    authenticator: Authenticator,
    auditor: Auditor,
    guards: GuardSettings,
    on_answer: OnAnswer,
) -> ASGIApp:
    table = ActionTable([ACTIONS])
    app: ASGIApp = _Routes(service, table)
    app = Authentication(Authorization(app, table), authenticator, table)
    return BasicAsBearer(Envelope(Auditing(Guard(app, guards, on_answer), auditor, table)))


class _Routes:
    def __init__(self, service: RegistryService, table: ActionTable) -> None:
        self._service = service
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = look_up(scope, self._table)
        assert found is not None, "nothing is reached without a row in the table of actions"
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        exchange = RegistryExchange(scope, receive, send, found.params)
        try:
            await HANDLERS[method, found.template](self._service, exchange)
        except RegistryProblem as problem:
            await _refuse(exchange, problem)
        except Interrupted:
            log.debug("registry request interrupted", path=scope["path"])
        except QuotaExceeded as error:
            await _refuse(exchange, RegistryProblem(SpecCode.DENIED, f"{error} {error.hint}", status=413))
        except HomeportError as error:
            await problem_response(problem_of(error))(scope, receive, send)
        except OSError as error:
            await _on_disk_or_line(error, exchange)


async def _refuse(exchange: RegistryExchange, problem: RegistryProblem) -> None:
    body = envelope(problem.code, str(problem), problem.detail)
    await exchange.answer(problem.status, {"Content-Type": JSON, **problem.headers}, body)


async def _on_disk_or_line(error: OSError, exchange: RegistryExchange) -> None:
    """A client that disconnects during a download is not an error."""
    if isinstance(error, ConnectionError | TimeoutError):
        log.debug("registry client went away", path=exchange.scope["path"])
        return
    found = disk_problem(error, "the registry")
    if found is None:
        raise error
    await problem_response(problem_of(found))(exchange.scope, exchange.receive, exchange.send)


class Envelope:
    """Translates problem documents into the specification's error format."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: Message | None = None

        async def sending(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], API_VERSION]}
                if _is_problem(message):
                    held = message
                    return
            elif held is not None:
                start, body = _translated(held, message.get("body", b""))
                held = None
                await send(start)
                message = {**message, "body": body}
            await send(message)

        await self._app(scope, receive, sending)


def _is_problem(start: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(PROBLEM_JSON.encode()) for name, value in start["headers"]
    )


def _translated(start: Message, body: bytes) -> tuple[Message, bytes]:
    """Problem documents are small and sent in one piece."""
    problem = json.loads(body)
    sentence = " ".join(part for part in (problem["detail"], problem.get("hint")) if part)
    content = envelope(BY_STATUS.get(start["status"], SpecCode.UNKNOWN), sentence)
    replaced = {b"content-type", b"content-length", b"www-authenticate"}
    headers = [(name, value) for name, value in start["headers"] if name not in replaced]
    headers += [(b"content-type", JSON.encode()), (b"content-length", str(len(content)).encode())]
    if start["status"] == 401:
        headers += [(name.lower().encode(), value.encode()) for name, value in CHALLENGE.items()]
    return {**start, "headers": headers}, content
