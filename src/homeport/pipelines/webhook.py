"""`POST /api/v1/pipelines/{name}/webhook`: open to every client, and believed by its signature alone.

Whatever is wrong (no such pipeline, no webhook, no secret, a wrong signature), the answer is the same, so that
nothing can be learned from it; central's log says what it was. Only who signs rightly learns that it is paused.
"""

import json
import uuid
from typing import Any, Final

from fastapi import Request

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.access.throttle import Throttle, address_key
from homeport.core.pipelines.model import Definition, Pipeline
from homeport.core.pipelines.signature import SIGNATURE_HEADER, TIME_HEADER, judge
from homeport.errors import Conflict, InvalidInput, PermanentError, Problem, TooManyAttempts, Unauthenticated
from homeport.fleet.central.platform import CentralPlatform
from homeport.log import get_log
from homeport.pipelines.bodies import RunBody, run_body
from homeport.pipelines.reading import read_pipeline
from homeport.pipelines.routes import PipelineName
from homeport.pipelines.service import PipelineRunRequest, Pipelines
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf, note_detail
from homeport.serving.routing import Router
from homeport.vocabulary import RunId

log = get_log("homeport.pipelines")

WEBHOOK: Final = "webhook"
PAYLOAD: Final = "payload"
"""The input that gets the whole body, where a pipeline declares it."""
_SPACE: Final = uuid.UUID("b3f4a0c6-6c5e-4a44-9d5b-0f5d7f6f1a77")
# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/pipelines/{name}/webhook"): Action("pipelines.webhook", Level.OPEN, Scope.NONE, Audit.WAIT),
}
# fmt: on


def webhook_routes(central: CentralPlatform, pipelines: Pipelines) -> Routes:
    router = Router(tags=["pipelines"])
    throttle = Throttle()

    @router.post(
        "/api/v1/pipelines/{name}/webhook",
        summary="Run a saved pipeline by a signed request",
        status_code=202,
        responses={401: {}, 409: {}, 422: {}, 429: {}},
    )
    async def pipeline_webhook(caller: CallerOf, request: Request, name: PipelineName) -> RunBody:
        """Signed with the secret that the pipeline names: header `X-Homeport-Timestamp` with the seconds since 1970,
        and `X-Homeport-Signature: sha256=` with the HMAC-SHA256, in hex, of the timestamp, a dot and the body. A
        request is accepted for five minutes; the same one again is the same run. Fields of a JSON body become the
        inputs of the same name, and the whole of it the input `payload`."""
        body = await request.body()
        found = await _believed(central, name, request, body)
        if isinstance(found, str):
            log.warning("webhook refused", pipeline=name, why=found, address=caller.address)
            seconds = throttle.failed(address_key(caller.address), central.clock.monotonic())
            if seconds:
                raise TooManyAttempts("Too many wrong requests.", retry_after_seconds=seconds)
            raise Unauthenticated("The request is not signed for a webhook of this pipeline.")
        definition, pipeline = found
        if definition.is_paused:
            raise Conflict(f"Pipeline {name} is paused.", hint=f"Resume it:  homeport pipelines resume {name}")
        run_id = RunId(str(uuid.uuid5(_SPACE, f"{name} {request.headers[SIGNATURE_HEADER]}")))
        await pipelines.check_owner(definition)
        wanted = PipelineRunRequest(definition.source, _inputs(pipeline, body), WEBHOOK, run_id)
        run = await pipelines.start(wanted, definition.owner)
        note_detail(request, run=run.id, pipeline=name)
        return run_body(run)

    return Routes(router, ACTIONS)


async def _believed(
    central: CentralPlatform, name: str, request: Request, body: bytes
) -> tuple[Definition, Pipeline] | str:
    """The pipeline, or why the request is not believed."""
    timestamp, signature = request.headers.get(TIME_HEADER, ""), request.headers.get(SIGNATURE_HEADER, "")
    if not timestamp or not signature:
        return "it is not signed"
    async with central.store.read() as reader:
        definition = await reader.pipeline(name)
    if definition is None:
        return "there is no such pipeline"
    try:
        pipeline = await central.in_thread(read_pipeline, definition.source, f"{name}.yaml")
    except PermanentError as error:
        return str(error)
    if pipeline.webhook is None or pipeline.site is None or central.secrets is None:
        return "it has no webhook"
    secret = await central.secrets.reveal(pipeline.site, pipeline.webhook.secret)
    if secret is None:
        return f"site {pipeline.site} has no secret {pipeline.webhook.secret}"
    now = central.clock.now().timestamp()
    why = judge(secret, timestamp=timestamp, signature=signature, body=body, now=now)
    return (definition, pipeline) if why is None else why


def _inputs(pipeline: Pipeline, body: bytes) -> dict[str, Any]:
    """Fields that the pipeline does not declare are passed over: senders add some as they like."""
    try:
        data = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise InvalidInput(problems=[Problem("body", "is not JSON.")]) from None
    if not isinstance(data, dict):
        raise InvalidInput(problems=[Problem("body", "must be a JSON object.")])
    found = {name: data[name] for name in pipeline.inputs if name in data}
    return {**found, PAYLOAD: data} if PAYLOAD in pipeline.inputs else found
