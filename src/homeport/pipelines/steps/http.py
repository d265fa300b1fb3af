"""Steps that are HTTP requests of central. Secrets are added on the way out, and masked in whatever comes back."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from homeport.adapters.network.http_calls import HttpAnswer, call
from homeport.core.model.instance import Failure
from homeport.core.pipelines.advance import Outcome
from homeport.core.pipelines.functions import as_text, json_in
from homeport.core.pipelines.limits import BODY_BYTES_MAX, OUTPUT_BYTES_MAX
from homeport.core.pipelines.model import ItemResult
from homeport.core.pipelines.reach import refusal
from homeport.core.pipelines.settings import PipelineSettings
from homeport.core.redaction import redact
from homeport.core.secrets import masked
from homeport.errors import InvalidInput, NotFound, PeerUnavailable, Problem, TooLarge
from homeport.failpoints import Point, passing
from homeport.fleet.central.secrets import Secrets
from homeport.pipelines.steps.work import Work

TEXT_MAX: Final = OUTPUT_BYTES_MAX // 2 - 4096
HEADERS_KEPT: Final = ("content-type", "location", "etag", "last-modified", "retry-after")
_OWN: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})


class HttpSteps:
    def __init__(self, settings: PipelineSettings, secrets: Secrets | None) -> None:
        self._judge = partial(_judged, settings.http_allow)
        self._secrets = secrets

    def reference(self, work: Work) -> str:
        return ""

    async def carry_out(self, work: Work) -> Outcome:
        action = work.action
        method = str(action.get("method", "GET"))
        if work.is_resumed and action.get("repeatable") is False:
            message = "Central was stopped while the request was under way, and it must not be repeated"
            return Outcome(failure=Failure("INTERRUPTED", message), is_final=True)
        again = "central was stopped while the request was under way; it is sent again\n" if work.is_resumed else ""
        headers, values = await self._headers(work)
        body = _body(work, headers)
        try:
            answer = await call(
                method,
                as_text(action["url"]),
                headers=headers,
                body=body,
                judge=self._judge,
                bytes_max=BODY_BYTES_MAX,
            )
        except PeerUnavailable as error:
            return Outcome(ItemResult(None, again), Failure("UNREACHABLE", masked(redact(str(error)), values)))
        passing(Point.PIPELINE_STEP_BEGUN)
        return _outcome(work, f"{again}{method} {redact(as_text(action['url']))}", answer, values)

    async def stop(self, work: Work) -> None:
        """The request ends with the attempt."""

    async def _headers(self, work: Work) -> tuple[dict[str, str], list[str]]:
        """With the values of secrets, which are also returned, to be masked."""
        found = {str(name): as_text(value) for name, value in (work.action.get("headers") or {}).items()}
        found.setdefault("User-Agent", "homeport")
        found.setdefault("Accept-Encoding", "identity")
        found.setdefault("Idempotency-Key", work.key)
        values: list[str] = []
        for header, name in (work.action.get("secrets") or {}).items():
            value = None
            if self._secrets is not None and work.site is not None:
                value = await self._secrets.reveal(work.site, name)
            if value is None:
                hint = f"Set it first:  homeport secrets set {work.site} {name}"
                raise NotFound(f"Site {work.site} has no secret {name}.", hint=hint)
            values.append(value)
            found[header] = f"{work.action.get('secret_prefix', '')}{value}"
        for header, value in found.items():
            if header.lower() in _OWN or any(sign in header + value for sign in "\r\n\0"):
                where = f"steps.{work.step.name}.http.headers.{header[:100]}"
                raise InvalidInput(problems=[Problem(where, "cannot be sent.")])
        return found, values


def _judged(allowed: tuple[str, ...], host: str, address: str) -> str | None:
    return refusal(host, address, allowed)


def _body(work: Work, headers: dict[str, str]) -> bytes | None:
    action: Mapping[str, Any] = work.action
    body: bytes | None = None
    if "json" in action:
        body = json.dumps(action["json"]).encode()
        headers.setdefault("Content-Type", "application/json")
    elif "body" in action:
        body = as_text(action["body"]).encode()
    if body is not None and len(body) > BODY_BYTES_MAX:
        raise TooLarge(f"The request of step {work.step.name} is larger than {BODY_BYTES_MAX} bytes.")
    return body


def _outcome(work: Work, head: str, answer: HttpAnswer, values: list[str]) -> Outcome:
    text = masked(answer.body.decode(errors="replace"), values)
    parsed = json_in(text) if len(text) <= TEXT_MAX else None
    output = {
        "status": answer.status,
        "headers": {name: answer.headers[name] for name in HEADERS_KEPT if name in answer.headers},
        "text": text[:TEXT_MAX] if parsed is None else "",
        "json": parsed,
        "truncated": len(text) > TEXT_MAX,
    }
    result = ItemResult(output, f"{head}: {answer.status}, {len(answer.body)} bytes\n{text[:4096]}\n")
    expected = work.action.get("expect")
    is_good = answer.status in expected if expected else 200 <= answer.status < 300
    if is_good:
        return Outcome(result)
    is_final = 300 <= answer.status < 500 and answer.status not in (408, 425, 429)
    return Outcome(result, Failure("HTTP_STATUS", f"The answer was {answer.status}"), is_final=is_final)
